"""Memory timelines of torch.profiler: bytes by category of tensors, without stacks.

`torch/profiler/_memory_profiler.py` (`export_memory_timeline`, torch 2.2 to 2.13) writes two forms. The raw one is rows
of [time in ns or -1, action, bytes, category]: a change of bytes, negative where a tensor ends. The other is two
lists: times in us, and bytes after each, [0, bytes of each category]. Neither tells the device.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankscope.features.memory.snapshots.model import HeldStack, MemorySnapshot, SnapshotDevice
from rankscope.parsers.contents import NotThisKindError, StackFrame

CATEGORIES = (
    "parameters", "optimizer state", "inputs", "temporary tensors", "activations", "gradients", "details of autograd",
    "tensors of no category",
)  # fmt: skip
"""In the order of `_CATEGORY_TO_INDEX`."""
UNKNOWN_DEVICE = -1
_RAW = re.compile(rb"\s*\[\s*\[\s*-?\d{1,20}\s*,\s*[1-4]\s*,\s*-?\d{1,20}\s*,\s*[0-7]\s*\]")
_SUMS = re.compile(rb"\s*\[\s*\[\s*\d{13,20}\s*,\s*\d{13,20}\s*[,\]]")

Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Category = Annotated[int, msgspec.Meta(ge=0, lt=len(CATEGORIES))]
Action = Annotated[int, msgspec.Meta(ge=1, le=4)]
_CHANGES = msgspec.json.Decoder(list[tuple[Number, Action, Number, Category]])
_TIMES = msgspec.json.Decoder(tuple[list[Number], list[Annotated[list[Number], msgspec.Meta(min_length=9)]]])
Ints = NDArray[np.int64]


def looks_like_timeline(head: bytes) -> bool:
    """Whether a file with these first bytes holds a memory timeline."""
    return _RAW.match(head) is not None or _SUMS.match(head) is not None


def decode_timeline(data: bytes) -> MemorySnapshot:
    """The timeline in `data` as a snapshot whose stacks are categories. Raises NotThisKindError for another form."""
    try:
        if _RAW.match(data) is not None:
            times, sizes = _of_changes(_CHANGES.decode(data))
        else:
            told, sums = _TIMES.decode(data)
            times = np.array(told, np.int64) * 1_000
            sizes = np.array([row[1 : 1 + len(CATEGORIES)] for row in sums], np.int64)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, OverflowError, ValueError) as error:
        raise NotThisKindError(f"a memory timeline that is cut off or damaged ({type(error).__name__})") from error
    if not len(times) or len(times) != len(sizes):
        raise NotThisKindError("a memory timeline whose times and sizes differ in number")
    return _snapshot(times, sizes)


def _of_changes(rows: list[tuple[int, int, int, int]]) -> tuple[Ints, Ints]:
    """Times, and bytes of each category after each change, as changes x categories."""
    table = np.array(rows, np.int64)
    changes = np.zeros((len(table), len(CATEGORIES)), np.int64)
    changes[np.arange(len(table)), table[:, 3]] = table[:, 2]
    return table[:, 0], changes.cumsum(axis=0)


def _snapshot(times: Ints, sizes: Ints) -> MemorySnapshot:
    """The bytes at the peak and at the end."""
    total = sizes.sum(axis=1)
    at = int(total.argmax())
    peak, last = (np.maximum(row, 0).tolist() for row in (sizes[at], sizes[-1]))
    ago: int | None = int(times[-1] - times[at]) if times[at] > 0 else None
    end = int(times[-1]) if times[-1] > 0 else None
    none: dict[str, Any] = dict.fromkeys(
        ("segments", "reserved", "pending", "gaps", "cached", "largest", "failures"), 0
    )
    device = SnapshotDevice(
        device=UNKNOWN_DEVICE, allocated=max(int(total[-1]), 0), expandable=None, events=len(times),
        peak=max(int(total[at]), 0), ago_ns=ago, end_ns=end, unknown=0, last_failure=None, peak_holes=None, **none,
    )  # fmt: skip
    order = sorted((at for at in range(len(CATEGORIES)) if peak[at] or last[at]), key=lambda at: -peak[at])
    frames = [StackFrame(CATEGORIES[at], "", 0) for at in order]
    stacks = [HeldStack(UNKNOWN_DEVICE, (row,), peak[at], 0, last[at], 0) for row, at in enumerate(order)]
    return MemorySnapshot([device], frames, stacks)
