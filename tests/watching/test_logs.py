"""Logs that a process writes to are read on from where reading stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.watching.watched_file import ENDED_S
from tests.features.logs.read.test_decode import WATCHDOG
from tests.features.logs.read.test_decode import job as noisy_job
from tests.watching.following import Following, problems
from tests.watching.hand_clock import HandClock
from tests.watching.writer import Writer

PIECE = 1_000
CRASH = [
    "[rank1]: Traceback (most recent call last):",
    '[rank1]:   File "/job/train.py", line 20, in step',
    '[rank1]:     raise ValueError("loss is not a number")',
    "[rank1]: ValueError: loss is not a number",
]


def job(ranks: int, steps: int) -> list[str]:
    """The log of a job in which nothing is wrong."""
    return [line for line in noisy_job(ranks, steps) if line != WATCHDOG and "WARN" not in line and "->" not in line]


def text(path: Path, lines: list[str]) -> Path:
    """A file of lines, not where it is looked for."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("poll_s", [None, 0.2])
def test_what_is_appended_is_shown_and_only_that_is_read(tmp_path: Path, poll_s: float | None) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    log = dumps / "job.log"
    before = text(tmp_path / "before", job(2, 3_000))
    with Writer() as writer, Following(dumps, poll_s=poll_s) as following:
        writer.do("copy", before, log)
        following.until(lambda u: u.dataset.files["rows"].sum() > 5_000)
        read = following.watcher.bytes_read
        assert read >= before.stat().st_size
        writer.do("append", text(tmp_path / "crash", CRASH), log)
        update = following.until(lambda u: u.analysis.status == "failed")
        assert update.analysis.culprits == (1,)
        assert update.alarm or any(u.alarm for u in following.updates)
        assert following.watcher.bytes_read - read < 40_000


def test_a_line_in_pieces_is_one_line(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    log = text(tmp_path / "first", job(2, 10)).rename(dumps / "job.log")
    rest = "".join(f"{line}\n" for line in [*job(2, 10), *CRASH]).encode()
    with Writer() as writer, Following(dumps, clock=HandClock()) as following:
        following.until(lambda u: u.dataset.files.height == 1)
        for at in range(0, len(rest), PIECE):
            (piece := tmp_path / "piece").write_bytes(rest[at : at + PIECE])
            writer.do("append", piece, log)
            following.seen(log)
            following.turn(ENDED_S / 2)
        assert following.updates[-1].analysis.status == "failed"
        told = following.updates[-1].dataset.messages
        assert told.filter(told["kind"] == "traceback").height == 1
        assert not any(problems(u) for u in following.updates)


def test_a_rotated_log_is_not_told_twice(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    log = dumps / "job.log"
    text(log, [*job(2, 10), *CRASH])
    with Writer() as writer, Following(dumps) as following:
        following.until(lambda u: u.analysis.status == "failed")
        read = following.watcher.bytes_read
        writer.do("rename", log, dumps / "job.log.1")
        writer.do("copy", text(tmp_path / "new", job(2, 5)), log)
        update = following.until(lambda u: u.dataset.files.height == 2)
        crashes = update.dataset.messages.filter(update.dataset.messages["kind"] == "traceback")
        assert crashes["file"].n_unique() == 1
        assert following.watcher.bytes_read - read <= 3 * log.stat().st_size


def test_a_truncated_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    log = dumps / "job.log"
    text(log, [*job(2, 400), *CRASH])
    with Writer() as writer, Following(dumps) as following:
        following.until(lambda u: u.analysis.status == "failed")
        writer.do("copy", text(tmp_path / "new", job(3, 5)), log)
        update = following.until(lambda u: u.analysis.status != "failed")
        assert update.dataset.messages.filter(update.dataset.messages["kind"] == "traceback").is_empty()
