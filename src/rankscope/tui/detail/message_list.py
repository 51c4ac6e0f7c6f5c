"""The lines of all logs in the order of time, narrowed down by rank, role and text. No widget.

Only positions are sorted and narrowed down; a row is looked up when it comes into view.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import polars as pl

from rankscope.report.messages import ROLES, filled_time
from rankscope.report.secrets import hide
from rankscope.schema import Dataset
from rankscope.tui.detail.format import clipped, clock, plain
from rankscope.tui.detail.line import Line, Role, Span, line
from rankscope.tui.fold import rank_label

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
_SECOND = 1_000_000_000


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
        ranks = [] if self.ranks is None else [f"ranks {rank_label(sorted(self.ranks), 24)}"]
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
    told = clock(time_ns, UTC)
    return told[:8] if time_ns is not None and (resolution_ns or 0) >= _SECOND else told


def date(time_ns: int | None) -> str:
    """The date of a line with a time in ns since the epoch, as it stands in the log; "" if it has none."""
    try:
        return "" if time_ns is None else f"{datetime.fromtimestamp(time_ns // _SECOND, UTC):%Y-%m-%d}"
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
