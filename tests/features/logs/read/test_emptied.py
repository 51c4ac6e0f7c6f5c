"""Logs that are emptied while a program writes to them: one that does not append goes on behind as many zeros."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rankscope.features.logs.read import log_files
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.read.stretches import GrowingLog
from rankscope.parsers import line_blocks
from rankscope.parsers.files.reader import FileContent, read_file
from tests.features.logs.read.lines import coll, info, life
from tests.features.logs.read.lines import read as decoded
from tests.features.logs.read.test_decode import in_ranges
from tests.features.logs.read.test_growing import read_on

ZEROS = (1, 5_000, 1 << 16, 2 * line_blocks.BLOCK_BYTES + 5)


def lines(first: int, count: int) -> bytes:
    return "".join(f"{info(coll(count=first + n, op_count=first + n))}\n" for n in range(count)).encode()


def told(content: LogContent) -> tuple[list[int], list[tuple[str, int]], int, int]:
    """Counts of the operations, processes, lines, and torn records."""
    processes = [(row.host, row.pid) for row in content.processes]
    counts = content.column("count").tolist()
    return counts, processes, content.counts["lines"], content.counts.get("torn", 0)


def in_file(path: Path) -> FileContent:
    (found,) = read_file(str(path), path.stat().st_size)
    return found


@pytest.mark.parametrize("zeros", ZEROS)
def test_zeros_in_front_are_passed_over(tmp_path: Path, zeros: int) -> None:
    text, plain, packed = lines(7, 300), tmp_path / "nccl.4100", tmp_path / "nccl.4100.gz"
    plain.write_bytes(bytes(zeros) + text)
    packed.write_bytes(gzip.compress(bytes(zeros) + text))
    expected = told(decoded(text))
    assert expected == (list(range(7, 307)), [("node-1", 4100)], 300, 0)
    for path in (plain, packed):
        found = in_file(path)
        assert found.kind == "log" and isinstance(found.decoded, LogContent)
        assert told(found.decoded) == expected
    assert told(in_ranges(bytes(zeros) + text, 5)) == expected


@pytest.mark.parametrize("zeros", ZEROS)
def test_a_log_that_is_watched_goes_on_behind_them(tmp_path: Path, zeros: int) -> None:
    path, growing = tmp_path / "nccl.4100", GrowingLog()
    path.write_bytes(f"{info(life())}\n".encode() + lines(0, 200))
    read_on(growing, path)
    path.write_bytes(bytes(zeros) + lines(200, 2))
    read_on(growing, path)
    with path.open("ab") as file:
        file.write(lines(202, 300))
    read_on(growing, path)
    assert told(growing.content()) == (list(range(200, 502)), [("node-1", 4100)], 302, 0)


def test_what_is_emptied_while_it_is_read_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    path, growing = tmp_path / "nccl.4100", GrowingLog()
    path.write_bytes(lines(0, 400))
    read_on(growing, path)
    assert growing.start > 0
    for text in (bytes(path.stat().st_size) + lines(400, 300), lines(400, 500), lines(400, 500) + bytes(9)):
        path.write_bytes(text)
        with path.open("rb") as stream:
            # as if it had been emptied just when its mark was found to be the same
            assert not list(log_files.read_tail(stream, len(text), growing.start, growing.mark, False))


def test_what_is_emptied_between_two_steps_is_read_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "STEP_BYTES", 4_000)
    path = tmp_path / "nccl.4100"
    path.write_bytes(lines(0, 400))
    # of a log in several steps no buffer holds more than one
    with path.open("rb", buffering=1_000) as stream:
        found = log_files.read_tail(stream, path.stat().st_size, 0, "", False)
        first, stretch = next(found)
        path.write_bytes(bytes(stretch.end) + lines(400, 400))
        assert not list(found)
    assert first.column("count").tolist() == list(range(first.numbers.shape[1]))


def test_nothing_but_zeros_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_bytes(bytes(200_000))
    assert in_file(path).kind == "unknown"
