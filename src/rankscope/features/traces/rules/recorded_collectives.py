"""Costs of the collectives that flight recorder dumps hold with their durations (TORCH_NCCL_ENABLE_TIMING).

A duration is that on the device, from the start of a rank's kernel to its end. All members end an operation that needs
all of them at the same time, so that a rank waits for what its duration exceeds the least one: no clock is compared.
"""

from __future__ import annotations

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis
from rankscope.analysis.signatures import with_signatures
from rankscope.features.traces.rules.collective_costs import (
    ALL_TO_ALL,
    COLLECTIVE_RESULTS,
    ORIGINS,
    CollectiveCosts,
    load_table,
    rank_table,
    size_table,
    sizes_of,
)
from rankscope.schema import Dataset
from rankscope.schema.tables import SOURCES

_MEETING = ["group", "seq"]


def with_collectives(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with the costs of collectives in dumps, unless traces tell them, which saw the kernels."""
    if COLLECTIVE_RESULTS.find(analysis) is not None:
        return analysis
    costs = recorded_costs(facts.dataset)
    return analysis if costs.sizes.is_empty() else COLLECTIVE_RESULTS.put(analysis, costs)


def recorded_costs(dataset: Dataset) -> CollectiveCosts:
    """The costs of operations that need all members, of which all dumped members recorded a duration."""
    members = _members(dataset)
    least = pl.col("took_ns").min().over(_MEETING)
    alone = (pl.col("took_ns") == least).sum().over(_MEETING) == 1
    members = members.with_columns(waited_ns=pl.col("took_ns") - least, is_last=(pl.col("took_ns") == least) & alone)
    instances = members.group_by(_MEETING, maintain_order=True).agg(
        pl.col("op", "key", "dtype", "members").first(), seen=pl.len(), bytes=pl.col("bytes").max(),
        took_ns=pl.col("took_ns").min(), skew_ns=pl.col("took_ns").max() - pl.col("took_ns").min(),
        waited_ns=pl.col("waited_ns").sum(),
    )  # fmt: skip
    exchanges = members.filter(pl.col("key").cast(pl.String) == ALL_TO_ALL)
    return CollectiveCosts(
        origin=ORIGINS[1],
        sizes=size_table(instances),
        ranks=rank_table(members),
        loads=load_table(exchanges.with_columns(meeting=pl.struct(_MEETING).rank("dense"))),
    )


def _members(dataset: Dataset) -> pl.DataFrame:
    """Members of whole operations: group, seq, rank, op, key, members, took_ns, bytes, sent, received, dtype."""
    recorder = pl.col("source") == SOURCES[0]
    timed = dataset.ops.filter(
        recorder & (pl.col("duration_ns") > 0) & ~pl.col("is_p2p") & pl.col("seq").is_not_null()
        & (pl.col("coalesced") == "none")
    )  # fmt: skip
    rows = with_signatures(timed).drop("dtype").with_row_index("row")
    rows = rows.join(sizes_of(timed), on="row", maintain_order="left").filter(
        pl.col("key").is_not_null() & ~pl.col("rooted")
    )
    rows = rows.unique([*_MEETING, "rank"], keep="first", maintain_order=True)
    dumped = set(dataset.ops.filter(recorder)["rank"].unique().to_list())
    groups = pl.DataFrame(
        [(g.id, len(g.ranks), len(dumped.intersection(g.ranks))) for g in dataset.group_list],
        schema={"group": pl.UInt32, "members": pl.UInt32, "dumped": pl.UInt32}, orient="row",
    )  # fmt: skip
    whole = (pl.len() == pl.col("dumped").first()).over(_MEETING) & (pl.col("dumped") > 1)
    return rows.join(groups, on="group", maintain_order="left").filter(whole).rename({"duration_ns": "took_ns"})
