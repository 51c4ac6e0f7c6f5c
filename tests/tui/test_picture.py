"""The characters of the lanes."""

from __future__ import annotations

import numpy as np

from rankscope.analysis.model import Analysis, Divergence
from rankscope.tui.axis import View, fit
from rankscope.tui.lane_cells import draw
from rankscope.tui.letters import Mark
from rankscope.tui.model import Model, build_model
from rankscope.tui.times import build_times
from tests.builders import STEP_NS, JobBuilder
from tests.tui.jobs import hang, model_of


def lines(model: Model, view: View, width: int, ranks: list[int]) -> list[str]:
    times = build_times(model) if view.kind == "time" else None
    cells = draw(model, times, view, np.array([model.lane_of[r] for r in ranks]), width)
    assert cells.text.shape == cells.styles.shape
    return [row.tobytes().decode() for row in cells.text]


def test_cells_of_two_characters() -> None:
    model = build_model(*hang(8, 2))
    assert lines(model, View("sequence", 3, 1, 2), 12, [0, 5, 6]) == ["A G R A g.  ", "A G R a.!   ", "A G R ! !   "]


def test_zoomed_out_the_worst_is_shown_and_many_done_are_a_dot() -> None:
    model = build_model(*hang(8, 2))
    assert lines(model, View("sequence", 0, 3, 1), 4, [0, 5, 6]) == ["..g ", "..a ", "..! "]


def test_wide_cells_hold_the_sequence_number() -> None:
    model = build_model(*hang(8, 2))
    assert lines(model, View("sequence", 5, 1, 8), 24, [0, 6]) == [
        "R 4     A 3     g. 5    ",
        "R 4     ! 3     ! 5     ",
    ]
    assert lines(model, View("sequence", 6, 1, 16), 16, [0, 5]) == ["ALL_REDUCE 3    ", "all_reduce. 3   "]


def test_a_mismatch_keeps_its_letter_beside_the_star() -> None:
    job = JobBuilder(2)
    job.collective("0", ranks=[0])
    job.collective("0", ranks=[1], op="broadcast")
    wrong = Divergence(0, 1, "all_reduce", (0, 1), (), (), (1,), False, None)
    model = model_of(job, Analysis("", "mismatch", divergences=(wrong,)))
    assert lines(model, View("sequence", 0, 1, 2), 4, [0, 1]) == ["A   ", "*B  "]


def test_a_lane_without_a_dump_is_unknown_all_along() -> None:
    model = build_model(*hang(8, 2, no_dump=(6,)))
    assert lines(model, View("sequence", 0, 1, 1), 10, [6]) == ["????????  "]


def test_the_culprit_has_a_style_of_its_own() -> None:
    model = build_model(*hang(8, 2))
    cells = draw(model, None, View("sequence", 6, 1, 1), np.array([5, 6]), 2)
    assert cells.styles[1].tolist() == [Mark.ABSENT, Mark.ABSENT]
    assert Mark.ABSENT not in cells.styles[0]


def test_time_shows_how_long_things_take() -> None:
    model = build_model(*hang(8, 1))
    times = build_times(model)
    view = View("time", times.low, STEP_NS // 4, 1)
    assert lines(model, view, 24, [0, 6])[0].startswith("A-  G-  R-  A-  g~~~")
    assert "~" not in lines(model, view, 24, [6])[0]


def test_the_whole_of_time_fits() -> None:
    model = build_model(*hang(8, 5))
    times = build_times(model)
    text = lines(model, fit("time", times.low, times.high, 20), 20, [0])[0]
    assert text[0] in ".A"
    assert "g" in text
