"""Who came last to collectives, for people: by group how often, and of a short window one by one."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rankscope.analysis.traces.join import group_label
from rankscope.analysis.traces.lateness import Turn, is_short, turns
from rankscope.analysis.traces.model import TraceAnalysis
from rankscope.analysis.wording import fold, plural, short_duration
from rankscope.schema import Dataset

MOST_NAMED = 3
"""Ranks that are named for a group."""
CERTAIN = 3
"""So many times what clocks may be off by is sure."""


def last_lines(dataset: Dataset, traces: TraceAnalysis) -> list[str]:
    """By group who came last how often; of a window that is too short for a verdict also to which, and how surely."""
    if is_short(traces.last):
        return list(_one_by_one(dataset, traces))
    out = []
    table = traces.last.group_by("group", "last").agg(
        times=pl.len(), sure=pl.col("sure").sum(), margin=pl.col("margin_ns").filter(pl.col("sure")).median()
    ).sort(["group", "times", "last"], descending=[False, True, False])  # fmt: skip
    for (group,), part in table.group_by("group", maintain_order=True):
        of = int(part["times"].sum())
        who = [
            _came(r["last"], r["times"], r["sure"], int(r["margin"])) for r in part.iter_rows(named=True) if r["sure"]
        ]
        said = "; ".join(who[:MOST_NAMED]) or "no rank is last by more than clocks may be off"
        out.append(f"{_group(dataset, int(str(group)))}, {plural(of, 'collective')}: {said}")
    return out


def _group(dataset: Dataset, group: int) -> str:
    found = dataset.group_list[group]
    label = group_label(dataset.group_list, found.id, dataset.world_size)
    return label + (f" of ranks {fold(found.ranks)}" if found.ranks and len(found.ranks) < dataset.world_size else "")


def _came(rank: int, times: int, sure: int, margin: int) -> str:
    surely = "" if sure == times else f", surely in {sure}"
    return f"rank {rank} last in {times}{surely}, by {short_duration(margin)}"


def _one_by_one(dataset: Dataset, traces: TraceAnalysis) -> Iterator[str]:
    for turn in turns(traces.last):
        before = "" if turn.second is None or len(turn.seqs) > 1 else f" after rank {turn.second}"
        came = f"{_group(dataset, turn.group)} #{fold(turn.seqs)}: rank {turn.rank} last, by {turn.margin}{before}"
        yield f"{came}: {_how_sure(turn, traces.clock_error_ns)}"


def _how_sure(turn: Turn, error: int | None) -> str:
    """Against what clocks may be off by."""
    if not error:
        return "sure, on one clock" if turn.sure else "at once"
    off = f"clocks may be off by {short_duration(error)}"
    if not turn.sure:
        return f"not sure, {off}"
    return "sure" if turn.least_ns >= CERTAIN * error else f"likely, {off}"
