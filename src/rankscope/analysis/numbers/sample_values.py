"""Samples of tensors as numbers; the table has them as bytes, in four bytes each where that is exact."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.numbers.model import Floats
from rankscope.schema import MOST_SAMPLES, Dataset

Bits = npt.NDArray[np.uint64]


class SampleRows:
    """The samples of all tensors of a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self.tensors = dataset.tensors

    def take(self, rows: pl.Series) -> tuple[Floats, Bits]:
        """Samples of rows, shape (rows, MOST_SAMPLES), NaN where there is none, and a bit for each that is there."""
        told = self.tensors.select("samples", "held")[rows.to_numpy()]
        bits = told["held"].to_numpy()
        return unpacked(told["samples"], bits), bits


def unpacked(samples: pl.Series, held: Bits) -> Floats:
    """Samples at their places, shape (rows, MOST_SAMPLES), NaN where `held` has no bit."""
    out = np.full((len(held), MOST_SAMPLES), np.nan)
    there = spread(held)
    is_wide = samples.bin.size().to_numpy() > 4 * there.sum(axis=1)
    for kind, own in (("<f4", ~is_wide), ("<f8", is_wide)):
        if own.any():
            data = b"".join(samples.filter(pl.Series(own)).to_list())
            place = there & own[:, None]
            out[place] = np.frombuffer(data, kind)
    return out


def spread(bits: Bits) -> npt.NDArray[np.bool_]:
    """A truth for each sample, shape (rows, MOST_SAMPLES)."""
    return np.unpackbits(bits.view(np.uint8), bitorder="little").reshape(-1, MOST_SAMPLES).view(np.bool_)
