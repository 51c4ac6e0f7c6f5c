"""Frames of stacks in few characters, and which of them belong to the user."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.frames import kind_of
from rankscope.schema import Frame
from rankscope.tui.detail.format import plain

_GAP = " < "


def user_frames(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of the job's own code in their order; the whole stack where it has none."""
    own = tuple(frame for frame in stack if kind_of(frame) == "user")
    return own or tuple(stack)


def short_path(path: str, parts: int = 2) -> str:
    """The last parts of a path: "model/attention.py"."""
    return plain("/".join(path.replace("\\", "/").split("/")[-parts:]))


def place(frame: Frame) -> str:
    """Where a frame is: "model/attention.py:211"; of a library, which has no lines, its name."""
    return f"{short_path(frame.file)}:{frame.line}" if frame.line > 0 else short_path(frame.file)


def label(frame: Frame) -> str:
    """A frame with its place: "forward model/attention.py:211"."""
    return f"{plain(frame.function)} {place(frame)}"


def one_line(stack: Sequence[Frame], width: int) -> str:
    """The user's frames of a stack (innermost first) in one line: "forward model.py:88 < step train.py:30 < main".

    Where `width` is short, the outer frames lose their place, then they are counted.
    """
    frames = [f for f in user_frames(stack) if f.function != "<module>"] or user_frames(stack)
    if not frames:
        return ""
    for placed in range(len(frames), 0, -1):
        texts = [label(f) if i < placed else plain(f.function) for i, f in enumerate(frames)]
        line = _GAP.join(texts)
        if len(line) <= width:
            return line
    return _shortened([label(frames[0]), *(plain(f.function) for f in frames[1:])], width)


def _shortened(texts: Sequence[str], width: int) -> str:
    """The innermost texts that fit, and the number of those left out."""
    for kept in range(len(texts) - 1, 0, -1):
        line = _GAP.join([*texts[:kept], f"+{len(texts) - kept}"])
        if len(line) <= width:
            return line
    return texts[0]


def full_place(frame: Frame) -> str:
    """Where a frame is, with its whole path: "/app/model/attention.py:211"."""
    return plain(frame.file) + (f":{frame.line}" if frame.line > 0 else "")
