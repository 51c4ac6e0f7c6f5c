"""Whether the output of a reduction is the sum, average, largest or smallest of its inputs, in any order of additions.

The bounds of R1, R3s and R4 hold for every order (Higham); those of R2 and R3 take roundings for independent. u is the
unit roundoff of the format, n the number of members, x_r the inputs, y the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.features.numbers.rules.collective_units import NEAREST, REDUCTIONS, CollectiveUnits, nearest_limits
from rankscope.features.numbers.rules.model import Floats, Ints, NumberFormat, format_of, gamma, rounded
from rankscope.features.numbers.rules.named_tensors import SampleRows, spread
from rankscope.schema import Dataset

BLOCK_ROWS = 1 << 15
"""Rows whose samples are in memory at once."""
MOST_SPREAD = 8.0
"""Limit of R2, in variances, and of R3, in standard deviations."""
FEWEST_SAMPLES = 16
"""Fewest samples for R2."""
DIFFERENT_SHARE = 0.75
"""Share of different sums among the samples that count as varied: roundings of few values are alike."""
LITTLE_SPREAD = 0.05
"""Spread of the sums, as a share of their mean, below which roundings may be alike."""
SINGLE = 2.0**-24
SUM_SLACK, PROJECTION_SLACK = 64, 8
"""Roundings of the recorder's own sums in float32, as multiples of 2**-24 times the sum of magnitudes."""
BROKEN = {"rule": pl.String, "row": pl.Int64, "unit": pl.Int64, "value": pl.Float64, "limit": pl.Float64}
"""Columns of rows that break a rule."""


class SumTerms(NamedTuple):
    """A block of outputs of one dtype and kind, each with the sums over its inputs."""

    rows: Ints
    """Rows of `tensors` of the outputs."""
    units: Ints
    size: Ints
    numel: Floats
    y: Floats
    """Samples of the outputs, shape (outputs, samples)."""
    total: Floats
    """Sums of the inputs' samples; below the sums of their magnitudes and of their squares."""
    magnitude: Floats
    squares: Floats
    held: npt.NDArray[np.bool_]
    """Samples that the output and all inputs have."""
    out: dict[str, Floats]
    """Statistics of the outputs, by column."""
    ins: dict[str, Floats]
    """Their sums over the inputs."""
    dtype: str
    is_mean: bool


class SumChecks(NamedTuple):
    """Outputs that break the rules, with columns `BROKEN`, and how many outputs each rule was asked about."""

    broken: pl.DataFrame
    asked: dict[str, int]
    nearest: pl.DataFrame
    """The rule whose limit is nearest for each output, with columns `NEAREST`."""


def check_sums(dataset: Dataset, units: CollectiveUnits) -> SumChecks:
    """The outputs of reductions that are not what their inputs make of them."""
    parts: list[pl.DataFrame] = []
    nearest = [pl.DataFrame(schema=NEAREST)]
    asked: dict[str, int] = {}
    samples = SampleRows(dataset)
    for dtype, kind, units_of_kind in _kinds(units):
        for block in _blocks(samples, units_of_kind, dtype, kind):
            checks = list(_checks(block, kind))
            nearest.append(nearest_limits(block.rows, block.units, checks))
            for rule, bad, value, limit, known in checks:
                asked[rule] = asked.get(rule, 0) + int(known.sum())
                if bad.any():
                    rows = {"row": block.rows[bad], "unit": block.units[bad], "value": value[bad], "limit": limit[bad]}
                    parts.append(pl.DataFrame({"rule": rule, **rows}).cast(BROKEN))  # type: ignore[arg-type]
    return SumChecks(pl.concat(parts) if parts else pl.DataFrame(schema=BROKEN), asked, pl.concat(nearest))


def _kinds(units: CollectiveUnits) -> Iterator[tuple[str, str, CollectiveUnits]]:
    """The whole reductions, by element type and kind, without rounded statistics of other tools."""
    table = units.table
    usual = (
        ~pl.col("foreign") & pl.col("op").is_in(REDUCTIONS) & pl.col("reduce_op").is_in(["sum", "avg", "max", "min"])
    )
    fit = table.select(usual & pl.col("whole") & pl.col("alike") & (pl.col("outputs") > 0)).to_series()
    fitting = units.chosen(fit)
    for dtype, kind in fitting.table.select("dtype", "reduce_op").unique(maintain_order=True).drop_nulls().iter_rows():
        if format_of(dtype) is not None:
            same = fitting.table.select((pl.col("dtype") == dtype) & (pl.col("reduce_op") == kind)).to_series()
            yield dtype, kind, fitting.chosen(same)


