"""Judgement of a run by its own laws and beside a trusted run: findings of both on one fault have one root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from rankscope.analysis.numbers.canonical_names import NameChange
from rankscope.analysis.numbers.model import RULES
from rankscope.analysis.numbers.number_rules import NumberCause, NumbersJudgement, judge_numbers
from rankscope.analysis.numbers.reference import compare_numbers
from rankscope.analysis.numbers.wrong_values import ValueSpread
from rankscope.schema import Dataset


def judge_beside(
    dataset: Dataset, reference: Dataset, perturbed: Sequence[Dataset] = (), changes: Sequence[NameChange] = ()
) -> NumbersJudgement:
    """The answers of all rules on a run, with those about its reference; the rest as in `compare_numbers`."""
    return joined_judgement(dataset, judge_numbers(dataset), compare_numbers(dataset, reference, perturbed, changes))


def joined_judgement(dataset: Dataset, own: NumbersJudgement, beside: NumbersJudgement) -> NumbersJudgement:
    """The judgement by laws and that beside a reference, linked."""
    causes = _joined(dataset, beside.causes, own.causes)
    counts, notes = (*own.counts, *beside.counts), (*own.notes, *beside.notes)
    return NumbersJudgement(causes, counts, notes, own.marks, beside.distances)


def _joined(dataset: Dataset, beside: Sequence[NumberCause], own: Sequence[NumberCause]) -> tuple[NumberCause, ...]:
    """All causes, roots first, each with the one that explains it."""
    shift = len(beside)
    causes = [*beside, *(_shifted(one, shift) for one in own)]
    new: dict[int, int] = {}
    for place, one in enumerate(beside):
        if one.explained_by is None:
            new |= _explained(dataset, place, causes, range(shift, len(causes)), new)
    linked = [replace(one, explained_by=new.get(place, one.explained_by)) for place, one in enumerate(causes)]
    order = sorted(range(len(linked)), key=lambda place: linked[place].explained_by is not None)
    at = {old: place for place, old in enumerate(order)}
    return tuple(
        replace(linked[old], explained_by=None if (why := linked[old].explained_by) is None else at[why])
        for old in order
    )


def _shifted(cause: NumberCause, by: int) -> NumberCause:
    return cause if cause.explained_by is None else replace(cause, explained_by=cause.explained_by + by)


def _explained(
    dataset: Dataset, place: int, causes: Sequence[NumberCause], own: range, known: dict[int, int]
) -> dict[int, int]:
    """By place the cause that explains it: a first difference explains what breaks laws behind it. A law that names
    ranks or is a proof, and breaks in the very operation that first differs, is the root of both."""
    first, spread = causes[place], ValueSpread(dataset)
    reached = spread.reached(spread.origins(first.first))
    new: dict[int, int] = {}
    for at in own:
        law = causes[at]
        if law.explained_by is not None or at in known:
            continue
        if _is_same(dataset, first, law) and _is_stronger(law):
            return {**dict.fromkeys(new, at), place: at}
        if _is_schedule(first, law) or spread.is_after(reached, law.first):
            new[at] = place
    return new


def _is_schedule(first: NumberCause, law: NumberCause) -> bool:
    """Whether both are about operations that are left out."""
    return (first.variant, law.variant) == ("schedule-differs", "schedule-changes")


def _is_stronger(law: NumberCause) -> bool:
    """Whether a law tells more than that an operation differs."""
    return bool(law.first.ranks) or any(RULES[one.rule].standing == "proof" for one in law.rules)


def _is_same(dataset: Dataset, first: NumberCause, law: NumberCause) -> bool:
    """Whether both are about one operation, and none of the ranks that the law names is another one's."""
    told = dataset.tensors.select(
        pl.col("step", "group", "seq"), pl.col("site", "name", "op").cast(pl.String), "peer", "rank"
    )
    (*one, peer, rank), (*two, other, its) = told[[first.first.row, law.first.row]].rows()
    if one != two or (one[3] == "p2p" and {peer, rank} != {other, its}):
        return False
    return set(law.first.ranks) <= set(first.first.members)
