"""Operations and members in words."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.analysis.model import ChainStep, Wait
from rankscope.tui.detail import operation_text
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.peers import Fold
from rankscope.tui.detail.selection_facts import history
from rankscope.tui.styled_text import line
from tests.builders import START_NS, STEP_NS, JobBuilder

NOW = START_NS + 60 * 1_000_000_000


def row(**more: Any) -> dict[str, Any]:
    """A row of ops as the index gives it."""
    job = JobBuilder(2)
    job.collective(ranks=[0], **more)
    found = history(OpIndex(job.build()), 0).last
    assert found is not None
    return found


def fold(**more: Any) -> Fold:
    """A fold of two members that did what is usual."""
    usual: dict[str, Any] = {
        "ranks": (0, 1), "presence": "issued", "state": "pending", "op": "all_reduce", "parts": 1, "sizes": "[[64]]",
        "dtypes": '["Float"]', "accused": False, "differs": False, "late": False, "lag_ns": (0, 0), "row": 0,
        "stack_id": None, "host": None,
    }  # fmt: skip
    return Fold(**(usual | more))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "done 22:13:20.001 seen after 500 us"),
        ({"duration_ns": 1_200_000}, "done 22:13:20.001 in 1.2 ms"),
        ({"completed_ns": None}, "done, issued 22:13:20.001"),
        ({"state": "scheduled"}, "PENDING since 22:13:20.001, for 1 min"),
        ({"state": "started"}, "STARTED since 22:13:20.001, for 1 min"),
        ({"state": "scheduled", "created_ns": NOW}, "PENDING since 22:14:20.000"),
        ({"state": "scheduled", "created_ns": None}, "PENDING"),
        ({"state": "scheduled", "retired": True}, "TIMED OUT since 22:13:20.001, for 1 min"),
    ],
)
def test_progress_tells_state_and_times(more: dict[str, Any], text: str) -> None:
    assert line(*operation_text.progress(row(**more), NOW)).plain == text


def test_how_long_it_pends_is_left_out_where_nobody_knows_the_time() -> None:
    assert line(*operation_text.progress(row(state="scheduled"), None)).plain == "PENDING since 22:13:20.001"


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "#1 all_reduce"), ({"seq": None}, "all_reduce"), ({"op": None}, "#1 ?"),
        ({"is_p2p": True, "op": "send", "peer": 5}, "send to 5"),
        ({"is_p2p": True, "op": "recv", "peer": 5}, "recv from 5"),
        ({"is_p2p": True, "op": "coalesced", "peer": None}, "coalesced"),
    ],
)  # fmt: skip
def test_operations_have_a_number_or_a_peer(more: dict[str, Any], name: str) -> None:
    assert operation_text.op_name(row(**more)) == name


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "[64] f32"), ({"out_sizes": "[[128]]"}, "[64] f32 -> [128] f32"), ({"out_sizes": "[]"}, "[64] f32 -> f32"),
        ({"in_sizes": "[]", "in_dtypes": "[]"}, "-> [64] f32"),
        ({"in_sizes": "[]", "in_dtypes": "[]", "out_sizes": "[]", "out_dtypes": "[]"}, ""),
    ],
)  # fmt: skip
def test_what_an_operation_carries(more: dict[str, Any], text: str) -> None:
    assert operation_text.carried(row(**more)) == text


@pytest.mark.parametrize(
    ("ranks", "lag_ns", "text"),
    [
        ((0,), (0, 0), "first"), ((3,), (3_200_000, 3_200_000), "+3.2 ms"), ((0, 1), (0, 3_200_000), "+0..3.2 ms"),
        ((0, 1), (1_100_000, 3_200_000), "+1.1..3.2 ms"), ((0, 1), (1_100, 3_200_000), "+1.1 us..3.2 ms"),
        ((0, 1), (0, 0), "first"), ((0, 1), (5_000, 5_000), "+5 us"), ((0,), None, ""),
    ],
)  # fmt: skip
def test_lags_behind_the_first(ranks: tuple[int, ...], lag_ns: tuple[int, int] | None, text: str) -> None:
    assert operation_text.lag(fold(ranks=ranks, lag_ns=lag_ns)) == text


def test_members_are_told_by_what_they_did() -> None:
    assert operation_text.fold_op(fold(parts=3)) == "all_reduce x3 [64] f32"
    assert operation_text.fold_op(fold(presence="no dump")) == ""
    assert operation_text.fold_state(fold(presence="never issued", state="")) == ("never issued", "bad")
    assert operation_text.fold_state(fold(presence="no dump", state="")) == ("no dump", "warn")
    assert operation_text.fold_state(fold(state="aborted")) == ("aborted", "bad")
    assert operation_text.who(fold()) == "0,1 x2"
    assert operation_text.who(fold(ranks=(4,))) == "4"


def test_reasons_are_told_by_what_is_missing() -> None:
    assert operation_text.reason("unknown") == operation_text.REASONS["unknown"]
    assert operation_text.reason("unknown", is_p2p=True) != operation_text.REASONS["unknown"]
    assert operation_text.reason("no dump", is_p2p=True) == "no dump of it was read"
    assert operation_text.reason("something new") == "something new"


def test_a_chain_names_groups_where_it_is_told_them() -> None:
    chain = [ChainStep(0, Wait("7", 3, "send"), 4), ChainStep(4, Wait("41", 5, "all_reduce"), 6)]
    assert operation_text.chain_line(chain).plain == "for rank 4 (#3 send) -> rank 6 (#5 all_reduce)"
    named = operation_text.chain_line(chain, {"41": "tp"}).plain
    assert named == "for rank 4 (#3 send in group 7) -> rank 6 (#5 all_reduce in tp)"


def test_history_is_what_came_last_and_what_is_waited_in() -> None:
    job = JobBuilder(2, {"1": [0, 1]})
    job.collective("1")
    job.collective("0", state="scheduled")
    job.collective("0", state="scheduled")
    job.p2p("1", 0, 1, "send")
    past = history(OpIndex(job.build()), 0, 1)
    assert past.last is not None
    assert past.last["op"] == "send"
    assert past.last_in_group is not None
    assert past.last_in_group["seq"] == 1
    assert past.waiting_in is not None
    assert (past.waiting_in["seq"], past.pending) == (1, 2)


def test_what_is_inside_a_coalesced_group_is_not_waited_in() -> None:
    job = JobBuilder(1)
    job.collective(state="scheduled", coalesced="inner", seq=1)
    job.collective(op="coalesced", coalesced="closer", seq=1)
    past = history(OpIndex(job.build()), 0)
    assert past.waiting_in is None
    assert past.last is not None
    assert past.last["op"] == "coalesced"


def test_a_rank_without_rows_has_no_history() -> None:
    job = JobBuilder(2)
    job.collective(ranks=[0])
    index = OpIndex(job.build())
    assert history(index, 1).last is None
    assert index.last_operation(1).row is None
    assert index.newest_ns == START_NS + STEP_NS + STEP_NS // 2
