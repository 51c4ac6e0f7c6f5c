"""Children of a rank leave its files alone, however they are started; ranks that multiprocessing starts are ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.capture import lineage
from rankscope.capture.lineage import OWNER, Lineage, OwnerMark, process_ticks
from tests.capture.ranks import LONGEST_S, card, ended, running
from tests.jobs.scenarios import causes, report


def marked(monkeypatch: pytest.MonkeyPatch, joined: bool, **variables: str) -> None:
    """This process is started below one with a mark, whose launcher told it these variables."""
    for name in (*lineage.RANK_VARIABLES, *lineage.MEETING_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    rank, meeting = map(lineage._digest, (lineage.RANK_VARIABLES, lineage.MEETING_VARIABLES))
    monkeypatch.setenv(OWNER, OwnerMark("1", "7", str(int(joined)), rank, meeting).text)


@pytest.mark.parametrize(
    ("joined", "inherits", "given", "is_child", "own_launcher"),
    [
        (True, False, {}, True, False),  # a helper of a rank
        (True, True, {}, True, False),  # a worker of its DataLoader
        (True, True, {"MASTER_PORT": "7"}, True, False),  # one that gets a group of its own
        (True, False, {"RANK": "0", "MASTER_PORT": "7"}, False, True),  # a rank of another launcher, which a rank ran
        (False, True, {}, False, False),  # a rank of torch.multiprocessing.spawn, or a worker of an early DataLoader
        (False, True, {"MASTER_PORT": "7"}, False, False),
        (False, True, {"RANK": "0"}, False, True),  # a rank that is told its number by its parent
    ],
)
def test_who_is_a_child_of_a_rank(
    monkeypatch: pytest.MonkeyPatch, joined: bool, inherits: bool, given: dict[str, str], is_child: bool,
    own_launcher: bool,
) -> None:  # fmt: skip
    marked(monkeypatch, joined, RANK="1", MASTER_PORT="29500")
    monkeypatch.setattr(lineage, "is_multiprocessing_child", lambda: inherits)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = Lineage(False)
    assert (found.is_child_of_rank, found.has_own_launcher) == (is_child, own_launcher)


def test_a_rank_that_learns_its_number_later_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    marked(monkeypatch, False)
    found = Lineage(False)
    assert not found.has_own_launcher
    monkeypatch.setenv("RANK", "3")
    assert found.has_own_launcher


def test_a_program_that_starts_itself_anew_is_not_its_own_child(monkeypatch: pytest.MonkeyPatch) -> None:
    marked(monkeypatch, True)
    ticks = str(process_ticks(os.getpid()))
    monkeypatch.setenv(OWNER, OwnerMark(str(os.getpid()), ticks, "1", "", "").text)
    assert (Lineage(True).owner, Lineage(True).is_child_of_rank) == (None, False)


START = """
import os, signal, subprocess, sys, threading, time
import rankscope.capture
rankscope.capture.start("dumps", interval=0.2)

def work():
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL and threading.active_count() == 1
    assert not rankscope.capture.dump()
    time.sleep(0.5)
"""
WORKERS = """
def workers():
    import multiprocessing
    for method in ("spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 0
    helper = "import rankscope.capture; rankscope.capture.start('dumps'); assert not rankscope.capture.dump()"
    subprocess.run([sys.executable, "-c", helper], check=True)
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.5,))
    forked.start()
    forked.join()
"""
LAUNCHED = """
def main():
    import torch, torch.distributed as dist
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=rank, world_size=2)
    dist.all_reduce(torch.ones(8))
    time.sleep(0.5)
    workers()
    if rank == 1:
        raise ValueError("loss is nan")
    dist.all_reduce(torch.ones(8))

if __name__ == "__main__":
    main()
"""
SPAWNING = """
def rank(number):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=number, world_size=2)
    dist.all_reduce(torch.ones(8))
    if number == 1:
        raise ValueError("loss is nan")
    dist.all_reduce(torch.ones(8))

if __name__ == "__main__":
    import multiprocessing
    ranks = [multiprocessing.get_context(method).Process(target=rank, args=(number,))
             for number, method in enumerate(("spawn", "forkserver"))]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
"""


def accused(folder: Path) -> list[tuple[str, list[int]]]:
    return [(finding["kind"], finding["culprit_ranks"]) for finding in causes(report(folder)[1])]


@pytest.mark.torch
def test_workers_that_import_the_script_again_touch_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(START + WORKERS + LAUNCHED)
    with running([str(tmp_path / "train.py")], tmp_path) as ranks:
        assert ended(ranks) == [1, 1]
        pids = [process.pid for process in ranks]
    dumps = tmp_path / "dumps"
    assert "AssertionError" not in (tmp_path / "output_0").read_text()
    assert [card(dumps, rank)["pid"] for rank in range(2)] == pids
    assert list(dumps.glob("earlier_*")) == list(dumps.glob("job_*")) == []
    assert accused(dumps) == [("rank-failed", [1])]


@pytest.mark.torch
def test_ranks_that_multiprocessing_starts_are_ranks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(START + SPAWNING)
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    environment |= {"STORE": str(tmp_path / "store"), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "train.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=LONGEST_S, capture_output=True)
    dumps = tmp_path / "dumps"
    assert [card(dumps, rank)["ended"]["reason"] for rank in range(2)] == ["exception", "exception"]
    assert card(dumps, 1)["ended"]["error"] == "ValueError: loss is nan"
    assert list(dumps.glob("earlier_*")) == list(dumps.glob("job_*")) == []
    assert accused(dumps) == [("rank-failed", [1])]
