"""The pane as a widget: what it shows at which size, and how it scrolls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.tui.detail.finding_text import card
from rankscope.tui.detail.line_widgets import with_rest
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.pane import DetailPane
from rankscope.tui.options import Look, ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Span, line, to_segments
from rankscope.tui.themes import base_style, face_style
from tests.tui.detail.goldens import absent
from tests.tui.detail.samples import hang
from tests.tui.detail.show import OneWidget, screen_text


async def test_a_low_pane_shows_the_most_important_and_a_high_one_everything() -> None:
    dataset, analysis = hang()
    pane = DetailPane(ViewOptions())
    async with OneWidget(pane).run_test(size=(80, 6)) as pilot:
        pane.show(dataset, analysis, absent())
        await pilot.pause()
        first = screen_text(pilot.app)
        assert first.startswith("rank 6  #5 all_reduce  NEVER ISSUED")
        assert "finding" not in first
        await pilot.resize_terminal(50, 40)
        await pilot.pause()
        assert "py-spy dump of rank 6" in screen_text(pilot.app)


async def test_a_pane_without_a_selection_says_so() -> None:
    dataset, analysis = hang()
    pane = DetailPane()
    async with OneWidget(pane).run_test(size=(60, 6)) as pilot:
        assert not screen_text(pilot.app).strip(), "nothing was looked up yet"
        pane.show(dataset, analysis, Selection(0))
        pane.show(dataset, analysis, None)
        await pilot.pause()
        assert "nothing is selected" in screen_text(pilot.app)


async def test_what_does_not_fit_is_counted_and_scrolled_to() -> None:
    dataset, analysis = hang()
    pane = DetailPane(ViewOptions())
    async with OneWidget(pane).run_test(size=(80, 4)) as pilot:
        pane.show(dataset, analysis, absent())
        pilot.app.set_focus(None)
        await pilot.pause()
        marked = base_style(pane.options.look) + face_style("mark", pane.options.look)
        assert pane.render_line(0)._segments[0].style != marked
        pane.focus()
        await pilot.pause()
        assert screen_text(pilot.app).splitlines()[-1].endswith("+2")
        assert pane.render_line(0)._segments[0].style == marked
        await pilot.press("end")
        await pilot.pause()
        assert screen_text(pilot.app).splitlines()[-1] == "dump    nccl_trace_rank_6"


async def test_another_dataset_is_looked_up_anew() -> None:
    first, analysis = hang()
    second, _ = hang()
    pane = DetailPane()
    async with OneWidget(pane).run_test(size=(80, 8)):
        pane.show(first, analysis, absent())
        assert index_of(first) is index_of(first)
        pane.show(second, analysis, replace(absent(), rank=5, row=None))
        assert pane.detail is not None
        assert pane.detail.selection.rank == 5
        assert index_of(second).dataset is second


def test_the_count_of_lines_below_stands_at_the_right() -> None:
    shown = with_rest(line("a long line of text"), 12, 16)
    assert shown.plain == "a long li.. +12"
    assert with_rest(line("x"), 0, 16) == line("x")


def test_ascii_only_writes_other_characters_as_escapes() -> None:
    segments = to_segments(line(Span("caf\u00e9", "bold")), 20, Look("dark", "none"), ascii_only=True)
    assert segments[0].text == "caf\\xe9"


@pytest.mark.parametrize(
    ("step", "rest"),
    [
        ("nvidia-smi -q on its host: which Xid?", "on its host: which Xid?"),
        ("Look for Xid errors (dmesg, nvidia-smi -q).", "Look for Xid errors (dmesg, nvidia-smi -q)."),
    ],
)
def test_a_command_within_a_sentence_stays_in_it(step: str, rest: str) -> None:
    dataset, analysis = hang()
    command, words = card(dataset, analysis, replace(analysis.findings[0], next_steps=(step,))).now
    assert command.plain == "$ nvidia-smi -q   Y copies it" and words.plain == rest
