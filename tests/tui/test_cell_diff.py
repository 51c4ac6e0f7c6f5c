"""Sending only the cells that changed shows what sending everything shows."""

from __future__ import annotations

import random

import pyte
import pytest
from rich.console import Console

from rankscope.tui.app import RankscopeApp
from rankscope.tui.driver import ChangedCells, erases_in_colour
from rankscope.tui.options import ViewOptions
from tests.tui.drive import act, opened, press
from tests.tui.jobs import hang

STYLES = ["", "1", "38;5;231;48;5;24", "7", "4;38;5;16", "1;38;5;231;48;5;24", "1;4;31;104", "38;2;1;2;3;48;2;4;5;6"]


class Terminals:
    """One terminal that gets everything, one that gets the changes."""

    def __init__(self, width: int = 40, height: int = 8) -> None:
        self.cells = ChangedCells(width, height)
        self.screens = [pyte.Screen(width, height) for _ in range(2)]
        self.streams = [pyte.Stream(screen) for screen in self.screens]
        for stream in self.streams:
            stream.feed("\x1b[?7l")
        self.sent = 0

    def frame(self, data: str) -> str:
        assert self.cells.draw(data)
        changes = self.cells.changes()
        self.streams[0].feed(data.replace("\n", ""))
        self.streams[1].feed(changes)
        self.sent += len(changes)
        return changes

    def agree(self) -> bool:
        whole, part = self.screens
        return all(
            whole.buffer[y][x]._replace(data=whole.buffer[y][x].data or " ")
            == part.buffer[y][x]._replace(data=part.buffer[y][x].data or " ")
            for y in range(whole.lines)
            for x in range(whole.columns)
        )


def styled(text: str, style: str) -> str:
    """Text as Textual writes it."""
    return f"\x1b[{style}m{text}\x1b[0m" if style else text


def test_the_first_frame_is_sent_as_it_is_and_the_second_not_at_all() -> None:
    terminals = Terminals()
    frame = "\x1b[1;1H" + styled("hello", "1") + " world\n\x1b[2;1H" + " " * 40
    assert terminals.frame(frame)
    assert terminals.frame(frame) == ""
    assert terminals.agree()
    assert terminals.screens[1].display[0].startswith("hello world")


def test_only_what_changed_is_sent() -> None:
    terminals = Terminals()
    terminals.frame("\x1b[3;1H" + styled("A R A R A R A R A R", STYLES[2]))
    changes = terminals.frame(
        "\x1b[3;1H" + styled("A R A R ", STYLES[2]) + styled("a", "7") + styled(" R A R A R", STYLES[2])
    )
    assert changes == "\x1b[3;9H\x1b[7ma\x1b[m"
    assert terminals.agree()


def test_blanks_to_the_end_of_a_line_are_erased() -> None:
    terminals = Terminals()
    terminals.frame("\x1b[1;1H" + "x" * 40)
    changes = terminals.frame("\x1b[1;1Hx" + " " * 39)
    assert changes == "\x1b[1;2H\x1b[K"
    assert terminals.agree()


@pytest.mark.parametrize("seed", range(8))
def test_any_frames_end_in_the_same_screen(seed: int) -> None:
    draws = random.Random(seed)
    terminals = Terminals()
    for _ in range(60):
        parts = []
        for _ in range(draws.randint(1, 6)):
            row, column = draws.randint(1, 8), draws.randint(1, 40)
            text = "".join(draws.choice("abc  ─█!") for _ in range(draws.randint(1, 41 - column)))
            parts.append(f"\x1b[{row};{column}H{styled(text, draws.choice(STYLES))}")
        terminals.frame("".join(parts))
        assert terminals.agree()


def test_wide_characters_keep_their_place() -> None:
    terminals = Terminals()
    terminals.frame("\x1b[1;1H" + "rank 節点 stuck".ljust(38))
    terminals.frame("\x1b[1;1H" + "rank 節点 stuck!".ljust(38))
    assert terminals.agree()
    terminals.frame("\x1b[1;7Hxx")
    assert terminals.screens[1].display[0].startswith("rank  xx")


def test_marks_that_take_no_cell_stay_with_their_letter() -> None:
    cells = ChangedCells(10, 1)
    assert cells.draw("\x1b[1;1He\u0301x")
    assert "e\u0301x" in cells.changes()


def test_lines_of_disputed_width_are_sent_whole() -> None:
    terminals = Terminals()
    terminals.frame("\x1b[1;1H\u00e9abcdefghijklmnop")
    changes = terminals.frame("\x1b[1;5HX")
    assert changes.startswith("\x1b[1;1H\u00e9abcXefgh") or changes.startswith("\x1b[1;1H\u00e9abX")


@pytest.mark.parametrize("data", ["\x1b[?1049h", "\x1b]52;c;AAAA\x07", "\x1b[1;1Hx\x1b[2J", "\x1b[6n", "\x1bM"])
def test_what_is_no_frame_is_refused(data: str) -> None:
    cells = ChangedCells(10, 2)
    cells.draw("\x1b[1;1Hab")
    cells.changes()
    assert not cells.draw(data)
    assert cells.changes() == ""


def test_after_forgetting_everything_is_sent_again() -> None:
    terminals = Terminals()
    first = terminals.frame("\x1b[1;1Habc")
    terminals.cells.forget()
    assert terminals.cells.changes() == first


def test_writing_beside_the_screen_is_cut_off() -> None:
    cells = ChangedCells(5, 2)
    assert cells.draw("\x1b[1;4Habcdef\x1b[9;1Hx\x1b[1;77Hy")
    assert "ab" in cells.changes()
    assert cells.changes() == ""


def test_only_a_terminal_that_erases_in_colour_is_asked_to() -> None:
    assert erases_in_colour({"TERM": "xterm-256color"}) and erases_in_colour({"TERM": "screen", "TMUX": "x"})
    assert not erases_in_colour({"TERM": "screen.xterm-256color"})
    frame = "\x1b[1;1H" + styled("ab" + " " * 38, STYLES[2])
    for erases in (True, False):
        cells = ChangedCells(40, 1, erases_in_colour=erases)
        assert cells.draw(frame)
        changes = cells.changes()
        assert ("\x1b[K" in changes) == erases == (" " * 38 not in changes)


def whole_frame(app: RankscopeApp) -> str:
    """The screen as Textual writes it."""
    console = Console(force_terminal=True, color_system="truecolor")
    strips = app.screen._compositor.render_strips()
    return "".join(f"\x1b[{row};1H{strip.render(console)}" for row, strip in enumerate(strips, 1))


@pytest.mark.parametrize(("size", "most"), [((80, 24), 2000), ((200, 60), 4000)])
async def test_a_lane_down_takes_few_bytes(size: tuple[int, int], most: int) -> None:
    async with opened(hang(128, 8, culprit=12), size, ViewOptions(palette="true")) as (app, pilot):
        cells = ChangedCells(*size)
        await press(app, pilot, "2")
        await act(app, pilot, "unfold_all")
        assert cells.draw(whole_frame(app)) and cells.changes()
        for _ in range(4):
            await press(app, pilot, "j")
            assert cells.draw(whole_frame(app))
            assert 0 < len(cells.changes()) <= most
