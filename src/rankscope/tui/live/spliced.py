"""Tables that are others in known stretches of rows: nobody has to look for what is new in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Spliced:
    """A table or an array in which some stretches of another one are replaced."""

    before: pl.DataFrame | Array
    now: pl.DataFrame | Array
    starts: Ints
    """Where each stretch begins in the one before; rising."""
    ends: Ints
    """And where it ended there."""
    sizes: Ints
    """How long it is now."""


def spliced(old: Array, starts: Ints, ends: Ints, own: Array, sizes: Ints) -> Array:
    """An array with other values in some stretches of it, one after another in `own`."""
    parts, at, last = [], 0, 0
    for start, end, size in zip(starts.tolist(), ends.tolist(), sizes.tolist(), strict=True):
        parts += [old[last:start], own[at : at + size]]
        at, last = at + size, end
    return np.concatenate([*parts, old[last:]])
