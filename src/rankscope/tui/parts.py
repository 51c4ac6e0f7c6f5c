"""Parts of lines, and the line that is there before anything else."""

from __future__ import annotations

from rich.style import Style

from rankscope.report.escape import plain
from rankscope.tui.options import ProgressLike

Part = tuple[str, Style]
"""Text without control characters, and its style."""
Parts = list[Part]

_PLAIN, _BOLD = Style(), Style(bold=True)


def end_of(text: str, width: int) -> str:
    """A text, without its beginning where it is too long: what tells paths apart stands at the end."""
    return text if len(text) <= width else ".." + text[len(text) - width + 2 :]


def shortened(name: str, width: int) -> str:
    """A name of a group in at most `width` characters; a number at its end is kept."""
    if len(name) <= width:
        return name
    number = name[len(name.rstrip("0123456789")) :][-4:]
    return name[: max(width - 2 - len(number), 1)] + ".." + number


def progress_parts(title: str, progress: ProgressLike | None, width: int, *, ascii_only: bool) -> Parts:
    """One line that says how far loading has come."""
    if progress is None:
        return [(f" rankscope {end_of(plain(title), max(width - 24, 10))}  opening ...", _BOLD)]
    count = f" {progress.done}/{progress.total}" if progress.total else f" {progress.done}" if progress.done else ""
    what = f" {plain(progress.what, 30)}{count}"
    size = max(min(40, width - len(what) - 3), 0)
    done = round(size * min(progress.done / progress.total, 1)) if progress.total > 0 else 0
    full, empty = ("#", ".") if ascii_only else ("\u2588", "\u2591")
    return [(what, _BOLD), (f" {full * done}{empty * (size - done)}" if progress.total else "", _PLAIN)]
