"""Results of traces for people and programs: time breakdown, last ranks, bandwidth, clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.traces import path_section
from rankscope.features.traces.rules.lateness import LastRankRun, is_short, last_rank_runs
from rankscope.features.traces.rules.model import TRACE_RESULTS, TraceAnalysis
from rankscope.features.traces.rules.trace_story import group_label
from rankscope.report.blocks import Block, Bullets, Grid, Section
from rankscope.schema import Dataset
from rankscope.text.wording import LONGEST_RANGES, byte_count, duration, plural, rank_ranges, ranks_text

MOST_ROWS = 12
"""Most rows of a table in a report for people."""
SHARE_TOLERANCE = 3.0
"""Largest difference of shares, in percent of the step, of ranks in one row."""
HEAD = ("ranks", "step", "compute", "comm", "exposed", "memory", "idle", "host gap", "late")
BANDWIDTH_HEAD = ("operation", "size", "of", "times", "time", "busbw", "80 % in")
_PARTS = ("compute_ns", "communication_ns", "exposed_ns", "memory_ns", "idle_ns", "host_gap_ns")
Cells = tuple[str, ...]


class _BreakdownRow(NamedTuple):
    rank: int
    step_ns: int
    late_ns: int
    shares: tuple[float, ...]
    """Percent of the step, by _PARTS; empty if nothing was recorded."""


def breakdown(traces: TraceAnalysis) -> list[Cells]:
    """The breakdown of the median step of each rank: the latest first, similar ranks in one row."""
    folded: list[tuple[_BreakdownRow, list[int]]] = []
    for row in sorted(_rows(traces), key=lambda r: (-r.late_ns, r.rank)):
        like = next((ranks for head, ranks in folded if _alike(head, row)), None)
        if like is None:
            folded.append((row, [row.rank]))
        else:
            like.append(row.rank)
    return [_cells(row, ranks) for row, ranks in folded]


def _rows(traces: TraceAnalysis) -> Iterator[_BreakdownRow]:
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("step_ns")
    table = traces.steps.with_columns(length).group_by("rank").agg(
        pl.col("step_ns").median(), pl.col("late_ns").median().fill_null(0.0),
        *((100 * pl.col(name) / pl.col("step_ns")).median().alias(name) for name in _PARTS),
    ).sort("rank")  # fmt: skip
    for rank, step, late, *shares in table.iter_rows():
        known = () if any(share is None for share in shares) else tuple(shares)
        yield _BreakdownRow(rank, int(step or 0), int(late or 0), known)


def _alike(one: _BreakdownRow, other: _BreakdownRow) -> bool:
    """Whether two ranks may share a row, also by their lateness."""
    if len(one.shares) != len(other.shares):
        return False
    late = abs(one.late_ns - other.late_ns) * 100 / max(one.step_ns, 1)
    apart = np.abs(np.array(one.shares) - np.array(other.shares))
    return bool(late <= SHARE_TOLERANCE and (apart <= SHARE_TOLERANCE).all())


def _cells(row: _BreakdownRow, ranks: list[int]) -> Cells:
    shares = [f"{share:.0f} %" for share in row.shares] or ["?"] * len(_PARTS)
    late = duration(row.late_ns) if row.late_ns >= 1000 else "-"
    return rank_ranges(ranks, LONGEST_RANGES), duration(row.step_ns), *shares, late


def bandwidth(dataset: Dataset, traces: TraceAnalysis) -> list[Cells]:
    """Bandwidths of the operations with most bytes; groups of one kind in one row."""
    groups, world = dataset.group_list, dataset.world_size
    labels = {g: group_label(groups, g, world) for g in traces.bandwidth["group"].unique().to_list()}
    table = (
        traces.bandwidth.with_columns(of=pl.col("group").replace_strict(labels, return_dtype=pl.String))
        .group_by("of", pl.col("op").cast(pl.String), "bytes")
        .agg(pl.col("count").sum(), pl.col("median_ns").median(), pl.col("busbw").median(), pl.col("low").min(),
             pl.col("high").max())
        .with_columns(moved=-pl.col("bytes") * pl.col("count")).sort("moved", "op", "of")
    )  # fmt: skip
    return [
        (r["op"], byte_count(r["bytes"]), r["of"], str(r["count"]), duration(int(r["median_ns"])),
         f"{_speed(r['busbw'])} GB/s", f"{_speed(r['low'])}-{_speed(r['high'])}")
        for r in table.iter_rows(named=True)
    ]  # fmt: skip


def _speed(value: float) -> str:
    """Three digits of a number below 1000, whole numbers above."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


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
    rows, last, speeds = breakdown(traces), last_lines(dataset, traces), bandwidth(dataset, traces)
    blocks: list[Block] = [Grid(head=HEAD, rows=rows[:MOST_ROWS], more=_more(len(rows), "rank"))]
    if last:
        blocks.append(Bullets((*last[:MOST_ROWS], *filter(None, [_more(len(last), "group")])), "Last to come"))
    if speeds:
        title = "Speed, from the last arrival to the end"
        more = _more(len(speeds), "operation")
        narrow = len(BANDWIDTH_HEAD) - 1
        blocks.append(Grid(title=title, head=BANDWIDTH_HEAD, rows=speeds[:MOST_ROWS], narrow=narrow, more=more))
    patterns, counters = path_section.pattern_lines(traces), path_section.counter_lines(traces)
    for title, lines in (
        ("Kernels that operators launch again and again", patterns),
        ("Counters of devices, by operator and kernel", counters),
        ("Clocks", clock_lines(traces)),
    ):
        blocks += [Bullets(lines, title)] if lines else []
    yield Section("Time of each step, from traces (latest first; % of the step)", tuple(blocks))