_STATISTICS = ("sum", "l2", "min", "max", "projection")


def _blocks(samples: SampleRows, units: CollectiveUnits, dtype: str, kind: str) -> Iterator[SumTerms]:
    """The outputs in blocks; of outputs of a unit that are equal bit for bit only the first."""
    starts = units.starts
    names = ("unit", "origin", "row", "is_out", "size", "numel", "hash")
    first = 0
    while first < len(starts) - 1:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + BLOCK_ROWS, "right")) - 1)
        rows = units.rows.select(names)[int(starts[first]) : int(starts[last])]
        yield _terms(samples, rows, dtype, kind)
        first = last


def _terms(samples: SampleRows, rows: pl.DataFrame, dtype: str, kind: str) -> SumTerms:
    ins = rows.filter(~pl.col("is_out"))
    outs = rows.filter("is_out").unique(["unit", "hash"], keep="first", maintain_order=True)
    unit = ins["unit"].to_numpy()
    begin = np.flatnonzero(np.diff(unit, prepend=-1))
    place = np.searchsorted(unit[begin], outs["unit"].to_numpy())
    x, bits = samples.take(ins["row"])
    y, sampled = samples.take(outs["row"])
    bits = np.bitwise_and.reduceat(bits, begin)[place] & sampled
    if kind in ("max", "min"):
        best = (np.maximum if kind == "max" else np.minimum).reduceat(x, begin)
        total = magnitude = squares = best[place]
    else:
        total, magnitude, squares = (np.add.reduceat(values, begin)[place] for values in (x, np.abs(x), x * x))
    table = samples.tensors.select(*_STATISTICS)
    return SumTerms(
        rows=outs["row"].to_numpy().astype(np.int64), units=outs["origin"].to_numpy(), size=outs["size"].to_numpy(),
        numel=outs["numel"].to_numpy().astype(np.float64), y=y, total=total, magnitude=magnitude, squares=squares,
        held=spread(bits), out=_statistics(table, outs["row"]),
        ins={name: np.add.reduceat(column, begin)[place] for name, column in _statistics(table, ins["row"]).items()},
        dtype=dtype, is_mean=kind == "avg",
    )  # fmt: skip


def _statistics(statistics: pl.DataFrame, rows: pl.Series) -> dict[str, Floats]:
    """Statistics of rows, NaN where a row lacks one: also the largest magnitude, and the square of the norm."""
    taken = {name: statistics[name].gather(rows).to_numpy() for name in _STATISTICS}
    return {
        "sum": taken["sum"],
        "projection": taken["projection"],
        "l2": taken["l2"],
        "square": taken["l2"] * taken["l2"],
        "largest": np.maximum(np.abs(taken["min"]), np.abs(taken["max"])),
    }


Check = tuple[str, npt.NDArray[np.bool_], Floats, Floats, npt.NDArray[np.bool_]]
"""The rule, which outputs break it, the values, the limits, and which outputs it was asked about."""


def _checks(block: SumTerms, kind: str) -> Iterator[Check]:
    form = format_of(block.dtype)
    assert form is not None
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if kind in ("max", "min"):
            yield _samplewise("R1", np.abs(block.y - block.total), np.zeros_like(block.y), block.held)
            return
        share = np.where(block.is_mean, block.size, 1).astype(np.float64)[:, None]
        yield _bounded(block, form, share)
        if block.dtype in ("f32", "f16", "bf16"):
            yield _two_members(block, form, share)
        yield from (_independent(block, form, share[:, 0]), _projected(block, form), _summed(block, form))
        yield _in_range(block, form)


def _samplewise(rule: str, off: Floats, limit: Floats, sampled: npt.NDArray[np.bool_]) -> Check:
    """A check of each sample: the value and limit are those of the worst one of each output."""
    known = sampled & np.isfinite(off) & np.isfinite(limit)
    excess = np.where(known, off - limit, -np.inf)
    worst = np.argmax(excess, axis=1)[:, None]
    bad = np.take_along_axis(excess, worst, 1)[:, 0] > 0
    value, most = (np.take_along_axis(values, worst, 1)[:, 0] for values in (off, limit))
    return rule, bad, value, most, known.sum(axis=1) > 0


