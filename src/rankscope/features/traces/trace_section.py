"""Results of traces for people: time breakdown, last ranks, clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.traces import path_section, range_section
from rankscope.features.traces.launch_lines import copy_lines, launch_lines
from rankscope.features.traces.rules.lateness import LastRankRun, is_short, last_rank_runs
from rankscope.features.traces.rules.model import TRACE_RESULTS, TraceAnalysis
from rankscope.features.traces.rules.trace_story import group_label
from rankscope.report.blocks import Block, Bullets, Grid, Section
from rankscope.schema import Dataset
from rankscope.text.wording import LONGEST_RANGES, duration, plural, rank_ranges, ranks_text

MOST_ROWS = 12
"""Most rows of a table in a report for people."""
SHARE_TOLERANCE = 3.0
"""Largest difference of shares, in percent of the step, of ranks in one row."""
NOT_LATE = "-"
Cells = tuple[str, ...]


class StepPart(NamedTuple):
    """A part of the time of a step; a column of the tables of step times."""

    name: str
    """Its column of `TraceAnalysis.steps`, without `_ns`."""
    heading: str
    """Its heading in reports; "" leaves it out there."""
    title: str = ""
    """Its title on the page; "" leaves it out there."""
    width: int = 0
    """Its characters on the page."""


SHARES = (
    StepPart("compute", "compute", "compute", 7),
    StepPart("communication", "comm"),
    StepPart("exposed", "exposed", "exposed", 7),
    StepPart("memory", "memory", "copy", 5),
    StepPart("idle", "idle", "idle", 5),
    StepPart("host_gap", "host gap", "gap", 4),
    StepPart("overlap", "", "overlap", 7),
)
"""Parts that are shown as shares of the step."""
LATE = StepPart("late", "late", "late", 8)
WAITED = StepPart("waited", "", "waited", 8)
_REPORTED = tuple(part for part in SHARES if part.heading)
HEAD = ("ranks", "step", *(part.heading for part in _REPORTED), LATE.heading)


def breakdown(traces: TraceAnalysis) -> list[Cells]:
    """The breakdown of the median step of each rank: the latest first, similar ranks in one row."""
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("step")
    shares = (100 * pl.col(f"{part.name}_ns") / pl.col("step") for part in _REPORTED)
    table = traces.steps.with_columns(length).group_by("rank").agg(
        pl.col("step").median().fill_null(0).cast(pl.Int64),
        pl.col(f"{LATE.name}_ns").median().fill_null(0).cast(pl.Int64).alias("late"),
        *(share.median().alias(part.name) for share, part in zip(shares, _REPORTED, strict=True)),
    )  # fmt: skip
    folded: list[tuple[int, int, tuple[float, ...], list[int]]] = []
    for rank, step, late, *medians in table.sort("late", "rank", descending=[True, False]).iter_rows():
        # nothing was recorded of a rank without a share
        known = () if None in medians else tuple(medians)
        for other_step, other_late, others, ranks in folded:
            apart = abs(other_late - late) * 100 / max(other_step, 1)
            if len(others) == len(known) and np.all(np.abs([apart, *np.subtract(others, known)]) <= SHARE_TOLERANCE):
                ranks.append(rank)
                break
        else:
            folded.append((step, late, known, [rank]))
    return [
        (rank_ranges(ranks, LONGEST_RANGES), duration(step),
         *([f"{share:.0f} %" for share in shares] or ["?"] * len(_REPORTED)),
         duration(late) if late >= 1000 else NOT_LATE)
        for step, late, shares, ranks in folded
    ]  # fmt: skip


def clock_lines(traces: TraceAnalysis) -> list[str]:
    """The clock of the traces, and its accuracy."""
    known = _in_dumps(traces)
    moved = {file: offset for file, offset in traces.offsets.items() if offset}
    if len(traces.offsets) < 2:
        return [*known, *traces.refused]
    farthest = max(map(abs, moved.values()), default=0)
    how = f"of {plural(len(moved), 'file')} moved by up to {duration(farthest)}" if moved else "as they are"
    residual = traces.residual_ns
    quality = "" if residual is None else f"; ends of collectives agree within {duration(residual)} (median)"
    return [f"clocks {how}{quality}", *known, *traces.refused]


def _in_dumps(traces: TraceAnalysis) -> list[str]:
    """The share of traced operations that are in dumps."""
    if traces.recorded is None:
        return []
    verb = "is" if traces.recorded == 1 else "are"
    return [f"{plural(traces.recorded, 'operation')} of the traces {verb} in the dumps, too"]


def section(dataset: Dataset, analysis: Analysis) -> Iterator[Section]:
    """The critical path, and the times of steps, in a report for people."""
    traces = TRACE_RESULTS.find(analysis)
    if traces is None:
        return
    yield from path_section.section(dataset, traces)
    rows, last = breakdown(traces), last_lines(dataset, traces)
    nameless = dataset.is_rankless
    shown = [(path_section.NO_RANK, *row[1:]) for row in rows] if nameless else rows[:MOST_ROWS]
    blocks: list[Block] = [Grid(head=HEAD, rows=shown, more=_more(len(rows), "rank"))]
    if last:
        blocks.append(Bullets((*last[:MOST_ROWS], *filter(None, [_more(len(last), "group")])), "Last to come"))
    patterns, counters = path_section.pattern_lines(traces, nameless=nameless), path_section.counter_lines(traces)
    host_bound = any(finding.kind == "host-bound" for finding in analysis.findings)
    for title, lines in (
        ("Launches", launch_lines(traces, host_bound=host_bound, nameless=nameless)),
        ("Copies", copy_lines(traces)),
        ("Kernels that operators launch again and again", patterns),
        ("Counters of devices, by operator and kernel", counters),
        ("Clocks", clock_lines(traces)),
    ):
        blocks += [Bullets(lines, title)] if lines else []
    order = "latest first; " if len(rows) > 1 and any(row[-1] != NOT_LATE for row in rows) else ""
    yield Section(f"Time of each step, from traces ({order}% of the step)", tuple(blocks))
    yield from range_section.section(dataset, traces)


def _more(count: int, noun: str) -> str:
    left = count - MOST_ROWS
    return f"and {plural(left, f'more {noun}')}; the JSON report has them all" if left > 0 else ""


# The last ranks at collectives, for people: counts by group, and a list for a short window.

MOST_NAMED = 3
"""Most ranks that are named for a group."""
CERTAIN_RATIO = 3
"""Smallest ratio of a margin to the clock error that is sure."""


def last_lines(dataset: Dataset, traces: TraceAnalysis) -> list[str]:
    """By group the counts of last ranks; for a window too short for a verdict also the collectives, with certainty."""
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
        said = "; ".join(who[:MOST_NAMED]) or "no rank is last by more than the error of the clocks"
        out.append(f"{_group(dataset, int(str(group)))}, {plural(of, 'collective')}: {said}")
    return out


def _group(dataset: Dataset, group: int) -> str:
    found = dataset.group_list[group]
    label = group_label(dataset.group_list, found.id, dataset.world_size)
    return label + (f" of {ranks_text(found.ranks)}" if found.ranks and len(found.ranks) < dataset.world_size else "")


def _came(rank: int, times: int, sure: int, margin: int) -> str:
    surely = "" if sure == times else f", surely in {sure}"
    return f"rank {rank} last in {times}{surely}, by {duration(margin)}"


def _one_by_one(dataset: Dataset, traces: TraceAnalysis) -> Iterator[str]:
    for turn in last_rank_runs(traces.last):
        before = "" if turn.second is None or len(turn.seqs) > 1 else f" after rank {turn.second}"
        came = (
            f"{_group(dataset, turn.group)} #{rank_ranges(turn.seqs)}: rank {turn.rank} last, by {turn.margin}{before}"
        )
        yield f"{came}: {_how_sure(turn, traces.clock_error_ns)}"


def _how_sure(turn: LastRankRun, error: int | None) -> str:
    """The margin against the clock error, in words."""
    if not error:
        return "sure, on one clock" if turn.sure else "at once"
    off = f"clocks may be off by {duration(error)}"
    if not turn.sure:
        return f"not sure, {off}"
    return "sure" if turn.least_ns >= CERTAIN_RATIO * error else f"likely, {off}"