def _more(count: int, noun: str) -> str:
    left = count - MOST_ROWS
    return f"and {plural(left, f'more {noun}')}; the JSON report has them all" if left > 0 else ""


def json_keys(dataset: Dataset, analysis: Analysis) -> dict[str, Any]:
    """The key `traces` of the JSON report."""
    traces = TRACE_RESULTS.find(analysis)
    if traces is None:
        return {"traces": None}
    return {"traces": {**json_object(dataset, traces), **path_section.json_records(dataset, traces)}}


def json_object(dataset: Dataset, traces: TraceAnalysis) -> dict[str, Any]:
    """The tables in full; files by their path."""
    paths = dict(dataset.files.select("file", "path").iter_rows())
    names = {g.id: g.name for g in dataset.group_list}
    tables = {
        name: _records(getattr(traces, name), paths, names)
        for name in ("steps", "idle", "queues", "launches", "bandwidth", "last")
    }
    return {
        "clocks": [
            {"file": paths.get(file), "offset_ns": offset, "residual_ns": traces.residuals.get(file)}
            for file, offset in traces.offsets.items()
        ],
        "clock_error_ns": traces.clock_error_ns,
        "refused": traces.refused,
        "matched": traces.matched["match"].n_unique(),
        "recorded": traces.recorded,
        "causes": [
            {"rank": c.rank, "cause": c.cause, "what": c.what, "where": c.where, "detail": c.detail, "share": c.share,
             "stack": c.stack}
            for c in traces.causes.values()
        ],
        **tables,
        "kernels": _records(_top(traces.kernels), paths, names),
    }  # fmt: skip


MOST_KERNELS_JSON = 20
"""Most kernels of each file and kind in the JSON report."""


def _top(kernels: pl.DataFrame) -> pl.DataFrame:
    return kernels.filter(pl.col("total_ns").rank("ordinal", descending=True).over("file", "kind") <= MOST_KERNELS_JSON)


def _records(table: pl.DataFrame, paths: dict[int, str], names: dict[int, str]) -> list[dict[str, Any]]:
    rows = table.drop("track", "row", strict=False).to_dicts()
    for row in rows:
        if "file" in row:
            row["file"] = paths.get(row["file"])
        if "group" in row:
            row["group"] = names.get(row["group"])
    return rows


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
