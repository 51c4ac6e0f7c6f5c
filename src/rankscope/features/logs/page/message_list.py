"""The lines of all logs in the order of time, limited by rank, role and text. No widget.

The list sorts and filters only positions; it looks up a row when the row comes into view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import polars as pl

from rankscope.report.log_excerpts import ROLES, filled_time
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import SECOND_NS, clipped, clock, ranks_text
from rankscope.tui.columns import Col, Columns
from rankscope.tui.styled_text import Role, Span

Roles = Literal["without noise", "root causes", "with noise"]
ROLE_CHOICES: tuple[Roles, ...] = ("without noise", "root causes", "with noise")
"""Choices of roles, in the order in which a key walks them."""
LETTERS: dict[str, tuple[str, Role]] = {
    "root": ("R", "bad"), "victim": ("v", "warn"), "context": (".", "dim"), "noise": ("-", "dim")
}  # fmt: skip
"""The letter of each role of a line, and how it is written."""
LEGEND = "R root cause  v victim  . context"
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
        """The place of the first root cause in the list; 0 if there is none."""
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
            text = wanted.text
            mask &= pl.any_horizontal(
                pl.any_horizontal(
                    pl.col(name).str.to_lowercase().str.contains(text, literal=True).fill_null(False)
                    for name in ("text", "kind", "pattern", "host")
                ),
                pl.col("file").is_in(files),
            )
        return mask.fill_null(False).alias("wanted")


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


def _text(row: dict[str, Any], cells: int) -> Span:
    look: Role = "bold" if row["role"] == "root" else "dim" if row["role"] == "noise" else "text"
    return Span(plain(brief(hide(row["text"] or "")[: 400 + 4 * cells])), look)


MESSAGE_COLUMNS = Columns[dict[str, Any]](
    Col(title="time", cell=lambda row: Span(when(row["time_ns"], row["resolution_ns"]), "dim"), width=12),
    Col(
        title="rank",
        cell=lambda row: Span("-" if row["rank"] is None else str(row["rank"]), "bold"),
        width=5,
        right=True,
    ),
    Col(title="", cell=lambda row: letter(row["role"]), width=1),
    Col(
        title="what",
        cell=lambda row: lambda cells: Span(clipped(plain(row["pattern"] or row["kind"]), cells), "dim"),
        width=lambda screen: 16 if screen < 100 else 24,
    ),
    Col(title="text", cell=lambda row: partial(_text, row)),
)
"""The columns of rows of `messages`."""
