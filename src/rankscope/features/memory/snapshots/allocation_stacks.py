"""Stacks of allocations: frames that differ are kept once, and the bytes of each stack are added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from rankscope.features.memory.snapshots.model import HeldStack
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.safe_values import safe_integer, safe_text

MOST_STACKS = 1_000
"""Most stacks of a device that are kept."""
MOST_FRAMES = 48
_NATIVE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hpp", ".so", "??")


class AllocationStacks:
    """Bytes by device and stack, with the frames of all stacks; objects of stacks must live as long as this does."""

    def __init__(self) -> None:
        self.frames: dict[StackFrame, int] = {}
        self._of_object: dict[int, tuple[int, ...]] = {}
        self._of_text: dict[bytes, tuple[int, ...]] = {}
        self._of_frame: dict[int, int] = {}
        self._sums: dict[tuple[int, tuple[int, ...]], list[int]] = {}

    def add(self, device: int, stack: Any, at_peak: int, at_dump: int) -> None:
        """Adds the bytes of one allocation."""
        sums = self._sums.setdefault((device, self._stack(stack)), [0, 0, 0])
        sums[0] += at_peak
        sums[1] += at_dump
        sums[2] += at_dump > 0

    def largest(self) -> list[HeldStack]:
        """The stacks that hold most, of each device the largest first."""
        rows = [HeldStack(device, frames, *sums) for (device, frames), sums in self._sums.items()]
        rows.sort(key=lambda row: (row.device, -max(row.at_peak, row.at_dump)))
        counts: dict[int, int] = {}
        kept = []
        for row in rows:
            counts[row.device] = counts.get(row.device, 0) + 1
            if counts[row.device] <= MOST_STACKS:
                kept.append(row)
        return kept

    def _stack(self, stack: Any) -> tuple[int, ...]:
        """The frames of a stack: those of Python, if it has any."""
        known = self._of_object.get(id(stack))
        if known is None:
            known = self._of_json(bytes(stack)) if isinstance(stack, msgspec.Raw) else self._read(stack)
            self._of_object[id(stack)] = known
        return known

    def _of_json(self, text: bytes) -> tuple[int, ...]:
        if text not in self._of_text:
            # the decoder of the whole has checked it
            self._of_text[text] = self._read(msgspec.json.decode(text), shared=False)
        return self._of_text[text]

    def _read(self, stack: Any, shared: bool = True) -> tuple[int, ...]:
        numbers = self._numbers(stack, shared) if isinstance(stack, list) else ()
        frames = tuple(number for number in numbers if number >= 0)
        return (frames or tuple(-1 - number for number in numbers))[:MOST_FRAMES]

    def _numbers(self, stack: Iterable[Any], shared: bool) -> tuple[int, ...]:
        """The numbers of the frames; -1 - n for a frame of native code."""
        if not shared:
            return tuple(map(self._number, stack))
        known = self._of_frame
        out = []
        for frame in stack:
            number = known.get(id(frame))
            if number is None:
                number = known[id(frame)] = self._number(frame)
            out.append(number)
        return tuple(out)

    def _number(self, value: Any) -> int:
        get = value.get if isinstance(value, dict) else {}.get
        frame = StackFrame(
            safe_text(get("name")) or "?", safe_text(get("filename")) or "", safe_integer(get("line")) or 0
        )
        number = self.frames.setdefault(frame, len(self.frames))
        return -1 - number if not frame.file or frame.file.endswith(_NATIVE) else number
