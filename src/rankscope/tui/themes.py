"""The colours of each theme, one table for each, and the parts of the screen that they colour.

The hues are those of Okabe and Ito ("Color universal design", 2008): people with any colour vision can tell them
apart. No state has only a hue: letters, marks and weight say it too. Tests hold each pair of ink and ground against
WCAG's contrast, 4.5 to 1, and 7 to 1 for the theme "contrast".
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, TypeAlias

from rich.color import Color
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from rankscope.tui.options import Look, Palette, ThemeName

Value: TypeAlias = "str | int | None"
Colour: TypeAlias = tuple[Value, Value, Value, Value]
"""A colour for true colour, and its index among 256, 16 and 8; None stands for the colour around it.

Indices of 256 are in the fixed colour cube, so no program on the way rounds them.
"""
COLUMN: dict[Palette, int] = {"true": 0, "256": 1, "16": 2, "8": 3}
"""The place of a number of colours in `Colour`."""


class Face(NamedTuple):
    """The look of a part of the screen, by names of colours; "" stands for the colour around it."""

    ink: str = ""
    ground: str = ""
    bold: bool = False


FACES: dict[str, Face] = {
    "text": Face(), "dim": Face("dim"), "bold": Face("strong", bold=True), "head": Face("head", bold=True),
    "bad": Face("bad", "bad_ground", bold=True), "warn": Face("warn", bold=True), "good": Face("good"),
    # lines of the screen
    "key": Face("strong", bold=True),
    "rule": Face("rule"), "edge": Face("edge", bold=True), "focus": Face("on_focus", "focus", bold=True),
    "culprit": Face("on_culprit", "culprit", bold=True),
    # words on a ground
    "critical": Face("on_red", "red", bold=True), "warning": Face("on_orange", "orange", bold=True),
    "info": Face("on_sky", "sky", bold=True), "fine": Face("on_green", "green", bold=True),
    # cells of the lanes
    "done": Face("on_blue", "blue"), "late": Face("on_khaki", "khaki"), "later": Face("on_straw", "straw", bold=True),
    "unsure": Face("dim"), "gone": Face("on_grey", "grey"),
    "scheduled": Face("on_orange", "orange"), "started": Face("on_sky", "sky", bold=True),
    "mismatch": Face("on_purple", "purple", bold=True), "missing": Face("hollow", bold=True),
    "absent": Face("on_red", "red", bold=True),
    "busy": Face("on_green", "green"), "copy": Face("on_purple", "purple"), "host": Face("on_grey", "grey"),
    "patient": Face("head"), "faint": Face("dim"), "thin": Face("good", bold=True),
    # cells of a heat map, the hottest last
    "heat0": Face("head"), "heat1": Face("on_grey", "grey"), "heat2": Face("on_blue", "blue"),
    "heat3": Face("on_orange", "orange"), "heat4": Face("on_red", "red", bold=True),
}  # fmt: skip
"""The parts of the screen."""

DARK: dict[str, Colour] = {
    "ground": ("#11161c", 233, 0, 0), "panel": ("#232d38", 236, 4, 4), "tint": ("#34201a", 235, 0, 0),
    "text": ("#d6dde5", 253, 7, 7), "strong": ("#ffffff", 231, 15, 7), "dim": ("#93a1af", 247, 7, 7),
    "rule": ("#6d7c8b", 244, 7, 7), "focus": ("#5fc0ff", 75, 14, 6), "edge": ("#5fc0ff", 75, 14, 6),
    "hollow": ("#ff8a55", 209, 9, 7), "head": ("#5fb8f0", 75, 14, 6),
    "bad": ("#ff8a55", 209, 9, 7), "bad_ground": (None, None, None, 1),
    "warn": ("#f2b544", 215, 11, 3), "good": ("#46d0a0", 79, 10, 2),
    "on_focus": ("#000000", 16, 0, 0), "culprit": ("#ffffff", 231, 15, 7), "on_culprit": ("#000000", 16, 0, 0),
    "blue": ("#0a5c8f", 24, 4, 4), "on_blue": ("#ffffff", 231, 15, 7),
    "grey": ("#4a535d", 239, 8, 0), "on_grey": ("#f2f5f8", 231, 0, 7),
    "sky": ("#86cffa", 117, 14, 6), "on_sky": ("#000000", 16, 0, 0),
    "orange": ("#dd9200", 172, 11, 3), "on_orange": ("#000000", 16, 0, 0),
    "red": ("#c8380a", 160, 1, 1), "on_red": ("#ffffff", 231, 15, 7),
    "purple": ("#d68fb8", 175, 13, 7), "on_purple": ("#000000", 16, 0, 0),
    "green": ("#009e73", 36, 10, 2), "on_green": ("#000000", 16, 0, 0),
    "khaki": ("#5c571a", 58, 11, 3), "on_khaki": ("#ffffff", 231, 0, 0),
    "straw": ("#b3a633", 143, 11, 3), "on_straw": ("#000000", 16, 0, 0),
}  # fmt: skip
LIGHT: dict[str, Colour] = {
    "ground": ("#fbfaf7", 231, 15, 7), "panel": ("#e3e7eb", 254, 7, 7), "tint": ("#fbe6dc", 224, 15, 7),
    "text": ("#22272d", 235, 0, 0), "strong": ("#000000", 16, 0, 0), "dim": ("#55606c", 240, 0, 0),
    "rule": ("#78828c", 243, 0, 0), "focus": ("#005a96", 24, 4, 4), "edge": ("#005a96", 24, 4, 4),
    "hollow": ("#b02a00", 124, 1, 0), "head": ("#005a96", 24, 4, 4),
    "bad": ("#b02a00", 124, 1, 7), "bad_ground": (None, None, None, 1),
    "warn": ("#8a5200", 94, 5, 0), "good": ("#00654a", 23, 4, 4),
    "on_focus": ("#ffffff", 231, 15, 7), "culprit": ("#000000", 16, 0, 0), "on_culprit": ("#ffffff", 231, 15, 7),
    "blue": ("#b0d4f0", 153, 4, 4), "on_blue": ("#08263a", 16, 15, 7),
    "grey": ("#d8d8d6", 252, 7, 7), "on_grey": ("#33393f", 237, 0, 0),
    "sky": ("#0072b2", 25, 6, 6), "on_sky": ("#ffffff", 231, 0, 0),
    "orange": ("#f0b23e", 215, 11, 3), "on_orange": ("#000000", 16, 0, 0),
    "red": ("#b83200", 160, 1, 1), "on_red": ("#ffffff", 231, 15, 7),
    "purple": ("#8c4a78", 96, 5, 0), "on_purple": ("#ffffff", 231, 15, 7),
    "green": ("#7fd0b4", 115, 2, 2), "on_green": ("#000000", 16, 0, 0),
    "khaki": ("#ece6bd", 187, 11, 3), "on_khaki": ("#22272d", 235, 0, 0),
    "straw": ("#c5b84a", 143, 11, 3), "on_straw": ("#000000", 16, 0, 0),
}  # fmt: skip
CONTRAST: dict[str, Colour] = {
    "ground": ("#000000", 16, 0, 0), "panel": ("#000000", 16, 0, 0), "tint": ("#000000", 16, 0, 0),
    "text": ("#ffffff", 231, 15, 7), "strong": ("#ffffff", 231, 15, 7), "dim": ("#cfcfcf", 252, 7, 7),
    "rule": ("#b8b8b8", 250, 7, 7), "focus": ("#ffd84a", 221, 11, 3), "edge": ("#ffd84a", 221, 11, 3),
    "hollow": ("#ff9d73", 216, 15, 7), "head": ("#8fd4ff", 117, 14, 6),
    "bad": ("#000000", 16, 0, 0), "bad_ground": ("#ff9d73", 216, 15, 7),
    "warn": ("#ffc95c", 221, 11, 3), "good": ("#6fe8bd", 86, 10, 2),
    "on_focus": ("#000000", 16, 0, 0), "culprit": ("#ffffff", 231, 15, 7), "on_culprit": ("#000000", 16, 0, 0),
    "blue": ("#003f6e", 17, 4, 4), "on_blue": ("#ffffff", 231, 15, 7),
    "grey": ("#3a3a3a", 237, 0, 0), "on_grey": ("#ffffff", 231, 15, 7),
    "sky": ("#9adcff", 117, 14, 6), "on_sky": ("#000000", 16, 0, 0),
    "orange": ("#f0a000", 214, 11, 3), "on_orange": ("#000000", 16, 0, 0),
    "red": ("#ff9d73", 216, 15, 7), "on_red": ("#000000", 16, 0, 0),
    "purple": ("#ffa0d8", 212, 7, 2), "on_purple": ("#000000", 16, 0, 0),
    "green": ("#3fd6a4", 79, 10, 2), "on_green": ("#000000", 16, 0, 0),
    "khaki": ("#d8d4a8", 187, 11, 3), "on_khaki": ("#000000", 16, 0, 0),
    "straw": ("#d6c93c", 185, 11, 3), "on_straw": ("#000000", 16, 0, 0),
}  # fmt: skip
_OWN: Colour = (None, None, None, None)


def _own(index: int, of_eight: int | None = None) -> Colour:
    """A colour of the terminal, the same for any number of colours."""
    return (index, index, index, index if of_eight is None else of_eight)


ANSI: dict[str, Colour] = {
    **dict.fromkeys(("ground", "panel", "tint", "text", "strong", "dim", "rule", "edge", "hollow"), _OWN),
    **dict.fromkeys(("head", "warn", "good"), _OWN),
    "focus": _own(6), "on_focus": _own(0), "culprit": _own(15, 7), "on_culprit": _own(0),
    "bad": _own(15, 7), "bad_ground": _own(1),
    "blue": _own(4), "on_blue": _own(15, 7), "grey": (7, 7, 7, None), "on_grey": (0, 0, 0, None), "sky": _own(14, 6),
    "on_sky": _own(0), "orange": _own(11, 3), "on_orange": _own(0), "red": _own(1), "on_red": _own(15, 7),
    "khaki": _own(11, 3), "on_khaki": _own(0), "straw": _own(11, 3), "on_straw": _own(0),
    "purple": _own(13, 7), "on_purple": _own(0), "green": _own(10, 2), "on_green": _own(0),
}  # fmt: skip
THEMES: dict[ThemeName, dict[str, Colour]] = {"dark": DARK, "light": LIGHT, "contrast": CONTRAST, "ansi": ANSI}
"""The colours of each theme by their names; "ground" and "text" are those of everything without a face of its own."""

Ground = Literal["ground", "panel", "tint"]
"""The ground of a line: of the screen, of its first and last line, or of the verdict."""
_BARE: dict[str, Style] = {
    **dict.fromkeys(("bold", "head", "bad", "key", "edge", "heat4"), Style(bold=True)),
    **dict.fromkeys(("later", "started", "mismatch", "missing", "absent"), Style(bold=True)),
    **dict.fromkeys(("critical", "warning", "info", "fine", "focus", "culprit"), Style(bold=True, reverse=True)),
    "unsure": Style(dim=True), "warn": Style(underline=True),
}  # fmt: skip
"""The faces that are more than plain text where there are no colours."""
_MARKED = Style(bold=True, reverse=True)


def _colour(name: str, look: Look) -> Color | None:
    """A colour of the theme by its name; None stands for the colour around it."""
    if look.palette == "none" or not name:
        return None
    value = THEMES[look.theme][name][COLUMN[look.palette]]
    if value is None:
        return None
    return Color.parse(value) if isinstance(value, str) else Color.from_ansi(value)


@cache
def face_style(name: str, look: Look) -> Style:
    """The style of a part of the screen; where it leaves a colour open, that of the base holds."""
    if name == "mark":
        return _MARKED
    if look.palette == "none":
        return _BARE.get(name, Style())
    face = FACES.get(name, Face())
    return Style(color=_colour(face.ink, look), bgcolor=_colour(face.ground, look), bold=face.bold or None)


@cache
def base_style(look: Look, ground: Ground = "ground") -> Style:
    """Ink and ground of all that has no face of its own."""
    return Style(color=_colour("text", look), bgcolor=_colour(ground, look))


def textual_theme(look: Look) -> Theme:
    """A theme for the style sheets of Textual, from the same colours."""
    is_ansi = look.palette in ("none", "8", "16") or look.theme == "ansi"
    variables = dict(BUILTIN_THEMES["ansi-dark"].variables) if is_ansi else {}
    variables |= {"ansi-background": _css("ground", look), "ansi-foreground": _css("text", look)} if is_ansi else {}
    cursor = {"foreground": "on_sky", "background": "sky"} if look.palette != "none" else {}
    variables |= {f"block-cursor-{part}": _css(name, look) for part, name in cursor.items()}
    variables |= {"dim": _css("dim", look), "cursor-style": "bold underline" if look.palette == "none" else "bold"}
    return Theme(
        look.theme, _css("focus", look), _css("rule", look), _css("warn", look), _css("bad", look), _css("good", look),
        _css("focus", look), _css("text", look), _css("ground", look), _css("ground", look), _css("panel", look),
        _css("panel", look), dark=look.theme != "light", ansi=is_ansi, variables=variables,
    )  # fmt: skip


def _css(name: str, look: Look) -> str:
    colour = _colour(name, look)
    if colour is None or (colour.number is not None and colour.number < 16):
        return "ansi_default" if colour is None else f"ansi_{_ANSI_NAMES[colour.number or 0]}"
    return colour.get_truecolor().hex


_HUES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ANSI_NAMES = (*_HUES, *(f"bright_{hue}" for hue in _HUES))
