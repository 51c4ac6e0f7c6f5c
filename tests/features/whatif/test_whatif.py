"""What a step would take without one worker, one stage, or the imbalance of sequences."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmarks.trace_jobs import make, plan

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.whatif import step_trace
from rankscope.features.whatif.model import WHAT_IF_REASON, WHAT_IF_RESULTS, WhatIf
from rankscope.features.whatif.step_graph import CircleError, StepGraph
from rankscope.features.whatif.step_trace import NUMBERS, decode_step_trace
from rankscope.features.whatif.whatif_section import json_keys, section
from rankscope.parsers.contents import NotThisKindError
from rankscope.schema import Dataset
from rankscope.schema.tables import STEP_OPS
from tests.builders import START_NS, JobBuilder

MS = 1_000_000


def job(slow_rank: int = -1, slow_stage: int = -1, uneven: float = 0.0) -> Dataset:
    """Four replicas of two stages, which compute four micro batches in each of six steps."""
    rows, random = [], np.random.default_rng(3)
    for step in range(6):
        for replica in range(4):
            lengths = np.exp(random.normal(0, uneven, 4))
            for stage in range(2):
                rank, at = 2 * replica + stage, 0
                slow = 2.0 if rank == slow_rank or stage == slow_stage else 1.0
                for kind, base in (("forward-compute", 10 * MS), ("backward-compute", 20 * MS)):
                    for micro in range(4):
                        took = int(base * slow * lengths[micro])
                        rows.append((rank, replica, stage, step, kind, at, took, micro, 0, stage, micro))
                        at += took
                rows.append((rank, replica, stage, step, "grads-reduce-scatter", at, 2 * MS, 0, 0, stage, -1))
                rows.append((rank, replica, stage, step, "optimizer", at + 2 * MS, MS, 0, -1, -1, -1))
    names = [name for name in STEP_OPS if name not in ("length", "file")]
    table = pl.DataFrame(rows, schema=names, orient="row").with_columns(length=None, file=0)
    return Dataset(step_ops=table.select(pl.col(n).cast(k) for n, k in STEP_OPS.items()), world_size=8)


def answer(dataset: Dataset) -> WhatIf:
    return WHAT_IF_RESULTS.of(analyse(dataset))


@pytest.mark.parametrize(
    ("dataset", "cause", "ranks"),
    [(job(slow_rank=3), "worker", (3,)), (job(slow_stage=1), "stage", (1, 3, 5, 7)), (job(uneven=0.6), "sequence", ())],
)
def test_the_planted_cause_is_first(dataset: Dataset, cause: str, ranks: tuple[int, ...]) -> None:
    first = answer(dataset).cause
    assert first is not None and (first.cause, first.ranks) == (cause, ranks)
    assert analyse(dataset).culprits == (ranks if cause == "worker" else ())


def test_a_slow_rank_doubles_the_step_and_explains_all_of_it() -> None:
    dataset = job(slow_rank=3)
    told = answer(dataset)
    assert told.gains[0].share == pytest.approx(120 / 243, rel=0.02) and told.worst_workers == pytest.approx(1, abs=0.2)
    (shown,) = section(dataset, analyse(dataset))
    assert "without rank 3: 243 -> 12" in str(shown)
    keys = json_keys(dataset, analyse(dataset)).what_if
    assert keys and keys.gains[0].cause == "worker" and keys.workers[0].name == "3"


def test_an_even_job_gains_nothing() -> None:
    assert (answer(job()).gains, analyse(job()).status) == ((), "healthy")


def test_traces_of_profilers_gain_by_the_rank_of_the_headline() -> None:
    planned = plan("host", 4, 1)
    analysis = analyse(make(planned, "data", "whole"))
    told = WHAT_IF_RESULTS.of(analysis)
    assert told.cause is not None and (told.cause.cause, told.cause.ranks) == ("worker", planned.culprits)
    assert told.step_ns == pytest.approx(told.measured_ns, rel=0.01)


def test_a_step_trace_is_read_and_other_tables_are_refused_with_the_reason() -> None:
    ops = job().step_ops
    table = step_table(ops)
    read = decode_step_trace(parquet(table))
    assert read.rows == ops.height
    assert read.numbers[NUMBERS.index("duration_ns")].tolist() == ops["duration_ns"].to_list()
    with pytest.raises(NotThisKindError, match="has no column duration"):
        decode_step_trace(parquet(table.drop("duration")))
    with pytest.raises(NotThisKindError, match="damaged"):
        decode_step_trace(parquet(table)[:200])


def test_a_parquet_file_that_declares_too_many_rows_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = pl.DataFrame({name: pl.repeat(0, 2_000_000, eager=True) for name in ("dp_rank", "stage", "duration")})
    packed = parquet(same)
    assert len(packed) < 100_000, "a few bytes unpack to much"
    monkeypatch.setattr(step_trace, "MOST_ROWS", 1_000_000)
    with pytest.raises(NotThisKindError, match="of 2,000,000 rows: of a step trace at most 1,000,000 are read"):
        decode_step_trace(packed)


@pytest.mark.parametrize("damage", ["cut", "length"])
def test_a_parquet_file_without_its_footer_is_refused_with_the_reason(damage: str) -> None:
    whole = parquet(pl.DataFrame({"dp_rank": [0]}))
    broken = whole[:-20] if damage == "cut" else whole[:-8] + (1 << 31).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(NotThisKindError, match="damaged: its footer cannot be read"):
        decode_step_trace(broken)


def test_a_parquet_file_whose_footer_understates_its_rows_is_refused() -> None:
    whole = bytearray(parquet(step_table(pl.concat([job().step_ops] * 5))))
    rows = decode_step_trace(bytes(whole)).rows
    # whole numbers of the footer are of seven bits a byte, and may have empty ones
    number, other = ((bytes([n << 1 & 0x7F | 0x80, n >> 6 & 0x7F])) for n in (rows, 100))
    # the number of rows stands behind the schema, before those of the row groups
    at = whole.index(number, len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"))
    whole[at : at + 2] = other
    with pytest.raises(NotThisKindError, match="declares 100 rows, its row groups another number"):
        decode_step_trace(bytes(whole))


@pytest.mark.parametrize(
    ("dataset", "cause"), [(job(slow_stage=1), "stage"), (job(uneven=0.6), "sequence"), (job(slow_rank=3), "worker")]
)
def test_of_a_parquet_file_nobody_is_accused_where_stage_or_sequence_explains_it(
    dataset: Dataset, cause: str, tmp_path: Path
) -> None:
    (tmp_path / "job.parquet").write_bytes(parquet(step_table(dataset.step_ops)))
    analysis = analyse(load([tmp_path]))
    first = WHAT_IF_RESULTS.of(analysis).cause
    assert first is not None and first.cause == cause
    assert analysis.culprits == ((3,) if cause == "worker" else ())


def step_table(ops: pl.DataFrame) -> pl.DataFrame:
    """The table of a step trace with these operations."""
    columns = {
        "dp_rank": "replica", "stage": "stage", "rank": "rank", "step": "step", "seq_id": "number", "mc": "chunk",
        "mb_id": "micro", "gmc": "model_chunk", "optype": "kind",
    }  # fmt: skip
    return ops.select(
        *(pl.col(own).alias(name) for name, own in columns.items()),
        start_ts=pl.col("start_ns") / 1e9, duration=pl.col("duration_ns") / 1e9,
    )  # fmt: skip


def parquet(table: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    table.write_parquet(out)
    return out.getvalue()


def test_a_circle_of_waits_is_refused() -> None:
    before, after, none = np.array([0, 1]), np.array([1, 0]), np.full(2, -1)
    with pytest.raises(CircleError, match="in a circle"):
        StepGraph.of(before, after, none, np.zeros(2, np.int64))


def timed_job(slow: int = -1, ranks: int = 4, steps: int = 12, *, ahead: bool = False) -> Dataset:
    """Dumps of a job that ended: two all-reduces in each step, 20 ms of work, and 23 ms more on one rank."""
    job, random = JobBuilder(ranks), np.random.default_rng(5)
    at = START_NS
    for _ in range(steps):
        for size, work in (("[[64]]", 15 * MS), ("[[1]]", 5 * MS)):
            arrived = [at + int(work * random.normal(1, 0.01)) + (23 * MS if r == slow else 0) for r in range(ranks)]
            at = max(arrived) + MS
            for rank in range(ranks):
                times: dict[str, Any] = {"created_ns": arrived[rank], "started_ns": arrived[rank], "completed_ns": at}
                if ahead:
                    times = {
                        "created_ns": START_NS + len(job.rows),
                        "duration_ns": at - arrived[rank],
                        "started_ns": None,
                    }
                job.collective(ranks=[rank], sizes=size, **times)
            at += 50_000
    return job.build()


def test_dumps_with_times_gain_by_the_slow_rank_in_a_step() -> None:
    dataset = timed_job(slow=3)
    told = answer(dataset)
    assert (told.origin, told.steps, told.cause and told.cause.ranks) == ("dumps", 12, (3,))
    assert told.measured_ns == pytest.approx(68 * MS, rel=0.03)
    assert told.gains[0].step_ns == pytest.approx(22 * MS, rel=0.05)
    (shown,) = section(dataset, analyse(dataset))
    assert "without rank 3: 66.8 -> 21.6 ms a step" in str(shown)


def test_dumps_of_an_even_job_gain_nothing() -> None:
    assert answer(timed_job()).gains == ()


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (timed_job(ahead=True), "hosts issue operations before earlier ones have ended"),
        (timed_job(steps=2), "calls do not repeat"),
    ],
)
def test_dumps_without_the_times_that_are_needed_are_not_asked_with_the_reason(dataset: Dataset, reason: str) -> None:
    analysis = analyse(dataset)
    assert WHAT_IF_RESULTS.find(analysis) is None and list(section(dataset, analysis)) == []
    assert reason in WHAT_IF_REASON.of(analysis)


def staged_job(slow_stage: int, slow_rank: int = -1, steps: int = 12, replicas: int = 2) -> Dataset:
    """Dumps of a job that ended: two stages of as many replicas, four micro batches, and a sum over all ranks."""
    ranks = 2 * replicas
    job, random = JobBuilder(ranks, {f"pp{k}": [k, k + replicas] for k in range(replicas)}), np.random.default_rng(5)
    clock = dict.fromkeys(range(ranks), START_NS)

    def work(rank: int, length: int) -> None:
        slow = rank // replicas == slow_stage or rank == slow_rank
        clock[rank] += int(length * (2 if slow else 1) * random.normal(1, 0.01))

    def call(rank: int, end: int, peer: int | None = None, op: str = "all_reduce") -> None:
        times: dict[str, Any] = {"created_ns": clock[rank], "started_ns": clock[rank], "completed_ns": end}
        if peer is None:
            job.collective(ranks=[rank], op=op, **times)
        else:
            job.p2p(f"pp{min(rank, peer)}", rank, peer, op, **times)

    for _ in range(steps):
        for way, first in (("forward", 0), ("backward", 1)):
            for _ in range(4):
                for replica in range(replicas):
                    sender, receiver = (replica + replicas * side for side in (first, 1 - first))
                    work(sender, 10 * MS if way == "forward" or first else 20 * MS)
                    end = max(clock[sender], clock[receiver]) + MS
                    call(sender, end, receiver, "send")
                    call(receiver, end, sender, "recv")
                    clock[sender] = clock[receiver] = end + 50_000
                    work(receiver, 10 * MS)
        end = max(clock.values()) + MS
        for rank in range(ranks):
            call(rank, end)
            clock[rank] = end + 50_000
    return job.build()


@pytest.mark.parametrize(
    ("dataset", "cause", "ranks"),
    [
        (staged_job(slow_stage=0), "stage", (0, 1)),
        # the first stage always ends last
        (staged_job(slow_stage=0, replicas=1), "stage", (0,)),
        (staged_job(slow_stage=1, replicas=1), "stage", (1,)),
        # rank 0 comes last, because it waits for rank 2
        (staged_job(slow_stage=-1, slow_rank=2), "worker", (2,)),
    ],
)
def test_stages_explain_who_comes_last(dataset: Dataset, cause: str, ranks: tuple[int, ...]) -> None:
    analysis = analyse(dataset)
    first = WHAT_IF_RESULTS.of(analysis).cause
    assert first is not None and (first.cause, first.ranks) == (cause, ranks)
    assert analysis.culprits == (ranks if cause == "worker" else ())
    assert "arrives last" not in analysis.verdict


def test_a_rank_that_is_slow_by_itself_stays_accused() -> None:
    analysis = analyse(staged_job(slow_stage=-1, slow_rank=1, replicas=4))
    assert (analysis.culprits, WHAT_IF_RESULTS.of(analysis).acquitted) == ((1,), False)
