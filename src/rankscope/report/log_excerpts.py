"""Excerpts of log lines that tell why a job broke: causes first, then victims; similar lines merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.kinds.event_kinds import EVENTS
from rankscope.report.blocks import Records, Section
from rankscope.report.json import Count, Moment, Rank, ReportPart, one_of
from rankscope.schema import Dataset
from rankscope.text.secrets import hide
from rankscope.text.wording import moment, plural, ranks_text

MOST_JSON_LINES = 1_000
"""Most lines in the JSON report."""
MOST_SHOWN = 10
"""Most lines in a report for people, similar ones of many ranks merged."""
LONGEST_LINE = 300
"""Longest line in a report for people."""
ROLES = ("root", "victim", "context", "", "noise")
"""Roles of lines, the most telling first."""
_NUMBERS = r"0x[0-9a-fA-F]+|\d+"


class LogExcerpt(NamedTuple):
    """Lines of one or more ranks that differ only in their numbers."""

    role: str
    kind: str
    text: str
    """Text of the first line, without secrets."""
    ranks: tuple[int, ...]
    host: str
    """Host of the first line."""
    lines: int
    time_ns: int | None
    """Time of the first line."""
    file: str
    line: int | None
    utc: bool = False
    """Whether the time is UTC; else it is the local time of its host."""
    yearless: bool = False
    """Whether the line has no year: that of its time is the one of the file."""

    @property
    def who(self) -> str:
        """The ranks of the lines: "ranks 3-7"; "unknown rank on node07" if none is known."""
        unknown = f"unknown rank on {self.host}" if self.host else "unknown rank"
        return ranks_text(self.ranks) if self.ranks else unknown


def filled_time() -> pl.Expr:
    """Time of a line in ns since the epoch; without a time of its own, that of the previous line in its file."""
    return pl.col("time_ns").forward_fill().over("file")


def excerpt_keys(dataset: Dataset) -> pl.DataFrame:
    """For each row of `messages` its properties without the text; cached for one job.

    row: its index; rank, time_ns; utc: whether that is UTC, else local to its host; at: `filled_time`; place: index of
    its role in ROLES; alike: a number common to lines of one role and kind that differ only in their numbers.
    """
    if not _cached_rows or _cached_rows[0][0] is not dataset.messages:
        words_alone = pl.col("text").str.slice(0, LONGEST_LINE).str.replace_all(_NUMBERS, "#")
        place = pl.col("role").replace_strict({role: i for i, role in enumerate(ROLES)}, default=ROLES.index(""))
        in_utc = pl.col("values").str.contains('"utc":true', literal=True)
        narrow = dataset.messages.with_row_index("row").select(
            "row",
            "rank",
            "time_ns",
            in_utc.fill_null(value=False).alias("utc"),
            filled_time().alias("at"),
            place.cast(pl.Int8).alias("place"),
            pl.struct(place, "kind", words_alone).hash().alias("alike"),
        )
        _cached_rows[:] = [(dataset.messages, narrow)]
    return _cached_rows[0][1]


_cached_rows: list[tuple[pl.DataFrame, pl.DataFrame]] = []


def cause_rows(dataset: Dataset) -> pl.DataFrame:
    """The rows of `excerpt_keys` that are causes or victims: causes first, each by time."""
    return excerpt_keys(dataset).filter(pl.col("place") < 2).sort("place", "at", "row", nulls_last=True)


def with_paths(dataset: Dataset, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `messages` with the path of their file as `path`."""
    paths = dataset.files.select("file", "path").unique("file", keep="first")
    return rows.join(paths, on="file", how="left", maintain_order="left")


def merged_excerpts(dataset: Dataset, rows: pl.DataFrame, most: int) -> tuple[list[LogExcerpt], int]:
    """Rows of `excerpt_keys`, similar ones merged, the first `most` of them, and the number of other rows."""
    ranks = pl.col("rank").drop_nulls().unique().sort().alias("ranks")
    grouped = rows.group_by("alike", maintain_order=True).agg(pl.col("row").first(), pl.len().alias("lines"), ranks)
    shown = grouped.head(most)
    texts = with_paths(dataset, dataset.messages[shown["row"]]).drop("rank")
    said = [_excerpt(row) for row in pl.concat([shown, texts], how="horizontal").iter_rows(named=True)]
    return said, rows.height - sum(excerpt.lines for excerpt in said)


def _excerpt(row: dict[str, Any]) -> LogExcerpt:
    return LogExcerpt(
        row["role"] or "",
        row["kind"] or "",
        hide(row["text"] or ""),
        tuple(row["ranks"]),
        row["host"] or "",
        row["lines"],
        row["time_ns"],
        row["path"] or "",
        row["line"],
        '"utc":true' in (row["values"] or ""),
        '"yearless":true' in (row["values"] or ""),
    )


def shown_excerpts(dataset: Dataset) -> tuple[list[LogExcerpt], int]:
    """The excerpts of a report for people, and the number of further lines."""
    return merged_excerpts(dataset, cause_rows(dataset), MOST_SHOWN)


def excerpt_source(said: LogExcerpt) -> str:
    """Place and time of the first line: "rank3.err, line 12, 2023-11-14 22:13:20 local time of its host".

    A year that the line lacks is not shown.
    """
    parts = [said.file, f"line {said.line}" if said.line is not None else ""]
    zone = "UTC" if said.utc else "local time of its host"
    if said.time_ns is not None:
        parts.append(moment(said.time_ns, zone, with_year=not said.yearless))
    return ", ".join(filter(None, parts))


def section(dataset: Dataset, _: Analysis) -> Iterator[Section]:
    """The lines of logs that tell why the job broke, in a report for people."""
    excerpts, left = shown_excerpts(dataset)
    rows = [
        (
            excerpt.role,
            excerpt.who + (f", {excerpt.lines:,} lines" if excerpt.lines > 1 else ""),
            excerpt.text[:LONGEST_LINE],
            excerpt_source(excerpt),
        )
        for excerpt in excerpts
    ]
    more = f"{plural(left, 'line')} more in the JSON report" if left else ""
    if rows:
        head = ("role", "who", "what", "where")
        yield Section("Lines of logs", (Records(head=head, rows=rows, placed=True, labelled=True, more=more),))


class MessageObject(ReportPart):
    """A line of a log that is a cause, or of a victim."""

    time_ns: Moment | None
    rank: Rank | None
    host: str | None
    file: str | None
    line: int | None
    role: Literal["root", "victim"]
    pattern: str | None
    kind: Annotated[str, one_of(EVENTS)]
    text: str
    layer: str | None
    source: str | None

    def __post_init__(self) -> None:
        self.text = hide(self.text)


class LogKeys(ReportPart):
    """The keys of logs in the JSON report."""

    messages: Sequence[MessageObject]
    more_messages: Count


def json_keys(dataset: Dataset, _: Analysis) -> LogKeys:
    """The causes and victims, at most MOST_JSON_LINES, and the number of omitted ones."""
    rows = cause_rows(dataset)
    first = with_paths(dataset, dataset.messages[rows["row"].head(MOST_JSON_LINES)])
    values = {name: pl.col("values").str.json_path_match(f"$.{name}").replace("", None) for name in ("layer", "source")}
    first = first.with_columns(pl.col("text").fill_null(""), file=pl.col("path"), **values)
    return LogKeys(MessageObject.of_rows(first), rows.height - first.height)
