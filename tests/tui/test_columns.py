"""Columns of lists: heads stand over their texts, narrow screens lose some, and texts that are too long are cut."""

from __future__ import annotations

from functools import partial

from rankscope.text.wording import rank_ranges
from rankscope.tui.columns import Col, Columns
from rankscope.tui.styled_text import Span

COLUMNS = Columns[tuple[str, int]](
    Col(title="", cell=lambda row: Span("!" if row[1] > 9 else "", "bad"), width=1),
    Col(title="name", cell=lambda row: row[0], width=lambda screen: screen // 4, fits=True),
    Col(title="bytes", cell=lambda row: str(row[1]), width=6, right=True, since=30),
    Col(title="ranks", cell=lambda row: partial(rank_ranges, range(0, 2 * row[1], 2))),
)
ROWS = [("a", 3), ("a long name", 12)]


def test_titles_stand_over_their_columns() -> None:
    columns = COLUMNS.measured(ROWS)
    assert columns.titles(80).plain == "   name         bytes ranks"
    assert columns.line(ROWS[0], 80).plain == "  a                3 0,2,4"
    assert columns.line(ROWS[1], 80).plain.startswith("! a long name     12 0,2,4,6")


def test_a_column_takes_what_it_needs_and_no_more_than_it_may() -> None:
    assert COLUMNS.measured(ROWS[:1]).line(ROWS[0], 80).plain == "  a         3 0,2,4"
    assert COLUMNS.measured(ROWS).line(ROWS[1], 32).plain.startswith("! a long..     12 ")


def test_narrow_screens_go_without_a_column_and_the_last_one_takes_the_rest() -> None:
    columns = COLUMNS.measured(ROWS)
    assert columns.titles(29).plain == "   name    ranks"
    assert columns.line(ROWS[1], 29).plain == "! a lon.. 0,2,4,6,8,10,12,+5"
    assert columns.line(ROWS[1], 29).cell_len <= 28


def test_a_long_title_takes_blanks_of_its_neighbours() -> None:
    columns = Columns[int](Col(title="level", cell=str, width=4), Col(title="waits", cell=str, width=6, right=True))
    assert columns.titles(80).plain == " level waits"
    assert columns.line(7, 80).plain.rstrip() == "7         7"


def test_texts_without_a_role_have_that_of_their_row() -> None:
    shown = COLUMNS.measured(ROWS).line(ROWS[1], 80, "warn")
    assert {str(span.style) for span in shown.spans} == {"bad", "warn"}
