"""Single flipped bits in real reductions: which of them a report can see, by the position of the bit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.numeric_bits import flipped
from benchmarks.numeric_wire import changes
from rankscope.capture import numbers

POSITIONS = ("sign", "exponent, upper half", "exponent, lower half", "mantissa, first third", "second third",
             "last third")  # fmt: skip
ELEMENTS, TRIALS = 2_048, 12
"""Elements of a tensor, and flips of each bit at each place."""
PLACES = ("input", "output")


def position(bit: int, dtype: str) -> str:
    """The position of a bit, counted from the sign."""
    exponent, mantissa = 8, 23 if dtype == "f32" else 7
    if bit == 0:
        return POSITIONS[0]
    if bit <= exponent:
        return POSITIONS[1 if bit <= exponent // 2 else 2]
    return POSITIONS[3 + (bit - 1 - exponent) * 3 // mantissa]


def trials(dtype: str) -> Iterator[tuple[str, int]]:
    """Place and bit of each reduction, in their order; bits count from the sign."""
    for place in PLACES:
        for bit in range(32 if dtype == "f32" else 16):
            yield from ((place, bit) for _ in range(TRIALS))


def flip_reductions(dtype: str, folder: Path, rank: int) -> None:
    """Sums of one member's flipped inputs, recorded with what it meant to give, and sums that one member reads
    flipped. Each is a step."""
    form = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    source = torch.Generator().manual_seed(rank)
    whole = torch.Generator().manual_seed(99)
    numbers.start(every=1, dumps=str(folder))
    for place, bit in trials(dtype):
        mine = torch.randn(ELEMENTS, generator=source).to(form)
        at = int(torch.randint(ELEMENTS, (1,), generator=whole))
        sent = mine.clone()
        if place == "input":
            if rank == 1:
                sent[at] = flipped(sent[at : at + 1], -1 - bit)
            _unrecorded_sum(sent)
            changes.add(None, partial(mine.copy_, sent))
        elif rank == 1:
            changes.add(None, partial(_damage, mine, at, bit))
        dist.all_reduce(mine)
        numbers.step()
    numbers.stop()


def _damage(values: Tensor, at: int, bit: int) -> None:
    values[at] = flipped(values[at : at + 1], -1 - bit)


def _unrecorded_sum(sent: Tensor) -> None:
    """A sum by the same backend that the recording does not see."""
    running = [recording.session for recording in numbers._running]
    for session in running:
        session.recording = False
    dist.all_reduce(sent)
    for session in running:
        session.recording = True
