"""Tensors of a run beside those of a trusted run of another layout: the first wrong operation, and what lies before it.

Each rank is compared by itself, at the sampled places of the whole tensor that it holds.

The way of a name is learned from the step in which it fits best, since no record tells it. Gradients before they are
reduced, and losses, may be parts; what the optimizer works with must be whole.

The program of the reference gives the order of first differences over ranks: of tensors that it computes one after the
other, the later ones follow. Within a rank its own program order counts. Clocks do not.

A reduction has no name of a parameter. It is known by what it gave: its output is the gradient up to a factor.
Statistics are compared and not hashes, which are those of a place in the whole for shards, and of the local tensor for
reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.features.numbers.rules.model import BrokenRule, Floats, format_of
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
from rankscope.features.numbers.rules.number_findings import NumberCause
from rankscope.features.numbers.rules.tensor_matching import (
    RESPONSES,
    coarseness,
    least_limit,
    sampling_slack,
)
from rankscope.schema import Dataset
from rankscope.schema.tables import MOST_SAMPLES
from rankscope.text.wording import plural, ranks_text

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
        pieces = PieceSamples(samples.own[chunk], samples.other[chunk], samples.held[chunk])
        number[chunk], off[chunk], out[chunk] = _fitted(rows[chunk], ways, pieces, group[chunk])
    return FittedPieces([ways[way] for way in number], off, out)


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
        distances = pl.DataFrame({"group": group, "step": steps, "off": off})
        worst = distances.group_by("group", "step").agg(pl.col("off").max())
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


def _made(way: PieceWay, rows: pl.DataFrame, samples: Floats) -> Floats | None:
    """Samples of each row if its pieces make up the whole in this way; None if none may."""
    if not _possible(way, rows).any():
        return None
    if way.name == "copy":
        return samples / way.divisor
    piece = rows["piece"].to_numpy().astype(np.int64)
    values = samples if way.name == "sum" else np.where(rows["copy"].to_numpy()[:, None], samples, 0.0)
    total: Floats = piece_sums(values, piece)[piece] / way.divisor
    return total


def sample_bits(bits: pl.Series) -> Flags:
    """Which samples there are, shape (rows, MOST_SAMPLES)."""
    return spread(bits.to_numpy().astype(np.uint64))


def distance(mine: Floats, other: Floats, whole: Floats, sampled: Flags) -> Floats:
    """Root mean square of the difference at the held places, as a share of that of all samples of the whole.

    Infinite where only one of two is finite, and where all of the whole is zero and the difference is not.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        alike = ~sampled | (np.isnan(mine) & np.isnan(other)) | (mine == other)
        gap = np.nan_to_num(np.where(alike, 0.0, mine - other), nan=np.inf)
        off = np.sqrt((gap**2).sum(axis=1) / np.maximum(sampled.sum(axis=1), 1))
        finite = np.isfinite(whole)
        norm = np.sqrt((np.where(finite, whole, 0.0) ** 2).sum(axis=1) / np.maximum(finite.sum(axis=1), 1))
        return np.where(off == 0, 0.0, off / norm)


