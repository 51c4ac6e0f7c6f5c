"""The lines of all logs in the order of time, limited by rank, role and text. No widget.

The list sorts and filters only positions; it looks up a row when the row comes into view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import polars as pl

from rankscope.features.logs.log_excerpts import ROLES, LogExcerpt, excerpt_keys, filled_time, merged_excerpts
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import SECOND_NS, clipped, clock, ranks_text
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.styled_text import Line, Role, Span, line, wrapped

Roles = Literal["without noise", "root causes", "with noise"]
ROLE_CHOICES: tuple[Roles, ...] = ("without noise", "root causes", "with noise")
"""Choices of roles, in the order in which a key walks them."""
LETTERS: dict[str, tuple[str, Role]] = {
    "root": ("R", "bad"), "victim": ("v", "warn"), "context": (".", "dim"), "noise": ("-", "dim")
}  # fmt: skip
"""The letter of each role of a line, and how it is written."""
LEGEND = "R root cause  v victim  . context"
KIND, WIDE_KIND = 16, 24
"""Cells for the kind of a line; the second number is for wide screens."""
_ROOMY = 100
_HEAD = re.compile(
    r"^(?:\[?[DIWEF]\d{4} \d\d:\d\d:\d\d[.\d]{0,10} (?:\d{1,10} )?\S{1,200}:\d{1,6}\] "
    r"|\S{1,100}:\d{1,10}:\d{1,10} \[\d{1,3}\] )"
)


@dataclass(frozen=True)
class Wanted:
    """The filter and the order of the list."""

    text: str = ""
    """In small letters; "" for all."""
    ranks: frozenset[int] | None = None
    roles: Roles = "without noise"
    newest: bool = False
    """Whether the newest is first."""

    def in_words(self) -> list[str]:
        """Limits of the list by ranks and text; the heading shows the roles."""
        ranks = [] if self.ranks is None else [ranks_text(self.ranks, 24)]
        return [*ranks, *([repr(self.text)] if self.text else [])]


class MessageList:
    """Positions of the rows of `messages` that pass the filter."""

    def __init__(self, dataset: Dataset) -> None:
        self.messages = dataset.messages
        self.paths = dict(dataset.files.select("file", "path").iter_rows())
        sorted_rows = self.messages.select("file", "offset", filled_time().alias("at")).with_row_index("row")
        self._order = sorted_rows.sort("at", "file", "offset", nulls_last=True)["row"]
        self.rows = self._order

    def choose(self, wanted: Wanted) -> int:
        """Lists the lines that pass the filter; returns their number."""
        mask = pl.repeat(True, pl.len())
        if wanted.roles != "with noise":
            mask &= pl.col("role").is_null() | (pl.col("role") != "noise")
        if wanted.roles == "root causes":
            mask &= pl.col("role") == ROLES[0]
        if wanted.ranks is not None:
            mask &= pl.col("rank").is_in(list(wanted.ranks))
        if wanted.text:
            files = [file for file, path in self.paths.items() if wanted.text in (path or "").lower()]
            columns = (pl.col(name).str.to_lowercase() for name in ("text", "kind", "pattern", "host"))
            said = (column.str.contains(wanted.text, literal=True).fill_null(False) for column in columns)
            mask &= pl.any_horizontal(*said, pl.col("file").is_in(files))
        mask = mask.fill_null(False).alias("wanted")
        kept = self._order.filter(self.messages.select(mask)["wanted"].gather(self._order))
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
        """The place of the first root cause in the list; 0 if there is none."""
        roots = (self.messages["role"].gather(self.rows) == ROLES[0]).fill_null(False).arg_true()
        return int(roots[0]) if len(roots) else 0


def when(time_ns: int | None, resolution_ns: int | None) -> str:
    """The time of day of a line, as exact as in the log, in the unknown zone of the log."""
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
    """A line without the time and place that c10d and NCCL write before it, for screens that show those beside it."""
    return _HEAD.sub("", text, count=1)


def columns(width: int) -> str:
    """The heads of the columns of `message_line`."""
    return f"{'time':<12} {'rank':>5}   {'what':<{KIND if width < _ROOMY else WIDE_KIND}} text"


def message_line(row: dict[str, Any], width: int) -> Line:
    """A message in a line: time, rank, role, kind, text."""
    kind = KIND if width < _ROOMY else WIDE_KIND
    rank = "-" if row["rank"] is None else str(row["rank"])
    look: Role = "bold" if row["role"] == "root" else "dim" if row["role"] == "noise" else "text"
    return line(
        Span(f"{when(row['time_ns'], row['resolution_ns']):<12} ", "dim"),
        Span(f"{rank:>5} ", "bold"),
        letter(row["role"]),
        Span(f" {clipped(plain(row['pattern'] or row['kind']), kind):<{kind}} ", "dim"),
        Span(plain(brief(hide(row["text"] or "")[: 200 + 4 * width])), look),
    )


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
    chosen = _nearest_lines(lines.filter(pl.col("rank") == rank), at_ns)
    shown = dataset.messages[chosen].select("time_ns", "resolution_ns", "role", "text")
    texts = tuple(Own(at, step, role or "", hide(text or "")) for at, step, role, text in shown.iter_rows())
    return Around(texts, tuple(merged_excerpts(dataset, others, _OTHERS)[0]), timed)


def zones_for(index: OpIndex, source: str | None) -> Zones:
    """Times of lines that can be compared with the times of operations from `source`.

    Dumps and traces are in UTC. Hosts print UTC, too, if their last line is about as old as the last of the dumps.
    """
    if source in LOGS:
        return "printed"
    newest_local = excerpt_keys(index.dataset).filter(~pl.col("utc"))["time_ns"].max()
    if not isinstance(newest_local, int) or index.newest_ns is None:
        return "any"
    newest = max(index.newest_ns, index.written_ns or 0)
    return "any" if index.newest_ns - SAME_ZONE_NS <= newest_local <= newest + SAME_ZONE_NS else "utc"


def _nearest_lines(rows: pl.DataFrame, at_ns: int | None) -> pl.Series:
    """Rows of the lines nearest to the moment, the nearest causes included; the last lines if there are no times."""
    placed = rows.sort("at", "row", nulls_last=True).with_row_index("order")
    backwards = -pl.col("order").cast(pl.Int64)
    distance = (pl.col("at") - at_ns).abs() if at_ns is not None else backwards
    near = placed.sort(distance, backwards, nulls_last=True)
    roots = near.filter(pl.col("place") == 0).head(_ROOTS)
    rest = near.filter(~pl.col("order").is_in(roots["order"].implode())).head(MOST - roots.height)
    return pl.concat([roots, rest]).sort("order")["row"]


def _others(rows: pl.DataFrame, at_ns: int | None) -> tuple[pl.DataFrame, bool]:
    """Lines within a second of the moment; without times, causes and victims in the order of the files."""
    if rows.is_empty() or (at_ns is not None and rows["time_ns"].null_count() < rows.height):
        near = rows.filter((pl.col("time_ns") - at_ns).abs() <= WITHIN_NS)
        return near.sort("place", "time_ns", "row"), True
    undated = rows.filter((pl.col("place") < len(_NAMED)) & pl.col("time_ns").is_null())
    return undated.sort("place", "row"), False


def own_line(one: Own) -> Line:
    """A line of the rank: when, role, text."""
    return line(Span(f"{when(one.time_ns, one.resolution_ns)} ", "dim"), letter(one.role), f" {plain(brief(one.text))}")


def most_telling(said: Around) -> Own | None:
    """The first root cause in the lines of the rank, or else the first line of a victim."""
    return next((one for role in _NAMED for one in said.own if one.role == role), None)


def said_lines(said: Around, width: int) -> list[Line]:
    """All log lines in lines of `width` cells, under headings."""
    lines: list[Line] = []
    if said.own:
        lines += [line(Span("log", "head")), *wrapped(map(own_line, said.own), width, 2)]
    if said.others:
        title = "others said within a second" if said.timed else "others said, at an unknown time"
        lines += [line(Span(title, "head")), *wrapped((_other(one) for one in said.others), width, 2)]
    return lines


def _other(one: LogExcerpt) -> Line:
    """A line of other ranks: first time, role, ranks, text."""
    who = ranks_text(one.ranks, 20) if one.ranks else "unknown rank"
    same = ": same line" if len(one.ranks) > 1 else ""
    return line(
        Span(f"{when(one.time_ns, None)} ", "dim"),
        letter(one.role),
        Span(f" {who}{same}", "bold"),
        f"  {plain(brief(one.text))}",
    )
