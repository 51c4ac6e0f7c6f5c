"""A run against a golden file, with a tolerance for each kind of tensor that perturbed runs have taught.

A difference is the larger one of two: that of the norms, as a share of the golden norm, and the root mean square of
that of the samples, as a share of that of the whole tensor. Few samples of a sparse tensor may all be zero, so that
their own norm is no measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.features.numbers.golden.golden_file import GoldenRun, decode_golden, encode_golden, kept_rows
from rankscope.features.numbers.rules.model import Floats, format_of
from rankscope.features.numbers.rules.number_findings import NumbersJudgement, judge_numbers
from rankscope.features.numbers.rules.reference import compare_tables, have_same_layout, joined_judgement
from rankscope.features.numbers.rules.tensor_matching import (
    LEAST_ROUNDOFFS,
    RESPONSES,
    ComparedTensors,
    compared_tensors,
    sample_pairs,
)
from rankscope.schema import Dataset
from rankscope.text.wording import plural

MARGIN = 3.0
"""Multiple of the limit beside a recorded run: of thousands of tensors with few samples, one beyond it fails a test,
and some exceed by a little what two or three runs have shown."""

NO_TOLERANCE = "the golden file has no tolerance: bits must be equal; save it with --perturbed runs to have one"


def saved_golden(dataset: Dataset, perturbed: Iterable[Dataset]) -> bytes:
    """The golden file of a run. Raises ValueError for a perturbed run that has other tensors."""
    runs, plain = list(perturbed), encode_golden(dataset, {}, 0)
    if not runs:
        return plain
    bare = decode_golden(plain, "golden")
    responses = [_compared(run, bare) for run in runs]
    largest = pl.concat(responses).filter(pl.col("off").is_finite()).group_by("kind").agg(pl.col("off").max())
    dtypes = dict(kept_rows(dataset).select(kind=kind_of_tensor(), dtype=pl.col("dtype").cast(pl.String)).iter_rows())
    tolerance = {
        kind: MARGIN * max(RESPONSES * off, LEAST_ROUNDOFFS * _roundoff(dtypes.get(kind)))
        for kind, off in largest.iter_rows()
    }
    return encode_golden(dataset, tolerance, len(responses))


def updated_golden(dataset: Dataset, golden: GoldenRun) -> bytes:
    """The golden file with the numbers of another run and the tolerance that it had."""
    return encode_golden(dataset, golden.tolerance, golden.perturbed)


def judge_golden(dataset: Dataset, golden: GoldenRun) -> NumbersJudgement:
    """The answers of all rules on a run, and of its comparison with a golden file.

    Raises ValueError, with a reason for users, if the two have other ranks or layouts.
    """
    _refuse_other_layout(dataset, golden.dataset)
    found = _with_distances(compared_tensors(dataset, golden.dataset), dataset, golden.dataset)
    table = found.table.with_columns(limit=_limits(found.table, golden.tolerance))
    compared, has_limits = ComparedTensors(table, found.unmatched, found.is_ranked), bool(golden.tolerance)
    beside = compare_tables(compared, dataset, has_limits, NO_TOLERANCE)
    unknown = int(table.filter(~pl.col("equal"))["limit"].null_count()) if has_limits else 0
    if unknown:
        note = f"not judged: {plural(unknown, 'tensor')} of a kind without a tolerance"
        beside = replace(beside, notes=(*beside.notes, note))
    return joined_judgement(dataset, judge_numbers(dataset), beside)


def changed_tensors(dataset: Dataset, golden: GoldenRun) -> tuple[int, int]:
    """How many tensors a run and a golden file have in common, and how many of them differ."""
    table = compared_tensors(dataset, golden.dataset).table
    return table.height, table.height - int(table["equal"].sum())


def kind_of_tensor() -> pl.Expr:
    """The kind of a tensor: its site, input, output or state, and type; "forward out f32"."""
    slot = pl.col("slot").cast(pl.String).fill_null("").str.replace(r"^(in|out)[\d.]+$", "$1")
    texts = [pl.col("site").cast(pl.String).fill_null(""), slot, pl.col("dtype").cast(pl.String).fill_null("")]
    return pl.concat_str(texts, separator=" ")


def _compared(run: Dataset, golden: GoldenRun) -> pl.DataFrame:
    """The kind and distance of each tensor of a perturbed run."""
    _refuse_other_layout(run, golden.dataset)
    found = _with_distances(compared_tensors(run, golden.dataset), run, golden.dataset)
    if found.table.is_empty():
        raise ValueError("a perturbed run has no tensor of the run that is saved")
    return found.table.select("off", kind=kind_of_tensor())


def _refuse_other_layout(run: Dataset, golden: Dataset) -> None:
    own, other = (sorted(dataset.tensors["rank"].unique().to_list()) for dataset in (run, golden))
    if own != other:
        raise ValueError(
            f"it holds {plural(len(other), 'rank')}, and the run has {len(own)}: "
            "other ranks need a recorded run as --reference"
        )
    if not have_same_layout(run, golden):
        raise ValueError("its tensors have other shapes than those of the run: save a new one, or use --reference RUN")


def _with_distances(found: ComparedTensors, run: Dataset, golden: Dataset) -> ComparedTensors:
    table = found.table
    mine, other, sampled = sample_pairs(table, run, golden)
    gap = np.where(sampled & ~((mine == other) | (np.isnan(mine) & np.isnan(other))), mine - other, 0.0)
    norms = table.select("l2", "l2_other", "numel").fill_null(float("nan")).to_numpy().astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rms = np.sqrt((np.nan_to_num(gap, nan=np.inf) ** 2).sum(axis=1) / np.maximum(sampled.sum(axis=1), 1))
        shares = _share(rms, norms[:, 1] / np.sqrt(np.maximum(norms[:, 2], 1)))
        whole = _share(np.abs(norms[:, 0] - norms[:, 1]), norms[:, 1])
    off = np.where(table["equal"].to_numpy(), 0.0, np.maximum(shares, whole))
    return ComparedTensors(table.with_columns(off=pl.Series(off)), found.unmatched, found.is_ranked)


def _share(difference: Floats, size: Floats) -> Floats:
    """A difference as a share; infinite where nothing or no finite number is there to compare with."""
    share: Floats = np.where(difference == 0, 0.0, np.nan_to_num(difference / size, nan=np.inf))
    return share


def _limits(table: pl.DataFrame, tolerance: Mapping[str, float]) -> pl.Series:
    kinds = table.select(kind=kind_of_tensor())["kind"]
    return pl.Series([tolerance.get(kind) for kind in kinds], dtype=pl.Float64)


def _roundoff(dtype: str | None) -> float:
    form = format_of(dtype)
    return form.roundoff if form is not None else 0.0
