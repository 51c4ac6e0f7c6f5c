"""The lines of logs that say why a job broke: causes first, then who suffered; alike ones as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from rankscope.report import words
from rankscope.schema import Dataset
from rankscope.text.secrets import hide
from rankscope.text.wording import moment, ranks_text

MOST = 1_000
"""Lines that the JSON report lists."""
MOST_SHOWN = 10
"""Lines that a report for people lists, those of many ranks as one."""
LONGEST = 300
"""Characters of a line in a report for people."""
ROLES = ("root", "victim", "context", "", "noise")
"""Roles of lines, those that say most first."""
_NUMBERS = r"0x[0-9a-fA-F]+|\d+"


class Said(NamedTuple):
    """What one or many ranks said, in words that differ only in their numbers."""

    role: str
    kind: str
    text: str
    """Of the first line; without secrets."""
    ranks: tuple[int, ...]
    host: str
    """Of the first line."""
    lines: int
    time_ns: int | None
    """Of the first line."""
    file: str
    line: int | None
    utc: bool = False
    """The line says the zone of its time; else that is the local one of its host."""

    @property
    def who(self) -> str:
        """The ranks that said it: "ranks 3-7"; "unknown rank on node07" where nothing tells."""
        unknown = f"unknown rank on {self.host}" if self.host else "unknown rank"
        return ranks_text(self.ranks, words.LONGEST_RANGES) if self.ranks else unknown


def filled_time() -> pl.Expr:
    """When a line was written, in ns since the epoch: without a time of its own, as the one before it in its file."""
    return pl.col("time_ns").forward_fill().over("file")


def narrow(dataset: Dataset) -> pl.DataFrame:
    """For each row of `messages` what tells it apart without its text: made once for as long as one job is shown.

    row: its position; rank, time_ns; utc: whether that is UTC, not as its host prints it; at: `filled_time`; place: of
    its role in ROLES; alike: a number that lines of one role and kind share whose words differ only in their numbers.
    """
    if not _kept or _kept[0][0] is not dataset.messages:
        _kept[:] = [(dataset.messages, _narrow(dataset.messages))]
    return _kept[0][1]


_kept: list[tuple[pl.DataFrame, pl.DataFrame]] = []


def _narrow(messages: pl.DataFrame) -> pl.DataFrame:
    words_alone = pl.col("text").str.slice(0, LONGEST).str.replace_all(_NUMBERS, "#")
    place = pl.col("role").replace_strict({role: i for i, role in enumerate(ROLES)}, default=ROLES.index(""))
    in_utc = pl.col("values").str.contains('"utc":true', literal=True)
    return messages.with_row_index("row").select(
        "row", "rank", "time_ns", in_utc.fill_null(value=False).alias("utc"),
        filled_time().alias("at"), place.cast(pl.Int8).alias("place"),
        pl.struct(place, "kind", words_alone).hash().alias("alike"),
    )  # fmt: skip


def accounts(dataset: Dataset) -> pl.DataFrame:
    """The rows of `narrow` that are causes or of victims: causes first, each in the order of time."""
    return narrow(dataset).filter(pl.col("place") < 2).sort("place", "at", "row", nulls_last=True)


def with_paths(dataset: Dataset, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `messages` with the path of their file as `path`."""
    paths = dataset.files.select("file", "path").unique("file", keep="first")
    return rows.join(paths, on="file", how="left", maintain_order="left")


def folded(dataset: Dataset, rows: pl.DataFrame, most: int) -> tuple[list[Said], int]:
    """Rows of `narrow`, alike ones as one, the first `most` of them; and how many rows are in none of these."""
    ranks = pl.col("rank").drop_nulls().unique().sort().alias("ranks")
    grouped = rows.group_by("alike", maintain_order=True).agg(pl.col("row").first(), pl.len().alias("lines"), ranks)
    shown = grouped.head(most)
    texts = with_paths(dataset, dataset.messages[shown["row"]]).drop("rank")
    said = [_said(row) for row in pl.concat([shown, texts], how="horizontal").iter_rows(named=True)]
    return said, rows.height - sum(one.lines for one in said)


def _said(row: dict[str, Any]) -> Said:
    return Said(
        row["role"] or "", row["kind"] or "", hide(row["text"] or ""), tuple(row["ranks"]), row["host"] or "",
        row["lines"], row["time_ns"], row["path"] or "", row["line"], '"utc":true' in (row["values"] or ""),
    )  # fmt: skip


def shown(dataset: Dataset) -> tuple[list[Said], int]:
    """What a report for people lists, and how many lines are not in it."""
    return folded(dataset, accounts(dataset), MOST_SHOWN)


def source(said: Said) -> str:
    """Where and when the first was written: "rank3.err, line 12, 2023-11-14 22:13:20 local time of its host"."""
    parts = [said.file, f"line {said.line}" if said.line is not None else ""]
    zone = "UTC" if said.utc else "local time of its host"
    parts += [moment(said.time_ns, zone)] if said.time_ns is not None else []
    return ", ".join(filter(None, parts))


def text_lines(said: Sequence[Said], more: int) -> list[tuple[str, str]]:
    """(role, line) for a report as text, with how many lines are left out."""
    lines = [(one.role, _line(one)) for one in said]
    return [*lines, ("", f"({more:,} more in the JSON report)")] if more else lines


def _line(one: Said) -> str:
    times = f", {one.lines} lines" if one.lines > 1 else ""
    place = source(one)
    return f"{one.who}{times}: {one.text[:LONGEST]}" + (f" ({place})" if place else "")


def json_rows(dataset: Dataset) -> tuple[list[dict[str, Any]], int]:
    """The causes and victims for the JSON report, MOST at most, and how many are left out."""
    rows = accounts(dataset)
    first = with_paths(dataset, dataset.messages[rows["row"].head(MOST)]).select(
        "time_ns", "rank", "host", pl.col("path").alias("file"), "line", "role", "pattern", "kind", "text"
    )
    return [{**row, "text": hide(row["text"] or "")} for row in first.to_dicts()], rows.height - first.height
