"""The lines of logs that say why a job broke: causes first, then who suffered; alike ones as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from rankscope.report import words
from rankscope.report.secrets import hide
from rankscope.schema import Dataset

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
    lines: int
    time_ns: int | None
    """Of the first line."""
    file: str
    line: int | None

    @property
    def who(self) -> str:
        """The ranks that said it: "ranks 3-7"; "unknown rank" where nothing tells."""
        return words.ranks_phrase(self.ranks) if self.ranks else "unknown rank"


def role_order() -> pl.Expr:
    """The place of a line's role in ROLES."""
    return pl.col("role").replace_strict({role: i for i, role in enumerate(ROLES)}, default=3, return_dtype=pl.Int8)


def filled_time() -> pl.Expr:
    """When a line was written, in ns since the epoch: without a time of its own, as the one before it in its file."""
    return pl.col("time_ns").forward_fill().over("file")


def accounts(dataset: Dataset) -> pl.DataFrame:
    """The rows of `messages` that are causes or of victims: causes first, each in the order of time."""
    rows = dataset.messages.with_columns(filled_time().alias("at")).filter(pl.col("role").is_in(ROLES[:2]))
    return rows.sort(role_order(), "at", "file", "offset", nulls_last=True).drop("at")


def with_paths(dataset: Dataset, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the path of their file as `path`."""
    paths = dataset.files.select("file", "path").unique("file", keep="first")
    return rows.join(paths, on="file", how="left", maintain_order="left")


def folded(dataset: Dataset, rows: pl.DataFrame) -> list[Said]:
    """Rows of `messages`, alike ones as one, in the order in which the first of each stands."""
    grouped = (
        with_paths(dataset, rows)
        .with_columns(alike=pl.col("text").str.replace_all(_NUMBERS, "#"))
        .group_by("role", "kind", "alike", maintain_order=True)
        .agg(
            pl.col("text", "time_ns", "path", "line").first(), pl.len().alias("lines"),
            pl.col("rank").drop_nulls().unique().sort(),
        )
    )  # fmt: skip
    return [_said(row) for row in grouped.iter_rows(named=True)]


def _said(row: dict[str, Any]) -> Said:
    return Said(
        row["role"] or "", row["kind"] or "", hide(row["text"] or ""), tuple(row["rank"]), row["lines"], row["time_ns"],
        row["path"] or "", row["line"],
    )  # fmt: skip


def shown(dataset: Dataset) -> tuple[list[Said], int]:
    """What a report for people lists, and how many lines are not in it."""
    rows = accounts(dataset)
    said = folded(dataset, rows)
    return said[:MOST_SHOWN], sum(one.lines for one in said[MOST_SHOWN:])


def source(said: Said) -> str:
    """Where and when the first was written: "rank3.err, line 12, 2023-11-14 22:13:20 UTC"."""
    parts = [said.file, f"line {said.line}" if said.line is not None else ""]
    parts += [words.moment(said.time_ns)] if said.time_ns is not None else []
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
    first = with_paths(dataset, rows.head(MOST)).select(
        "time_ns", "rank", "host", pl.col("path").alias("file"), "line", "role", "pattern", "kind", "text"
    )
    return [{**row, "text": hide(row["text"] or "")} for row in first.to_dicts()], rows.height - first.height