def _bounded(block: SumTerms, form: NumberFormat, share: Floats) -> Check:
    """R1: |y - sum x_r| <= gamma(n-1) * sum |x_r| + n * tiny; an average rounds each input twice more."""
    n = block.size[:, None]
    roundings = gamma(n + 1 if block.is_mean else n - 1, form.roundoff) + 2.0**-50
    limit = roundings * block.magnitude / share + n * form.tiny
    return _samplewise("R1", np.abs(block.y - block.total / share), limit, block.held)


def _two_members(block: SumTerms, form: NumberFormat, share: Floats) -> Check:
    """N2: with two members there is one order, so y is the rounded sum; subnormal numbers may be flushed."""
    exact = [one / share for one in rounded(block.total, block.dtype)]
    off = np.minimum(*(np.abs(block.y - one) for one in exact))
    normal = 2 * form.tiny / form.roundoff
    flushed = (block.y == 0) & (np.abs(exact[0]) < normal)
    limit = np.where(flushed, np.inf, 4 * form.tiny if block.is_mean else 0.0)
    return _samplewise("N2", off, limit, block.held & (block.size[:, None] == 2))


def _variance(size: Floats, square: Floats, squares: Floats, form: NumberFormat) -> Floats:
    """Variance of n-1 independent roundings, averaged over the orders of additions (Higham and Mary, 2019).

    u**2/3 * (a * s**2 + b * max(A/n - s**2/n**2, 0)) + tiny**2, with s the sum, A the sum of squares,
    a = sum_{k=2..n} k**2/n**2 and b = sum_{k=2..n} k*(n-k)/(n-1).
    """
    n = size
    ks, k1 = n * (n + 1) * (2 * n + 1) / 6 - 1, n * (n + 1) / 2 - 1
    a, b = ks / n**2, (n * k1 - ks) / np.maximum(n - 1, 1)
    return form.roundoff**2 / 3 * (a * square + b * np.maximum(squares / n - square / n**2, 0)) + form.tiny**2


def _independent(block: SumTerms, form: NumberFormat, share: Floats) -> Check:
    """R2: the mean of squared differences, in variances, over the samples."""
    n = block.size[:, None].astype(np.float64)
    variance = _variance(n, block.total**2, block.squares, form)
    off = block.y * share[:, None] - block.total
    if block.is_mean:
        variance += form.roundoff**2 / 3 * (2 * block.total**2 + 2 * block.squares) + (n * form.tiny) ** 2
    known = block.held & np.isfinite(off) & np.isfinite(variance) & (variance > 0)
    count = known.sum(axis=1)
    mean = np.where(known, off**2 / variance, 0).sum(axis=1) / np.maximum(count, 1)
    limit = np.where(_is_varied(block, known), MOST_SPREAD, MOST_SPREAD + 2.25 * block.size)
    asked: npt.NDArray[np.bool_] = (count >= FEWEST_SAMPLES) & (block.size > 2)
    return "R2", asked & (mean > limit), mean, limit, asked


