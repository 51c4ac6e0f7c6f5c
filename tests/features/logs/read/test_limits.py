"""More lines that tell something than are kept."""

from __future__ import annotations

import gc
import io
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.analysis import analyse
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read import bounded_rows, comm_lives, stretches
from rankscope.features.logs.read.decode import decode_range
from rankscope.features.logs.read.log_decoder import LogDecoder
from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.read.stretches import LogJoiner
from rankscope.schema import Dataset
from tests.features.logs.read.lines import coll, info, life, log
from tests.features.logs.rows.job import MTIME_NS, lane, messages
from tests.features.logs.rows.test_reports import printed

CAUSE = "[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Two ranks with 200 fingerprints each, and a cause at the end, where there is room for 60 of all."""
    monkeypatch.setattr(bounded_rows, "MOST_EVENTS", 60)
    content = log(*(printed(rank, seq) for seq in range(200) for rank in range(2)), CAUSE)
    return assemble([SourceFile("train.log", "log", 1000, MTIME_NS, None, content)], "job", None, None, None)


def test_what_fills_a_log_does_not_push_out_the_cause(job: Dataset) -> None:
    assert job.messages.filter(role="root")["pattern"].to_list() == ["cuda-out-of-memory"]


def test_what_is_not_kept_is_said(job: Dataset) -> None:
    (text,) = messages(job, "log-cut")
    assert text.startswith("370 relevant lines were dropped")


def test_the_last_operations_are_lanes(job: Dataset) -> None:
    assert [seq for seq, _, _ in lane(job, 1, 0)] == list(range(185, 200))
    assert job.frontiers["wrapped"].to_list() == [True, True]


def test_fingerprints_of_several_groups_are_told_of() -> None:
    # two groups of the same ranks: nothing tells in which of them the broadcast was
    ops = ((0, "ALLREDUCE"), (0, "BROADCAST"), (1, "ALLREDUCE"))
    lines = [printed(rank, seq, op) for seq, op in ops for rank in range(2)]
    dataset = assemble([SourceFile("train.log", "log", 1000, MTIME_NS, None, log(*lines))], "job", None, None, None)
    (text,) = messages(dataset, "log-unplaced")
    assert text == "6 operations: fingerprints that fit several groups; their group is not known"
    assert dataset.ops.is_empty()


def test_of_a_kind_as_much_is_kept_of_a_long_log_as_of_a_short_one() -> None:
    rows = bounded_rows.BoundedKind[Event](160, lambda event: (event.kind, event.rank))
    for at in range(4000):
        rows.add([Event("often", at, at, at % 4, None, "", {})])
    assert sum(rows.left_out().values()) == 4000 - len(rows.result())
    assert len(rows.result()) >= 80


def test_of_each_kind_the_first_and_the_last_are_kept() -> None:
    rows = bounded_rows.BoundedKind[Event](8, lambda event: (event.kind, event.rank))
    for at in range(50):
        rows.add([Event("often", at, at, 0, None, "", {}), *([Event("once", at, at, 1, None, "", {})] * (at == 20))])
    done = rows.result()
    assert [(event.kind, event.offset) for event in done[:3]] == [("often", 0), ("often", 1), ("once", 20)]
    assert done[-1].offset == 49
    assert len(done) <= 16
    assert rows.left_out() == {"left out: often": 51 - len(done)}
    assert rows.seen == 51


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=300), st.integers(1, 60))
def test_never_much_more_is_kept_than_there_is_room_for(told: list[tuple[str, int]], most: int) -> None:
    rows = bounded_rows.BoundedKind[Event](most, lambda event: (event.kind, event.rank))
    for at, (kind, rank) in enumerate(told):
        rows.add([Event(kind, at, at, rank, None, "", {})])
    done = rows.result()
    assert len(done) <= max(2 * most, 16 * bounded_rows.LEAST_PER_KIND)
    assert len(done) + sum(rows.left_out().values()) == len(told)
    assert {(e.kind, e.rank) for e in done} == set(told)


def test_errors_without_end_take_room_for_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_rows, "MOST_EVENTS", 40)
    monkeypatch.setattr(bounded_rows, "MOST_WARNINGS", 20)
    lines = [line for at in range(100) for line in (f"[rank{at % 2}]: Connection reset by peer", warned(at))]
    joiner = LogJoiner()
    for _ in range(5):
        joiner.add(log(*lines))
    content = joiner.copy().result()
    assert len(content.events) <= 80
    assert len(content.warnings) <= 40
    assert content.counts["left out: WARN net.cc:1"] == 500 - len(content.warnings)
    assert content.warnings[0].line == 2
    assert content.warnings[-1].line == 1000


