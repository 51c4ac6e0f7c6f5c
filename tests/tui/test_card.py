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
CARD = "- do now -"
"""Part of the rule over the command of a card, which no other pane has."""
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
    analysis = analyse(dataset)
    async with opened((dataset, analysis)) as (app, _):
        lines = screen_text(app).splitlines()
    assert len(lines) <= 24
    culprit = analysis.findings[0].culprit_ranks[0]
    assert lines[1].startswith(f"  ROOT  rank {culprit} ")
    assert "sure: " in lines[0]
    assert lines[2].startswith("  1 verdict   2 lanes ")
    why, now = ([at for at, line in enumerate(lines) if line.lstrip().startswith(rule)] for rule in ("- why -", CARD))
    reasons, steps = lines[why[0] + 1 : now[0]], lines[now[0] + 1 : -1]
    assert reasons[0].strip() and steps[0].strip()
    assert [title for title in ("where", "sure") if f" {title} " not in "\n".join(reasons)] == []
    assert "more line" not in "\n".join(lines), "nothing is cut"
    assert lines[-1].startswith(" n next")


async def test_the_card_gives_way_when_the_reader_moves_and_comes_back_with_a_key() -> None:
    async with opened(hang(), (80, 30)) as (app, pilot):
        lane = board_of(app).lane
        assert CARD in screen_text(app) and bar(app, "status").startswith("- why -")
        for key in ("k", "2"):
            await press(app, pilot, key)
            assert CARD not in screen_text(app) and bar(app, "status").startswith("- detail -")
            assert "never issued" in screen_text(app).splitlines()[1], "the verdict stays"
            await press(app, pilot, "1")
            assert CARD in screen_text(app)
            assert board_of(app).lane == lane
        await press(app, pilot, "k", "j")
        assert CARD in screen_text(app), "it is shown wherever the finding is"


async def test_without_a_finding_there_is_no_card() -> None:
    async with opened(healthy()) as (app, pilot):
        assert CARD not in screen_text(app)
        for key in "nN":
            await press(app, pilot, key)
            assert "no findings" in bar(app, "keys")
            await press(app, pilot, "k", "1")
            assert CARD not in screen_text(app)


async def test_a_key_that_finds_no_other_finding_says_so() -> None:
    dataset = load([SAMPLES / "early_return"])
    async with opened((dataset, analyse(dataset))) as (app, pilot):
        await press(app, pilot, "n")
        assert "the only finding" in bar(app, "keys")
        await press(app, pilot, "k", "n")
        assert CARD in screen_text(app), "from elsewhere it leads back"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_where_no_operation_can_be_drawn_the_finding_has_all_the_room(
    size: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "job.log").write_text(FAILED)
    dataset = load([tmp_path / "job.log"])
    async with opened((dataset, analyse(dataset)), size) as (app, pilot):
        lines = screen_text(app).splitlines()
        assert [line for line in lines if "no lanes: no operation" in line] == [lines[3]]
        assert "ROOT CAUSE" in lines[4], "the finding begins at once"
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
    text = " ".join(line.plain.strip() for line in card(dataset, analysis, finding).lines(76, 12, ascii_only=True))
    assert f"files   comm_lib_trace_{names}cut off: 0 whole entries kept" in text
    assert "; 7 lists all files" in text


async def test_lanes_take_no_row_that_they_do_not_need_and_get_more_when_they_do() -> None:
    async with opened(hang()) as (app, pilot):
        before, rows = app.lanes.lanes.size.height, board_of(app).count
        assert before == rows + app.lanes.lanes.ruled
        await press(app, pilot, "j", "g", "u")
        assert app.lanes.lanes.size.height > before
        await press(app, pilot, "g", "u")
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
        made = card(dataset, analysis, finding)
        full = [line.plain for line in made.lines(60, WIDE_PANE, ascii_only=True)]
        lines = [line.plain for line in made.lines(60, height, ascii_only=True)]
        rule = next((at for at, line in enumerate(full) if line.startswith(CARD)), len(full))
        now = full[rule:]
        assert bool(now) == bool(finding.next_steps)
        why = lines[: len(lines) - len(now)]
        assert lines[len(why) :] == now, "what to do now is never cut"
        titles = [title for title, _ in made.why if title]
        assert [line.split()[0] for line in why if line[:8].strip() in titles] == titles
        assert why[0].split()[0] == full[0].split()[0]
        assert len(lines) <= max(height, len(made.why) + len(now))
        assert all(len(line) <= 60 for line in lines)
        left_out = [int(line.rpartition("+")[2].split()[0]) for line in why if line.endswith(": enter")]
        assert len(why) + sum(left_out) == rule, "and it tells how many lines are left out"


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
