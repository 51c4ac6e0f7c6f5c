"""All inputs: kind, rank and how it was found, and problems."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.schema.tables import BLIND_HOOK, HOOK
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, clipped, clock, plural, ranks_text
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.screens.page import TablePage
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line

HOOKED = {
    HOOK: "recorded by torch's hook: no starts, ends up to 1 s late, batches done at issue",
    BLIND_HOOK: "recorded by torch's hook: this backend reports no ends",
}


def ordered_files(dataset: Dataset) -> pl.DataFrame:
    """The files as they are listed: problems first, then guesses, then by attempt and rank."""
    trouble = (
        pl.when(pl.col("problem").is_not_null()).then(0).when(pl.col("rank_source") == "guess").then(1).otherwise(2)
    )
    return dataset.files.sort(trouble, "attempt", "rank", "path", nulls_last=True)


def _mark(row: dict[str, Any]) -> Span:
    """Whether a file was not read, or read in part."""
    return Span(" ") if not row["problem"] else Span("~", "warn") if row["used"] else Span("!", "bad")


FILE_COLUMNS = Columns[dict[str, Any]](
    Col(title="", cell=_mark, width=1),
    Col(
        title="rank",
        cell=lambda row: Span("-" if row["rank"] is None else str(row["rank"]), "bold"),
        width=6,
        right=True,
    ),
    Col(title="found by", cell=lambda row: _source(row["rank_source"]), width=8),
    Col(title="rows", cell=lambda row: str(row["rows"] or 0), width=8, right=True),
    Col(title="kind", cell=lambda row: partial(clipped, plain(row["kind"])), width=15),
    Col(title="path", cell=lambda row: line(plain(row["path"]), _problem(row))),
)


def _source(name: str | None) -> Span:
    """How the rank of a file was found; a guess stands out."""
    return Span("GUESSED", "warn") if name == "guess" else Span(name or "", "dim")


def _problem(row: dict[str, Any]) -> Span:
    return Span(f"  {plain(row['problem'])}" if row["problem"] else "", _mark(row).style)


def file_detail(row: dict[str, Any]) -> list[Line]:
    """The known facts of a file: path, problem, versions, missing fields."""
    lacks = [name for name in ("stacks", "timing", "status") if row[f"has_{name}"] is False]
    facts = [
        f"format {plain(row['version'])}" if row["version"] else "",
        f"library {plain(row['library_version'])}" if row["library_version"] else "",
        f"host {plain(row['host'])}" if row["host"] else "",
        byte_count(row["size"]) if row["size"] is not None else "",
        f"written {clock(row['mtime_ns'], digits=0)}" if row["mtime_ns"] is not None else "",
        f"attempt {row['attempt']}" if row["attempt"] is not None else "",
        "ring wrapped: older entries are gone" if row["wrapped"] else "",
        "only active entries" if row["filtered"] == "only-active" else "",
        HOOKED.get(row["recorder"], ""),
        f"without {', '.join(lacks)}" if lacks else "",
    ]
    lines = [line(Span(plain(row["path"]), "bold"))]
    if row["problem"]:
        lines.append(line(Span(plain(row["problem"]), "warn" if row["used"] else "bad")))
    return [*lines, line("; ".join(filter(None, facts)))]


class FilesScreen(TablePage[dict[str, Any]]):
    """The inputs; dismisses with the last operation of the rank of the chosen file."""

    VIEW = "files"
    FIND_HINT = "part of a path, a problem or a kind; or a rank"
    COLUMNS = FILE_COLUMNS

    def __init__(self, dataset: Dataset, analysis: Analysis | None = None, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        del analysis  # No analysis is needed here; all screens are opened alike.
        self.dataset = dataset
        self.files = self._listed = ordered_files(dataset)

    def heading(self) -> list[Line]:
        """The number of files, unreadable files, ranks without a file, and the columns."""
        files, missing = self.dataset.files, self.dataset.dumpless_ranks
        trouble = pl.col("problem").is_not_null()
        unread, partly = (files.filter(trouble & used).height for used in (~pl.col("used"), pl.col("used")))
        parts = [plural(files.height, "file"), f"{files['rows'].sum() or 0} rows"]
        parts += [f"{unread} not read"] if unread else []
        parts += [f"{partly} read in part"] if partly else []
        gone = Span(f", no {self.dataset.noun} of {ranks_text(missing, 24)}", "warn") if missing else ""
        return [line(Span(" files", "head"), f"  {', '.join(parts)}", gone), self.titles()]

    def search(self, text: str) -> int:
        """Lists the files with `text` in them, or of a rank."""
        self._listed = self.files.filter(_has(text)) if text else self.files
        return self._listed.height

    def row(self, at: int) -> dict[str, Any]:
        """A file of the list."""
        return self._listed.row(at, named=True)

    def about(self, row: dict[str, Any], width: int) -> list[Line]:
        """The known facts of a file."""
        del width
        return file_detail(row)

    def choose(self, at: int) -> None:
        """Goes to the last operation of the rank of the file."""
        row = self.row(at)
        if row["rank"] is None or not row["used"]:
            self.note("no operation of this file is in the lanes")
            return
        self.dismiss(index_of(self.dataset).last_operation(row["rank"]))


def _has(text: str) -> pl.Expr:
    if text.isdigit():
        return (pl.col("rank") == int(text)).fill_null(False)
    return pl.any_horizontal(
        pl.col(name).str.to_lowercase().str.contains(text, literal=True).fill_null(False)
        for name in ("path", "problem", "kind", "host")
    )
