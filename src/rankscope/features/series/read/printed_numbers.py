"""Printed numbers: their values, and half of their last digit."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import polars as pl

NUMBER = (
    r"[ \t]*[-+]?\b(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
    r"|nan|NaN|NAN|inf|Inf|INF|Infinity)"
)
"""A number and the blanks before it, for polars and for `re`. Digits inside words are none."""
EXACT_DIGITS = 15
"""A number with so many digits is the shortest text of a double: its value is exact."""
STEP_DIGITS = 3
"""Digits of `{:.3g}`, in which progress bars print; it leaves out zeros at the end: 2e+3."""
LARGEST_STEP = 1 << 53
_PARTS = re.compile(r"[-+]?([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]{1,4}))?")


class PrintedNumber(NamedTuple):
    """A number and the largest error of its print."""

    value: float
    resolution: float


def printed_number(text: str, exact: bool = False) -> PrintedNumber | None:
    """The number of a text; None for any other. `exact`: it is a count, which is exact without decimals."""
    told = text.strip().replace(",", "")
    try:
        value = float(told)
    except ValueError:
        return None
    found = _PARTS.fullmatch(told)
    if found is None or not math.isfinite(value):
        return PrintedNumber(value, 0.0)
    whole, decimals, exponent = found[1], found[2] or "", found[3]
    if len(whole) + len(decimals) >= EXACT_DIGITS or (exact and found[2] is None and exponent is None):
        return PrintedNumber(value, 0.0)
    return PrintedNumber(value, 0.5 * 10.0 ** (int(exponent or 0) - len(decimals)))


def numbers_of(texts: pl.Series, exact: bool = False) -> tuple[pl.Series, pl.Series]:
    """Values and resolutions of printed numbers; a text that is none has the value null."""
    told = texts.str.strip_chars()
    told = told.str.replace_all(",", "", literal=True) if told.str.contains(",", literal=True).any() else told
    values = told.cast(pl.Float64, strict=False)
    power = told.str.find("[eE]") if told.str.contains("[eE]").any() else None
    mantissa = told if power is None else told.to_frame("told").select(_up_to(power)).to_series()
    point, length = mantissa.str.find(".", literal=True).cast(pl.Int64), mantissa.str.len_bytes().cast(pl.Int64)
    frame = pl.DataFrame({"value": values, "length": length, "decimals": length - 1 - point})
    size, none = -pl.col("decimals").fill_null(0), ~pl.col("value").is_finite() | (pl.col("length") > EXACT_DIGITS + 1)
    if power is not None:
        exponent = told.to_frame("told").select(pl.col("told").str.slice(power + 1)).to_series()
        frame = frame.with_columns(exponent.cast(pl.Int64, strict=False).alias("exponent"))
        size = size + pl.col("exponent").fill_null(0)
    if exact and power is None:
        none = none | pl.col("decimals").is_null()
    elif exact:
        none = none | (pl.col("decimals").is_null() & pl.col("exponent").is_null())
    half = _half_digit(frame.select(size.alias("size")).to_series())
    return values, frame.select(pl.when(none).then(0.0).otherwise(half)).to_series()


def _up_to(power: pl.Series) -> pl.Expr:
    """The texts before the letter of the exponent."""
    return pl.col("told").str.slice(0, pl.coalesce(power, pl.col("told").str.len_bytes()))


def _half_digit(sizes: pl.Series) -> pl.Series:
    """Half of 10 to each power; the powers are few."""
    known = sizes.unique()
    return sizes.replace_strict(known, [0.5 * 10.0 ** max(-400, min(300, int(size))) for size in known])


def steps_of(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """First and last step that a printed step may mean; the last is null where the step is not rounded."""
    told = texts.str.strip_chars()
    plain = told.cast(pl.Int64, strict=False)
    if not plain.has_nulls() and (plain.max() or 0) <= LARGEST_STEP and (plain.min() or 0) >= 0:  # type: ignore[operator]
        return plain, pl.Series([None], dtype=pl.Int64).new_from_index(0, len(plain))
    values, _ = numbers_of(texts)
    frame = pl.DataFrame({"value": values, "told": told}).with_columns(
        pl.col("told").str.extract(r"[eE]\+?([0-9]+)$").cast(pl.Int64, strict=False).alias("power"),
        pl.col("told").str.extract(r"\.([0-9]+)[eE]").str.len_bytes().fill_null(0).cast(pl.Int64).alias("decimals"),
    )
    digits = pl.max_horizontal(pl.col("decimals"), pl.lit(STEP_DIGITS - 1))
    half = 0.5 * pl.lit(10.0).pow(pl.col("power") - digits)
    whole = pl.col("value").is_between(0, LARGEST_STEP) & (pl.col("value") == pl.col("value").floor())
    rounded = pl.col("power").is_not_null() & (half > 0.5)
    rows = frame.select(
        low=pl.when(~whole)
        .then(None)
        .when(rounded)
        .then((pl.col("value") - half).ceil())
        .otherwise(pl.col("value"))
        .cast(pl.Int64),
        high=pl.when(whole & rounded).then((pl.col("value") + half).floor()).cast(pl.Int64),
    )
    return rows["low"], rows["high"]


def scaled_steps(texts: pl.Series, factors: pl.Series) -> tuple[pl.Series, pl.Series]:
    """As `steps_of`, for steps with a factor behind them: 30K means one from 29,500 to 30,500."""
    low, high = steps_of(texts)
    if (factors == 1.0).all():
        return low, high
    values, halves = numbers_of(texts)
    frame = pl.DataFrame({"low": low, "high": high, "value": values, "half": halves, "factor": factors})
    lowest, highest = (
        (pl.col("value") - pl.col("half")) * pl.col("factor"),
        (pl.col("value") + pl.col("half")) * pl.col("factor"),
    )
    known = lowest.is_between(0, LARGEST_STEP) & highest.is_between(0, LARGEST_STEP)
    rows = frame.select(
        low=pl.when(pl.col("factor") == 1.0).then("low").otherwise(pl.when(known).then(lowest.ceil()).cast(pl.Int64)),
        high=pl.when(pl.col("factor") == 1.0)
        .then("high")
        .otherwise(pl.when(known).then(highest.floor()).cast(pl.Int64)),
    )
    return rows["low"], rows["high"]
