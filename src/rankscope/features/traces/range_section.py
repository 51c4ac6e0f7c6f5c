"""Device time by annotation and module, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from rankscope.features.traces.rules.model import RANGE_KINDS, TraceAnalysis
from rankscope.features.traces.rules.range_times import MODULE, over_ranks
from rankscope.report.blocks import Block, Grid, Section
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, duration, plural

MOST_RANGES = 5
"""Most rows of each kind for people."""
UNEVEN = 1.1
"""Smallest ratio to the median rank of a rank that is told."""
LEAST_SHARE = 0.01
"""Smallest share of the work of a device that people are told of."""
_LONGEST_NAME = 30
HEAD = ("gpu", "share", "comm", "least", "most", "on rank")
UNKNOWN = "-"
_ALONE = 4
"""Columns of a rank that nobody is compared with."""
_SAME_WORK = ("device_ns", "communication_ns", "least_ns", "most_ns")


def section(dataset: Dataset, traces: TraceAnalysis) -> Iterator[Section]:
    """Device time by annotation and by class of module, where a program names them."""
    blocks = list[Block]()
    alone = dataset.is_rankless or traces.ranges["rank"].n_unique() == 1
    columns = _ALONE if alone else len(HEAD) + 1
    for kind, noun in ((RANGE_KINDS[0], "annotation"), (RANGE_KINDS[2], "module")):
        table = over_ranks(traces.ranges, kind, traces.steps)
        table = table.filter((pl.col("device_ns") > 0) & (pl.col("share") >= LEAST_SHARE))
        # of ranges that hold the same work the outermost says enough
        table = table.unique(_SAME_WORK, keep="first", maintain_order=True)
        if table.is_empty():
            continue
        rows = [range_cells(row)[:columns] for row in table.head(MOST_RANGES).iter_rows(named=True)]
        left = table.height - len(rows)
        more = f"and {plural(left, f'more {noun}')}; the JSON report has them all" if left > 0 else ""
        blocks.append(Grid(head=(noun, *HEAD)[:columns], rows=rows, more=more))
    if blocks:
        per = "a step" if traces.has_steps else "in the window"
        compared = "" if alone else "; least and most: of ranks, without communication"
        yield Section(f"GPU time by annotation and module, {per} (they may hold one another{compared})", tuple(blocks))


def range_name(name: str) -> str:
    """A range for people: a module without the profiler's prefix."""
    return plain(name.removeprefix(MODULE))


def range_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of `over_ranks` as texts: the name, then those of HEAD."""
    share = UNKNOWN if row["share"] is None else f"{100 * row['share']:.0f} %"
    return clipped(range_name(row["name"]), _LONGEST_NAME), *(
        UNKNOWN if row["device_ns"] is None else text
        for text in (
            duration(row["device_ns"]), share, duration(row["communication_ns"]), duration(row["least_ns"]),
            duration(row["most_ns"]), str(row["most_rank"]) if differs(row) else UNKNOWN,
        )
    )  # fmt: skip


def differs(row: dict[str, Any]) -> bool:
    """Whether a rank computes clearly longer in a range than the median rank."""
    return len(row["ranks"]) > 1 and row["most_ns"] is not None and row["most_ns"] >= UNEVEN * max(row["middle_ns"], 1)
