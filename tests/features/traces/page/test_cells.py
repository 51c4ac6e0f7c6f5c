"""What the letter of a cell is, for what covers it."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.features.traces.page.activity import (
    COMPUTE,
    COUNT,
    LAUNCH,
    MEMORY,
    MOVING,
    OP,
    PYTHON,
    SYNC,
    WAITING,
    WINDOW,
)
from rankscope.features.traces.page.busy_time import cover_of, merged
from rankscope.features.traces.page.trace_cells import Asked, draw, judged
from rankscope.tui.letters import BUSY, HOST, letter_number

AR = letter_number("all_reduce")


def letters(*layers: tuple[int, int, int], cells: int = 1, per: int = 100) -> str:
    """The characters of one lane for (activity, start, end)."""
    keys = sorted({activity for activity, _, _ in layers})
    key_of = np.full((1, COUNT), -1, np.int32)
    key_of[0, keys] = np.arange(len(keys))
    at, start, end = (np.array(column, np.int64) for column in zip(*layers, strict=True))
    cover = cover_of(merged(np.searchsorted(keys, at), start, end), len(keys))
    edges = np.arange(cells + 1)[None, :] * per
    return draw(cover, key_of, [Asked(0)], edges).text.tobytes().decode()


@pytest.mark.parametrize(
    ("layers", "letter"),
    [
        ([], "."), ([(COMPUTE, 0, 80)], "#"), ([(COMPUTE, 0, 30)], ":"), ([(COMPUTE, 0, 1)], "."),
        ([(MOVING + AR, 0, 80)], "A"), ([(WAITING + AR, 0, 60), (MOVING + AR, 60, 80)], "a"),
        ([(MOVING + AR, 0, 10), (COMPUTE, 0, 30)], "A"), ([(MOVING + AR, 0, 10), (COMPUTE, 0, 90)], "#"),
        ([(MOVING + AR, 0, 90), (COMPUTE, 0, 90)], "&"), ([(MEMORY, 0, 60)], "m"),
        ([(OP, 0, 90)], "h"), ([(OP, 0, 90), (LAUNCH, 0, 50)], "l"), ([(PYTHON, 0, 100), (OP, 0, 20)], "p"),
        ([(PYTHON, 0, 100), (SYNC, 0, 80)], "s"), ([(OP, 0, 90), (COMPUTE, 0, 10)], ":"),
        ([(OP, 0, 20), (LAUNCH, 20, 40), (SYNC, 40, 60)], "s"),
    ],
)  # fmt: skip
def test_the_most_telling_is_shown(layers: list[tuple[int, int, int]], letter: str) -> None:
    assert letters((WINDOW, 0, 100), *layers) == letter


def test_outside_of_the_window_of_a_profiler_there_is_nothing() -> None:
    assert letters((WINDOW, 100, 200), cells=4) == " .  "


def test_what_is_seen_outside_of_the_window_is_shown_all_the_same() -> None:
    assert letters((WINDOW, 100, 200), (COMPUTE, 0, 100), cells=2) == "#."


def test_cells_of_any_size_add_up() -> None:
    layers = [(WINDOW, 0, 1000), (COMPUTE, 0, 300), (MOVING + AR, 300, 500), (OP, 0, 700)]
    assert letters(*layers, cells=10) == "###AAhh..."
    assert letters(*layers, cells=5, per=200) == "#AAh."


def test_styles_follow_what_is_shown() -> None:
    shares = {COMPUTE: np.array([[1.0, 0.0]], np.float32), OP: np.array([[0.0, 1.0]], np.float32)}
    assert judged(shares, (1, 2)).tolist() == [[COMPUTE, OP]]
    key_of = np.full((1, COUNT), -1, np.int32)
    key_of[0, [COMPUTE, OP]] = [0, 1]
    cover = cover_of(merged(np.array([0, 1]), np.array([0, 10]), np.array([10, 20])), 2)
    assert draw(cover, key_of, [Asked(0)], np.array([[0, 10, 20]])).styles.tolist() == [[BUSY, HOST]]


def test_a_row_shows_only_what_it_is_asked_for() -> None:
    key_of = np.full((1, COUNT), -1, np.int32)
    key_of[0, [COMPUTE, OP]] = [0, 1]
    cover = cover_of(merged(np.array([0, 1]), np.array([0, 0]), np.array([10, 10])), 2)
    rows = [Asked(0), Asked(0, (OP,)), Asked(0, (COMPUTE,)), Asked(0, (MEMORY,))]
    text = draw(cover, key_of, rows, np.broadcast_to(np.array([0, 10]), (4, 2))).text
    assert text.tobytes().decode() == "#h# "
