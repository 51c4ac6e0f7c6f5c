"""What the environment says about the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.tui.letters import CURSOR, MEMBER, Mark, cell_style
from rankscope.tui.options import Look, Palette, from_environment, palette_of, unicode_of


@pytest.mark.parametrize(
    ("environ", "palette"),
    [
        ({"TERM": "xterm-256color"}, "256"), ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "true"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", "SSH_CONNECTION": "a b"}, "256"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "none"), ({"TERM": "xterm-256color", "NO_COLOR": ""}, "256"),
        ({"TERM": "screen"}, "16"), ({"TERM": "linux"}, "8"), ({"TERM": "vt100"}, "none"), ({"TERM": "dumb"}, "none"),
        ({}, "none"),
    ],
)  # fmt: skip
def test_the_palette_follows_the_terminal(environ: dict[str, str], palette: str) -> None:
    assert palette_of(environ) == palette


def test_what_is_asked_for_wins() -> None:
    ssh = {"TERM": "xterm-256color", "SSH_CONNECTION": "1", "LANG": "C.UTF-8"}
    options = from_environment(ssh)
    assert (options.mouse, options.slow_link, options.ascii_only) == (False, True, False)
    options = from_environment(ssh, mouse=True, palette="8", ascii_only=True, export_dir=Path("x"))
    assert (options.mouse, options.palette, options.ascii_only, options.export_dir) == (True, "8", True, Path("x"))


def test_without_a_locale_all_is_ascii() -> None:
    assert not unicode_of({})
    assert not unicode_of({"LANG": "C.UTF-8", "LC_ALL": "C"})
    assert unicode_of({"LANG": "en_US.utf8"})
    assert from_environment({}).ascii_only


@pytest.mark.parametrize("palette", ["8", "16", "256", "true"])
def test_with_colours_no_two_marks_look_the_same(palette: Palette) -> None:
    shown = [Mark.DONE, Mark.GONE, Mark.SCHEDULED, Mark.STARTED, Mark.MISMATCH, Mark.MISSING, Mark.ABSENT]
    styles = {str(cell_style(number, Look("dark", palette))) for number in shown}
    assert len(styles) == len(shown)


def test_256_colours_are_explicit_indices() -> None:
    for number in (Mark.DONE, Mark.SCHEDULED, Mark.MISMATCH, Mark.ABSENT):
        style = cell_style(number, Look("dark", "256"))
        for colour in (style.color, style.bgcolor):
            assert colour is None or (colour.number is not None and colour.number >= 16)


@pytest.mark.parametrize("palette", ["none", "8", "256"])
def test_the_cursor_is_seen_on_every_mark(palette: Palette) -> None:
    for mark in range(9):
        look = Look("dark", palette)
        plain, cursor = cell_style(mark, look), cell_style(mark + CURSOR, look)
        assert not plain.reverse and cursor.reverse
        resting = cell_style(mark + CURSOR, look, lit=False)
        assert resting.underline and not resting.reverse
        assert cell_style(mark + MEMBER, look).underline
