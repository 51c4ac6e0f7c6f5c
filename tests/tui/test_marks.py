"""Absent members: those that are found by counting are those that are found by looking at every member."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis.logical_time import logical_columns
from rankscope.schema import Dataset
from rankscope.schema.tables import FRONTIERS
from rankscope.tui.marks import FAR, REASONS, absences, collectives
from tests.builders import START_NS, JobBuilder

Absent = set[tuple[int, int, int, str]]
"""Rank, group, sequence number, reason."""
LAST, FIRST = "last_enqueued", "first_kept"


def job(seed: int) -> Dataset:
    """A job in which operations, dumps and what is known of them are missing at random."""
    chance = random.Random(seed)
    world = chance.randint(2, 6)
    builder = JobBuilder(
        world, {f"g{i}": sorted(chance.sample(range(world), chance.randint(1, world))) for i in (1, 2)}
    )
    builder.no_dump = {rank for rank in range(world) if chance.random() < 0.2}
    for _ in range(chance.randint(1, 12)):
        group = chance.choice(sorted(builder.group_ranks))
        for rank in builder.group_ranks[group]:
            builder.collective(group, [rank], state=chance.choice(["completed", "completed", "scheduled"]))
    dataset = builder.build()
    kept = [chance.random() < 0.8 for _ in range(dataset.ops.height)]
    moved = chance.choice([0, 0, FAR - 6, 2 * FAR])
    ops = dataset.ops.filter(kept).with_columns(pl.col("seq") + moved)
    rows = [_tampered(row, moved, chance) for row in dataset.frontiers.to_dicts() if chance.random() < 0.9]
    return replace(dataset, ops=ops, frontiers=pl.DataFrame(rows, schema=FRONTIERS))


def _tampered(row: dict[str, object], moved: int, chance: random.Random) -> dict[str, object]:
    first, last = sorted(moved + chance.randint(0, 9) for _ in range(2))
    row.update({FIRST: first, LAST: last, "wrapped": chance.choice([True, True, False, None])})
    row["filtered"] = chance.choice(["none", "none", "only-active"])
    row.update({name: None for name in (FIRST, LAST) if chance.random() < 0.2})
    return row


def true_to_itself(dataset: Dataset) -> Dataset:
    """Without operations outside of what their rank's frontier says is kept: frontiers are made of operations."""
    bounds = dataset.frontiers.select("rank", "group", FIRST, LAST)
    told = dataset.ops.join(bounds, on=["rank", "group"], how="left", maintain_order="left")
    inside = (pl.col("seq") >= pl.col(FIRST)).fill_null(False) & (pl.col("seq") <= pl.col(LAST)).fill_null(True)
    return replace(dataset, ops=told.filter(inside).drop(FIRST, LAST))


def one_by_one(dataset: Dataset) -> Absent:
    """The absences of a dataset by their definition."""
    whole = set(dataset.dumps.filter(~pl.col("wrapped") & (pl.col("filtered") == "none"))["rank"].to_list())
    known = {(row["rank"], row["group"]): row for row in dataset.frontiers.iter_rows(named=True)}
    rows: dict[tuple[int, int], dict[int, str]] = {}
    for group, seq, rank, state in dataset.ops.select("group", "seq", "rank", "state").iter_rows():
        rows.setdefault((group, seq), {})[rank] = state
    out: Absent = set()
    for (group, seq), states in rows.items():
        pending = not {"scheduled", "started"}.isdisjoint(states.values())
        for rank in set(dataset.group_list[group].ranks) - set(states):
            reason = _reason(known.get((rank, group), {}), seq, pending, rank in whole)
            reason = reason if rank in dataset.seen_ranks else "no dump"
            if reason != "overwritten" and (pending or reason != "no dump"):
                out.add((rank, group, seq, reason))
    return out


def _reason(known: dict[str, object], seq: int, pending: bool, whole: bool) -> str:
    first, last = known.get(FIRST), known.get(LAST)
    silent = whole if not isinstance(last, int) else seq > last
    if pending and silent:
        return "never issued"
    if known.get("filtered") == "only-active":
        return "filtered"
    return "overwritten" if known.get("wrapped") and (not isinstance(first, int) or seq < first) else "unknown"


def found(dataset: Dataset, *, never: bool) -> Absent:
    table = absences(dataset, collectives(dataset, logical_columns(dataset)), never=never)
    return {
        (rank, group, seq, REASONS[n]) for rank, group, seq, n in table.select("rank", "group", "seq", "reason").rows()
    }


@pytest.mark.parametrize("seed", range(150))
def test_absences_found_by_counting_are_those_of_every_member(seed: int) -> None:
    dataset = true_to_itself(job(seed))
    truth = one_by_one(dataset)
    assert found(dataset, never=True) == truth
    assert found(dataset, never=False) == {one for one in truth if one[3] != "never issued"}


def test_all_reasons_occur_in_these_jobs() -> None:
    occurring = {one[3] for seed in range(150) for one in one_by_one(true_to_itself(job(seed)))}
    assert occurring == {*REASONS} - {"overwritten"} - ({"present"} & {*REASONS})


@pytest.mark.parametrize(
    ("written_s", "reason"), [(3600.0, "never issued"), (1.0, "unknown"), (-3600.0, "never issued")],
    ids=["dumped later", "dumped before", "its time was lost"],
)  # fmt: skip
def test_what_others_issued_after_a_dump_was_written_is_not_known_of_its_rank(written_s: float, reason: str) -> None:
    builder = JobBuilder(4)
    builder.collective()
    builder.collective(ranks=[0, 1, 3], state="scheduled", delay_ns=30 * 10**9)
    dataset = builder.build()
    at = pl.when(pl.col("rank") == 2).then(START_NS + int(written_s * 1e9)).otherwise(START_NS + 10**12)
    dataset = replace(dataset, files=dataset.files.with_columns(mtime_ns=at.cast(pl.Int64)))
    found = absences(dataset, collectives(dataset, logical_columns(dataset)), never=True)
    assert [(rank, REASONS[why]) for rank, why in found.select("rank", "reason").iter_rows()] == [(2, reason)]
