"""Stacks of allocations: frames that differ are kept once, and the bytes of each stack are added up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from rankscope.features.memory.snapshots.model import HeldStack
from rankscope.features.memory.snapshots.native_stacks import native_places
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.safe_values import safe_integer, safe_text

MOST_STACKS = 1_000
"""Most stacks of a device that are kept."""
MOST_FRAMES = 48
MOST_FORMATTED = 1 << 16
"""Most characters of a formatted frame that are looked at."""
_NATIVE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".o", ".so", ".S", "??")
_PYTHON = (".py", ".pyx", ">")
_FORMATTED = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9})(?:, in ([^\n]{1,200}))?')


class BackwardStack(NamedTuple):
    """A stack of backward with that of the forward call, which torch records in anomaly mode (since 2.10)."""

    frames: Any
    forward: Sequence[Any]
    """Frames as `traceback.format_stack` writes them, the outermost first."""


def stack_of(entry: Any) -> Any:
    """The stack of an entry of a history or of a block; None without one."""
    frames, forward = entry.get("frames"), entry.get("forward_frames")
    return BackwardStack(frames, forward) if isinstance(forward, list) and forward else frames


class AllocationStacks:
    """Bytes by device and stack, with the frames of all stacks; objects of stacks must live as long as this does."""

    def __init__(self) -> None:
        self.frames: dict[StackFrame, int] = {}
        self._of_object: dict[int, tuple[int, ...]] = {}
        self._of_text: dict[bytes, tuple[int, ...]] = {}
        self._of_frame: dict[int, StackFrame] = {}
        self._sums: dict[tuple[int, tuple[int, ...]], list[int]] = {}

    def add(self, device: int, stack: Any, at_peak: int, at_failure: int, at_dump: int) -> None:
        """Adds the bytes of one allocation."""
        sums = self._sums.setdefault((device, self.stack(stack)), [0, 0, 0, 0])
        sums[0] += at_peak
        sums[1] += at_failure
        sums[2] += at_dump
        sums[3] += at_dump > 0

    def largest(self) -> list[HeldStack]:
        """The stacks that hold most, of each device the largest first."""
        rows = [HeldStack(device, frames, *sums) for (device, frames), sums in self._sums.items()]
        rows.sort(key=lambda row: (row.device, -max(row.at_peak, row.at_failure, row.at_dump)))
        counts: dict[int, int] = {}
        kept = []
        for row in rows:
            counts[row.device] = counts.get(row.device, 0) + 1
            if counts[row.device] <= MOST_STACKS:
                kept.append(row)
        return kept

    def stack(self, stack: Any) -> tuple[int, ...]:
        """The frames of a stack: those of Python, if it has any; else the operator, the function of autograd, and the
        forward frames that torch recorded for it.
        """
        known = self._of_object.get(id(stack))
        if known is None:
            known = self._read(stack)
            self._of_object[id(stack)] = known
        return known

    def _read(self, stack: Any) -> tuple[int, ...]:
        frames, forward = stack if isinstance(stack, BackwardStack) else (stack, ())
        if isinstance(frames, msgspec.Raw):
            text = bytes(frames)
            if text not in self._of_text:
                # the decoder of the whole has checked it
                self._of_text[text] = self._numbers(msgspec.json.decode(text), is_shared=False)
            numbers = self._of_text[text]
        else:
            numbers = self._numbers(frames, is_shared=True)
        return (*numbers, *map(self._number, _forward_frames(forward)))[:MOST_FRAMES]

    def _numbers(self, stack: Any, is_shared: bool) -> tuple[int, ...]:
        """The numbers of the frames that tell where memory was asked for; shared objects of frames are read once."""
        if not isinstance(stack, list):
            return ()
        frames = [self._shared_frame(frame) if is_shared else _frame(frame) for frame in stack]
        python = [frame for frame in frames if not _is_native(frame)]
        return tuple(map(self._number, python or native_places(frames)))

    def _shared_frame(self, value: Any) -> StackFrame:
        known = self._of_frame.get(id(value))
        if known is None:
            known = self._of_frame[id(value)] = _frame(value)
        return known

    def _number(self, frame: StackFrame) -> int:
        return self.frames.setdefault(frame, len(self.frames))


def _frame(value: Any) -> StackFrame:
    get = value.get if isinstance(value, dict) else {}.get
    return StackFrame(safe_text(get("name")) or "?", safe_text(get("filename")) or "", safe_integer(get("line")) or 0)


def _is_native(frame: StackFrame) -> bool:
    """Whether the frame is of C++ or of the interpreter, which torch gives without a line."""
    return not frame.file or frame.file.endswith(_NATIVE) or (frame.line <= 0 and not frame.file.endswith(_PYTHON))


def _forward_frames(texts: Sequence[Any]) -> Iterator[StackFrame]:
    """The frames of `traceback.format_stack`, innermost first, without those of the traceback itself."""
    for text in reversed(texts):
        for found in reversed(_FORMATTED.findall((safe_text(text) or "")[:MOST_FORMATTED])):
            yield StackFrame(found[2] or "?", found[0], int(found[1]))
