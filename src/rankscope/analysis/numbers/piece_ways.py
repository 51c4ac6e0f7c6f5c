"""Ways in which pieces of ranks make up a whole tensor: as copies of it, or as parts of a sum or of a mean.

The way of a name is learned from the step in which it fits best, since no record tells it. Gradients before they are
reduced, and losses, may be parts; what the optimizer works with must be whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.numbers.model import Floats
from rankscope.analysis.numbers.named_tensors import PARTIAL_GRADIENT, piece_sums
from rankscope.analysis.numbers.sample_values import spread
from rankscope.schema import MOST_SAMPLES

Flags = npt.NDArray[np.bool_]
CHUNK_ROWS = 1 << 15
"""Rows that are fitted at once: 16 MiB of samples for each way."""
CLEARER = 0.5
"""Another way than copies is taken only where its difference is less than this share of that of copies."""


class PieceWay(NamedTuple):
    """How pieces make up the whole."""

    name: str
    """copy: each is it; sum: all copies are parts of a sum; distinct: those that differ are."""
    divisor: float
    """The whole is so much smaller: a mean."""


class FittedPieces(NamedTuple):
    """Pieces in the way that fits them."""

    ways: list[PieceWay]
    off: Floats
    samples: Floats


class PieceSamples(NamedTuple):
    """Samples of pieces beside those of the whole tensors, shape (rows, MOST_SAMPLES)."""

    own: Floats
    other: Floats
    held: Flags
    """Where both have one."""

    def distance(self, values: Floats) -> Floats:
        """The distance of these values instead of `own` from the whole."""
        return distance(values, self.other, self.other, self.held)


def piece_ways(divisors: tuple[float, ...]) -> list[PieceWay]:
    """All ways, the plain one first."""
    return [PieceWay(name, divisor) for name in ("copy", "sum", "distinct") for divisor in divisors]


def fitted(rows: pl.DataFrame, ways: list[PieceWay], samples: PieceSamples) -> FittedPieces:
    """The way of each row, its distance from the whole, and its samples in that way.

    Columns: step, site, slot, name, piece (number of the piece, from 0), copy (whether it is the first with these
    bits), kinds (how many bits the copies of the piece have).
    """
    group = rows.select(number=pl.struct("site", "name", "slot").rank("dense"))["number"].to_numpy().astype(np.int64)
    number, off, out = np.zeros(rows.height, np.int64), np.empty(rows.height), np.empty_like(samples.own)
    for chunk in _chunks(group):
        own = PieceSamples(samples.own[chunk], samples.other[chunk], samples.held[chunk])
        number[chunk], off[chunk], out[chunk] = _fitted(rows[chunk], ways, own, group[chunk])
    return FittedPieces([ways[one] for one in number], off, out)


def _chunks(group: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Rows of some groups at a time, in their order, so that memory stays bounded."""
    order = np.argsort(group, kind="stable")
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    first = 0
    for end in [*begins[1:].tolist(), len(order)] if len(order) else []:
        if end - first >= CHUNK_ROWS or end == len(order):
            yield np.sort(order[first:end])
            first = end


def _fitted(
    rows: pl.DataFrame, ways: list[PieceWay], samples: PieceSamples, group: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """The number of the way of each row, its distance from the whole, and its samples in that way."""
    rows = rows.with_columns(piece=pl.col("piece").rank("dense").cast(pl.Int64) - 1)
    offs = np.full((len(ways), rows.height), np.inf)
    for off, way in zip(offs, ways, strict=True):
        values = _made(way, rows, samples.own)
        if values is not None:
            off[:] = np.where(_possible(way, rows), samples.distance(values), np.inf)
    numbers = np.unique(group, return_inverse=True)[1]
    best = _best(offs, numbers, rows["step"].fill_null(0))
    out = samples.own.copy()
    for number in np.unique(best[best > 0]):
        values = _made(ways[number], rows, samples.own)
        if values is not None:
            out[best == number] = values[best == number]
    return best, offs[best, np.arange(rows.height)], out


def _best(offs: Floats, group: npt.NDArray[np.int64], steps: pl.Series) -> npt.NDArray[np.int64]:
    """The way of each row: of its name, that which fits all pieces of some step best."""
    scores = []
    for off in offs:
        told = pl.DataFrame({"group": group, "step": steps, "off": off})
        worst = told.group_by("group", "step").agg(pl.col("off").max())
        scores.append(worst.group_by("group").agg(pl.col("off").min()).sort("group")["off"].to_numpy())
    table = np.array(scores)
    table[1:] /= CLEARER
    best: npt.NDArray[np.int64] = np.argmin(np.nan_to_num(table, nan=np.inf), axis=0)[group]
    return best


def _possible(way: PieceWay, rows: pl.DataFrame) -> Flags:
    """Rows that may make up the whole in this way."""
    site, unequal = pl.col("site"), pl.col("kinds") > 1
    if way == PieceWay("copy", 1):
        allowed = pl.lit(value=True)
    elif way.name == "copy":
        # a loss that is the mean over the own part has gradients that are so many times those of the whole
        allowed = (site == "backward") | PARTIAL_GRADIENT
    elif way.divisor == 1:
        allowed = unequal & (site.is_in(["forward", "backward", "loss"]) | PARTIAL_GRADIENT)
    else:
        allowed = unequal & (site.is_in(["backward", "loss"]) | PARTIAL_GRADIENT)
    found: Flags = rows.select(pl.when(pl.col("piece") >= 0).then(allowed).alias("is"))["is"].to_numpy()
    return found


def _made(way: PieceWay, rows: pl.DataFrame, own: Floats) -> Floats | None:
    """Samples of each row if its pieces make up the whole in this way; None if none may."""
    if not _possible(way, rows).any():
        return None
    if way.name == "copy":
        return own / way.divisor
    piece = rows["piece"].to_numpy().astype(np.int64)
    values = own if way.name == "sum" else np.where(rows["copy"].to_numpy()[:, None], own, 0.0)
    made: Floats = piece_sums(values, piece)[piece] / way.divisor
    return made


def sample_bits(held: pl.Series) -> Flags:
    """Which samples there are, shape (rows, MOST_SAMPLES)."""
    return spread(held.to_numpy().astype(np.uint64))


def distance(mine: Floats, other: Floats, whole: Floats, held: Flags) -> Floats:
    """Root mean square of the difference at the held places, as a share of that of all samples of the whole.

    Infinite where only one of two is finite, and where all of the whole is zero and the difference is not.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        alike = ~held | (np.isnan(mine) & np.isnan(other)) | (mine == other)
        gap = np.nan_to_num(np.where(alike, 0.0, mine - other), nan=np.inf)
        off = np.sqrt((gap**2).sum(axis=1) / np.maximum(held.sum(axis=1), 1))
        finite = np.isfinite(whole)
        norm = np.sqrt((np.where(finite, whole, 0.0) ** 2).sum(axis=1) / np.maximum(finite.sum(axis=1), 1))
        return np.where(off == 0, 0.0, off / norm)


def shuffled(other: Floats, held: Flags) -> Floats:
    """The samples of whole tensors in another order."""
    count = np.maximum(held.sum(axis=1), 1)[:, None]
    moved: Floats = np.take_along_axis(other, (np.arange(MOST_SAMPLES) + 1 + count // 3) % count, axis=1)
    return moved
