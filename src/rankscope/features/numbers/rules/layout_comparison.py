"""Pieces of the tensors of a run beside the whole tensors of a trusted run of another layout.

Each rank is compared by itself, at the sampled places of the whole tensor that it holds.

The way of a name is learned from the step in which it fits best, since no record tells it. Gradients before they are
reduced, and losses, may be parts; what the optimizer works with must be whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.features.numbers.rules.difference_origins import (
    RESPONSES,
    coarseness,
    ladder,
    least_limit,
    sampling_slack,
)
from rankscope.features.numbers.rules.model import Floats
from rankscope.features.numbers.rules.named_tensors import (
    CALL,
    IS_BATCH,
    PARTIAL_GRADIENT,
    NamedTensors,
    WholeTensors,
    piece_sums,
    spread,
    whole_tensors,
)
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


NAME = ["site", "name", "slot"]
"""Key of what has one limit."""
MOST_DIVISORS = 24
"""Most numbers by which a sum may be divided that are tried."""
FACTOR_CLEARER = 100.0
"""A factor is told where the rest of the difference is at most so small a part of it."""
_FEWEST_SHUFFLED = 8
"""Smaller tensors have no order that can be told from another."""
SURE = 2.0
"""A difference of so many limits is wrong by itself: of thousands of tensors some exceed the limit by a little."""
NEXT, FEWEST_NEXT = 8, 2
"""A smaller one is wrong if of so many tensors after it in the program of the rank at least so many exceed theirs."""


@dataclass(frozen=True)
class LayoutComparison:
    """Tensors of the run under test that have a counterpart: a row for each piece of a rank, sorted by `row`.

    Columns: those of `CALL`, rank, row, order, order_other (place in the program of the reference), other_row, dtype,
    dtype_other, size, hash, hash_other, l2_other (norm of the whole), equal (the whole tensor is, bit for bit), off
    (root mean square of the difference, as a share of that of the reference), limit (null where nothing judges), wrong
    (beyond it for sure), ladder (Megatron's bound), rolled (`off` of shuffled samples, null for small tensors), places
    (samples that were compared), way and divisor (how the pieces make up the whole), factor (of the run over the
    reference, null if none is constant).
    """

    table: pl.DataFrame
    left_out: tuple[tuple[str, int], ...]
    """Which tensors were not compared, and how many."""


def compare_layouts(mine: NamedTensors, trusted: NamedTensors, perturbed: Sequence[NamedTensors]) -> LayoutComparison:
    """The run under test beside the trusted one; `perturbed` are trusted runs with a small change."""
    common = frozenset(mine.rows["data"].drop_nulls()) & frozenset(trusted.rows["data"].drop_nulls())
    ways = [_Alignment.of(mine, trusted, keys) for keys in dict.fromkeys([common, frozenset()])]
    best = max(ways, key=lambda way: way.same.height)
    table = _compared(best, _divisors(mine, trusted))
    held = table.filter(pl.col("places") > 0)
    responses = [_response(one.by_data(best.data), best.whole) for one in perturbed]
    left = (*best.left_out, ("that hold none of the sampled places", table.height - held.height))
    return LayoutComparison(_limited(held, responses), tuple((why, count) for why, count in left if count))


class _Alignment(NamedTuple):
    """Pieces of the run under test beside whole tensors of the trusted one."""

    data: frozenset[int]
    """Hashes of batches by which calls meet; without any they meet by their number in the step."""
    mine: NamedTensors
    whole: WholeTensors
    same: pl.DataFrame
    """Those of the same shape."""
    left_out: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, mine: NamedTensors, trusted: NamedTensors, data: frozenset[int]) -> _Alignment:
        """The pieces whose calls meet by these hashes."""
        mine, whole = mine.by_data(data), whole_tensors(trusted.by_data(data))
        told = whole.table.rename({name: f"{name}_other" for name in whole.table.columns if name not in CALL})
        rows = mine.rows.with_row_index("at").filter(~IS_BATCH)
        fit = rows.join(told, on=CALL, how="inner", nulls_equal=True, maintain_order="left")
        same = _with_pieces(fit.filter(pl.col("whole").eq_missing(pl.col("whole_other"))))
        left = (
            ("whose name and step the reference does not have", rows.height - fit.height),
            ("whose shape differs and whose place in the whole is not recorded", fit.height - same.height),
            ("of the reference whose copies differ or whose parts are missing", whole.unclear),
        )
        return cls(data, mine, whole, same, left)


def _divisors(mine: NamedTensors, trusted: NamedTensors) -> tuple[float, ...]:
    """Numbers by which sums of the run may be divided beside those of the other: quotients of sizes; 1 is the first."""
    found = {a / b: None for a in _sizes(mine) for b in _sizes(trusted)}
    return tuple(dict.fromkeys([1.0, *sorted(found)][:MOST_DIVISORS]))


def _sizes(tensors: NamedTensors) -> list[int]:
    """Sizes of groups, the number of ranks, and that of calls in a step."""
    calls = tensors.rows["call"].max()
    sizes = {len(ranks) for ranks in tensors.source.groups["ranks"]} | {tensors.rows["rank"].n_unique()}
    return sorted({1, *sizes, int(calls) + 1 if isinstance(calls, int) else 1} - {0})


def _with_pieces(fit: pl.DataFrame) -> pl.DataFrame:
    """Rows with the number of their piece, whether they are its first copy with these bits, and how many bits its
    copies have."""
    fit = fit.with_columns(piece=pl.struct(*CALL, "place").rank("dense").cast(pl.Int64) - 1)
    return fit.with_columns(
        copy=pl.int_range(pl.len()).over("piece", "hash") == 0, kinds=pl.col("hash").n_unique().over("piece")
    )


def _compared(best: _Alignment, divisors: tuple[float, ...]) -> pl.DataFrame:
    """The table without limits."""
    same = best.same
    bits = sample_bits(same["held_other"])
    other = best.whole.samples[same["number_other"].to_numpy()]
    samples = PieceSamples(best.mine.samples[same["at"].to_numpy()], other, sample_bits(same["held"]) & bits)
    fit = fitted(same, piece_ways(divisors), samples)
    rolled = distance(fit.samples, shuffled(other, bits), other, samples.held)
    small = same["size"].to_numpy() < _FEWEST_SHUFFLED
    columns = {
        "off": fit.off, "rolled": np.where(small, np.nan, rolled), "ladder": ladder(same["name"], same["dtype"]),
        "factor": _factor(fit.samples, samples), "places": samples.held.sum(axis=1),
    }  # fmt: skip
    same = _with_equality(same).with_columns(
        *(pl.Series(name, values) for name, values in columns.items()), other_row=pl.col("row_other"),
        way=pl.Series([one.name for one in fit.ways], dtype=pl.String),
        divisor=pl.Series([one.divisor for one in fit.ways], dtype=pl.Float64),
    )  # fmt: skip
    return same.select(
        *CALL, "rank", "row", "order", "order_other", "other_row", "dtype", "dtype_other", "size", "hash", "hash_other",
        "l2_other", "equal", "ladder", "places", "way", "divisor",
        pl.when("equal").then(0.0).otherwise("off").alias("off"),
        pl.col("rolled").fill_nan(None), pl.col("factor").fill_nan(None),
    )  # fmt: skip


def _with_equality(same: pl.DataFrame) -> pl.DataFrame:
    """Rows with `equal`: the hashes of the pieces of the whole tensor add up to that of the reference."""
    firsts = pl.col("hash").filter(pl.int_range(pl.len()).over("place") == 0)
    is_equal = (firsts.sum() == pl.col("hash_other").first()) & (pl.col("kinds").max() == 1)
    known = same.group_by(CALL, maintain_order=True).agg(equal=is_equal & pl.col("hash").is_not_null().all())
    told = same.join(known, on=CALL, how="left", nulls_equal=True, maintain_order="left")
    return told.with_columns(pl.col("equal").fill_null(value=False))


def _factor(mine: Floats, samples: PieceSamples) -> Floats:
    """The factor of the samples over those of the whole, by least squares; NaN where they do not have one."""
    usable: Flags = samples.held & np.isfinite(mine) & np.isfinite(samples.other)
    one, two = np.where(usable, mine, 0.0), np.where(usable, samples.other, 0.0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        power = (two**2).sum(axis=1)
        factor = (one * two).sum(axis=1) / power
        rest = np.sqrt(((one - factor[:, None] * two) ** 2).sum(axis=1) / power)
        clear = (rest < np.abs(factor - 1) / FACTOR_CLEARER) & ((two != 0).sum(axis=1) > 1) & (factor != 0)
        return np.where(clear, factor, np.nan)


def _response(perturbed: NamedTensors, whole: WholeTensors) -> pl.DataFrame:
    """The largest response of each name to a perturbation, over all steps: columns of `NAME`, and response."""
    own = whole_tensors(perturbed)
    fit = whole.table.join(own.table, on=[*CALL, "whole"], how="inner", nulls_equal=True, suffix="_other")
    a, b = own.samples[fit["number_other"].to_numpy()], whole.samples[fit["number"].to_numpy()]
    off = distance(a, b, b, sample_bits(fit["held"]) & sample_bits(fit["held_other"]))
    told = fit.select(NAME).with_columns(off=pl.Series(off)).filter(pl.col("off").is_finite())
    return told.group_by(NAME).agg(response=pl.col("off").max())


def _limited(table: pl.DataFrame, responses: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The table with limits: twice the largest response, at least four roundoffs, more where few places are held."""
    if not responses:
        return table.with_columns(limit=pl.lit(None, pl.Float64), wrong=pl.lit(value=False))
    largest = pl.concat(responses).group_by(NAME).agg(pl.col("response").max())
    table = table.join(largest, on=NAME, how="left", nulls_equal=True, maintain_order="left")
    least = pl.Series(least_limit(table["dtype"]))
    response = RESPONSES * pl.col("response") * coarseness(table["dtype"], table["dtype_other"])
    slack = pl.Series(sampling_slack(table["places"].to_numpy().astype(np.float64)))
    limit = pl.max_horizontal(response, pl.lit(least)) * pl.lit(slack)
    table = table.with_columns(limit=pl.when(pl.col("response").is_not_null()).then(limit)).drop("response")
    return _with_wrong(table)


def _with_wrong(table: pl.DataFrame) -> pl.DataFrame:
    """The table with `wrong`."""
    beyond = (pl.col("off") > pl.col("limit")).fill_null(value=False)
    table = table.sort("rank", "step", "order").with_columns(beyond=beyond)
    ahead = pl.col("beyond").cast(pl.Int32).reverse().rolling_sum(NEXT + 1, min_samples=1).reverse().over("rank")
    sure = (pl.col("off") > SURE * pl.col("limit")) | (ahead > FEWEST_NEXT)
    return table.with_columns(wrong=pl.col("beyond") & sure).drop("beyond").sort("row")
