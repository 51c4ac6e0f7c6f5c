"""How far ranks got, looked up one by one and all at once."""

from __future__ import annotations

import polars as pl
import pytest

from rankscope.analysis import presence
from rankscope.analysis.collective_calls import collectives_of
from rankscope.analysis.facts import Facts
from rankscope.analysis.presence import Frontier, frontiers_of
from rankscope.schema import Dataset
from tests.analysis.jobs import mesh, running
from tests.builders import JobBuilder


def datasets() -> list[Dataset]:
    hung = mesh()
    hung.collective("1", ranks=[0], state="scheduled")
    mixed = JobBuilder(3)
    mixed.collective(ranks=[0, 2])
    mixed.p2p("0", 0, 1, "send")
    return [running().build(), hung.build(), mixed.build(), JobBuilder(2).build()]


def by_joining(dataset: Dataset) -> list[int | None]:
    """The last completed collective of each frontier, by a join over all rows."""
    rows = dataset.ops.filter(~pl.col("is_p2p") & (pl.col("state") == "completed"))
    done = rows.group_by("rank", "group").agg(pl.col("seq").max().alias("done"))
    joined = dataset.frontiers.join(done, on=["rank", "group"], how="left", maintain_order="left")
    return joined.select(pl.max_horizontal("last_completed", "done")).to_series().to_list()


@pytest.mark.parametrize("dense", [0, 8])
def test_completions_are_those_of_the_rows(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "TABLE_FACTOR", dense)
    for dataset in datasets():
        forgotten = dataset.frontiers.with_columns(last_completed=pl.lit(None, pl.Int64))
        for table in (dataset.frontiers, forgotten, forgotten.slice(1), forgotten.reverse()):
            told = Dataset(dataset.ops, dataset.groups, dataset.stacks, table, dataset.files)
            assert frontiers_of(told).table["completed"].to_list() == by_joining(told)


def test_a_frontier_is_looked_up_by_rank_and_group() -> None:
    found = frontiers_of(running(4, 3).build())
    assert list(found) == [(rank, 0) for rank in range(4)]
    assert found[2, 0] == Frontier(3, 3, 1, False, "none")
    assert found.get((4, 0)) is None
    assert (2, 1) not in found


def test_the_collectives_of_a_frame_are_numbered_once() -> None:
    one, other = running(2, 3).build().ops, mesh().build().ops
    first = collectives_of(one)
    assert collectives_of(one) is first
    assert collectives_of(other) is not first
    assert collectives_of(one).instances.code.tolist() == first.instances.code.tolist()


def test_sends_and_what_has_no_number_are_no_collectives() -> None:
    job = JobBuilder(2)
    job.collective()
    job.p2p("0", 0, 1, "send")
    job.collective()
    ops = job.build().ops
    last = pl.int_range(pl.len()) == pl.len() - 1
    ops = ops.with_columns(seq=pl.when(last).then(None).otherwise("seq"))
    found = collectives_of(ops)
    told = ops.with_row_index("row").filter(~pl.col("is_p2p") & pl.col("seq").is_not_null())["row"]
    assert found.rows is not None
    assert found.rows.tolist() == told.to_list()
    assert found.of(ops["rank"].to_numpy()).tolist() == ops["rank"].gather(told).to_list()


def test_calls_are_numbered_by_themselves_where_some_became_one() -> None:
    job = JobBuilder(2)
    job.collective()
    job.collective(coalesced="inner")
    job.seqs = {key: seq - 1 for key, seq in job.seqs.items()}
    job.collective(coalesced="inner")
    facts = Facts(job.build())
    assert facts.calls.height == facts.dataset.ops.height - 2
    told = [int(facts.instances.seq[code]) for code in facts.instances.code]
    assert told == facts.calls["seq"].to_list()
