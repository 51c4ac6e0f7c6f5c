"""Stacks merged to a tree, and what is drawn of it."""

from __future__ import annotations

from rankscope.schema import Frame
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.peers import collective
from rankscope.tui.detail.selection_facts import peers_of
from rankscope.tui.detail.stack_tree import TreeLine, draw, forest, frame_at, merge, with_mark
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import BLANK, Line
from tests.tui.detail.samples import BACKWARD, CULPRIT, FORWARD, LAST_SEQ, STUCK, TP, hang, large

UP = tuple(Frame(*frame) for frame in FORWARD)
DOWN = tuple(Frame(*frame) for frame in BACKWARD)


def lines(drawn: list[TreeLine]) -> list[str]:
    return [one.parts.plain for one in drawn]


def runs(parts: Line) -> dict[str, str]:
    """The parts of a line that are not plain, and their roles."""
    return {parts.plain[span.start : span.end]: str(span.style) for span in parts.spans}


def test_stacks_share_what_they_share() -> None:
    drawn = draw(merge([(UP, [0, 1, 2]), (DOWN, [5])]), 80)
    assert lines(drawn) == [
        "x4 [0-2,5] <module> app/main.py:120 > main app/main.py:88",
        "  > train_step train/step.py:30",
        "|- x3 [0-2] forward model/attention.py:211",
        "`- x1 [5] reduce_grads train/ddp.py:64",
    ]
    assert [frame.function for frame in drawn[0].frames] == ["<module>", "main"]
    assert drawn[2].ranks == (0, 1, 2)


def test_internals_are_left_out_unless_asked_for() -> None:
    with_all = draw(merge([(UP, [0])], internals=True), 200)
    assert "_call_impl modules/module.py:1762" in lines(with_all)[0]
    roles = runs(with_all[0].parts)
    assert roles["_call_impl"] == "dim"
    assert "forward" not in roles and "forward" in with_all[0].parts.plain
    assert "_call_impl" not in lines(draw(merge([(UP, [0])]), 200))[0]


def test_chains_are_broken_to_the_width() -> None:
    for width in (20, 40, 79):
        drawn = draw(merge([(UP, [0]), (DOWN, [1])]), width)
        long = [one for one in drawn if one.parts.cell_len > width]
        assert all(len(one.frames) == 1 for one in long)
    assert len(draw(merge([(UP, [0])]), 40)) > len(draw(merge([(UP, [0])]), 200)) == 1


def test_a_rank_that_stops_early_ends_a_chain() -> None:
    drawn = draw(merge([(UP, [0, 1]), (UP[2:], [2])]), 200)
    assert lines(drawn) == [
        "x3 [0-2] <module> app/main.py:120 > main app/main.py:88 > train_step train/step.py:30",
        "`- x2 [0,1] forward model/attention.py:211",
    ]


def test_deep_branches_are_led_by_rails() -> None:
    a, b, c, d = (Frame(name, "f.py", 1) for name in "abcd")
    drawn = draw(merge([((c, b, a), [0, 1]), ((d, b, a), [2]), ((d, a), [3])]), 80)
    assert lines(drawn) == [
        "x4 [0-3] a f.py:1",
        "|- x3 [0-2] b f.py:1",
        "|  |- x2 [0,1] c f.py:1",
        "|  `- x1 [2] d f.py:1",
        "`- x1 [3] d f.py:1",
    ]


def test_endless_recursion_is_cut() -> None:
    frame = Frame("again", "f.py", 1)
    assert sum(len(one.frames) for one in draw(merge([([frame] * 10_000, [0])]), 80)) == 500


def test_a_marked_frame_is_one_span_of_its_line() -> None:
    drawn = draw(merge([(UP, [0])]), 200)[0]
    marked = with_mark(drawn, 2)
    assert [text for text, role in runs(marked.parts).items() if role == "mark"] == ["train_step"]
    assert frame_at(drawn, 2) == UP[2]
    assert frame_at(drawn, 99) == UP[0]
    bare = TreeLine(BLANK, (), (), ())
    assert with_mark(bare, 0) is bare
    assert frame_at(bare, 0) is None


def test_the_forest_tells_those_that_came_from_those_that_did_not() -> None:
    dataset, analysis = hang()
    index = OpIndex(dataset)
    peers = peers_of(index, analysis, Selection(CULPRIT, None, TP, LAST_SEQ))
    assert peers is not None
    drawn = lines(forest(index, peers, 200))
    assert drawn[0] == "3 ranks issued it"
    assert drawn[1].startswith("x3 [4,5,7] <module>")
    assert drawn[2] == "1 rank never issued; this is what they issued last"
    assert drawn[3].startswith("x1 [6] <module>")


def test_ranks_without_a_stack_are_counted() -> None:
    dataset, analysis = hang()
    bare = type(dataset)(
        dataset.ops.with_columns(stack_id=None), dataset.groups, dataset.stacks, dataset.frontiers, dataset.files
    )
    index = OpIndex(bare)
    drawn = lines(forest(index, collective(index, analysis, TP, 1), 80))
    assert drawn == ["4 ranks issued it", "4 ranks without a stack"]


def test_many_ranks_make_few_lines() -> None:
    index = OpIndex(large(16_384, absent=(77,)))
    drawn = forest(index, collective(index, STUCK, 0, 2), 80)
    assert len(drawn) < 12
    assert len(drawn[1].ranks) == 16_383
