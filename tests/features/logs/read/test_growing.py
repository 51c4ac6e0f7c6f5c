"""Logs that grow: read from where reading stopped, they say what the whole says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.features.logs.read import log_files
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.read.stretches import GrowingLog
from rankscope.parsers.contents import LogStretch
from rankscope.parsers.files.reader import FileContent, follow_log
from tests.features.logs.read.lines import read
from tests.features.logs.read.nccl.test_operations import facts
from tests.features.logs.read.test_decode import job, sent

TRACEBACK = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 10, in main
[rank1]:     step(batch)
[rank1]:   File "/job/train.py", line 20, in step
[rank1]:     raise ValueError("loss is not a number")
[rank1]: ValueError: loss is not a number
"""


def read_on(growing: GrowingLog, path: Path, ended: bool = False) -> list[LogStretch]:
    """Reads a file on, as a worker and the program do; the stretches that were read."""
    found = [c for c in follow_log(str(path), growing.start, growing.mark, ended) if c.stretch is not None]
    for content in found:
        growing.add(*_stretch(content))
    return [content.stretch for content in found if content.stretch is not None]


def _stretch(content: FileContent) -> tuple[LogContent, LogStretch]:
    assert isinstance(content.decoded, LogContent) and content.stretch is not None
    return sent(content.decoded), content.stretch


@pytest.fixture(autouse=True)
def hold_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "HOLD_BYTES", 700)
    monkeypatch.setattr(log_files, "STEP_BYTES", 2_000)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=8), st.integers(0, 40))
def test_read_in_pieces_it_says_what_the_whole_says(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], steps: int
) -> None:
    data = "".join(f"{line}\n" for line in job(2, steps)).encode()
    path, growing, whole = tmp_path_factory.mktemp("log") / "rank.log", GrowingLog(), read(data)
    for size in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        path.write_bytes(data[:size])
        read_on(growing, path)
    content = growing.content()
    assert facts(content) == facts(whole)
    assert [e._replace(values={}) for e in content.events] == [e._replace(values={}) for e in whole.events]
    assert content.counts == whole.counts
    assert [s.value for s in content.settings] == [s.value for s in whole.settings]


def test_only_what_is_new_is_read_but_for_the_end(tmp_path: Path) -> None:
    lines = [f"{line}\n" for line in job(2, 100)]
    path, growing = tmp_path / "rank.log", GrowingLog()
    path.write_text("".join(lines))
    read_on(growing, path)
    read_before = path.stat().st_size
    with path.open("a") as file:
        file.write("".join(lines[50:60]))
    again = read_on(growing, path)
    assert again[0].start > read_before - 1_500
    assert sum(stretch.end - stretch.start for stretch in again) < 4_000


def test_a_traceback_that_arrives_in_pieces_is_one(tmp_path: Path) -> None:
    path, growing = tmp_path / "rank.log", GrowingLog()
    path.write_text("".join(f"{line}\n" for line in job(2, 5)))
    for line in TRACEBACK.splitlines(keepends=True):
        with path.open("a") as file:
            file.write(line)
        read_on(growing, path)
    told = [event for event in growing.content().events if "ValueError" in event.text]
    assert told == [event for event in read(path.read_text()).events if "ValueError" in event.text]
    assert len(told) == 1 and "step" in str(told[0].values)


def test_a_line_waits_for_its_end_unless_nothing_comes(tmp_path: Path) -> None:
    path, growing = tmp_path / "rank.log", GrowingLog()
    lines = job(2, 5)
    path.write_text("\n".join(lines))
    read_on(growing, path)
    assert growing.end == len("\n".join(lines[:-1])) + 1
    read_on(growing, path, ended=True)
    assert growing.end == path.stat().st_size


@pytest.mark.parametrize("other", ["truncated", "replaced", "longer"])
def test_another_log_in_its_place_is_read_from_its_beginning(tmp_path: Path, other: str) -> None:
    path, growing = tmp_path / "rank.log", GrowingLog()
    path.write_text("".join(f"{line}\n" for line in job(2, 40)))
    read_on(growing, path)
    assert growing.start > 0
    new = "".join(f"{line}\n" for line in job(3, 5 if other != "longer" else 90))
    if other == "truncated":
        os.truncate(path, 0)
        path.write_text(new)
    else:
        (tmp_path / "new").write_text(new)
        (tmp_path / "new").rename(path)
    assert read_on(growing, path)[0].start == 0
    assert facts(growing.content()) == facts(read(new))


def test_what_is_said_twice_changes_nothing(tmp_path: Path) -> None:
    path, growing = tmp_path / "rank.log", GrowingLog()
    path.write_text("".join(f"{line}\n" for line in job(2, 40)))
    read_on(growing, path)
    first = growing.content().header()
    assert growing.content().header() == first


def test_lines_that_tell_nothing_leave_what_it_says_as_it_is(tmp_path: Path) -> None:
    path, growing = tmp_path / "job.log", GrowingLog()
    lines = [TRACEBACK, *job(2, 40)]
    path.write_text("".join(f"{line}\n" for line in lines))
    read_on(growing, path)
    first = growing.content()
    with path.open("a") as file:
        file.write("".join(f"[rank{step % 2}]: wrote shard {step} of 100\n" for step in range(100)))
    read_on(growing, path)
    assert growing.content() is first
    with path.open("a") as file:
        file.write(TRACEBACK)
    read_on(growing, path)
    later = growing.content()
    assert later is not first and later.counts["lines"] > first.counts["lines"]
    assert len(later.events) == len(first.events) + 1
