"""The lines of all logs in the order of time, narrowed down by rank, role and text. No widget.

Only positions are sorted and narrowed down; a row is looked up when it comes into view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import polars as pl

from rankscope.report.log_excerpts import ROLES, LogExcerpt, excerpt_keys, filled_time, merged_excerpts
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import SECOND_NS, clipped, clock, ranks_text
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.styled_text import Line, Role, Span, line, wrapped

Roles = Literal["without noise", "root causes", "with noise"]
ROLE_CHOICES: tuple[Roles, ...] = ("without noise", "root causes", "with noise")
"""What may be asked for, in the order in which a key walks them."""
LETTERS: dict[str, tuple[str, Role]] = {
    "root": ("R", "bad"), "victim": ("v", "warn"), "context": (".", "dim"), "noise": ("-", "dim")
}  # fmt: skip
"""The letter of each role of a line, and how it is written."""
LEGEND = "R root cause  v victim  . context"
KIND, WIDE_KIND = 16, 24
"""Cells of what a line is known as; the second where there is room."""
_ROOMY = 100
_HEAD = re.compile(
    r"^(?:\[?[DIWEF]\d{4} \d\d:\d\d:\d\d[.\d]{0,10} (?:\d{1,10} )?\S{1,200}:\d{1,6}\] "
    r"|\S{1,100}:\d{1,10}:\d{1,10} \[\d{1,3}\] )"
)


@dataclass(frozen=True)
class Wanted:
    """Which lines are listed, and how."""

    text: str = ""
    """In small letters; "" for all."""
    ranks: frozenset[int] | None = None
    roles: Roles = "without noise"
    newest: bool = False
    """Whether the newest is first."""

    def in_words(self) -> list[str]:
        """What narrows the list down; ranks and text, for roles stand in the heading."""
        ranks = [] if self.ranks is None else [ranks_text(self.ranks, 24)]
        return [*ranks, *([repr(self.text)] if self.text else [])]


class MessageList:
    """Positions of the rows of `messages` that are wanted."""

    def __init__(self, dataset: Dataset) -> None:
        self.messages = dataset.messages
        self.paths = dict(dataset.files.select("file", "path").iter_rows())
        sorted_rows = self.messages.select("file", "offset", filled_time().alias("at")).with_row_index("row")
        self._order = sorted_rows.sort("at", "file", "offset", nulls_last=True)["row"]
        self.rows = self._order

    def choose(self, wanted: Wanted) -> int:
        """Lists what is wanted; returns how many lines that are."""
        kept = self._order.filter(self.messages.select(self._mask(wanted))["wanted"].gather(self._order))
        self.rows = kept.reverse() if wanted.newest else kept
        return len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, at: int) -> dict[str, Any]:
        """The row at a place of the list, with the `path` of its file."""
        row = self.messages.row(self.rows[at], named=True)
        return {**row, "path": self.paths.get(row["file"]) or ""}

    def counts(self) -> dict[str, int]:
        """How many lines there are of each role, listed or not."""
        return dict(self.messages.group_by("role").len().iter_rows())

    def first_root(self) -> int:
        """Where the first root cause stands in the list; 0 if there is none."""
        roots = (self.messages["role"].gather(self.rows) == ROLES[0]).fill_null(False).arg_true()
        return int(roots[0]) if len(roots) else 0

    def _mask(self, wanted: Wanted) -> pl.Expr:
        mask = pl.repeat(True, pl.len())
        if wanted.roles != "with noise":
            mask &= pl.col("role").is_null() | (pl.col("role") != "noise")
        if wanted.roles == "root causes":
            mask &= pl.col("role") == ROLES[0]
        if wanted.ranks is not None:
            mask &= pl.col("rank").is_in(list(wanted.ranks))
        if wanted.text:
            files = [file for file, path in self.paths.items() if wanted.text in (path or "").lower()]
            mask &= pl.any_horizontal(_has(wanted.text), pl.col("file").is_in(files))
        return mask.fill_null(False).alias("wanted")


def _has(text: str) -> pl.Expr:
    return pl.any_horizontal(
        pl.col(name).str.to_lowercase().str.contains(text, literal=True).fill_null(False)
        for name in ("text", "kind", "pattern", "host")
    )


def when(time_ns: int | None, resolution_ns: int | None) -> str:
    """The time of day of a line, as exactly as it was told: as it stands in the log, whose zone nothing says."""
    return clock(time_ns, UTC, 0 if (resolution_ns or 0) >= SECOND_NS else 3)


def date(time_ns: int | None) -> str:
    """The date of a line with a time in ns since the epoch, as it stands in the log; "" if it has none."""
    try:
        return "" if time_ns is None else f"{datetime.fromtimestamp(time_ns // SECOND_NS, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return ""


def letter(role: str | None) -> Span:
    """The letter of a role; a blank where a line has none."""
    text, look = LETTERS.get(role or "", (" ", "text"))
    return Span(text, look)


def brief(text: str) -> str:
    """A line without the time and place that c10d and NCCL write before each, for where those stand beside it."""
    return _HEAD.sub("", text, count=1)


def columns(width: int) -> str:
    """What stands in the columns of `message_line`."""
    return f"{'time':<12} {'rank':>5}   {'what':<{KIND if width < _ROOMY else WIDE_KIND}} text"


def message_line(row: dict[str, Any], width: int) -> Line:
    """A message in a line: time, rank, role, what it is known as, text."""
    kind = KIND if width < _ROOMY else WIDE_KIND
    rank = "-" if row["rank"] is None else str(row["rank"])
    look: Role = "bold" if row["role"] == "root" else "dim" if row["role"] == "noise" else "text"
    return line(
        Span(f"{when(row['time_ns'], row['resolution_ns']):<12} ", "dim"),
        Span(f"{rank:>5} ", "bold"),
        letter(row["role"]),
        Span(f" {clipped(plain(row['pattern'] or row['kind']), kind):<{kind}} ", "dim"),
        Span(plain(hide(brief((row["text"] or "")[: 200 + 4 * width]))), look),
    )


# What the logs say around an operation: lines of the rank itself, and what others said at about that time.

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
    others: tuple[LogExcerpt, ...] = ()
    """Root causes first."""
    timed: bool = True
    """Whether the others said it within a second; else nothing tells when."""


def around(dataset: Dataset, rank: int, at_ns: int | None, zones: Zones = "any") -> Around:
    """What the logs say of a rank and of others around a moment (ns since the epoch); noise is left out.

    Lines whose times `zones` leaves out are taken for lines without a time.
    """
    if dataset.messages.is_empty():
        return Around()
    told = excerpt_keys(dataset).filter(pl.col("place") < _NOISE)
    if zones != "any":
        known = pl.when(pl.col("utc") == (zones == "utc"))
        told = told.with_columns(known.then("time_ns").alias("time_ns"), known.then("at").alias("at"))
    others, timed = _others(told.filter(pl.col("rank").fill_null(-1) != rank), at_ns)
    own = _own(told.filter(pl.col("rank") == rank), at_ns)
    return Around(_texts(dataset, own), tuple(merged_excerpts(dataset, others, _OTHERS)[0]), timed)


def zones_for(index: OpIndex, source: str | None) -> Zones:
    """Which times of lines can be held against those of an operation that a `source` of ops tells of.

    Dumps and traces are in UTC. Hosts that print their own time do so too if the last they say is about as old as the
    last of the dumps.
    """
    if source in LOGS:
        return "printed"
    told = excerpt_keys(index.dataset).filter(~pl.col("utc"))["time_ns"].max()
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


def _other(one: LogExcerpt) -> Line:
    """What others said: when the first did, role, who, text."""
    who = ranks_text(one.ranks, 20) if one.ranks else "unknown rank"
    same = ": same line" if len(one.ranks) > 1 else ""
    return line(
        Span(f"{when(one.time_ns, None)} ", "dim"),
        letter(one.role),
        Span(f" {who}{same}", "bold"),
        f"  {plain(brief(one.text))}",
    )
