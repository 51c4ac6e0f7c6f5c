"""Whole logs: streams, ranges, damage, bounded memory, and what ranks can be compared by."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.features.logs.read import bounded_rows, decode, log_decoder
from rankscope.features.logs.read.model import CHECKPOINT_STEP, LogContent, log_from
from rankscope.features.logs.read.stretches import LogJoiner
from rankscope.parsers import line_blocks
from rankscope.parsers.files.reader import read_file
from tests.features.logs.read.lines import coll, info, life, log, read
from tests.features.logs.read.nccl.test_operations import facts

WATCHDOG = (
    "[rank3]:[E1120 12:34:56.789012345 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=96, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600061 "
    "milliseconds before timing out."
)


def job(ranks: int = 3, steps: int = 50) -> list[str]:
    """A log of some processes in one file, with all kinds of lines."""
    lines = ["NCCL version 2.20.5+cuda12.4"]
    lines += [info(life("Init START", rank=r), pid=4100 + r) for r in range(ranks)]
    lines += [info("NCCL_DEBUG set by environment to INFO", pid=4100 + r) for r in range(ranks)]
    lines += [info(life(rank=r), pid=4100 + r) for r in range(ranks)]
    for step in range(steps):
        lines += [info(coll(count=step, op_count=step), pid=4100 + r) for r in range(ranks)]
        if step % 17 == 3:
            lines += [
                "",
                f"node-1:4100:4100 [0] init.cc:{step} NCCL WARN text",
                info("init.cc:1 -> 2"),
                "noise",
                WATCHDOG,
            ]
    lines += [info(life("Destroy COMPLETE", rank=r), pid=4100 + r) for r in range(ranks)]
    lines += [info(life(rank=r), pid=4100 + r) for r in range(ranks)] + [info(coll())]
    return lines


def sent(content: LogContent) -> LogContent:
    """What arrives of it at the other end of a pipe."""
    header = orjson.loads(orjson.dumps(content.header()))
    return log_from(header, memoryview(b"".join(bytes(part) for part in content.body())))


def in_ranges(data: bytes, parts: int) -> LogContent:
    joiner = LogJoiner()
    for part in range(parts):
        joiner.add(sent(decode.decode_part(io.BytesIO(data), len(data), part, parts)))
    return joiner.result()


def test_it_crosses_from_a_worker() -> None:
    content = log(*job())
    assert sent(content).header() == content.header()
    assert facts(sent(content)) == facts(content)
    assert len(content.events) >= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 40))
def test_ranges_say_what_the_whole_says(parts: int, ranks: int, steps: int) -> None:
    data = "".join(f"{line}\n" for line in job(ranks, steps)).encode()
    whole, joined = read(data), in_ranges(data, parts)
    assert facts(joined) == facts(whole)
    assert sorted(joined.processes) == sorted(whole.processes)
    assert sorted(c[1:] for c in joined.comms) == sorted(c[1:] for c in whole.comms)
    assert [e._replace(values={}) for e in joined.events] == [e._replace(values={}) for e in whole.events]
    assert joined.counts == whole.counts
    assert joined.rows == whole.rows
    assert [s.value for s in joined.settings] == [s.value for s in whole.settings]


@settings(max_examples=25, deadline=None)
@given(st.integers(200, 3000))
def test_blocks_of_any_size_say_the_same(size: int) -> None:
    data = "".join(f"{line}\n" for line in job()).encode()
    whole = read(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_blocks, "BLOCK_BYTES", size)
        patch.setattr(log_decoder, "FOLD_ROWS", 7)
        small = read(data)
    if size > 400:
        assert facts(small) == facts(whole)
        assert small.counts == whole.counts


def test_a_long_log_is_kept_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_rows, "TAIL_ROWS", 50)
    monkeypatch.setattr(log_decoder, "FOLD_ROWS", 100)
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 10_000)
    steps = 3 * CHECKPOINT_STEP + 10
    content = log(info(life()), *(info(coll(count=k)) for k in range(steps)))
    assert content.comms[0].collectives == content.rows == steps
    assert content.column("ordinal").tolist() == list(range(steps - 50, steps))
    assert content.column("count").tolist() == list(range(steps - 50, steps))
    assert len(content.comms[0].fingerprints) == 3


def fingerprints(counts: list[int], ops: list[str], pid: int, sends: int = 0, comm: str = "0x1") -> list[int]:
    lines = [
        info(coll(op, k + pid, count, comm=comm), pid=pid)
        for k, (count, op) in enumerate(zip(counts, ops, strict=True))
    ]
    for k in range(sends):
        lines.insert(k * 3, info(coll("Send", comm=comm, root=k % 4), pid=pid))
    return log(*lines).comms[0].fingerprints


def test_fingerprints_are_of_what_ranks_agree_on() -> None:
    steps = 2 * CHECKPOINT_STEP
    counts, ops = list(range(steps)), ["AllReduce", "Broadcast"] * CHECKPOINT_STEP
    base = fingerprints(counts, ops, 1)
    assert len(base) == 2
    assert fingerprints(counts, ops, 2, comm="0x2") == base
    assert fingerprints(counts, ops, 2, sends=100) == base
    late = [*counts[:-1], 0]
    assert fingerprints(late, ops, 1)[0] == base[0]
    assert fingerprints(late, ops, 1)[1] != base[1]
    assert fingerprints(counts, ops[1:] + ops[:1], 1)[0] != base[0]
    swapped = [counts[1], counts[0], *counts[2:]]
    early = fingerprints(swapped, ops, 1)
    assert early[0] != base[0]
    assert early[1] != base[1]


def contents(tmp_path: Path, data: bytes, name: str = "job.log") -> list[tuple[str, str | None, LogContent | None]]:
    path = tmp_path / name
    path.write_bytes(data)
    found = list(read_file(str(path), len(data)))
    return [(c.kind, c.problem, c.decoded if isinstance(c.decoded, LogContent) else None) for c in found]


def test_packed_logs(tmp_path: Path) -> None:
    data = "".join(f"{line}\n" for line in job()).encode()
    ((kind, problem, content),) = contents(tmp_path, gzip.compress(data))
    assert (kind, problem) == ("log", None)
    assert content is not None
    assert facts(content) == facts(read(data))


def test_a_torn_packed_log_keeps_what_is_whole(tmp_path: Path) -> None:
    data = "".join(f"{line}\n" for line in job(8, 2000)).encode()
    packed = gzip.compress(data)
    ((kind, problem, content),) = contents(tmp_path, packed[: len(packed) // 2])
    assert kind == "log"
    assert "damaged" in str(problem)
    assert content is not None
    assert 1000 < content.rows < 16_000


def test_events_are_read_beside_operations() -> None:
    content = log(*job())
    assert {event.kind for event in content.events} >= {"watchdog-timeout"} or content.events
    assert [event.offset for event in content.events] == sorted(event.offset for event in content.events)
    assert all(event.rank == 3 for event in content.events if "Watchdog" in event.text)