def shuffled(other: Floats, sampled: Flags) -> Floats:
    """The samples of whole tensors in another order."""
    count = np.maximum(sampled.sum(axis=1), 1)[:, None]
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
    (beyond it for sure), rolled (`off` of shuffled samples, null for small tensors), places
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
    # numbers by which sums of the run may be divided beside those of the other: quotients of sizes; 1 is the first
    ratios = {a / b: None for a in _sizes(mine) for b in _sizes(trusted)}
    divisors = tuple(dict.fromkeys([1.0, *sorted(ratios)][:MOST_DIVISORS]))
    table = _compared(best, divisors)
    sampled = table.filter(pl.col("places") > 0)
    responses = [_response(run.by_data(best.data), best.whole) for run in perturbed]
    left = (*best.left_out, ("that hold none of the sampled places", table.height - sampled.height))
    return LayoutComparison(_limited(sampled, responses), tuple((why, count) for why, count in left if count))


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
        others = whole.table.rename({name: f"{name}_other" for name in whole.table.columns if name not in CALL})
        rows = mine.rows.with_row_index("at").filter(~IS_BATCH)
        fit = rows.join(others, on=CALL, how="inner", nulls_equal=True, maintain_order="left")
        same = fit.filter(pl.col("whole").eq_missing(pl.col("whole_other")))
        # the number of their piece, whether they are its first copy with these bits, and how many bits its copies have
        same = same.with_columns(piece=pl.struct(*CALL, "place").rank("dense").cast(pl.Int64) - 1).with_columns(
            copy=pl.int_range(pl.len()).over("piece", "hash") == 0, kinds=pl.col("hash").n_unique().over("piece")
        )
        left = (
            ("whose name and step the reference does not have", rows.height - fit.height),
            ("whose shape differs and whose place in the whole is not recorded", fit.height - same.height),
            ("of the reference whose copies differ or whose parts are missing", whole.unclear),
        )
        return cls(data, mine, whole, same, left)


def _sizes(tensors: NamedTensors) -> list[int]:
    """Sizes of groups, the number of ranks, and that of calls in a step."""
    calls = tensors.rows["call"].max()
    sizes = {len(ranks) for ranks in tensors.source.groups["ranks"]} | {tensors.rows["rank"].n_unique()}
    return sorted({1, *sizes, int(calls) + 1 if isinstance(calls, int) else 1} - {0})


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
        "off": fit.off,
        "rolled": np.where(small, np.nan, rolled),
        "factor": _factor(fit.samples, samples),
        "places": samples.held.sum(axis=1),
    }
    # the hashes of the pieces of a whole tensor add up to that of the reference
    firsts = pl.col("hash").filter(pl.int_range(pl.len()).over("place") == 0)
    is_equal = (firsts.sum() == pl.col("hash_other").first()) & (pl.col("kinds").max() == 1)
    known = same.group_by(CALL, maintain_order=True).agg(equal=is_equal & pl.col("hash").is_not_null().all())
    same = same.join(known, on=CALL, how="left", nulls_equal=True, maintain_order="left").with_columns(
        pl.col("equal").fill_null(value=False),
        *(pl.Series(name, values) for name, values in columns.items()),
        other_row=pl.col("row_other"),
        way=pl.Series([one.name for one in fit.ways], dtype=pl.String),
        divisor=pl.Series([one.divisor for one in fit.ways], dtype=pl.Float64),
    )
    return same.select(
        *CALL, "rank", "row", "order", "order_other", "other_row", "dtype", "dtype_other", "size", "hash", "hash_other",
        "l2_other", "equal", "places", "way", "divisor",
        pl.when("equal").then(0.0).otherwise("off").alias("off"),
        pl.col("rolled").fill_nan(None), pl.col("factor").fill_nan(None),
    )  # fmt: skip


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
    moved = whole_tensors(perturbed)
    fit = whole.table.join(moved.table, on=[*CALL, "whole"], how="inner", nulls_equal=True, suffix="_other")
    a, b = moved.samples[fit["number_other"].to_numpy()], whole.samples[fit["number"].to_numpy()]
    off = distance(a, b, b, sample_bits(fit["held"]) & sample_bits(fit["held_other"]))
    distances = fit.select(NAME).with_columns(off=pl.Series(off)).filter(pl.col("off").is_finite())
    return distances.group_by(NAME).agg(response=pl.col("off").max())


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
    beyond = (pl.col("off") > pl.col("limit")).fill_null(value=False)
    table = table.sort("rank", "step", "order").with_columns(beyond=beyond)
    ahead = pl.col("beyond").cast(pl.Int32).reverse().rolling_sum(NEXT + 1, min_samples=1).reverse().over("rank")
    sure = (pl.col("off") > SURE * pl.col("limit")) | (ahead > FEWEST_NEXT)
    return table.with_columns(wrong=pl.col("beyond") & sure).drop("beyond").sort("row")


