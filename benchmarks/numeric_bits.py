"""Numbers with a flipped bit: the form of the faults of devices and wires."""

from __future__ import annotations

import torch
from torch import Tensor


def flipped(value: Tensor, bit: int) -> float:
    """A number with one bit of its format flipped; bit -1 is the sign, -2 the first of the exponent."""
    word, width = (torch.int32, 32) if value.dtype == torch.float32 else (torch.int16, 16)
    mask = 1 << (width + bit)
    mask -= (1 << width) * (mask >= 1 << (width - 1))
    changed = value.detach().clone().view(word) ^ torch.tensor(mask, dtype=word)
    return float(changed.view(value.dtype))
