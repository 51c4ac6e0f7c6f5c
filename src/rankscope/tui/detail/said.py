"""What the logs say around an operation: lines of the rank itself, and what others said at about that time."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import polars as pl

from rankscope.report.messages import ROLES, Said, folded, narrow
from rankscope.report.secrets import hide
from rankscope.schema import Dataset
from rankscope.tui.detail.format import plain, rank_phrase
from rankscope.tui.detail.index import OpIndex
from rankscope.tui.detail.line import Line, Span, line, wrapped
from rankscope.tui.detail.message_list import brief, letter, when

MOST = 6
"""Lines of the rank that are shown."""
_ROOTS = 2
"""So many of them are its nearest root causes, however far away."""
_OTHERS = 4
"""Lines of other ranks that are shown, alike ones as one."""
WITHIN_NS = 1_000_000_000
"""How near in time the lines of others are."""
_NAMED = ("root", "victim")
LOGS = ("nccl-log", "c10d-log")
"""Sources of operations whose times are as hosts print them."""
_NOISE = ROLES.index("noise")


Zones: TypeAlias = Literal["any", "utc", "printed"]
"""Which times of lines can be held against a moment: all, those in UTC, or those as hosts print them."""
SAME_ZONE_NS = 450 * 1_000_000_000
"""Zones are a quarter of an hour apart at least: half of that tells them."""


class Own(NamedTuple):
    """A line of the rank."""

    time_ns: int | None
    resolution_ns: int | None
    role: str
    text: str


class Around(NamedTuple):
    """What was said around an operation."""

    own: tuple[Own, ...] = ()
    """In the order of time."""
    others: tuple[Said, ...] = ()
    """Root causes first."""
    timed: bool = True
    """Whether the others said it within a second; else nothing tells when."""


def around(dataset: Dataset, rank: int, at_ns: int | None, zones: Zones = "any") -> Around:
    """What the logs say of a rank and of others around a moment (ns since the epoch); noise is left out.

    Lines whose times `zones` leaves out are taken for lines without a time.
    """
    if dataset.messages.is_empty():
        return Around()
    told = narrow(dataset).filter(pl.col("place") < _NOISE)
    if zones != "any":
        known = pl.when(pl.col("utc") == (zones == "utc"))
        told = told.with_columns(known.then("time_ns").alias("time_ns"), known.then("at").alias("at"))
    others, timed = _others(told.filter(pl.col("rank").fill_null(-1) != rank), at_ns)
    own = _own(told.filter(pl.col("rank") == rank), at_ns)
    return Around(_texts(dataset, own), tuple(folded(dataset, others, _OTHERS)[0]), timed)


def zones_for(index: OpIndex, source: str | None) -> Zones:
    """Which times of lines can be held against those of an operation that a `source` of ops tells of.

    Dumps and traces are in UTC. Hosts that print their own time do so too if the last they say is about as old as the
    last of the dumps.
    """
    if source in LOGS:
        return "printed"
    told = narrow(index.dataset).filter(~pl.col("utc"))["time_ns"].max()
    if not isinstance(told, int) or index.newest_ns is None:
        return "any"
    newest = max(index.newest_ns, index.written_ns or 0)
    return "any" if index.newest_ns - SAME_ZONE_NS <= told <= newest + SAME_ZONE_NS else "utc"


def _own(rows: pl.DataFrame, at_ns: int | None) -> pl.Series:
    """Rows of the lines nearest to the moment, among them the nearest causes; without times the last ones."""
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
    """Lines within a second of the moment; where no line has a time, causes and victims in the order of the files."""
    if rows.is_empty() or (at_ns is not None and rows["time_ns"].null_count() < rows.height):
        near = rows.filter((pl.col("time_ns") - at_ns).abs() <= WITHIN_NS)
        return near.sort("place", "time_ns", "row"), True
    undated = rows.filter((pl.col("place") < len(_NAMED)) & pl.col("time_ns").is_null())
    return undated.sort("place", "row"), False


def own_line(one: Own) -> Line:
    """A line of the rank: when, role, text."""
    return line(Span(f"{when(one.time_ns, one.resolution_ns)} ", "dim"), letter(one.role), f" {plain(brief(one.text))}")


def most_telling(said: Around) -> Own | None:
    """The first root cause that the rank told of, or else the first line of a victim."""
    return next((one for role in _NAMED for one in said.own if one.role == role), None)


def said_lines(said: Around, width: int) -> list[Line]:
    """All of it in lines of `width` cells, under headings."""
    lines: list[Line] = []
    if said.own:
        lines += [line(Span("log", "head")), *wrapped(map(own_line, said.own), width, 2)]
    if said.others:
        title = "others said within a second" if said.timed else "others said, nothing tells when"
        lines += [line(Span(title, "head")), *wrapped((_other(one) for one in said.others), width, 2)]
    return lines


def _other(one: Said) -> Line:
    """What others said: when the first did, role, who, text."""
    who = rank_phrase(one.ranks, 20) if one.ranks else "unknown rank"
    same = ": same line" if len(one.ranks) > 1 else ""
    return line(
        Span(f"{when(one.time_ns, None)} ", "dim"),
        letter(one.role),
        Span(f" {who}{same}", "bold"),
        f"  {plain(brief(one.text))}",
    )
