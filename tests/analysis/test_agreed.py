"""What few ranks wrote is held against what the others agreed on: it differs where looking at everything says so."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from rankscope import schema
from rankscope.analysis.agreed import SEQS, Agreed, agreed, part_of
from rankscope.analysis.calls import collect_calls
from rankscope.analysis.facts import Facts
from rankscope.analysis.repeats import Repeats
from rankscope.schema import Dataset
from tests.builders import JobBuilder

RANKS = 6
GROUPS = {"a": [0, 1, 2], "b": [3, 4, 5], "c": [0, 3]}


def job(steps: Sequence[Mapping[str, Sequence[int]]], other: Mapping[str, str] | None = None, rank: int = 0) -> Dataset:
    """In each step ranks issue a collective of some groups; in the last one `rank` issues it otherwise."""
    builder = JobBuilder(RANKS, GROUPS)
    for number, step in enumerate(steps):
        for group, ranks in step.items():
            for own in ranks:
                differs: dict[str, Any] = {**(other or {})} if number == len(steps) - 1 and own == rank else {}
                builder.collective(group, [own], **differs)
    return builder.build()


ALL = {"0": range(RANKS), "a": GROUPS["a"], "b": GROUPS["b"]}
THREE: list[Mapping[str, Sequence[int]]] = [ALL] * 3


def held(before: Dataset, after: Dataset, *ranks: int) -> Agreed | None:
    """What is agreed on once some ranks have gone on; None if they do not agree."""
    return agreed(Facts(before)).take(collect_calls(part_of(after, frozenset(ranks))))


def test_who_goes_on_as_the_others_did_agrees() -> None:
    after = held(job(THREE), job([*THREE, {"0": [1]}]), 1)
    assert after is not None
    # once known, it is what the next rank is held against
    assert after.take(collect_calls(part_of(job([*THREE, {"0": [2]}]), frozenset({2})))) is not None
    assert after.take(collect_calls(part_of(job([*THREE, {"0": [2]}], {"op": "broadcast"}, 2), frozenset({2})))) is None


@pytest.mark.parametrize("other", [{"op": "broadcast"}, {"sizes": "[[65]]"}, {"in_dtypes": '["BFloat16"]'}])
def test_what_a_rank_does_otherwise_does_not_agree(other: Mapping[str, str]) -> None:
    before = job([*THREE, {"0": [0, 2, 3]}])
    assert held(before, job([*THREE, {"0": [0, 1, 2, 3]}], other, 1), 1) is None
    assert held(before, job([*THREE, {"0": [0, 1, 2, 3]}]), 1) is not None
    # of two that write together each is held against the other, too
    assert held(job(THREE), job([*THREE, {"0": [1, 4]}], other, 1), 1, 4) is None
    # somebody else wrote
    assert held(job(THREE), job([*THREE, {"0": [1, 4]}], other, 1), 4) is not None


def test_a_group_is_held_against_itself_alone() -> None:
    before = job([*THREE, {"a": GROUPS["a"]}])
    assert held(before, job([*THREE, {"a": GROUPS["a"], "b": [4]}], {"op": "broadcast"}, 4), 4) is not None


def test_what_did_not_agree_before_is_not_told_again() -> None:
    before = job([*THREE, {"0": [0, 1]}], {"op": "broadcast"}, 1)
    assert held(before, job([*THREE, {"0": [0, 1, 2]}], {"op": "broadcast"}, 1), 2) is not None


def test_of_what_is_not_comparable_any_value_agrees() -> None:
    before = job([*THREE, {"0": [0]}], {"op": "all_to_all", "sizes": "[[1]]"})
    assert held(before, job([*THREE, {"0": [0, 1]}], {"op": "all_to_all", "sizes": "[[9]]"}, 1), 1) is not None
    assert held(before, job([*THREE, {"0": [0, 1]}], {"op": "all_reduce", "sizes": "[[1]]"}, 1), 1) is None


@pytest.mark.parametrize("seq", [-3, SEQS, 2**62])
def test_numbers_that_name_no_place_are_borne(seq: int) -> None:
    ops = job(THREE).ops.with_columns(seq=pl.when(pl.col("rank") == 1).then(seq).otherwise("seq"))
    far = replace(job(THREE), ops=ops)
    assert held(job(THREE), far, 1) is not None
    assert held(far, far, 1) is not None


@pytest.mark.parametrize("seed", range(40))
def test_it_says_what_looking_at_everything_says(seed: int) -> None:
    chance = random.Random(seed)
    builder, ahead = JobBuilder(RANKS, GROUPS), JobBuilder(RANKS, GROUPS)
    ranks = chance.sample(range(RANKS), 2)
    for _ in range(chance.randrange(1, 5)):
        for one in (builder, ahead):
            for group, members in ALL.items():
                one.collective(group, members)
    for _ in range(chance.randrange(1, 6)):
        group = chance.choice(list(ALL))
        wrote = [rank for rank in ALL[group] if rank in ranks]
        others = [rank for rank in ALL[group] if rank not in ranks and chance.random() < 0.6]
        for rank in [*wrote, *others]:
            more: dict[str, Any] = {"op": chance.choice(["all_reduce"] * 12 + ["broadcast"])} if rank in wrote else {}
            ahead.collective(group, [rank], **more)
            if rank in others:
                builder.collective(group, [rank])
    before, after = builder.build(), ahead.build()
    assert Facts(before).disagreements.is_empty()
    assert (held(before, after, *ranks) is None) == (not Facts(after).disagreements.is_empty())


def repeated(rows: list[tuple[int, int, int, bool | None]]) -> bool:
    """Whether ranks 0 and 1 have gone on, by rank, both times and progress of their dumps."""
    names = ("rank", "written_ns", "later_ns", "progressed")
    table = pl.DataFrame(
        [{"file": row[0], **dict(zip(names, row, strict=True))} for row in rows], schema=dict(schema.REPEATS)
    )
    return Repeats(part_of(replace(job(THREE), repeats=table), frozenset({0, 1}))).all_moved


def test_a_rank_that_only_sends_agrees() -> None:
    builder = JobBuilder(RANKS)
    builder.collective(ranks=[0, 2])
    builder.p2p("0", 1, 2, "send")
    assert held(builder.build(), builder.build(), 1) is not None
    assert held(JobBuilder(RANKS).build(), builder.build(), 0, 1) is not None


def test_ranks_have_gone_on_if_the_newest_two_dumps_of_each_show_it() -> None:
    assert repeated([(0, 1, 5, True), (1, 2, 6, True)])
    assert repeated([(0, 1, 5, True), (1, 2, 6, True), (2, 1, 9, False)])
    assert not repeated([(0, 1, 5, True)])
    assert not repeated([(0, 1, 5, True), (1, 2, 6, True), (0, 5, 9, False)])
    assert not repeated([(0, 1, 5, True), (1, 2, 6, None)])
