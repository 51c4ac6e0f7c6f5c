"""Lines of text in parts with a role or a style; markup has no meaning in them, and palettes colour the roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal, NamedTuple, TypeAlias, get_args

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from rankscope.tui.options import Look
from rankscope.tui.themes import Ground, base_style, face_style

Role = Literal[
    "text", "dim", "bold", "head", "bad", "warn", "good", "mark", "key", "rule", "edge", "focus", "culprit", "critical",
    "warning", "info", "fine", "heat0", "heat1", "heat2", "heat3", "heat4",
]  # fmt: skip
"""The role of a part of a line: plain, secondary, strong, a heading, wrong, odd, fine, under the inner cursor, the name
of a key, a line around a pane without and with the keys, the title of the latter, the culprit of the verdict, a badge
for each severity, or a cell of a heat map, the hottest last."""
HEAT: tuple[Role, ...] = ("heat0", "heat1", "heat2", "heat3", "heat4")
"""The roles of the cells of a heat map, the hottest last."""


class Span(NamedTuple):
    """A part of a line. `text` holds no control characters."""

    text: str
    style: Role | Style = "text"


Line: TypeAlias = Text
"""One line of the screen. Nothing changes a made line: lines are kept and shared."""

BLANK = Text()
"""An empty line."""


def line(*parts: Line | Span | str) -> Line:
    """A line of spans and other lines; bare strings are plain text."""
    return Text.assemble(*(part.text if isinstance(part, Span) and part.style == "text" else part for part in parts))


def cut(parts: Line, width: int) -> Line:
    """The line in at most `width` cells, with ".." for a left-out part."""
    if parts.cell_len <= width:
        return parts
    kept = parts.copy()
    kept.truncate(max(width - 2, 0), overflow="crop")
    return line(kept, Span(".." if width >= 2 else "." * width, "dim"))


def wrap(parts: Line, width: int, indent: int = 0) -> list[Line]:
    """The line broken at spaces into lines of at most `width` cells, all but the first indented."""
    edges, at, used = [0], 0, 0
    for word in _words(parts.plain, max(width - indent, 1)):
        start = indent if len(edges) > 1 else 0
        if used > start and used + cell_len(word.rstrip()) > width:
            skipped = len(word) - len(word.lstrip())
            edges += [at, at + skipped]
            used = indent - skipped
        at += len(word)
        used += cell_len(word)
    pieces = list(parts.divide(edges))[1::2]
    for piece in pieces:
        piece.rstrip()
    return [line(" " * indent if number else "", piece) for number, piece in enumerate(pieces)]


def wrapped(lines: Iterable[Line], width: int, indent: int = 0) -> list[Line]:
    """Many lines, each wrapped."""
    return [piece for parts in lines for piece in wrap(parts, width, indent)]


def _words(text: str, longest: int) -> Iterator[str]:
    for word in text.replace(" ", " \0").split("\0"):
        if cell_len(word.rstrip()) <= longest:
            yield word
            continue
        # Half as many characters as cells always fit, even wide ones; if all are narrow, it cuts by characters.
        step = longest if cell_len(word) == len(word) else max(longest // 2, 1)
        yield from (word[at : at + step] for at in range(0, len(word), step))


@cache
def _console(look: Look) -> Console:
    return Console(theme=Theme({role: face_style(role, look) for role in get_args(Role)}, inherit=False))


def to_segments(
    parts: Line,
    width: int,
    look: Look,
    *,
    ascii_only: bool,
    over: Style | None = None,
    ground: Ground = "ground",
) -> list[Segment]:
    """A line in at most `width` cells as segments; with `over` all of it has that style, and only bold is kept."""
    base = base_style(look, ground)
    shown = cut(_ascii(parts) if ascii_only else parts, width)
    segments = shown.render(_console(look))
    if over is None:
        return [Segment(text, base + style) for text, style, _ in segments]
    return [Segment(text, base + over + Style(bold=style.bold if style else None)) for text, style, _ in segments]


def _ascii(parts: Line) -> Line:
    """The line with escapes for characters outside ASCII."""
    if parts.plain.isascii():
        return parts
    pieces = parts.divide(sorted({edge for span in parts.spans for edge in (span.start, span.end)}))
    escaped = [piece.plain.encode("ascii", "backslashreplace").decode("ascii") for piece in pieces]
    styles = [piece.spans[0].style if piece.spans else "" for piece in pieces]
    return Text.assemble(*zip(escaped, styles, strict=True))