SAME_TOTALS = 1e-3
"""Relative difference of totals up to which one tensor is a multiple of the other."""
_FACTS = ["sum", "l2", "min", "max"]
_CALL = ["op", "group", "seq"]


def moved_tensors(ours: Dataset, rank: int, step: int | None, begin: int, end: int) -> pl.DataFrame:
    """Tensors of collectives, sends and receives of a rank, between two places in its program."""
    order, site = pl.col("order"), pl.col("site").cast(pl.String)
    mine = (pl.col("rank") == rank) & pl.col("step").eq_missing(step)
    rows = ours.tensors.drop("samples").filter(mine, (order > begin) & (order < end), site.is_in(["collective", "p2p"]))
    return rows.with_columns(is_in=pl.col("slot").cast(pl.String).str.starts_with("in")).sort("order")


def giving(rows: pl.DataFrame, reduced: dict[str, Any]) -> pl.DataFrame:
    """The outputs among moved tensors that are the reduced gradient, up to a factor."""
    if not reduced["sum"] or not reduced["l2"]:
        return rows.clear()
    factor = pl.col("l2") / reduced["l2"]
    off = (pl.col("sum") / reduced["sum"] / factor - 1).abs()
    return rows.filter(~pl.col("is_in") & (pl.col("numel") == reduced["numel"]) & (off < SAME_TOTALS))


def brought_its_own(ours: Dataset, accumulated: dict[str, Any], reduced: dict[str, Any]) -> bool | None:
    """Whether a rank brought to the last reduction of a gradient the accumulated one, or the output of an earlier one.

    Both are rows of `tensors`. None where that reduction is not known.
    """
    rows = moved_tensors(ours, reduced["rank"], reduced["step"], accumulated["order"], reduced["order"])
    rows = rows.filter(pl.col("numel") == reduced["numel"])
    gave = giving(rows, reduced).tail(1)
    brought = rows.filter("is_in").join(gave.select(_CALL), on=_CALL, how="semi", nulls_equal=True)
    if brought.is_empty():
        return None
    earlier = rows.filter(~pl.col("is_in") & (pl.col("order") < gave["order"][0]))
    known = {tuple(accumulated[name] for name in _FACTS), *earlier.select(_FACTS).rows()}
    return all(facts in known for facts in brought.select(_FACTS).rows())


VARIANT = "differs-from-reference"
LARGEST_PART = 64
"""Largest numerator and denominator of a factor that is told as a fraction."""
_FACTOR_ERROR = 1e-4
_LEAST_FACTOR = 0.01
"""Factors nearer to 1 may be roundings."""
_MOST_BETWEEN = 3
"""Most operations between two tensors that are named."""
_AT_STEP = ("gradient", "parameter", "optimizer")
"""What a rank has at the step of the optimizer; of several names none comes before the others."""


def layout_causes(found: LayoutComparison, ours: Dataset, judged: bool) -> list[NumberCause]:
    """The first wrong tensor, with the ranks that have it; at most one cause.

    Without limits only what no rounding explains is judged: weights that the runs begin with, and constant factors.
    """
    table = found.table
    factors = pl.Series([fraction(value) is not None for value in table["factor"]], dtype=pl.Boolean)
    bad = table.filter("wrong") if judged else table.filter((begins_with() & ~pl.col("equal")) | factors)
    if bad.is_empty():
        return []
    firsts = bad.sort("rank", "step", "order").unique("rank", keep="first", maintain_order=True)
    firsts = firsts.sort("step", "order_other", "rank")
    root = firsts.row(0, named=True)
    at = CALL if root["site"] not in _AT_STEP or root["slot"].startswith("in") else ["step", "site", "slot"]
    there = firsts.filter(*(pl.col(name).eq_missing(root[name]) for name in at))
    firsts_by_rank = {row["rank"]: row for row in there.iter_rows(named=True)}
    wrong = _FirstWrong(found, ours, root, firsts_by_rank, tuple(firsts["rank"].to_list()))
    broken = wrong.broken("RP" if judged else "RX", bad.height)
    return [NumberCause(VARIANT, broken, (broken,), 1, None)]


