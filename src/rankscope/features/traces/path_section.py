"""Critical paths, kernel patterns and counters for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from rankscope.features.traces.rules.critical_path import path_totals, step_lengths, top_names
from rankscope.features.traces.rules.model import PATH_KINDS, PATTERN_JOINT, TraceAnalysis
from rankscope.features.traces.rules.trace_story import group_label
from rankscope.report.blocks import Bullets, Grid, Section
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import LONGEST_RANGES, clipped, duration, plural, rank_ranges, ranks_text, short_name

HEAD = ("ranks", "on the path", "compute", "comm", "memory", "launch", "host")
_MOST_NAMES, _MOST_WAITS, _MOST_RANKS = 5, 4, 6
_LEAST_SHARE = 0.01
"""Smallest share of all steps that a person is told of."""
_NEARLY = 0.9
_LONGEST_NAME = 40
NO_RANK = "-"
NOT_SHOWN = "nothing that the trace shows"
Cells = tuple[str, ...]


def process_text(dataset: Dataset, ranks: Sequence[int], width: int = 8) -> str:
    """The traced ranks in words: "ranks 0-3"; "the process" if it has no rank."""
    return "the process" if dataset.is_rankless else ranks_text(ranks, width)


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
    return rank_ranges(ranks, LONGEST_RANGES), *(f"{100 * share:.0f} %" for share in (sum(shares), *shares))


def section(dataset: Dataset, traces: TraceAnalysis) -> Iterator[Section]:
    """The critical path of all steps; none without a path."""
    if not traces.path.is_empty():
        rows = ranks_on_path(traces)
        grid = Grid(head=HEAD, rows=[(NO_RANK, *row[1:]) for row in rows] if dataset.is_rankless else rows)
        yield Section(path_title(traces), (grid, Bullets(path_lines(dataset, traces), "Largest parts")))


def path_lines(dataset: Dataset, traces: TraceAnalysis) -> list[str]:
    """The names that take most on the paths, and where they go from one rank to another; none without a path."""
    steps = traces.path["path"].n_unique()
    return [*_longest(dataset, traces, steps), *_waits(dataset, traces, steps)] if steps else []


def path_title(traces: TraceAnalysis) -> str:
    """The number of steps, and how long they take."""
    lengths = step_lengths(traces.path)
    middle = duration(int(np.median(lengths["length_ns"].to_numpy())))
    if lengths.height > 1:
        return f"The critical path of {lengths.height:,} steps of {middle} (median): % of them by rank"
    step = int(lengths["step"][0])
    return f"The critical path of {f'step {step}' if step else 'the window'}, {middle}: % of it by rank"


def _longest(dataset: Dataset, traces: TraceAnalysis, steps: int) -> Iterator[str]:
    """The parts that take most, by name, with the steps that they are in unless they are in all."""
    names = traces.path_names.group_by("kind", pl.col("name").cast(pl.String)).agg(steps=pl.col("path").n_unique())
    own = top_names(traces.path_names).group_by("kind", "name", maintain_order=True).agg("rank", "total_ns", "share")
    own = own.join(names, on=["kind", "name"], nulls_equal=True, maintain_order="left")
    table = own.with_columns(pl.col("share").list.sum()).filter(pl.col("share") >= _LEAST_SHARE)
    table = table.sort("share", descending=True, maintain_order=True).head(_MOST_NAMES)
    for kind, name, ranks, totals, share, within in table.iter_rows():
        # ranks come by their time: those that have nearly all of it
        first = next(at for at in range(len(ranks)) if sum(totals[: at + 1]) >= _NEARLY * sum(totals))
        where = "" if dataset.is_rankless else f", {ranks_text(sorted(ranks[: first + 1]))}"
        per = "" if steps == 1 else " a step" if within == steps else f" in {within} of {plural(steps, 'step')}"
        time = duration(sum(totals) // (steps if within == steps else 1))
        yield f"{part_phrase(kind, name)}{where}: {time}{per} ({100 * share:.0f} %)"


def part_phrase(kind: str, name: str | None) -> str:
    """A part of a path in words."""
    # "empty" alone would be read as a word
    shown = plain(name) if name and name.startswith("aten::") else short_name(name) if name else NOT_SHOWN
    shown = clipped(shown, _LONGEST_NAME)
    return {"launch": f"until {shown} starts", "host": f"host: {shown}"}.get(kind, shown)


def _waits(dataset: Dataset, traces: TraceAnalysis, steps: int) -> Iterator[str]:
    """Whom the others wait for: the operations at which paths go to another rank."""
    table = traces.handovers.group_by("for_rank", "group", pl.col("op").cast(pl.String)).agg(
        ranks=pl.col("rank").unique().sort(), steps=pl.col("path").n_unique(),
        waited=pl.col("waited_ns").median().cast(pl.Int64), total=pl.col("waited_ns").sum(),
    ).sort(["total", "for_rank", "group", "op"], descending=[True, False, False, False])  # fmt: skip
    whole = int(step_lengths(traces.path)["length_ns"].sum())
    for row in table.filter(pl.col("total") >= _LEAST_SHARE * whole).head(_MOST_WAITS).iter_rows(named=True):
        who = rank_ranges(row["ranks"], LONGEST_RANGES)
        verb, noun = ("waits", "rank") if len(row["ranks"]) == 1 else ("wait", "ranks")
        of = group_label(dataset.group_list, row["group"], dataset.world_size)
        often = "" if steps == 1 else f" in {row['steps']} of {plural(steps, 'step')}"
        yield (
            f"{noun} {who} {verb} for rank {row['for_rank']} in {row['op']} of {of}{often}, "
            f"{duration(row['waited'])}{' in the median' if row['steps'] > 1 else ''}"
        )


# Kernel patterns and counters.

_MOST_PATTERNS, _MOST_COUNTERS = 3, 8
_LONGEST_PATTERN = 4
"""Kernels of a pattern that are named to people."""
_ENGINE = "autograd::engine::evaluate_function: "
_SUMS = re.compile(r"\.sum$|^[^.]*$")
"""Counters that can be added up: the others are rates, shares, or maxima."""


def pattern_table(traces: TraceAnalysis) -> pl.DataFrame:
    """Patterns over all ranks: operator, kernels, length, count, total_ns, ranks; those with most time first."""
    keys = [pl.col("operator").cast(pl.String), "kernels", "length"]
    table = traces.patterns.group_by(keys).agg(pl.col("count", "total_ns").sum(), ranks=pl.col("rank").unique().sort())
    return table.sort(-pl.col("total_ns"), "operator", "kernels")


def pattern_lines(traces: TraceAnalysis, most: int = _MOST_PATTERNS, *, nameless: bool = False) -> list[str]:
    """The patterns with most time, in words; of a `nameless` process without its rank."""
    table = pattern_table(traces)
    lines = [
        f"{operator_name(operator)}, {plural(count, 'time')}{'' if nameless else f' on {ranks_text(ranks)}'}, "
        f"{duration(total)}: {kernel_names(kernels, length)}"
        for operator, kernels, length, count, total, ranks in table.head(most).iter_rows()
    ]
    left = table.height - most
    return [*lines, f"and {plural(left, 'more pattern')}; the JSON report has them"] if left > 0 else lines


def operator_name(name: str | None) -> str:
    """An operator for people: that of the backward pass without the engine that runs it."""
    return clipped(short_name((name or "?").removeprefix(_ENGINE)), _LONGEST_NAME)


def kernel_names(kernels: str, length: int, most: int = _LONGEST_PATTERN) -> str:
    """The first kernels of a pattern, and how many follow."""
    shown = [clipped(short_name(name), _LONGEST_NAME) for name in kernels.split(PATTERN_JOINT)[:most]]
    left = length - len(shown)
    return " > ".join([*shown, *([f"{left} more"] if left > 0 else [])])


def counter_lines(traces: TraceAnalysis, most: int = _MOST_COUNTERS) -> list[str]:
    """The counters of devices in words; none without."""
    rows = counter_rows(traces)
    left = len(rows) - most
    lines = [f"{what}: {amounts}" for _, what, amounts in rows[:most]]
    return [*lines, f"and {plural(left, 'more kernel')}; the JSON report has them"] if left > 0 else lines


def counter_rows(traces: TraceAnalysis) -> list[tuple[int, str, str]]:
    """A rank with operator, kernel and times, and the counters over all ranks; what was measured most often first."""
    keys = [pl.col("operator").cast(pl.String), pl.col("kernel").cast(pl.String)]
    table = traces.counters.with_columns(pl.col("counter").cast(pl.String)).sort("counter")
    table = table.group_by(keys, maintain_order=True).agg("counter", "count", "total", pl.col("rank").min())
    table = table.with_columns(times=pl.col("count").list.max().cast(pl.Int64))
    table = table.sort(-pl.col("times"), "operator", "kernel")
    return [
        (
            rank,
            f"{f'{operator_name(operator)}, ' if operator else ''}{clipped(short_name(kernel or '?'), _LONGEST_NAME)}, "
            f"{plural(times, 'time')}",
            _amounts(counters, counts, totals),
        )
        for operator, kernel, counters, counts, totals, rank, times in table.iter_rows()
    ]


def _amounts(counters: list[str], counts: list[int], totals: list[float]) -> str:
    """Each counter over all ranks: added up where that means something, else the mean."""
    sums: dict[str, tuple[int, float]] = {}
    for name, count, total in zip(counters, counts, totals, strict=True):
        known = sums.get(name, (0, 0.0))
        sums[name] = known[0] + count, known[1] + total
    return ", ".join(
        f"{name} {total:.4g}" if _SUMS.search(name) else f"{name} {total / max(count, 1):.4g} (mean)"
        for name, (count, total) in sums.items()
    )
