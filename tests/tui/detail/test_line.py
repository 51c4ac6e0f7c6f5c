"""Lines of spans: cutting, wrapping, widths of wide characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from rankscope.tui.styled_text import BLANK, Span, cut, line, wrap


def test_line_takes_strings_and_leaves_out_nothing_at_all() -> None:
    assert line("a", "", Span("b", "bad")) == Text.assemble("a", ("b", "bad"))
    assert BLANK.plain == ""


@pytest.mark.parametrize(
    ("width", "text"), [(20, "one two three"), (13, "one two three"), (9, "one two.."), (3, "o.."), (1, "."), (0, "")]
)
def test_cut_shows_that_something_is_gone(width: int, text: str) -> None:
    assert cut(line("one ", Span("two three", "bold")), width).plain == text


def test_wide_characters_take_two_cells() -> None:
    wide = line("\u6f22\u5b57 x")
    assert wide.cell_len == 6
    assert cut(wide, 5).cell_len <= 5


def test_wrap_breaks_at_spaces_and_indents_what_follows() -> None:
    parts = line(Span("label ", "head"), "a long sentence that goes on")
    assert [piece.plain for piece in wrap(parts, 14, 2)] == ["label a long", "  sentence", "  that goes on"]
    assert wrap(parts, 14, 2)[0] == Text.assemble(("label ", "head"), "a long")


def test_wrap_breaks_words_that_are_longer_than_a_line() -> None:
    assert [piece.plain for piece in wrap(line("x" * 25), 10, 1)] == ["x" * 9, " " + "x" * 9, " " + "x" * 7]


@given(
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P")) | st.just(" "), max_size=80), st.integers(6, 30)
)
def test_wrapped_lines_fit_and_lose_no_word(text: str, width: int) -> None:
    pieces = wrap(line(text), width, 2)
    assert all(piece.cell_len <= width for piece in pieces)
    assert "".join(piece.plain for piece in pieces).replace(" ", "") == text.replace(" ", "")
