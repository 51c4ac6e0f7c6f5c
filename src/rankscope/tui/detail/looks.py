"""What the roles of text look like, for every number of colours a terminal may have."""

from __future__ import annotations

from functools import cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from rankscope.tui.detail.line import Line, Role, Span, cut
from rankscope.tui.options import Palette, ViewOptions
from rankscope.tui.palette import heat_style, named

_COLOURS: dict[Role, tuple[str, bool]] = {
    "bad": ("vermillion", True),
    "warn": ("orange", False),
    "good": ("sky", False),
    "head": ("sky", True),
}
HEAT: tuple[Role, ...] = ("heat0", "heat1", "heat2", "heat3", "heat4")
"""The roles of the cells of a heat map, the hottest last."""
_GREY: dict[Palette, int] = {"true": 245, "256": 245, "16": 8, "8": 7}


@cache
def role_style(role: Role, palette: Palette) -> Style:
    """The style of a role; without colours bold is left to what matters."""
    if role == "dim":
        return Style() if palette == "none" else Style(color=Color.from_ansi(_GREY[palette]))
    if role in HEAT:
        return heat_style(HEAT.index(role), palette)
    if role in ("bold", "mark"):
        return Style(bold=True, reverse=role == "mark")
    if role not in _COLOURS:
        return Style()
    colour, bold = _COLOURS[role]
    return named(colour, palette, bold=bold)


def to_segments(
    parts: Line, width: int, palette: Palette, *, ascii_only: bool, over: Style | None = None
) -> list[Segment]:
    """A line in at most `width` cells as segments; with `over` all of it looks so, and only bold is kept."""
    shown = tuple(Span(_ascii(span.text), span.role) for span in parts) if ascii_only else parts
    styles = [(span.text, role_style(span.role, palette)) for span in cut(shown, width)]
    return [Segment(text, style if over is None else over + Style(bold=style.bold)) for text, style in styles]


def _ascii(text: str) -> str:
    return text if text.isascii() else text.encode("ascii", "backslashreplace").decode("ascii")


def to_parts(parts: Line, width: int, options: ViewOptions) -> list[tuple[str, Style]]:
    """A line in at most `width` cells, for a TextBar."""
    segments = to_segments(parts, width, options.palette, ascii_only=options.ascii_only)
    return [(segment.text, segment.style or Style()) for segment in segments]
