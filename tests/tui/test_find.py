"""Filters, search, going somewhere, following chains: what is found."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import polars as pl
import pytest

from rankscope.analysis.model import Analysis, ChainStep, Finding, GroupRef, Wait
from rankscope.schema.tables import MESSAGES
from rankscope.tui.cell_selection import (
    Place,
    column_of,
    group_named,
    item_of,
    place_of_finding,
    place_of_selection,
    place_of_step,
)
from rankscope.tui.filters import STATES, Filter, apply, describe, parse_filter, parse_ranks
from rankscope.tui.letters import Mark, code, letter_number
from rankscope.tui.model import Model, build_model
from rankscope.tui.search import Target, parse, search
from rankscope.tui.selection import Selection
from tests.builders import START_NS, STEP_NS, JobBuilder
from tests.tui.jobs import hang, model_of


@pytest.fixture(scope="module")
def model() -> Model:
    """A hang of 8 ranks, 3 steps."""
    return build_model(*hang(8, 3))


# Filters


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("3", {3}),
        ("0-2,7", {0, 1, 2, 7}),
        ("5-", {5, 6, 7}),
        ("0-7/3", {0, 3, 6}),
        (" 1 , 2 ", {1, 2}),
        ("6-99", {6, 7}),
    ],
)
def test_lists_of_ranks(text: str, ranks: set[int]) -> None:
    assert parse_ranks(text, 7) == ranks


@pytest.mark.parametrize("text", ["", "x", "1-2-3", "99", "-1", "0-\u0663", "1" * 5000])
def test_what_is_no_list_of_ranks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_ranks(text, 7)


def test_a_huge_range_costs_nothing() -> None:
    assert len(parse_ranks("0-999999999999", 7)) == 8


def test_filters_by_rank_group_operation_and_state(model: Model) -> None:
    assert apply(model, Filter(ranks=frozenset({2, 6}))).ranks.tolist() == [2, 6]
    tp = apply(model, Filter(group=1))
    assert tp.ranks.tolist() == [0, 1, 2, 3]
    assert set(tp.items.group.tolist()) == {1}
    gathers = apply(model, Filter(letter=letter_number("all_gather")))
    assert set(gathers.items.code.tolist()) == {
        code(Mark.DONE, letter_number("all_gather")),
        code(Mark.SCHEDULED, letter_number("all_gather")),
    }
    assert apply(model, Filter(state="absent")).ranks.tolist() == [4, 5, 6, 7]
    assert len(apply(model, Filter(ranks=frozenset({0}), state="absent")).ranks) == 0
    assert apply(model, Filter()) is model


def test_every_state_of_the_filter_can_be_applied(model: Model) -> None:
    counts = {state: len(apply(model, Filter(state=state)).items.col) for state in STATES}
    assert {state: count for state, count in counts.items() if count} == {"done": 76, "pending": 7, "absent": 5}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", Filter()), ("0-2 5", Filter(frozenset({0, 1, 2, 5}))), ("0", Filter(frozenset({0}))),
        ("group 0", Filter(group=0)), ("tp1", Filter(group=2)), ("TENSOR_PARALLEL_1", Filter(group=2)),
        ("ALL_GATHER numbers off", Filter(letter=letter_number("all_gather"), state="numbers off")),
        (
            "4- group tp1 all_reduce pending",
            Filter(frozenset({4, 5, 6, 7}), 2, letter_number("all_reduce"), "pending"),
        ),
    ],
)  # fmt: skip
def test_a_typed_filter_is_known_by_its_words(model: Model, text: str, wanted: Filter) -> None:
    assert parse_filter(text, model) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abc", "'abc' is no rank, group, operation or state"), ("group abc", "no group is called 'abc'"),
        ("tp1 group", "which group"), ("99", "no rank up to 7"), ("-1", "'-1' is no rank"),
        ("1x", "not a list of ranks"),
    ],
)  # fmt: skip
def test_a_typed_filter_names_the_word_that_it_does_not_know(model: Model, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_filter(text, model)


def test_a_description_that_several_groups_share_names_none_of_them() -> None:
    job = JobBuilder(4, {"3": [0, 1], "4": [2, 3]})
    job.descriptions |= {"3": "mesh_tp", "4": "mesh_tp"}
    for group in ("3", "4"):
        job.collective(group)
    model = model_of(job)
    with pytest.raises(ValueError, match="2 groups are called 'mesh_tp': 4 lists them"):
        parse_filter("mesh_tp", model)
    assert apply(model, parse_filter("group 3", model)).ranks.tolist() == [0, 1]


def test_a_filter_says_what_it_is(model: Model) -> None:
    wanted = Filter(frozenset({0, 1}), 1, letter_number("send"), "pending")
    assert describe(wanted, model) == "ranks 0,1, group TENSOR_PARALLEL_0, send, pending"


# Search


def count(model: Model, text: str) -> int:
    return len(search(model, text).items)


def test_search_looks_everywhere(model: Model) -> None:
    assert count(model, "gather") == 8 * 3 + 4
    assert count(model, "REDUCE_SCATTER") == 8 * 3
    assert count(model, "tensor_parallel_1") == 4 * 4
    assert count(model, "rank 6") == len(apply(model, Filter(ranks=frozenset({6}))).items.col)
    assert count(model, "attention.py") == count(model, "Forward") == (model.items.row >= 0).sum()
    assert count(model, "#4") == 8 * 1 + 8
    assert count(model, "no such thing") == 0
    assert count(model, "  ") == 0
    assert count(model, "[(") == 0


def test_all_words_must_fit(model: Model) -> None:
    assert count(model, "rank 5 scatter") == 3
    assert count(model, "rank 5 scatter #2") == 1


def test_hits_are_walked_by_column_then_by_lane(model: Model) -> None:
    items = search(model, "scatter").items
    assert model.items.col[items].tolist() == [2] * 8 + [5] * 8 + [8] * 8
    assert model.items.lane[items[:8]].tolist() == list(range(8))


def test_messages_lead_to_what_their_rank_did() -> None:
    dataset, analysis = hang(8, 3)
    said = {
        "time_ns": START_NS + 4 * STEP_NS + 5,
        "rank": 2,
        "file": 0,
        "line": 1,
        "severity": "error",
        "text": "Xid 79",
    }
    messages = pl.DataFrame([said, {**said, "rank": 99}, {**said, "rank": 3, "time_ns": None}], schema=MESSAGES)
    model = build_model(replace(dataset, messages=messages), analysis)
    hits = search(model, "xid 79")
    assert hits.messages == 2
    assert model.items.lane[hits.items].tolist() == [2, 3]
    assert model.items.col[hits.items].tolist() == [3, 10]


# Going somewhere


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("12", Target(rank=12)), ("rank 12", Target(rank=12)), ("r3", Target(rank=3)), ("#1121", Target(seq=1121)),
        ("seq 5", Target(seq=5)), ("@40", Target(step=40)), ("step 40", Target(step=40)),
        ("+3s", Target(span_ns=3_000_000_000)), ("-2.5 ms", Target(span_ns=-2_500_000)),
        ("22:13:20", Target(time_ns=START_NS)), ("22:13:20.5", Target(time_ns=START_NS + 500_000_000)),
        ("22:14", Target(time_ns=START_NS + 40_000_000_000)),
        ("01:00:00", Target(time_ns=START_NS + 10_000_000_000_000)),
    ],
)  # fmt: skip
def test_where_to_go(text: str, target: Target) -> None:
    assert parse(text, START_NS, UTC) == target


@pytest.mark.parametrize("text", ["", "abc", "25:00:00", "12:99", "#", "--1"])
def test_where_nobody_can_go(text: str) -> None:
    with pytest.raises(ValueError, match=r"type|time"):
        parse(text, START_NS, UTC)


def test_columns_and_items_of_collectives(model: Model) -> None:
    assert column_of(model, 2, 4) == 9
    assert column_of(model, 2, 99) is None
    assert column_of(model, 77, 1) is None
    item = item_of(model, 6, 2, 4)
    assert item is not None
    assert model.items.row[item] == -1
    assert item_of(model, 99, 2, 4) is None
    assert item_of(model, 0, 2, 4) is None


def test_a_finding_leads_to_its_culprit(model: Model) -> None:
    finding = model.analysis.findings[0]
    assert finding.culprit_ranks == (6,)
    assert place_of_finding(model, finding) == Place(6, item_of(model, 6, 2, 4), 9)


def last_of(model: Model, rank: int) -> Place:
    """A rank at its last operation."""
    item = int(model.bounds[model.lane_of[rank] + 1]) - 1
    return Place(rank, item, int(model.items.col[item]))


def test_a_finding_without_a_culprit_leads_to_who_waits(model: Model) -> None:
    finding = Finding("stuck-in-collective", "critical", "", "", waiting_ranks=(3, 5))
    assert place_of_finding(model, finding) == last_of(model, 3)
    assert place_of_finding(model, Finding("timing-off", "info", "", "")) is None


def test_a_chain_leads_to_the_rank_that_is_waited_for(model: Model) -> None:
    step = model.analysis.waits[5][0]
    assert (step.rank, step.for_rank) == (5, 6)
    assert place_of_step(model, step) == Place(6, item_of(model, 6, 2, 4), 9)
    assert place_of_step(model, ChainStep(0, Wait("nowhere", 1, "all_reduce"), 3)) == last_of(model, 3)
    assert place_of_step(model, ChainStep(0, Wait("0", 1, "all_reduce"), 99)) is None


def test_a_chain_over_a_send_leads_to_the_column_of_who_waits() -> None:
    job = JobBuilder(2)
    for _ in range(3):
        job.p2p("0", 0, 1, "send")
        job.p2p("0", 1, 0, "recv")
    job.p2p("0", 1, 0, "recv", state="scheduled")
    model = model_of(job, Analysis("", "hang"))
    assert place_of_step(model, ChainStep(1, Wait("0", 4, "recv", row=6), 0)) == Place(0, None, 3)
    assert place_of_step(model, ChainStep(1, Wait("0", None, "recv"), 0)) == last_of(model, 0)


def test_the_number_of_a_send_or_receive_leads_to_no_collective() -> None:
    job = JobBuilder(2)
    for _ in range(4):
        job.collective()
    job.p2p("0", 1, 0, "recv", state="scheduled")
    model = model_of(job, Analysis("", "hang"))
    assert place_of_step(model, ChainStep(1, Wait("0", 4, "recv"), 0)) == last_of(model, 0)
    group = GroupRef("0", "default_pg", (0, 1), 0)
    finding = Finding("not-frozen", "info", "", "", candidates=(0,), waiting_ranks=(1,), group=group, seq=4, op="recv")
    assert place_of_finding(model, finding) == last_of(model, 0)
    assert place_of_finding(model, replace(finding, row=8)) == Place(0, None, 4)


def test_groups_of_one_name_are_told_apart_by_their_members() -> None:
    job = JobBuilder(4, {"a": [0, 1], "b": [2, 3]})
    dataset = job.build()
    same = dataset.groups.with_columns(name=pl.lit("x"))
    model = build_model(replace(dataset, groups=same), Analysis("", "hang"))
    assert group_named(model, "x", (2, 3)) == 2
    assert group_named(model, "x", (0, 3)) == 0
    assert group_named(model, "y", (0,)) is None


def test_a_selection_of_another_screen_is_found_again(model: Model) -> None:
    row = int(model.items.row[int(model.bounds[5]) + 4])
    assert place_of_selection(model, Selection(5, row)) == Place(5, int(model.bounds[5]) + 4, 4)
    assert place_of_selection(model, Selection(5, group=2, seq=4)) == Place(5, item_of(model, 5, 2, 4), 9)
    assert place_of_selection(model, Selection(5)) == Place(5)
    assert place_of_selection(model, Selection(77)) is None
