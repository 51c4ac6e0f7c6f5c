"""Messages that mail, chat and rich wrapped at words, quoted or below the prefix of a container."""

from __future__ import annotations

import textwrap

import pytest

from rankscope.features.logs.read.log_files import looks_like_log
from tests.features.logs.read.lines import log

TIMEOUT = (
    "[rank5]:[E203 09:15:20.100000002 ProcessGroupNCCL.cpp:629] [Rank 5] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=85, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600045 milliseconds "
    "before timing out."
)
STATUS = (
    "[rank5]:[E203 09:15:20.200000002 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank 5]  failure "
    "detected by watchdog at work sequence id: 85 PG status: last enqueued work: 90, last completed work: 84"
)
RICH = (
    "[02/03/26 09:15:20] ERROR    [rank5]:[E203 09:15:20.100000002    trainer.py:188",
    "                             ProcessGroupNCCL.cpp:629] [Rank 5]",
    "                             Watchdog caught collective operation",
    "                             timeout: WorkNCCL(SeqNum=85,",
    "                             OpType=ALLREDUCE, NumelIn=64,",
    "                             NumelOut=64, Timeout(ms)=600000) ran for",
    "                             600045 milliseconds before timing out.",
    "                    INFO     step 12 loss 2.3                     trainer.py:190",
)
AROUND = ("Hi all,", "", "this is what it prints:", "", "any idea? best")


def wrapped(width: int, front: str = "") -> list[str]:
    """Both messages, wrapped at words, with other text around them."""
    lines = [part for text in (TIMEOUT, STATUS) for part in textwrap.wrap(text, width, break_long_words=False)]
    return [front + line if line else line for line in (*AROUND[:4], *lines, AROUND[4])]


def told(lines: list[str]) -> list[tuple[object, ...]]:
    """Kind, rank, number, operation and counters of the events of watchdogs."""
    names = ("seq", "op", "ran_ms", "last_enqueued", "last_completed")
    events = [event for event in log(*lines).events if event.kind in ("watchdog-timeout", "pg-status")]
    return [(event.kind, event.rank, *(event.values.get(name) for name in names)) for event in events]


EXPECTED = [
    ("watchdog-timeout", 5, 85, "ALLREDUCE", 600045, None, None), ("pg-status", 5, None, None, None, 90, 84),
]  # fmt: skip


@pytest.mark.parametrize("width", range(64, 110, 5))
@pytest.mark.parametrize("front", ["", "> ", "> > ", "trainer-1  | ", "    "])
def test_wrapped_messages_are_whole(width: int, front: str) -> None:
    assert told(wrapped(width, front)) == EXPECTED
    assert looks_like_log("\n".join(wrapped(width, front)).encode())


def test_the_columns_of_rich_are_no_text() -> None:
    assert told(list(RICH)) == EXPECTED[:1]
    (event,) = (event for event in log(*RICH).events if event.kind == "watchdog-timeout")
    assert "trainer.py" not in event.text and event.line == 1


def test_an_exception_that_was_wrapped_within_its_words() -> None:
    lines = ["[rank3]: torch.OutOfMemoryError: CUDA out of", "memory. Tried to allocate 2.00 GiB."]
    (event,) = (e for e in log(*lines).events if e.values.get("id") == "cuda-memory" or "out of memory" in e.text)
    assert event.rank == 3


def test_what_follows_a_whole_message_is_not_joined() -> None:
    lines = [TIMEOUT, "a print of the program", STATUS, "another one"]
    assert told(lines) == EXPECTED
    assert not any("print" in event.text or "another" in event.text for event in log(*lines).events)


def test_a_line_of_another_rank_or_a_head_ends_a_message() -> None:
    for after in ("[rank6]: step 3", "2026-02-03 09:15:20 step 3", "frame #0: x", "Traceback (most recent call last):"):
        cut = TIMEOUT[: TIMEOUT.index("NumelIn")].rstrip()
        events = [e for e in log(cut, after, "  more").events if e.kind == "watchdog-timeout"]
        assert [(e.rank, e.values["seq"], e.values["numel_in"]) for e in events] == [(5, 85, None)]


@pytest.mark.parametrize("width", [62, 70, 84, 92, 100, 119, 130, 150, 180])
def test_lines_broken_at_a_column_need_no_blank(width: int) -> None:
    lines = [text[at : at + width] for text in (TIMEOUT, STATUS) for at in range(0, len(text), width)]
    assert [row[:4] for row in told(lines)] == [row[:4] for row in EXPECTED]
    assert told(lines)[1][5] == 90