def _is_varied(block: SumTerms, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether the sums of the samples vary, so that their roundings are not alike."""
    sums = np.where(known, block.total, np.nan)
    with np.errstate(all="ignore"):
        count = np.maximum(known.sum(axis=1), 1)
        mean = np.nansum(sums, axis=1) / count
        spread = np.sqrt(np.maximum(np.nansum(sums**2, axis=1) / count - mean**2, 0))
    ordered = np.sort(sums, axis=1)
    different = 1 + (np.diff(ordered, axis=1) > 0).sum(axis=1)
    enough = different >= DIFFERENT_SHARE * count
    varied: npt.NDArray[np.bool_] = (spread >= LITTLE_SPREAD * np.abs(mean)) & enough
    return varied


def _projected(block: SumTerms, form: NumberFormat) -> Check:
    """R3: |P(y) - sum P(x_r)| <= 8 * sqrt(1.25 * V) + the recorder's own rounding."""
    share = np.where(block.is_mean, block.size, 1).astype(np.float64)
    variance = _variance(block.size.astype(np.float64), (block.out["l2"] * share) ** 2, block.ins["square"], form)
    if block.is_mean:
        variance += form.roundoff**2 / 3 * 4 * block.ins["square"] * block.size
    variance += block.numel * (block.size * form.tiny) ** 2
    rounding = PROJECTION_SLACK * SINGLE * np.sqrt(block.numel) * block.ins["l2"]
    off = np.abs(block.out["projection"] * share - block.ins["projection"])
    limit = MOST_SPREAD * np.sqrt(1.25 * variance * _alike(block)) + rounding
    known = np.isfinite(off) & np.isfinite(limit)
    return "R3", known & (off > limit), off, limit, known


def _alike(block: SumTerms) -> Floats:
    """Factor of the variance of a sum over elements whose roundings may be alike: all of them at most."""
    return np.where(_is_varied(block, block.held), 1.0, np.maximum(block.numel, 1))


def _summed(block: SumTerms, form: NumberFormat) -> Check:
    """R3s: as R1 for the sum of all elements; the norms bound the magnitudes: sum |x| <= sqrt(N) * norm."""
    share = np.where(block.is_mean, block.size, 1).astype(np.float64)
    n = block.size
    magnitude = 1.01 * np.sqrt(block.numel) * (block.ins["l2"] / share + block.out["l2"])
    roundings = gamma(n + 1 if block.is_mean else n - 1, form.roundoff) + SUM_SLACK * SINGLE
    limit = roundings * magnitude + block.numel * n * form.tiny
    off = np.abs(block.out["sum"] - block.ins["sum"] / share)
    known = np.isfinite(off) & np.isfinite(limit)
    return "R3s", known & (off > limit), off, limit, known


def _in_range(block: SumTerms, form: NumberFormat) -> Check:
    """R4: max |y| <= (1 + gamma(n)) * sum max |x_r|."""
    share = np.where(block.is_mean, block.size, 1).astype(np.float64)
    bound = 1 + gamma(block.size + 1, form.roundoff) + 2.0**-20
    limit = bound * block.ins["largest"] / share + block.size * form.tiny
    off = block.out["largest"]
    # a sum that overflows the format is infinite
    known = ~np.isnan(off) & np.isfinite(limit) & (limit < form.largest)
    return "R4", known & (off > limit), off, limit, known


SAME_FACTOR = 1e-5
"""Spread of the ratio of samples, as a share, up to which it is one factor; roundings of the format are added."""


def contribution_note(dataset: Dataset, row: int, inputs: Sequence[int]) -> str:
    """A sentence on what a wrong output of a sum or average is instead: a sum without one member, with one twice, one
    input alone, or a multiple of the right one. "" if it is none of these."""
    out = dataset.tensors.row(row, named=True)
    form, n = format_of(out["dtype"]), len(inputs)
    if form is None or out["reduce_op"] not in ("sum", "avg"):
        return ""
    samples, whose_inputs = SampleRows(dataset), dataset.tensors["rank"].gather(list(inputs))
    x, y = samples.take(pl.Series(inputs))[0], samples.take(pl.Series([row]))[0][0]
    share = n if out["reduce_op"] == "avg" else 1
    total, magnitude = x.sum(axis=0), np.abs(x).sum(axis=0)
    limit = (gamma(n + 1, form.roundoff) + 2.0**-50) * magnitude / share + n * form.tiny
    known = np.isfinite(y) & np.isfinite(total)
    if known.sum() < _FEWEST_TELLING:
        return ""
    whose = out["rank"]
    for text, values in (
        ("the output is the sum without the input of rank {}", (total - x) / share),
        ("the output is the sum with the input of rank {} twice", (total + x) / share),
        ("the output is the input of rank {} alone", x),
    ):
        fits = (np.abs(y - values) <= limit)[:, known].all(axis=1)
        if fits.sum() == 1:
            return text.format(whose_inputs[int(np.argmax(fits))])
    return _factor_note(y[known], total[known] / share, form, n, whose)


_FEWEST_TELLING = 4
"""Fewest samples that tell what an output is made of."""


def _factor_note(y: Floats, right: Floats, form: NumberFormat, n: int, rank: int) -> str:
    """A sentence if all samples are the right value times one number."""
    telling = np.abs(right) > np.median(np.abs(right)) / 10
    if telling.sum() < _FEWEST_TELLING or (right[telling] == 0).any():
        return ""
    ratio = y[telling] / right[telling]
    factor = float(np.median(ratio))
    if factor == 0 or np.abs(ratio / factor - 1).max() > SAME_FACTOR + 4 * n * form.roundoff:
        return ""
    known = {f"the number of members, {n}": n, f"1/{n}": 1 / n, f"{n}/{n - 1}": n / max(n - 1, 1),
             f"{n - 1}/{n}": (n - 1) / n, "2": 2.0, "1/2": 0.5}  # fmt: skip
    close = [text for text, value in known.items() if abs(factor / value - 1) <= SAME_FACTOR + 4 * n * form.roundoff]
    return f"all samples of rank {rank} are {factor:.6g} times the right value" + (
        f", which is {close[0]}" if close else ""
    )
