"""`rankscope watch`, and `--watch` where there is no terminal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from rankscope.cli import run
from rankscope.commands.watch import FollowedJob
from rankscope.watching.update import FollowProgress, JobUpdate
from rankscope.watching.watcher import Watcher
from tests.tui.live.drive import job, update_of

LONGEST_S = 600.0
SAMPLE = Path(__file__).parents[2] / "sample_data" / "early_return"


def rankscope(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rankscope", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """What a job left behind two hours ago."""
    folder = tmp_path / "dumps"
    shutil.copytree(SAMPLE, folder)
    for path in folder.iterdir():
        then = path.stat().st_mtime - 7200
        os.utime(path, (then, then))
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_code_says_what_was_found(old: Path, number: signal.Signals) -> None:
    process = rankscope("watch", str(old), "-f", "json")
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    assert line["schema"] == 1 and line["culprit_ranks"] == [3]
    assert line["findings"][0]["kind"] == "missing-rank"
    process.send_signal(number)
    said, complaints = process.communicate(timeout=LONGEST_S)
    assert (process.returncode, said, complaints) == (1, "", "")


def test_watch_without_a_terminal_prints_lines(old: Path) -> None:
    process = rankscope(str(old), "--watch")
    assert process.stdout is not None
    assert "rank 3 never issued" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONGEST_S) == 1
    process.communicate()


def test_until_frozen_ends_by_itself(old: Path) -> None:
    process = rankscope("watch", str(old), "--until-frozen", "--on-freeze", "echo nobody there >&2; false")
    said, complaints = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 1
    assert "rank 3 never issued" in said
    assert complaints == "rankscope: --on-freeze: the command failed with exit code 1: nobody there\n"


@pytest.mark.parametrize("path", ["later", "no/such"])
def test_a_path_that_is_not_there_is_refused_at_once(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["watch", path]) == 2
    said = f"rankscope: {path}: No such file or directory (--wait waits for a path that is still to come)"
    assert capsys.readouterr().err.splitlines() == [said]


def test_a_directory_that_may_come_is_waited_for_and_one_that_cannot_is_refused(tmp_path: Path) -> None:
    process = rankscope("watch", str(tmp_path / "no" / "such"), "--wait", "-f", "json")
    said, complaints = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 2 and "No such file" in complaints
    assert "No such file" in json.loads(said)["error"]
    process = rankscope("watch", str(tmp_path / "later"), "--wait")
    assert process.stderr is not None
    assert "No such file or directory; it is waited for" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(LONGEST_S) == 0
    process.communicate()


def test_an_attempt_cannot_be_chosen(old: Path) -> None:
    process = rankscope("watch", str(old), "--attempt", "0")
    _, complaints = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 2 and "newest attempt" in complaints


def test_how_to_follow_is_no_question_where_nothing_is_followed(old: Path) -> None:
    process = rankscope(str(old), "--freeze-after", "5")
    _, complaints = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 2 and "need --watch" in complaints


def test_what_became_of_the_command_stays_with_what_follows() -> None:
    """Until the job freezes the next time: an update that comes a moment later must not take it away."""

    class Once:
        def run(self, publish: Callable[[JobUpdate | FollowProgress], None]) -> None:
            for number in range(1, 4):
                publish(update_of(job(5), "frozen" if number == 1 else "still", number, alarm=number == 1))
                while number == 1 and not any(isinstance(one, FollowProgress) for one in got):
                    time.sleep(0.01)

        def stop(self) -> None:
            raise AssertionError("nobody stops it")

    got: list[JobUpdate | FollowProgress] = []
    FollowedJob(cast(Watcher, Once()), "exit 3", ()).run(got.append)
    said = [one.said if isinstance(one, FollowProgress) else one.reading.said for one in got]
    assert len(said) == 4 and said[-2:] == ["--on-freeze: the command failed with exit code 3"] * 2
