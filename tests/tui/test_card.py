"""The card of a finding: complete on the first screen, gone when the reader moves on, back with a key."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.logs.page.messages_page import MessagesScreen
from rankscope.tui.cell_selection import place_of_finding, place_of_step
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.detail.finding_text import card
from rankscope.tui.lane_cells import draw
from rankscope.tui.model import build_model
from tests.simulator.loaded import simulated
from tests.simulator.scenario import ALL_FAULTS
from tests.tui.drive import bar, board_of, opened, press, screen_text
from tests.tui.jobs import hang, healthy

SAMPLES = Path(__file__).parents[2] / "sample_data"
BROKEN = ("early_return", "slow_loader", "size_mismatch", "two_groups", "wrong_collective", "straggler")
PARTS = ("who", "where", "because", "sure", "next")
WIDE_PANE = 200
FAILED = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/job/train.py", line 88, in train
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.
"""
"""A log that tells who failed and of no operation."""


@pytest.mark.parametrize("sample", BROKEN)
async def test_the_first_screen_answers_everything(sample: str) -> None:
    dataset = load([SAMPLES / sample])
    async with opened((dataset, analyse(dataset))) as (app, _):
        lines = screen_text(app).splitlines()
    assert len(lines) <= 24
    starts = [line.split(" ", 1)[0] for line in lines]
    assert [part for part in PARTS if part not in starts] == []


async def test_the_card_folds_when_the_reader_moves_and_comes_back_with_a_key() -> None:
    async with opened(hang()) as (app, pilot):
        lane = board_of(app).lane
        assert "\nbecause" in screen_text(app)
        await press(app, pilot, "k")
        assert "\nbecause" not in screen_text(app)
        assert "never issued" in screen_text(app).splitlines()[1], "the verdict stays"
        await press(app, pilot, "i")
        assert "\nbecause" in screen_text(app)
        assert board_of(app).lane == lane


async def test_without_a_finding_there_is_no_card() -> None:
    async with opened(healthy()) as (app, pilot):
        assert "\nbecause" not in screen_text(app)
        for key in ("i", "n"):
            await press(app, pilot, key)
            assert "no findings" in bar(app, "keys")
            await press(app, pilot, "k")


async def test_a_key_that_finds_no_other_finding_says_so() -> None:
    dataset = load([SAMPLES / "early_return"])
    async with opened((dataset, analyse(dataset))) as (app, pilot):
        await press(app, pilot, "n")
        assert "the only finding" in bar(app, "keys")
        await press(app, pilot, "k", "n")
        assert "\nbecause" in screen_text(app), "from elsewhere it leads back"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_where_no_operation_can_be_drawn_the_finding_has_all_the_room(
    size: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "job.log").write_text(FAILED)
    dataset = load([tmp_path / "job.log"])
    async with opened((dataset, analyse(dataset)), size) as (app, pilot):
        lines = screen_text(app).splitlines()
        assert [line for line in lines if "no lanes: no operation" in line] == [lines[2]]
        assert "ROOT CAUSE" in lines[3], "the finding begins at once"
        assert app.lanes.detail.size.height >= size[1] - 5
        await press(app, pilot, "end")
        assert app.lanes.detail.top == max(app.lanes.detail.count - app.lanes.detail.size.height, 0), "keys scroll it"
        await press(app, pilot, "enter")
        assert isinstance(app.screen, MessagesScreen), "enter opens what the input has most of"


@pytest.mark.parametrize(("broken", "names"), [(1, "rank_0: "), (2, "rank_0, comm_lib_trace_rank_1: ")])
def test_a_card_names_files_that_were_not_read_why_and_where_all_are(broken: int, names: str, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "two_groups", tmp_path, dirs_exist_ok=True)
    for rank in range(broken):
        path = tmp_path / f"comm_lib_trace_rank_{rank}"
        path.write_bytes(path.read_bytes()[:300])
    dataset = load([tmp_path])
    analysis = analyse(dataset)
    finding = next(f for f in analysis.findings if f.kind == "truncated-file")
    text = " ".join(line.plain.strip() for line in card(dataset, analysis, finding, 76, 12))
    assert f"files   comm_lib_trace_{names}cut off: 0 whole entries kept" in text
    assert "v i all files" in text


async def test_lanes_take_no_row_that_they_do_not_need_and_get_more_when_they_do() -> None:
    async with opened(hang()) as (app, pilot):
        before, rows = app.lanes.lanes.size.height, board_of(app).count
        assert before == rows + app.lanes.lanes.ruled
        await press(app, pilot, "k", "U")
        assert app.lanes.lanes.size.height > before
        await press(app, pilot, "U")
        assert app.lanes.lanes.size.height > before, "nothing jumps while one looks around"


async def test_a_side_that_is_missing_is_named_after_the_rank_that_waits_for_it() -> None:
    async with opened(simulated("lost-send", 1)) as (app, pilot):
        await press(app, pilot, "c", "c")
        assert "rank 6  send to rank 4  NEVER ISSUED" in screen_text(app)


@pytest.mark.parametrize("sample", BROKEN)
def test_every_part_has_a_line_in_any_height(sample: str) -> None:
    dataset = load([SAMPLES / sample])
    analysis = analyse(dataset)
    for height, finding in product((1, 6, 8, 40), analysis.findings):
        full = card(dataset, analysis, finding, 60, WIDE_PANE)
        parts = [line.plain.split()[0] for line in full if not line.plain.startswith(" ")]
        lines = card(dataset, analysis, finding, 60, height)
        assert [line.plain.split()[0] for line in lines if not line.plain.startswith(" ")] == parts
        assert len(lines) <= max(height, len(parts))
        assert all(line.cell_len <= 60 for line in lines)


@pytest.mark.parametrize("fault", [*ALL_FAULTS])
def test_no_jump_lands_on_an_empty_cell(fault: str) -> None:
    try:
        dataset, analysis = simulated(fault, 61)
    except LookupError:
        pytest.skip("no job has a place for it")
    model = build_model(dataset, analysis)
    boards = BoardSet(model, np.zeros(1, np.uint8))
    board = boards.operations
    places = [place_of_finding(model, f) for f in analysis.findings if f.group is not None]
    places += [place_of_step(model, step) for f in analysis.findings for step in f.chain]
    for place in places:
        assert place is not None
        boards.go(place)
        cells = draw(model, None, board.view, np.array([board.lane]), board.width).codes[0]
        assert cells[board.view.cell_of(board.unit) - board.view.cell_of(board.view.first)], place
    assert_all_in_question_are_shown(boards)


def assert_all_in_question_are_shown(boards: BoardSet, rows: int = 9) -> None:
    """At each root cause, the culprits and the members of the group are among the rows of a small terminal."""
    board, model = boards.operations, boards.whole
    board.resize(66, rows)
    for at, finding in enumerate(model.analysis.findings):
        place = place_of_finding(model, finding)
        if not finding.root_cause or place is None:
            continue
        boards.blame(at)
        boards.go(place)
        board.settle(rows)
        shown = {rank for row in range(board.top, min(board.top + rows, board.count)) for rank in board.ranks_of(row)}
        asked = {*finding.culprit_ranks, *(finding.group.ranks if finding.group is not None else ())}
        assert asked <= shown, finding.title
