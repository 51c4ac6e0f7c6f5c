"""Ends of processes as lines, of the right attempt, and the times of the tracebacks beside them."""

from __future__ import annotations

import json

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.rows.process_ends import known_error
from rankscope.parsers.sidecar import decode_sidecar
from rankscope.schema import Dataset
from tests.features.logs.rules.processes import CLOSED, SECOND, Processes, closed
from tests.parsers.dumps import START_NS


def ends(found: Dataset) -> list[tuple[int, str]]:
    rows = found.messages.filter(found.messages["kind"] == "process-end").sort("rank")
    return list(rows.select("rank", "text").iter_rows())


def test_an_end_is_a_line_with_its_time_and_process() -> None:
    made = Processes(2)
    made.end(0, 5)
    made.fail(ValueError("bad\x1b[31m sample"), 1, at_s=6)
    rows = made.dataset(tracebacks=False).messages.sort("rank")
    told = rows.select("time_ns", "rank", "host", "pid", "severity", "kind", "role", "text").rows()
    left, error = "came to the end of its program", "an exception ended it: ValueError: bad [31m sample"
    assert told == [
        (START_NS + 5 * SECOND, 0, "node0", 100, "info", "process-end", "context", left),
        (START_NS + 6 * SECOND, 1, "node0", 101, "error", "process-end", "", error),
    ]


def test_a_traceback_has_the_time_of_the_end_and_is_told_once() -> None:
    made = Processes(2)
    made.fail(closed(), 1, at_s=6)
    rows = made.dataset().messages
    assert set(rows["time_ns"]) == {START_NS + 6 * SECOND}
    assert set(rows.filter(rows["kind"] == "traceback")["host"]) == {"node0"}
    assert all(json.loads(text)["utc"] for text in rows["values"])
    assert [kind for kind, role in rows.select("kind", "role").rows() if role == "victim"] == ["known-error"]


def test_a_process_that_runs_has_no_line() -> None:
    assert Processes(2).dataset().messages.is_empty()


def both() -> tuple[Processes, Processes]:
    """A run in which rank 1 failed, and the one after it, of which the ranks came to their end."""
    first, second = Processes(2, folder="earlier_1/"), Processes(2, start_s=100)
    first.fail(ValueError("bad sample"), 1, at_s=5)
    first.fail(closed(), 0, at_s=5.1)
    for rank in range(2):
        second.end(rank, 5)
    return first, second


def test_ends_of_an_earlier_attempt_do_not_count() -> None:
    first, second = both()
    found = second.dataset(more=tuple(first.sources()))
    assert ends(found) == [(0, "came to the end of its program"), (1, "came to the end of its program")]
    files = sorted([*first.sources(), *second.sources()], key=lambda source: source.shown)
    earlier = assemble(files, "dumps", None, None, 0)
    assert [text.partition(":")[0] for _, text in ends(earlier)] == ["an exception ended it"] * 2


@pytest.mark.parametrize("how", ["time", "attempt", "job"])
def test_neither_do_those_of_processes_that_left_no_dump(how: str) -> None:
    first, second = both()
    old, new = first.cards[1], second.cards
    old.dumps = set()
    if how != "time":
        assert old.ended is not None
        old.ended["time_ns"] = START_NS + 300 * SECOND
    if how == "attempt":
        old._fixed["attempt"], new[0]._fixed["attempt"] = 0, 1
    if how == "job":
        old._fixed["job"], new[0]._fixed["job"] = "4711", "4712"
    # the restarted process of rank 1 has not come to write anything
    mine = [source for source in second.sources() if source.shown.endswith("_0")] + [second.sources()[0]]
    stale = next(source for source in first.sources() if source.shown.endswith("capture_rank_1.json"))
    files = sorted([*mine, stale], key=lambda source: source.shown)
    assert ends(assemble(files, "dumps", None, None, None)) == [(0, "came to the end of its program")]


def test_the_older_of_two_sidecars_of_a_rank_does_not_count() -> None:
    first, second = Processes(1, steps=0), Processes(1, steps=0, folder="b/", start_s=100)
    for made in (first, second):
        made.cards[0].dumps = set()
    first.fail(ValueError("bad sample"), 0, at_s=1)
    second.end(0, 1)
    found = first.dataset(tracebacks=False, more=tuple(second.sources()))
    assert ends(found) == [(0, "came to the end of its program")]


def test_what_an_exception_came_of_counts_only_as_harm() -> None:
    assert known_error(f"RuntimeError: {CLOSED}", "")["role"] == "victim"
    assert known_error("TrainingError: step", f"RuntimeError: {CLOSED}")["id"] == "gloo-closed"
    assert known_error("ValueError: bad", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB") == {}
    assert known_error("ValueError: bad", "") == {}


@pytest.mark.parametrize("ended", [7, {}, {"reason": 3}, {"reason": "exit", "time_ns": "x"}, {"reason": "x" * 9_000}])
def test_whatever_stands_there_is_no_trouble(ended: object) -> None:
    told = {"rankscope_capture": 1, "rank": 0, "ended": ended, "interval_s": -1, "delay_s": "x"}
    source = SourceFile("c.json", "sidecar", 1, None, None, decode_sidecar(json.dumps(told).encode()))
    found = assemble([source], "dumps", None, None, None)
    assert found.messages.height == (1 if isinstance(ended, dict) and isinstance(ended.get("reason"), str) else 0)


def test_what_the_capture_had_begun_to_write_is_no_dump_that_is_missing() -> None:
    made = Processes(2)
    part = SourceFile(".fr_trace_rank_1.part", "empty", 0, None, "empty file")
    found = analyse(made.dataset(more=(part,)))
    assert [finding.kind for finding in found.findings] == []
