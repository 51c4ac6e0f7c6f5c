"""Critical paths for people and programs: on which rank, in what, and where one rank waits for another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from rankscope.analysis.traces.critical_path import path_totals, step_lengths, top_names
from rankscope.analysis.traces.model import PATH_KINDS, TraceAnalysis
from rankscope.analysis.traces.trace_story import group_label
from rankscope.report import words
from rankscope.report.trace_section import table_lines
from rankscope.schema import Dataset
from rankscope.text.wording import clipped, duration, plural, rank_ranges, ranks_text, short_name

HEAD = ("ranks", "on the path", "compute", "comm", "memory", "launch", "host")
_MOST_NAMES, _MOST_WAITS, _MOST_RANKS = 5, 4, 6
MOST_NAMES_JSON = 50
"""Names of parts in the JSON report, over all steps."""
_LEAST_SHARE = 0.01
"""Smallest share of all steps that a person is told of."""
_NEARLY = 0.9
_LONGEST_NAME = 40
NOT_SHOWN = "nothing that the trace shows"
Cells = tuple[str, ...]


def ranks_on_path(traces: TraceAnalysis) -> list[Cells]:
    """Shares: how much of all steps the path is on each rank, and in what; the most first."""
    table = path_totals(traces.path).group_by("rank", "kind").agg(pl.col("total_ns").sum())
    whole = max(int(table["total_ns"].sum()), 1)
    parts = {(rank, kind): total / whole for rank, kind, total in table.iter_rows()}
    ranks = {rank: sum(share for (own, _), share in parts.items() if own == rank) for rank, _ in parts}
    rows: list[Cells] = []
    small: list[int] = []
    for rank, share in sorted(ranks.items(), key=lambda item: (-item[1], item[0])):
        if share < _LEAST_SHARE or len(rows) == _MOST_RANKS:
            small.append(rank)
        else:
            rows.append(_row((rank,), parts))
    return [*rows, _row(tuple(small), parts)] if small else rows


def _row(ranks: tuple[int, ...], parts: dict[tuple[int, str], float]) -> Cells:
    shares = [sum(parts.get((rank, kind), 0.0) for rank in ranks) for kind in PATH_KINDS]
    return rank_ranges(ranks, words.LONGEST_RANGES), *(f"{100 * share:.0f} %" for share in (sum(shares), *shares))


def text_lines(dataset: Dataset, traces: TraceAnalysis) -> list[str]:
    """The table and the lines of a report of 80 columns; none without a path."""
    if traces.path.is_empty():
        return []
    return [*table_lines(HEAD, ranks_on_path(traces), "rank"), *(f"   {line}" for line in path_lines(dataset, traces))]


def path_lines(dataset: Dataset, traces: TraceAnalysis) -> list[str]:
    """The names that take most on the paths, and where they go from one rank to another; none without a path."""
    steps = traces.path["path"].n_unique()
    return [*_longest(traces, steps), *_waits(dataset, traces, steps)] if steps else []


def path_title(traces: TraceAnalysis) -> str:
    """The number of steps, and how long they take."""
    lengths = step_lengths(traces.path)
    middle = duration(int(np.median(lengths["length_ns"].to_numpy())))
    if lengths.height > 1:
        return f"The critical path of {lengths.height:,} steps of {middle} (median): % of them by rank"
    step = int(lengths["step"][0])
    return f"The critical path of {f'step {step}' if step else 'the window'}, {middle}: % of it by rank"


def _longest(traces: TraceAnalysis, steps: int) -> Iterator[str]:
    """The parts that take most, by name."""
    per = "" if steps == 1 else " a step"
    own = top_names(traces.path_names).group_by("kind", "name", maintain_order=True).agg("rank", "total_ns", "share")
    table = own.with_columns(pl.col("share").list.sum()).filter(pl.col("share") >= _LEAST_SHARE)
    table = table.sort("share", descending=True, maintain_order=True).head(_MOST_NAMES)
    for kind, name, ranks, totals, share in table.iter_rows():
        # ranks come by their time: those that have nearly all of it
        first = next(at for at in range(len(ranks)) if sum(totals[: at + 1]) >= _NEARLY * sum(totals))
        where = ranks_text(sorted(ranks[: first + 1]), words.LONGEST_RANGES)
        time = duration(sum(totals) // steps)
        yield f"{part_phrase(kind, name)}, {where}: {time}{per} ({100 * share:.0f} %)"


def part_phrase(kind: str, name: str | None) -> str:
    """A part of a path in words."""
    shown = clipped(short_name(name), _LONGEST_NAME) if name else NOT_SHOWN
    return {"launch": f"until {shown} starts", "host": f"host: {shown}"}.get(kind, shown)


def _waits(dataset: Dataset, traces: TraceAnalysis, steps: int) -> Iterator[str]:
    """Whom the others wait for: the operations at which paths go to another rank."""
    table = traces.handovers.group_by("for_rank", "group", pl.col("op").cast(pl.String)).agg(
        ranks=pl.col("rank").unique().sort(), steps=pl.col("path").n_unique(),
        waited=pl.col("waited_ns").median().cast(pl.Int64), total=pl.col("waited_ns").sum(),
    ).sort(["total", "for_rank", "group", "op"], descending=[True, False, False, False])  # fmt: skip
    whole = int(step_lengths(traces.path)["length_ns"].sum())
    for row in table.filter(pl.col("total") >= _LEAST_SHARE * whole).head(_MOST_WAITS).iter_rows(named=True):
        who = rank_ranges(row["ranks"], words.LONGEST_RANGES)
        verb, noun = ("waits", "rank") if len(row["ranks"]) == 1 else ("wait", "ranks")
        of = group_label(dataset.group_list, row["group"], dataset.world_size)
        often = "" if steps == 1 else f" in {row['steps']} of {plural(steps, 'step')}"
        yield (
            f"{noun} {who} {verb} for rank {row['for_rank']} in {row['op']} of {of}{often}, "
            f"{duration(row['waited'])}{' in the median' if row['steps'] > 1 else ''}"
        )


def json_records(dataset: Dataset, traces: TraceAnalysis) -> dict[str, list[dict[str, Any]]]:
    """The tables of the JSON report by key, as lists of objects."""
    groups = {group.id: group.name for group in dataset.group_list}
    waits = traces.handovers.drop("path").to_dicts()
    return {
        "critical_path": path_totals(traces.path).to_dicts(),
        "critical_names": top_names(traces.path_names).head(MOST_NAMES_JSON).to_dicts(),
        "critical_waits": [{**row, "group": groups.get(row["group"])} for row in waits],
    }
