"""Where the members of a group issued different things under one sequence number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Array = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SPARSE = 1 << 20
"""So many sequence numbers without a row are borne, besides as many as there are rows."""
_MUST_AGREE = {"ops": "key", "sizes": "elements", "dtypes": "dtype"}


def disagreements(calls: pl.DataFrame) -> pl.DataFrame:
    """Instances (group, seq) whose members issued different things, sorted by group and seq.

    Columns `ops`, `sizes`, `dtypes` say in what they differ, `members` how many issued it, `finished` whether all are
    done. An instance in the past of a group that went on together afterwards (every member agreed on and finished a
    later one) is `settled`.
    """
    group, seq, code = _instances(calls)
    differ = {name: _differ(calls[column].to_physical(), code, len(group)) for name, column in _MUST_AGREE.items()}
    members = np.bincount(code, minlength=len(group))
    finished = np.ones(len(group), np.bool_)
    finished[code[(calls["state"] != "completed").to_numpy()]] = False
    table = pl.DataFrame({"group": group, "seq": seq, **differ, "members": members, "finished": finished})
    differs = pl.any_horizontal(*_MUST_AGREE)
    found = table.filter(differs)
    together = (
        table.filter(~differs & pl.col("finished") & (pl.col("members") > 1))
        .filter(pl.col("group").is_in(found["group"].implode()))
        .group_by("group").agg(pl.col("seq").max().alias("together"))
    )  # fmt: skip
    return (
        found.join(together, on="group", how="left")
        .with_columns((pl.col("seq") < pl.col("together").fill_null(-1)).alias("settled"))
        .drop("together").cast({"group": pl.UInt32}).sort("group", "seq")
    )  # fmt: skip


def _instances(calls: pl.DataFrame) -> tuple[Array, Array, Array]:
    """Group and sequence number of every instance, and for each row of `calls` which instance it is.

    Sequence numbers are dense, so that a row's instance is found by counting; numbers that lie far apart are sorted.
    """
    bounds = calls.group_by("group").agg(low=pl.col("seq").min(), high=pl.col("seq").max()).sort("group")
    groups, lows = bounds["group"].to_numpy().astype(np.int64), bounds["low"].to_numpy()
    widths = bounds["high"].to_numpy().astype(np.float64) - lows + 1
    group, seq = calls["group"].to_numpy().astype(np.int64), calls["seq"].to_numpy()
    if widths.sum() > calls.height + SPARSE:
        distinct, code = np.unique(np.stack([group, seq]), axis=1, return_inverse=True)
        return distinct[0], distinct[1], code.astype(np.int64)
    firsts = np.concatenate([[0], np.cumsum(widths.astype(np.int64))])
    shift = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    shift[groups] = firsts[:-1] - lows
    steps = np.repeat(np.arange(len(groups)), np.diff(firsts))
    return groups[steps], np.arange(firsts[-1]) - (firsts[:-1] - lows)[steps], shift[group] + seq


def _differ(column: pl.Series, code: Array, count: int) -> Mask:
    """For each of `count` instances whether a column has more than one value in it besides null."""
    there = column.is_not_null().to_numpy()
    values, code = column.drop_nulls().to_numpy(), code if there.all() else code[there]
    one = np.zeros(count, values.dtype)
    one[code] = values
    out = np.zeros(count, np.bool_)
    out[code[one[code] != values]] = True
    return out
