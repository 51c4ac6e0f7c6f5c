"""Log lines around an operation: lines of its rank, and lines of others at about that time."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.logs.page.message_list import brief, letter, when
from rankscope.report.log_excerpts import ROLES, LogExcerpt, excerpt_keys, merged_excerpts
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import ranks_text
from rankscope.tui.detail.operation_index import OpIndex, Row
from rankscope.tui.detail.selection_facts import DetailPart
from rankscope.tui.styled_text import Line, Span, line, wrapped

MOST = 6
"""Lines of the rank that are shown."""
_ROOTS = 2
"""Most of them that are its nearest root causes, at any distance in time."""
_OTHERS = 4
"""Most lines of other ranks that are shown; equal lines count as one."""
WITHIN_NS = 1_000_000_000
"""Longest time between lines of others and the operation, in ns."""
_NAMED = ("root", "victim")
LOGS = ("nccl-log", "c10d-log")
"""Sources of operations with the local times of the hosts."""
_NOISE = ROLES.index("noise")


Zones: TypeAlias = Literal["any", "utc", "printed"]
"""Times of lines that can be compared with a moment: all, those in UTC, or those as hosts print them."""
SAME_ZONE_NS = 450 * 1_000_000_000
"""Zones are at least a quarter of an hour apart: half of that tells two zones apart."""


class Own(NamedTuple):
    """A line of the rank."""

    time_ns: int | None
    resolution_ns: int | None
    role: str
    text: str


class Around(NamedTuple):
    """Log lines around an operation."""

    own: tuple[Own, ...] = ()
    """In the order of time."""
    others: tuple[LogExcerpt, ...] = ()
    """Root causes first."""
    timed: bool = True
    """Whether the others wrote it within a second; else no time is known."""


def around(dataset: Dataset, rank: int, at_ns: int | None, zones: Zones = "any") -> Around:
    """Log lines of a rank and of others around a moment (ns since the epoch), without noise.

    Lines with times outside `zones` count as lines without a time.
    """
    if dataset.messages.is_empty():
        return Around()
    lines = excerpt_keys(dataset).filter(pl.col("place") < _NOISE)
    if zones != "any":
        known = pl.when(pl.col("utc") == (zones == "utc"))
        lines = lines.with_columns(known.then("time_ns").alias("time_ns"), known.then("at").alias("at"))
    others, timed = _others(lines.filter(pl.col("rank").fill_null(-1) != rank), at_ns)
    own = _own(lines.filter(pl.col("rank") == rank), at_ns)
    return Around(_texts(dataset, own), tuple(merged_excerpts(dataset, others, _OTHERS)[0]), timed)


def zones_for(index: OpIndex, source: str | None) -> Zones:
    """Times of lines that can be compared with the times of operations from `source`.

    Dumps and traces are in UTC. Hosts print UTC, too, if their last line is about as old as the last of the dumps.
    """
    if source in LOGS:
        return "printed"
    last = excerpt_keys(index.dataset).filter(~pl.col("utc"))["time_ns"].max()
    if not isinstance(last, int) or index.newest_ns is None:
        return "any"
    newest = max(index.newest_ns, index.written_ns or 0)
    return "any" if index.newest_ns - SAME_ZONE_NS <= last <= newest + SAME_ZONE_NS else "utc"


def _own(rows: pl.DataFrame, at_ns: int | None) -> pl.Series:
    """Rows of the lines nearest to the moment, the nearest causes included; the last lines if there are no times."""
    placed = rows.sort("at", "row", nulls_last=True).with_row_index("order")
    backwards = -pl.col("order").cast(pl.Int64)
    distance = (pl.col("at") - at_ns).abs() if at_ns is not None else backwards
    near = placed.sort(distance, backwards, nulls_last=True)
    roots = near.filter(pl.col("place") == 0).head(_ROOTS)
    rest = near.filter(~pl.col("order").is_in(roots["order"].implode())).head(MOST - roots.height)
    return pl.concat([roots, rest]).sort("order")["row"]


def _texts(dataset: Dataset, rows: pl.Series) -> tuple[Own, ...]:
    shown = dataset.messages[rows].select("time_ns", "resolution_ns", "role", "text")
    return tuple(Own(at, step, role or "", hide(text or "")) for at, step, role, text in shown.iter_rows())


def _others(rows: pl.DataFrame, at_ns: int | None) -> tuple[pl.DataFrame, bool]:
    """Lines within a second of the moment; without times, causes and victims in the order of the files."""
    if rows.is_empty() or (at_ns is not None and rows["time_ns"].null_count() < rows.height):
        near = rows.filter((pl.col("time_ns") - at_ns).abs() <= WITHIN_NS)
        return near.sort("place", "time_ns", "row"), True
    undated = rows.filter((pl.col("place") < len(_NAMED)) & pl.col("time_ns").is_null())
    return undated.sort("place", "row"), False


def own_line(said: Own) -> Line:
    """A line of the rank: when, role, text."""
    return line(
        Span(f"{when(said.time_ns, said.resolution_ns)} ", "dim"), letter(said.role), f" {plain(brief(said.text))}"
    )


def messages_part(index: OpIndex, _analysis: Analysis, rank: int, operation: Row | None) -> DetailPart:
    """Log lines around an operation of a rank, for the detail."""
    at_ns, source = (operation["created_ns"], operation["source"]) if operation else (None, None)
    said = around(index.dataset, rank, at_ns, zones_for(index, source))
    telling = most_telling(said)
    return DetailPart(
        "log",
        headline=None if telling is None else own_line(telling),
        is_cause=telling is not None and telling.role == ROLES[0],
        section=partial(said_lines, said),
    )


def most_telling(said: Around) -> Own | None:
    """The first root cause in the lines of the rank, or else the first line of a victim."""
    return next((message for role in _NAMED for message in said.own if message.role == role), None)


def said_lines(said: Around, width: int) -> list[Line]:
    """All log lines in lines of `width` cells, under headings."""
    lines: list[Line] = []
    if said.own:
        lines += [line(Span("log", "head")), *wrapped(map(own_line, said.own), width, 2)]
    if said.others:
        title = "others said within a second" if said.timed else "others said, at an unknown time"
        lines += [line(Span(title, "head")), *wrapped((_other(excerpt) for excerpt in said.others), width, 2)]
    return lines


def _other(excerpt: LogExcerpt) -> Line:
    """A line of other ranks: first time, role, ranks, text."""
    who = ranks_text(excerpt.ranks, 20) if excerpt.ranks else "unknown rank"
    same = ": same line" if len(excerpt.ranks) > 1 else ""
    return line(
        Span(f"{when(excerpt.time_ns, None)} ", "dim"),
        letter(excerpt.role),
        Span(f" {who}{same}", "bold"),
        f"  {plain(brief(excerpt.text))}",
    )
