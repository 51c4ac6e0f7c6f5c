"""Every theme can be read: contrast, colour-blind safety, the same words with any colours and with none."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from rich.color import Color
from rich.style import Style

from rankscope.kinds.finding_kinds import SEVERITIES, STATUSES
from rankscope.tui.app import RankscopeApp
from rankscope.tui.lane_cells import BESIDE
from rankscope.tui.letters import BUSY, CHARACTERS, MEMBER, THIN, Mark, cell_style, code
from rankscope.tui.options import Look, Palette, ThemeName, ViewOptions, theme_of
from rankscope.tui.styled_text import Role
from rankscope.tui.themes import FACES, Ground, base_style, face_style, textual_theme
from tests.tui.drive import opened, press, screen_text
from tests.tui.jobs import hang

COLOURED = [Look(theme, palette) for theme in get_args(ThemeName) for palette in get_args(Palette) if palette != "none"]
XTERM = [
    "000000",
    "cd0000",
    "00cd00",
    "cdcd00",
    "0000ee",
    "cd00cd",
    "00cdcd",
    "e5e5e5",
    "7f7f7f",
    "ff0000",
    "00ff00",
    "ffff00",
    "5c5cff",
    "ff00ff",
    "00ffff",
    "ffffff",
]
"""The sixteen colours of xterm, for the terminal's own."""
ON_ANY: dict[str, tuple[Ground, ...]] = {
    "text": ("ground", "panel", "tint"), "dim": ("ground", "panel", "tint"), "bold": ("ground", "panel", "tint"),
    "key": ("panel",), "head": ("ground", "panel"),
}  # fmt: skip
"""The grounds on which faces without a ground of their own are shown, where it is not only that of the screen."""
DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
"""Colours as they are seen, in linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)."""
LEAST_DISTANCE = 12.0
"""A distance in CIELAB that is seen at once; 2.3 is just noticeable."""
MARKS = (Mark.DONE, Mark.GONE, Mark.SCHEDULED, Mark.STARTED, Mark.MISMATCH, Mark.ABSENT)


