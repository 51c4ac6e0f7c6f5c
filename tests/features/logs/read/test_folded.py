"""Pastes whose long lines a terminal broke."""

from __future__ import annotations

import textwrap

import pytest

from rankscope.features.logs.read.model import LogContent
from tests.features.logs.read.lines import coll, info, life, log, read


def watchdog(rank: int, seq: int = 1580) -> str:
    return (
        f"[rank{rank}]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, "
        f"Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
    )


def broken(lines: list[str], width: int, end: str = "\n") -> str:
    """As a terminal of so many columns shows them."""
    pieces = [line[at : at + width] for line in lines for at in range(0, max(1, len(line)), width)]
    return "".join(f"{piece}{end}" for piece in pieces)


def told(content: LogContent) -> list[tuple[object, ...]]:
    return [
        (e.kind, e.rank, e.values.get("seq"), e.values.get("timeout_ms"), e.values.get("ran_ms"))
        for e in content.events
    ]


LOG = [
    *(info(life("Init COMPLETE", rank=r), pid=4100 + r) for r in range(4)),
    *(info(coll(op_count=i, count=123456), pid=4100 + r) for i in range(6) for r in range(4)),
    *(watchdog(r) for r in range(4)),
]


@pytest.mark.parametrize("width", [*range(76, 84), 100, 120, 132, 200])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_broken_log_says_what_the_whole_one_says(width: int, end: str) -> None:
    whole, pieces = log(*LOG), read(broken(LOG, width, end))
    assert told(pieces) == told(whole)
    assert [row._replace(offset=0, line=0, complete_offset=0) for row in pieces.comms] == [
        row._replace(offset=0, line=0, complete_offset=0) for row in whole.comms
    ]
    assert [p.torn_at for p in pieces.processes] == [None] * 4
    assert pieces.numbers.shape == whole.numbers.shape
    assert sorted(pieces.numbers[1]) == sorted(whole.numbers[1])


def test_places_are_those_of_the_file() -> None:
    text = broken(LOG, 80)
    lines = text.split("\n")
    for event in read(text).events:
        assert text.encode()[event.offset :].startswith(lines[event.line - 1].encode())
        assert lines[event.line - 1].startswith(f"[rank{event.rank}]:")


def test_lines_of_other_letters_are_counted_in_columns() -> None:
    front = "\u2713 loss \u2248 0.3 "
    assert told(read(broken([front * 5, *LOG], 80))) == told(log(*LOG))


@pytest.mark.parametrize("sign", ["Type=ALL", "DUCE", "NumelOut"])
def test_one_broken_line_is_joined_where_the_grammar_says_that_it_is_one(sign: str) -> None:
    text = watchdog(3)
    assert told(read(broken([text], text.index(sign)))) == told(log(text))


@pytest.mark.parametrize(("sign", "seq"), [("80, OpType", None), ("0000) ran", 1580)])
def test_no_number_of_a_single_line_is_read_across_a_cut(sign: str, seq: int | None) -> None:
    text = watchdog(3)
    event = read(broken([text], text.index(sign))).events[0]
    assert (event.kind, event.rank, event.torn) == ("watchdog-timeout", 3, True)
    assert (event.values["seq"], event.values["timeout_ms"]) == (seq, None)


def test_the_end_of_a_line_that_does_not_go_on_is_not_believed_where_lines_are_broken() -> None:
    text = [watchdog(rank) for rank in range(4)]
    width = text[0].index("80, OpType")
    content = read(f"{broken([*LOG[:20], *text[:3]], width)}{text[3][:width]}\n{broken(text[:1], width)}")
    assert {(e.rank, e.values["seq"]) for e in content.events if e.kind == "watchdog-timeout"} == {
        (0, 1580), (1, 1580), (2, 1580), (3, None),
    }  # fmt: skip


ORDINARY = {
    "lines of one width": [watchdog(r) for r in range(4)],
    "and prints between": [line for r in range(4) for line in (watchdog(r), f"step {r}, loss 0.3")],
    "a table": ["+" + "-" * 78 + "+", *(f"| gpu {r:<73}|" for r in range(4)), watchdog(1)[:80]],
    "code": [f"[rank{r}]:     raise ValueError('{'x' * 60}')" for r in range(4)],
    "operations": [info(coll(op_count=i)) for i in range(4)],
    "operations and prints": [line for i in range(4) for line in (info(coll(op_count=i)), "loss 0.31")],
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_logs_are_left_alone(name: str) -> None:
    lines = ORDINARY[name]
    content = log(*lines)
    wider = log(*lines, "x" * 500)
    assert content.events == wider.events
    assert content.numbers.tolist() == wider.numbers.tolist()
    assert content.processes == wider.processes


def test_a_traceback_with_long_frames_is_put_together() -> None:
    frames = [f'  File "/opt/{"deep/" * 14}file_{at}.py", line {at + 7}, in step_{at}' for at in range(5)]
    lines = [
        "Traceback (most recent call last):",
        *(line for f in frames for line in (f, "    step()")),
        "ValueError: no",
    ]
    (event,) = [e for e in read(broken([*LOG[:4], *lines], 80)).events if e.kind == "traceback"]
    assert [frame[2] for frame in event.values["frames"]] == [11, 10, 9, 8, 7]
    assert event.values["exception"] == "ValueError"


def test_paragraphs_are_not_joined() -> None:
    text = textwrap.fill(" ".join(["the ranks wait for a collective that one of them has not begun"] * 20), 80)
    assert read(f"{info(life())}\n{text}\n").counts["lines"] == text.count("\n") + 2


@pytest.mark.parametrize("width", range(90, 200))
def test_what_ended_a_process_is_read_across_a_break(width: int) -> None:
    """Its first line begins with blanks, as lines of tables do; a number is never put together."""
    work = watchdog(5, 91).partition("] ")[2]
    group = "[PG ID 0 PG GUID 0(default_pg) Rank 5]"
    what = f"  what():  {group} Process group watchdog thread terminated with exception: {work}"
    lines = [
        "terminate called after throwing an instance of 'c10::DistBackendError'", what,
        f"Exception raised from checkTimeout at /pytorch/torch/{'x' * 50}/ProcessGroupNCCL.cpp:632 (most recent call):",
        f"frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f01 in /opt/v/{'x' * 60}/libc10.so)",
    ]  # fmt: skip
    events = {event.kind: event for event in read(broken(lines, width)).events}
    assert events["watchdog-timeout"].rank == 5
    cut = what.index("SeqNum=91") + 8
    assert events["watchdog-timeout"].values["seq"] == (None if cut == width else 91)
