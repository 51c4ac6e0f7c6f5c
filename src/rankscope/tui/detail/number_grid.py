"""Operations by ranks, from summaries of tensors: frozen arrays, from which the rows in view are cut.

A line is one operation of the program on all ranks that issue it: a collective with those of twin groups, a send, a
module, a gradient. Its cells are the ranks, and a cell holds all tensors of the operation on the rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.numbers.collective_units import group_kinds
from rankscope.schema import Dataset
from rankscope.tui.detail.number_cells import OFF, Codes

Ints = NDArray[np.int64]
_LINE = ["step", "micro", "site", "op", "name", "again", "kind"]
"""Columns that tell operations of a rank apart, but for how often they came before."""


@dataclass(frozen=True, eq=False)
class NumberGrid:
    """The operations of a run in program order, and its ranks."""

    lines: pl.DataFrame
    """A row for each line: step, micro, site, op, name, again, kind, group and seq of the first rank, groups (how many
    share the line), shared_seq (whether it is one number), `nth` of its kind in the step, `words` for the search."""
    ranks: Ints
    """The rank of each column, rising."""
    ends: Ints
    """The cells of line i are `ends[i]` up to `ends[i + 1]`."""
    columns: Ints
    """The column of each cell, rising within a line."""
    begins: Ints
    """The tensors of cell c are `rows[begins[c]:begins[c + 1]]`."""
    rows: Ints
    """Rows of `Dataset.tensors`, by cell and in program order."""

    def cells(self, codes: Codes) -> Codes:
        """The highest code of the tensors of each cell; `codes` has one for each row of `Dataset.tensors`."""
        if not len(self.rows):
            return np.zeros(0, np.uint8)
        found: Codes = np.maximum.reduceat(codes[self.rows], self.begins[:-1])
        return found

    def tensors_of(self, cell: int) -> Ints:
        """Rows of the tensors of a cell."""
        return self.rows[self.begins[cell] : self.begins[cell + 1]]

    def place_of(self, row: int) -> tuple[int, int] | None:
        """Line and cell of a row of `Dataset.tensors`; None if it is not in the grid."""
        found = np.flatnonzero(self.rows == row)
        if not len(found):
            return None
        cell = int(np.searchsorted(self.begins, found[0], "right")) - 1
        return int(np.searchsorted(self.ends, cell, "right")) - 1, cell


def binned_line(grid: NumberGrid, cells: Codes, at: int, per: int) -> Codes:
    """The highest code of each `per` columns of a line; 0 where no rank has a cell."""
    out = np.zeros(-(-len(grid.ranks) // per), np.uint8)
    own = slice(int(grid.ends[at]), int(grid.ends[at + 1]))
    np.maximum.at(out, grid.columns[own] // per, cells[own])
    return out


def worst_cell(grid: NumberGrid, cells: Codes, at: int, bin_: int, per: int) -> int | None:
    """The cell with the highest code in some columns of a line, the first one of several; None without any."""
    first, last = int(grid.ends[at]), int(grid.ends[at + 1])
    low, high = first + np.searchsorted(grid.columns[first:last], [bin_ * per, (bin_ + 1) * per])
    return int(low + cells[low:high].argmax()) if low < high else None


def lines_off(grid: NumberGrid, cells: Codes) -> Ints:
    """Lines that hold a cell that is off."""
    if not len(cells):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.logical_or.reduceat(OFF[cells], grid.ends[:-1])).astype(np.int64)


# The arrangement of the tensors.


def number_grid(dataset: Dataset) -> NumberGrid:
    """The operations of all recorded steps."""
    rows = _numbered(_tensors(dataset))
    key = [*_LINE, "nth"]
    begun = rows.group_by(key).agg(pl.col("issued").min(), pl.col("row").min())
    order = begun.sort("step", "issued", "row", nulls_last=False).with_row_index("line").select(*key, "line")
    rows = rows.join(order, on=key, how="left", nulls_equal=True, maintain_order="left")
    ranks = np.unique(rows["rank"].to_numpy()).astype(np.int64)
    rows = rows.with_columns(column=pl.Series(np.searchsorted(ranks, rows["rank"].to_numpy())))
    rows = rows.sort("line", "column", "order", "row", nulls_last=False)
    line, column = (rows[name].to_numpy().astype(np.int64) for name in ("line", "column"))
    first = np.flatnonzero((np.diff(line, prepend=-1) != 0) | (np.diff(column, prepend=-1) != 0))
    ends = np.append(np.flatnonzero(np.diff(line[first], prepend=-1)), len(first))
    begins = np.append(first, len(line))
    return NumberGrid(
        _lines(dataset, rows), ranks, ends.astype(np.int64), column[first], begins.astype(np.int64),
        rows["row"].to_numpy().astype(np.int64),
    )  # fmt: skip


def _tensors(dataset: Dataset) -> pl.DataFrame:
    """All tensors with the columns that place them, texts as numbers of their categories."""
    texts = [pl.col(name).to_physical().fill_null(-1 if name == "site" else 0) for name in ("site", "op", "name")]
    return (
        dataset.tensors.with_row_index("row").filter(pl.col("rank").is_not_null())
        .join(group_kinds(dataset), on="group", how="left", maintain_order="left")
        .select("row", "rank", pl.col("step").fill_null(-1), pl.col("micro").fill_null(-1),
                pl.col("order").fill_null(-1), *texts, again=pl.col("recompute").fill_null(value=False),
                kind=pl.col("kind").cast(pl.Categorical).to_physical(), group="group", seq="seq",
                peer=pl.col("peer").fill_null(-1), occurrence=pl.col("occurrence").fill_null(-1))
    )  # fmt: skip


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """The tensors with `nth`: how many operations of the line came before on the rank; and when it was issued."""
    call = [*_LINE, "rank", "group", "seq", "peer", "occurrence"]
    calls = rows.group_by(call, maintain_order=True).agg(issued=pl.col("order").min(), row=pl.col("row").min())
    calls = calls.sort("rank", "issued", "row").with_columns(nth=pl.int_range(pl.len()).over([*_LINE, "rank"]))
    return rows.join(calls.drop("row"), on=call, how="left", nulls_equal=True, maintain_order="left")


def _lines(dataset: Dataset, rows: pl.DataFrame) -> pl.DataFrame:
    """The table of lines; texts come back from a tensor of each."""
    facts = rows.group_by("line", maintain_order=True).agg(
        pl.col("row", "step", "micro", "again", "group", "seq", "nth").first(), groups=pl.col("group").n_unique(),
        shared_seq=pl.col("seq").n_unique() == 1,
    )  # fmt: skip
    told = dataset.tensors[facts["row"].to_numpy()].select(pl.col("site", "op", "name").cast(pl.String))
    groups = dataset.groups.select("group", kind=pl.coalesce(pl.col("description").replace("", None), "name"))
    lines = pl.concat([facts.drop("line", "row"), told], how="horizontal")
    lines = lines.join(groups, on="group", how="left", maintain_order="left")
    words = pl.concat_str("site", "op", "name", "kind", pl.format("step {}", "step"), separator=" ", ignore_nulls=True)
    return lines.with_columns(words=words.str.to_lowercase())
