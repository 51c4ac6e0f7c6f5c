"""What a log says more than it did: told apart from the rest where operations are all that is new."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.parsers.logs import tailing
from rankscope.parsers.logs.growing import Growing
from rankscope.parsers.logs.model import LogContent
from tests.parsers.logs.lines import coll, info, life, read
from tests.parsers.logs.nccl.test_operations import facts
from tests.parsers.logs.test_decode import WATCHDOG
from tests.parsers.logs.test_growing import read_on

RANKS = 3
SEND = "Send: opCount {0:x} sendbuff 0x1 recvbuff 0x1 count {0} datatype 7 op 0 root 1 comm {1} [nranks=3] stream 0x2"


def begun() -> list[str]:
    """How a job begins, and its first operations."""
    lines = [info(life(rank=rank, nranks=RANKS), pid=4100 + rank) for rank in range(RANKS)]
    return [*lines, *steps(0, 5, sends=True)]


def steps(first: int, count: int, *, sends: bool = False) -> list[str]:
    """What all ranks print in some steps, not all in the same order, and with words between."""
    lines = []
    for step in range(first, first + count):
        for rank in random.Random(step).sample(range(RANKS), RANKS):
            lines.append(info(coll(count=step, op_count=step, nranks=RANKS), pid=4100 + rank))
            if sends:
                lines.append(info(SEND.format(step, "0x55bef0201370"), pid=4100 + rank))
        lines.append(f"step {step} loss 2.5")
    return lines


def text(lines: list[str]) -> bytes:
    """The bytes of lines."""
    return "".join(f"{line}\n" for line in lines).encode()


def both(content: LogContent, more: LogContent | None) -> list[tuple[object, ...]]:
    """What is said of each operation, but for how many there are."""
    rows = [*facts(content), *(facts(more) if more is not None else [])]
    return [tuple(part[:-1] if isinstance(part, tuple) else part for part in row) for row in rows]


@pytest.fixture(autouse=True)
def hold_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "HOLD_BYTES", 700)
    monkeypatch.setattr(tailing, "STEP_BYTES", 2_000)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12_000), max_size=10), st.booleans())
def test_what_was_told_and_what_is_more_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], sends: bool
) -> None:
    begin = text(begun())
    data = begin + text(steps(5, 20, sends=sends))
    path, growing = tmp_path_factory.mktemp("log") / "job.log", Growing()
    path.write_bytes(begin)
    read_on(growing, path)
    told = growing.content()
    for size in [*sorted(len(begin) + cut for cut in cuts if len(begin) + cut < len(data)), len(data)]:
        path.write_bytes(data[:size])
        read_on(growing, path)
        content, more = growing.told()
        assert content is told
        assert both(content, more) == both(read(data[: data[:size].rfind(b"\n") + 1]), None)
    assert facts(growing.content()) == facts(read(data))
    assert growing.told() == (growing.content(), None)


def test_more_of_what_has_been_told_is_counted_on_after_it_was_told_in_whole(tmp_path: Path) -> None:
    path, growing, data = tmp_path / "job.log", Growing(), text(begun())
    for first in range(5, 45, 10):
        path.write_bytes(data)
        read_on(growing, path)
        content, _ = growing.told()
        assert facts(growing.content()) == facts(read(data))
        data += text(steps(first, 10))
        path.write_bytes(data)
        read_on(growing, path)
        content, more = growing.told()
        assert more is not None and growing.told()[1] is more
        assert both(content, more) == both(read(data), None)


def test_lines_that_tell_nothing_are_no_more(tmp_path: Path) -> None:
    path, growing = tmp_path / "job.log", Growing()
    path.write_bytes(text(begun()))
    read_on(growing, path)
    told = growing.content()
    path.write_bytes(text([*begun(), "step 6"]))
    read_on(growing, path)
    assert growing.told() == (told, None)
    path.write_bytes(text([*begun(), "step 6", *steps(5, 1)]))
    read_on(growing, path)
    content, more = growing.told()
    assert content is told and more is not None
    path.write_bytes(text([*begun(), "step 6", *steps(5, 1), "step 7"]))
    read_on(growing, path)
    assert growing.told()[1] is more


@pytest.mark.parametrize(
    "line",
    [
        info(life("Destroy COMPLETE", nranks=RANKS), pid=4100),
        info(life(comm="0x77", nranks=RANKS), pid=4100),
        info(coll(comm="0x77"), pid=4100),
        info(coll(), pid=9999),
        info("NCCL_DEBUG set by environment to INFO", pid=4100),
        "node-1:4100:4100 [0] init.cc:5 NCCL WARN text",
        WATCHDOG,
        info(coll(), pid=4100)[:60],
    ],
)
def test_anything_else_that_is_new_is_told_with_all_the_rest(tmp_path: Path, line: str) -> None:
    path, growing = tmp_path / "job.log", Growing()
    path.write_bytes(text(begun()))
    read_on(growing, path)
    told = growing.content()
    data = text([*begun(), *steps(5, 2), line, *steps(7, 2)])
    path.write_bytes(data)
    read_on(growing, path)
    content, more = growing.told()
    assert more is None and content is not told
    other = Growing()
    read_on(other, path)
    assert len(facts(content)) == len(facts(other.content())) > len(facts(told))


def test_a_first_send_is_more_than_another_operation(tmp_path: Path) -> None:
    path, growing = tmp_path / "job.log", Growing()
    lines = [info(life(rank=rank, nranks=RANKS), pid=4100 + rank) for rank in range(RANKS)]
    path.write_bytes(text([*lines, *steps(0, 5)]))
    read_on(growing, path)
    growing.content()
    path.write_bytes(text([*lines, *steps(0, 5), *steps(5, 1, sends=True)]))
    read_on(growing, path)
    assert growing.told()[1] is None


def test_a_line_that_goes_on_otherwise_than_it_was_read_is_told_with_all_the_rest(tmp_path: Path) -> None:
    path, growing = tmp_path / "job.log", Growing()
    path.write_bytes(text([*begun(), info(coll(count=1)), "node-1:4100:4100 [0] init.cc:5 NCCL WARN text"]))
    read_on(growing, path)
    told = growing.content()
    trail = "node-1:4100:4100 [0] NCCL INFO init.cc:1234 -> 2"
    path.write_bytes(path.read_bytes() + text([trail, *steps(5, 1)]))
    read_on(growing, path)
    content, more = growing.told()
    assert more is None and content is not told
    assert content.warnings[0].trail