def linear(colour: Color) -> np.ndarray:
    number = colour.number
    if number is not None and number < 16:
        colour = Color.parse(f"#{XTERM[number]}")
    rgb = np.array(colour.get_truecolor()) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: Color, other: Color) -> float:
    """The ratio of WCAG 2."""
    dark, bright = sorted(float(linear(colour) @ np.array((0.2126, 0.7152, 0.0722))) for colour in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def lab(colour: Color, seen: tuple[tuple[float, ...], ...]) -> np.ndarray:
    rgb = np.clip(np.array(seen) @ linear(colour), 0, 1)
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    x, y, z = np.cbrt(np.maximum(np.array(to_xyz) @ rgb / (0.95047, 1, 1.08883), 0.008856))
    return np.array((116 * y - 16, 500 * (x - y), 200 * (y - z)))


@pytest.mark.parametrize("look", COLOURED, ids="-".join)
def test_everything_can_be_read(look: Look) -> None:
    least = 7.0 if look.theme == "contrast" else 4.5
    for name in FACES:
        grounds = ON_ANY.get(name, ("ground",))
        for style in [base_style(look, ground) + face_style(name, look) for ground in grounds]:
            ink, ground = style.color, style.bgcolor
            if ink is None or ground is None:
                # one of both is the terminal's own, and so must be the other
                assert look.theme == "ansi" and ink is ground, name
            else:
                assert contrast(ink, ground) >= (3.0 if name == "rule" else least), (name, ink, ground)


@pytest.mark.parametrize("look", [look for look in COLOURED if look.palette in ("true", "256")], ids="-".join)
@pytest.mark.parametrize("seen", [DEUTERANOPIA, PROTANOPIA], ids=["deuteranopia", "protanopia"])
def test_grounds_of_marks_stay_apart_for_the_colour_blind(look: Look, seen: tuple[tuple[float, ...], ...]) -> None:
    if look.theme == "ansi":
        pytest.skip("the colours are the terminal's own: letters tell the marks apart")
    shown = {mark: cell_style(mark, look).bgcolor for mark in MARKS}
    for one, other in combinations(MARKS, 2):
        first, second = shown[one], shown[other]
        assert first is not None and second is not None
        distance = float(np.linalg.norm(lab(first, seen) - lab(second, seen)))
        assert distance >= LEAST_DISTANCE, (one, other)


@pytest.mark.parametrize("look", [*COLOURED, Look("dark", "none")], ids="-".join)
def test_no_mark_is_told_by_hue_alone(look: Look) -> None:
    def shape(mark: Mark) -> tuple[object, ...]:
        style, char = cell_style(mark, look), chr(CHARACTERS[code(mark, 2)])
        return (
            char + BESIDE.get(mark, " "),
            bool(style.bold),
            bool(style.dim),
            style.bgcolor == base_style(look).bgcolor,
        )

    # without colours the ranks to blame have a mark of their own beside the lane
    alike = (Mark.EMPTY, Mark.MISMATCH_PENDING, *([Mark.MISSING] if look.palette == "none" else []))
    marks = [mark for mark in Mark if mark not in alike]
    assert len({shape(mark) for mark in marks}) == len(marks)


def test_every_badge_and_role_has_a_face() -> None:
    looks = [*SEVERITIES.values(), *STATUSES.values()]
    assert {look.face for look in looks} | {look.role for look in looks} <= set(get_args(Role))
    assert set(get_args(Role)) - {"mark"} <= set(FACES)
    for look in [*COLOURED, Look("light", "none")]:
        assert {str(face_style(one.face, look)) for one in looks} - {"none"}


@pytest.mark.parametrize("theme", get_args(ThemeName))
def test_without_colours_no_style_has_any(theme: ThemeName) -> None:
    look = Look(theme, "none")
    styles = [
        base_style(look),
        *(cell_style(number, look) for number in range(128)),
        *(face_style(f, look) for f in FACES),
    ]
    assert all(style.color is None and style.bgcolor is None for style in styles)
    assert face_style("focus", look).reverse and face_style("critical", look).reverse
    assert textual_theme(look).ansi


def test_styles_beside_marks_are_no_marks() -> None:
    assert len(Mark) <= BUSY < THIN < MEMBER


@pytest.mark.parametrize(
    ("environ", "theme"),
    [({}, "dark"), ({"RANKSCOPE_THEME": "Light"}, "light"), ({"RANKSCOPE_THEME": "neon"}, "dark")],
)
def test_the_environment_asks_for_a_theme(environ: dict[str, str], theme: str) -> None:
    assert theme_of(environ) == theme


def grounds(app: RankscopeApp) -> set[object]:
    """The grounds of all cells on the screen of an app."""
    strips = app.screen._compositor.render_strips()
    return {style.bgcolor.get_truecolor() for strip in strips for _, style, _ in strip if style and style.bgcolor}


async def test_the_screen_shows_the_theme_under_the_cursor_and_escape_brings_the_old_one_back() -> None:
    async with opened(hang(), options=ViewOptions(palette="true")) as (app, pilot):
        dark, light = (base_style(Look(name, "true")).bgcolor for name in ("dark", "light"))
        assert dark is not None and light is not None
        app.action_theme()
        await press(app, pilot, "down")
        assert light.get_truecolor() in grounds(app) and dark.get_truecolor() not in grounds(app)
        await press(app, pilot, "escape")
        assert dark.get_truecolor() in grounds(app) and light.get_truecolor() not in grounds(app)
        app.action_theme()
        await press(app, pilot, *"contrast", "enter")
        assert app.theme == app.options.look.theme == "contrast"


@pytest.mark.parametrize("size", [(80, 24), (130, 30), (130, 40), (200, 60)])
async def test_the_focus_is_seen_without_colours(size: tuple[int, int]) -> None:
    async with opened(hang(), size) as (app, pilot):

        def reversed_starts() -> set[str]:
            return {text.strip()[:1] for text, style in shown(app) if style and style.reverse}

        before = screen_text(app)
        assert " why " in before and {"!"} <= reversed_starts() and "W" not in reversed_starts()
        await press(app, pilot, "tab")
        after = screen_text(app)
        assert " WHY ===" in after and " why " not in after
        assert {"W"} <= reversed_starts() and "!" not in reversed_starts()
        await press(app, pilot, "tab")
        assert screen_text(app) == before


def shown(app: RankscopeApp) -> list[tuple[str, Style | None]]:
    strips = app.screen._compositor.render_strips()
    return [(text, style) for strip in strips for text, style, _ in strip]