def warned(at: int) -> str:
    return f"node-1:4100:4100 [0] net.cc:1 NCCL WARN attempt {at} failed"


def lived(rank: int, pointer: int) -> list[str]:
    comm = f"0x{pointer:x}"
    return [info(life(step, comm, rank), pid=4100 + rank) for step in ("Init START", "Init COMPLETE")] + [
        info(coll(comm=comm), pid=4100 + rank), info(life("Destroy COMPLETE", comm, rank), pid=4100 + rank)
    ]  # fmt: skip


def test_communicators_that_ended_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "MOST_COMMS", 20)
    joiner = LogJoiner()
    joiner.add(
        log(*(info(text, pid=4100 + r) for r in range(2) for text in (life("Init START", "0x1", r), coll(comm="0x1"))))
    )
    for part in range(10):
        joiner.add(log(*(line for at in range(5) for rank in range(2) for line in lived(rank, 100 + part * 5 + at))))
    content = joiner.result()
    assert len(content.comms) <= 30
    assert content.counts["left out: communicator"] == 102 - len(content.comms)
    assert [row.pointer for row in content.comms[:2]] == ["0x1", "0x1"]
    assert [row.pointer for row in content.comms[-2:]] == ["0x95", "0x95"]
    assert [row.collectives for row in content.comms] == [1] * len(content.comms)
    assert content.code("comm").tolist() == list(range(len(content.comms)))


def test_more_communicators_leave_less_room_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_rows, "MOST_ROWS", 100)
    monkeypatch.setattr(bounded_rows, "LEAST_ROWS", 10)
    joiner = LogJoiner()
    for _ in range(10):
        joiner.add(ranged(*(info(coll(comm=f"0x{comm}", count=step)) for step in range(30) for comm in range(1, 6))))
    content = joiner.result()
    assert [row.collectives for row in content.comms] == [300] * 5
    assert content.column("ordinal").tolist() == [*range(280, 300)] * 5


def ranged(*lines: str) -> LogContent:
    data = "".join(f"{line}\n" for line in lines).encode()
    return decode_range(io.BytesIO(data), 0, None, ranged=True)


def test_a_decoder_goes_away_at_once() -> None:
    gc.disable()
    try:
        gone = weakref.ref(made := LogDecoder())
        made.line(info("Channel 00/0 : 0[0] -> 1[1] via P2P").encode(), 0, 1)
        made.line(CAUSE.encode(), 60, 2)
        made.result()
        del made
        assert gone() is None
    finally:
        gc.enable()


def test_fingerprints_that_are_mixed_accuse_nobody() -> None:
    # rank 1 does a group's collectives in another order; which group a line is of, nothing tells
    orders = {0: (0, 1, 0, 2, 1, 2), 1: (0, 0, 1, 1, 2), 2: (0, 1, 0, 2, 1, 2)}
    lines = [printed(rank, seq) for rank, order in orders.items() for seq in order]
    dataset = assemble([SourceFile("train.log", "log", 1000, MTIME_NS, None, log(*lines))], "job", None, None, None)
    found = analyse(dataset)
    assert (found.status, found.culprits) == ("unknown", ())
    assert not any(finding.candidates for finding in found.findings)
    assert messages(dataset, "log-unplaced")


def test_communicators_that_are_too_many_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm_lives, "MOST_ROWS", 3)
    content = log(*(info(life(comm=f"0x55{n:02x}")) for n in range(5)))
    assert (len(content.comms), content.counts["left out: communicator"]) == (3, 2)
    content = log(*(info("Using network IB", pid=4100 + n) for n in range(5)))
    assert (len(content.processes), content.counts["left out: process"]) == (3, 2)


def test_of_the_stacks_of_a_stream_the_last_are_kept() -> None:
    stack = 'Thread 0x00000000000000{:02x} (most recent call first):\n  File "a.py", line {} in f'
    count = bounded_rows.STACKS_PER_STREAM + 3
    content = log(*(f"{stack.format(16, at)}\nTimeout (0:00:10)!" for at in range(count)), CAUSE)
    frames = [event.values["threads"][0][3][0][2] for event in content.events if event.kind == bounded_rows.STACKS]
    assert frames == list(range(3, count))
    assert content.counts[bounded_rows.left_out(bounded_rows.STACKS)] == 3