def begins_with() -> pl.Expr:
    """Whether a row is about a weight before the first step: both runs begin with the same bits."""
    first = (pl.col("step") == pl.col("step").min()) & (pl.col("dtype") == pl.col("dtype_other"))
    return first & (pl.col("site") == "parameter") & pl.col("hash").is_not_null() & pl.col("hash_other").is_not_null()


def fraction(factor: float | None) -> Fraction | None:
    """The simple fraction that a factor is; None without one, or if it may be a rounding."""
    if factor is None or not abs(factor) < LARGEST_PART + 1 or abs(factor - 1) < _LEAST_FACTOR:
        return None
    near = Fraction(factor).limit_denominator(LARGEST_PART)
    return near if near and abs(float(near) - factor) < _FACTOR_ERROR * abs(factor) else None


@dataclass(frozen=True)
class _FirstWrong:
    found: LayoutComparison
    ours: Dataset
    root: dict[str, Any]
    """Row of the table."""
    firsts: dict[int, dict[str, Any]]
    """The first wrong tensor of each rank that has it at this place, by rank."""
    all_ranks: tuple[int, ...]
    """Ranks that hold any."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks with the first wrong tensor."""
        return tuple(sorted(self.firsts))

    def broken(self, rule: str, count: int) -> BrokenRule:
        """The broken rule, with a note."""
        root, named = self.root, self.ranks
        if root["site"] == "gradient" and root["slot"].startswith("out"):
            # the ranks that brought another gradient to its reduction than they had accumulated, if not all did
            kept = {rank: self._kept_its_own(rank) for rank in self.ranks}
            if {True, False} <= set(kept.values()):
                named = tuple(rank for rank, same in kept.items() if same is False)
        suspects: tuple[int, ...] = ()
        parts = [self._where()]
        if self._is_added_up:
            named, suspects = self._of_a_sum()
            if named and named != self.ranks:
                verb = "is" if len(named) == 1 else "are"
                parts.append(f"the ranks have parts of it, and of them only {ranks_text(named)} {verb} wrong behind it")
            elif suspects:
                parts.append("the ranks have parts of it, so it is not known whose part is wrong")
        elif named != self.ranks:
            brought = f"{ranks_text(named)} brought another gradient to the reduction than accumulated"
            parts.append(f"of the ranks with that result, {brought}")
        others = {rank: row for rank, row in self.firsts.items() if row["name"] != root["name"]}
        if others:
            verb = "differ" if len(others) > 1 else "differs"
            what = _words(next(iter(others.values())))
            parts.append(f"{ranks_text(tuple(others))} {verb} at the same moment, in {what}")
        parts.append(self._reason())
        later = sorted(set(self.all_ranks) - set(self.ranks))
        if later:
            parts.append(f"{ranks_text(later)} differ{'s' if len(later) == 1 else ''} only later")
        parts.append(f"{plural(count, 'tensor')} {'differ' if count != 1 else 'differs'} in all")
        note, row = "; ".join(filter(None, parts)), self.firsts[(named or self.ranks)[0]]["row"]
        off, limit = float(root["off"]), float(root["limit"] or 0.0)
        return BrokenRule(rule, row, named, suspects, members=self.ranks, value=off, limit=limit, note=note)

    @property
    def _is_added_up(self) -> bool:
        """Whether the parts of several ranks were added up to the first wrong tensor, so that all of them show it."""
        return len(self.firsts) > 1 and all(row["way"] != "copy" for row in self.firsts.values())

    def _of_a_sum(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ranks, of several whose parts of a sum are wrong together, that are wrong in the first tensor behind it
        that each has by itself; the suspects where that does not tell: none is wrong there, some were not compared, or
        all are and their sum went to all of them before. Nobody adds up a loss before its gradients begin."""
        root, rows = self.root, self.found.table
        behind = (pl.col("order_other") > root["order_other"]) & pl.col("step").eq_missing(root["step"])
        alone = rows.filter(behind, pl.col("way") == "copy", pl.col("site").is_in(["forward", "backward"]))
        of_parts = alone.filter(pl.col("rank").is_in(self.ranks)).sort("order_other", "rank")
        if root["limit"] is None:
            factors = pl.Series([fraction(value) is not None for value in of_parts["factor"]], dtype=pl.Boolean)
            of_parts = of_parts.with_columns(wrong=factors)
        shown = of_parts.filter("wrong").head(1)
        if shown.is_empty():
            return (), self.ranks
        first = shown.row(0, named=True)
        calls = of_parts.filter(*(pl.col(key).eq_missing(first[key]) for key in ("site", "name", "slot")))
        wrong = tuple(calls.filter("wrong")["rank"].unique().sort().to_list())
        is_told = set(calls["rank"]) == set(self.ranks) and (wrong != self.ranks or root["site"] == "loss")
        return (wrong, ()) if is_told else ((), self.ranks)

    def _kept_its_own(self, rank: int) -> bool | None:
        """Whether a rank brought its own gradient to the reduction; None if unknown."""
        first = self.firsts[rank]
        mine = (pl.col("rank") == rank) & pl.col("step").eq_missing(first["step"]) & (pl.col("name") == first["name"])
        kept = self.found.table.filter(mine, PARTIAL_GRADIENT)["row"]
        if kept.is_empty():
            return None
        return brought_its_own(self.ours, self._tensor(kept[0]), self._tensor(first["row"]))

    def _where(self) -> str:
        """The bracket in the program of the rank: what is right before the tensor, and what lies between."""
        root = self.root
        if root["limit"] is None:
            return "what came about before it is not judged without perturbed runs"
        is_output = root["slot"].startswith("out")
        rows = self._earlier()
        if root["site"] == "gradient" and is_output:
            # of a reduced gradient the accumulated one
            accumulated = rows.filter(PARTIAL_GRADIENT & (pl.col("name") == root["name"]))
            rows = accumulated if accumulated.height else rows
        before = rows.row(-1, named=True) if rows.height else None
        operations = ", ".join(self._between(before))
        if before is None:
            behind = f", behind {operations}" if operations else ""
            return f"it came about at it or before it: it is the first tensor of the step that is compared{behind}"
        behind = f"; between the two: {operations}" if operations else ""
        last = f"the last tensor before it, {_words(before)}, is within its limit{behind}"
        # what was compared before the first wrong tensor is within limits
        inputs = self._earlier(pl.col("site") == "forward", pl.col("slot").str.starts_with("in"))
        is_source = False
        if root["site"] == "forward" and is_output:
            call = [pl.col(key).eq_missing(root[key]) for key in ("name", "call", "data")]
            is_source = inputs.filter(*call).height > 0
        elif root["site"] == "optimizer":
            earlier = self._earlier(pl.col("name") == root["name"], pl.col("site").is_in(["gradient", "parameter"]))
            is_source = {"gradient", "parameter"} <= set(earlier["site"])
        if is_source:
            inner = f"; {last}" if before["name"] != root["name"] else behind
            return f"its inputs are within their limits and its result is not, so it made the difference{inner}"
        inside = ""
        if root["site"] == "forward":
            # the innermost module around it of which the inputs are within limits
            parts, known = root["name"].split(".")[:-1], set(inputs["name"])
            around = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
            inside = next((f", inside of {name}" for name in around if name in known), "")
        return f"it came about at it or before it{inside}: {last}"

    def _earlier(self, *conditions: pl.Expr) -> pl.DataFrame:
        """Compared rows of the rank in the step before the first wrong one, in program order."""
        rank, step, order = (self.root[name] for name in ("rank", "step", "order"))
        mine = (pl.col("rank") == rank) & pl.col("step").eq_missing(step) & (pl.col("order") < order)
        return self.found.table.filter(mine, *conditions).sort("order")

    def _between(self, before: dict[str, Any] | None) -> Iterator[str]:
        """Collectives, sends and receives of the rank between two of its tensors; None: since the step began."""
        begin = -1 if before is None else before["order"]
        rows = moved_tensors(self.ours, self.root["rank"], self.root["step"], begin, self.root["order"])
        if self.root["site"] == "gradient":
            reduced = self._tensor(self.root["row"])
            rows = rows.filter(pl.col("numel") == reduced["numel"])
            gave = giving(rows, reduced)
            if rows.height and gave.is_empty():
                yield "no reduction of its size gave it"
                return
            rows = gave
        rows = rows.unique(["op", "group", "seq", "peer"], keep="first", maintain_order=True)
        for row in rows.head(_MOST_BETWEEN).iter_rows(named=True):
            if row["peer"] is not None:
                yield f"{row['op']} with rank {row['peer']}"
                continue
            members = "a group"
            if row["group"] is not None:
                group = self.ours.groups.filter(pl.col("group") == row["group"]).row(0, named=True)
                ranks = ranks_text(tuple(group["ranks"]))
                members = f"{group['description']} ({ranks})" if group["description"] else ranks
            number = f" #{row['seq']}" if row["seq"] is not None else ""
            yield f"{row['op']}{number} of {members}"
        if rows.height > _MOST_BETWEEN:
            yield f"{plural(rows.height - _MOST_BETWEEN, 'more operation')}"

    def _tensor(self, row: int) -> dict[str, Any]:
        return self.ours.tensors.drop("samples").row(row, named=True)

    def _reason(self) -> str:
        """How it differs: a constant factor with its meaning, or the usual reason for such a difference, if any."""
        root, part = self.root, fraction(self.root["factor"])
        if part is not None:
            text = f"it is {part} times the reference"
            size = max(abs(part.numerator), part.denominator)
            if part.numerator != 1 and part.denominator != 1:
                return text
            known = self.ours.groups.filter(pl.col("ranks").list.len() == size)
            if known.height:
                names = known.filter(pl.col("description") != "")["description"].unique().sort().to_list()
                return f"{text}, and {size} is the size of {' and of '.join(names[:_MOST_BETWEEN]) or 'a group'}"
            calls = self.found.table["call"].max()
            is_micro = isinstance(calls, int) and calls + 1 == size
            return f"{text}, and a step has {size} micro batches" if is_micro else text
        if root["dtype"] != root["dtype_other"]:
            return f"it is {root['dtype']}, and {root['dtype_other']} in the reference"
        if root["site"] == "optimizer":
            return "look at the optimizer and its state"
        if "dropout" in root["name"].lower():
            return "the seed of a dropout may differ"
        form = format_of(root["dtype"])
        small = form is not None and root["off"] <= 16 * form.roundoff
        return "a kernel of another precision, or one that is not deterministic, may do that" if small else ""


def _words(row: dict[str, Any]) -> str:
    """A compared tensor in words: "the input of blocks.0"."""
    is_input = row["slot"].startswith("in")
    noun = {
        "forward": "the input of" if is_input else "the output of",
        "backward": "the gradient at",
        "gradient": "the accumulated gradient of" if is_input else "the reduced gradient of",
        "parameter": "the parameter",
        "optimizer": "the optimizer's",
    }.get(row["site"], f"the {row['site']}")
    return f"{noun} {row['name']}".strip()
