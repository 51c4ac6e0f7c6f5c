"""`python -m rankscope.capture`: the script becomes the main program, as if nothing stood before it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.capture import settings
from rankscope.capture.__main__ import split
from rankscope.capture.settings import CaptureSettings, checked_settings, turn_recorder_on


@pytest.mark.parametrize(
    ("argv", "own", "rest"),
    [
        (["-o", "d", "train.py", "--lr", "1"], ["-o", "d"], ["train.py", "--lr", "1"]),
        (["--output=d", "-m", "pkg.train", "-o", "x"], ["--output=d"], ["-m", "pkg.train", "-o", "x"]),
        (["-o", "d", "--", "-odd.py"], ["-o", "d"], ["-odd.py"]),
        (["-h"], ["-h"], []),
    ],
)
def test_options_end_where_the_script_begins(argv: list[str], own: list[str], rest: list[str]) -> None:
    assert split(argv) == (own, rest)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rankscope.capture", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600, check=False)


SCRIPT = """
import multiprocessing, pickle, sys
from beside import WORD
class State: pass
def child(queue): queue.put(type(pickle.loads(pickle.dumps(State()))).__module__)
if __name__ == "__main__":
    assert type(pickle.loads(pickle.dumps(State()))) is State
    queue = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=child, args=(queue,))
    process.start()
    print(sys.argv, WORD, queue.get())
    process.join()
    sys.exit(3)
"""


def test_a_script_sees_its_own_arguments_directory_and_main_module(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(SCRIPT)
    (tmp_path / "src" / "beside.py").write_text("WORD = 'beside'")
    done = run(tmp_path, "-o", "dumps", "src/train.py", "--lr", "1")
    assert (done.stdout, done.stderr) == ("['src/train.py', '--lr', '1'] beside __mp_main__\n", "")
    assert done.returncode == 3


def test_a_module_runs_too(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("import sys; print(__name__, __package__, sys.argv[1:])")
    done = run(tmp_path, "-o", "dumps", "-m", "pkg.train", "--lr", "1")
    assert (done.stdout, done.stderr, done.returncode) == ("__main__ pkg ['--lr', '1']\n", "", 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "d"], "no SCRIPT and no -m MODULE given"),
        (["-o", "d", "absent.py"], "absent.py: No such file or directory"),
        (["-o", "d", "--signal", "SIGNONE", "x.py"], "no such signal: SIGNONE"),
        (["-o", "d", "--interval", "0", "x.py"], "interval must be more than 0 seconds: 0.0"),
    ],
)
def test_wrong_arguments_are_said(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_script_that_is_no_rank_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('done')")
    assert run(tmp_path, "-o", "dumps", "train.py").stdout == "done\n"
    assert not (tmp_path / "dumps").exists()


CHILDREN = """
import multiprocessing, os, sys
import rankscope.capture
def rank(number):
    os.environ["RANK"] = str(number)
    rankscope.capture.start("dumps")
if __name__ == "__main__":
    for number, method in enumerate(("fork", "spawn")):
        process = multiprocessing.get_context(method).Process(target=rank, args=(number,))
        process.start()
        process.join()
"""


def test_ranks_that_are_children_of_a_process_tell_of_their_end_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CHILDREN)
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, timeout=600)
    told = [json.loads((tmp_path / "dumps" / f"capture_rank_{rank}.json").read_bytes()) for rank in range(2)]
    assert [card["ended"]["reason"] for card in told] == ["exit", "exit"]


def test_the_directory_stays_when_the_job_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checked_settings(CaptureSettings("dumps")).directory == str(tmp_path / "dumps")


def test_the_recorder_is_turned_on_unless_somebody_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(settings, "_is_recent", lambda: False)
    assert "was not set before" in (turn_recorder_on(made=True) or "")
    assert turn_recorder_on(made=False) is None
    assert turn_recorder_on(made=False) is None
    assert os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    assert turn_recorder_on(made=False) == "the flight recorder is off: TORCH_FR_BUFFER_SIZE=0"
