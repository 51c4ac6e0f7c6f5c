"""Limits of differences from a reference: the response to a perturbation, and Megatron-LM's bound beside it."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from rankscope.analysis.numbers.model import Floats, format_of
from rankscope.schema import MOST_SAMPLES

RESPONSES = 2.0
"""Limit of a difference, as a multiple of the response of the reference to a perturbation of half an epsilon."""
LEAST_ROUNDOFFS = 4.0
"""The limit is never below this multiple of the unit roundoff."""
LADDER_K, LADDER_C, LADDER_LAYERS = 4.0, 1.03, 32
"""The bound k * C**(L + 1 - l) * epsilon of Megatron-LM's test of gradients, of layer l from 0 on. It is shown and does
not judge; without numbers of layers L is 32 and l is 0."""
_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d{1,4})(?:\.|$)")


def least_limit(dtypes: pl.Series) -> Floats:
    """The lowest limit of each element type, as a share of the norm."""
    return _roundoffs(dtypes) * LEAST_ROUNDOFFS


def _roundoffs(dtypes: pl.Series) -> Floats:
    known = {name: form.roundoff if (form := format_of(name)) else 0.0 for name in dtypes.unique()}
    return np.array([known[name] for name in dtypes], np.float64)


def coarseness(dtypes: pl.Series, others: pl.Series) -> float:
    """Factor by which responses of a run are larger than those of another, by the types of the same tensors in both.

    Responses to a change of half an epsilon grow with the epsilon; the coarsest tensor of a run drives the others.
    It is at least 1.
    """
    own, other = _roundoffs(dtypes), _roundoffs(others)
    known = (own > 0) & (other > 0)
    return max(1.0, float((own[known] / other[known]).max(initial=1.0)))


def sampling_slack(held: Floats) -> Floats:
    """Factor of the limit of a norm that is estimated from so many samples instead of all; 1 for all of them.

    The estimate of a root mean square from h independent samples has a relative deviation of 1 / sqrt(2h); three of
    them are allowed for.
    """
    slack: Floats = (1 + 3 / np.sqrt(2 * np.maximum(held, 1))) / (1 + 3 / np.sqrt(2 * MOST_SAMPLES))
    return slack


def ladder(names: pl.Series, dtypes: pl.Series) -> Floats:
    """Megatron-LM's bound for each tensor, by the number of the layer in its name."""
    found = [_LAYER.search(name or "") for name in names]
    layers = np.array([int(match[1]) if match else 0 for match in found], np.float64)
    count = layers.max(initial=0.0) + 1 if any(found) else float(LADDER_LAYERS)
    return LADDER_K * LADDER_C ** (count + 1 - layers) * 2 * _roundoffs(dtypes)
