"""Judgement of all numbers of a run: every rule is asked, and what breaks one is grouped by cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from rankscope.features.numbers.rules.collective_units import CollectiveUnits, JudgedRules, collective_units, row_marks
from rankscope.features.numbers.rules.equality_checks import MOST_BROKEN, check_equality
from rankscope.features.numbers.rules.model import RULES, BrokenRule, NumberMarks, ReferenceMarks, RowState, RuleCount
from rankscope.features.numbers.rules.replica_checks import check_replicas
from rankscope.features.numbers.rules.sum_checks import SumChecks, check_sums, contribution_note
from rankscope.features.numbers.rules.tensor_matching import check_printed, hash_kind, with_marks
from rankscope.features.numbers.rules.wrong_values import NonFiniteSource, ValueSpread, find_nonfinite
from rankscope.schema import Dataset

MOST_CAUSES = 64
"""Most groups of broken rules that are held against each other."""
_BY_ITSELF = ("same-input", "stale-input", "weights-changed")
"""Variants that wrong values from elsewhere do not bring about."""
MOST_NOTES, MOST_NOTED_MEMBERS = 16, 1024
"""Most operations, and members of one, of which it is tried what the wrong output is made of."""
_SELF_EVIDENT = ("members-differ", "moved-wrong", "not-the-sum")
"""Variants that show in one operation by itself: wrong values from elsewhere do not break their rules."""


@dataclass(frozen=True)
class NumberCause:
    """Broken rules with one cause: the first in program order, and how many follow."""

    variant: str
    first: BrokenRule
    rules: tuple[BrokenRule, ...]
    """The first of each rule that is broken at the same place, the strictest first."""
    times: int
    last_step: int | None
    explained_by: int | None = None
    """Place of the cause of which this one is a consequence."""
    is_loss_scaling: bool = False
    """Only infinite gradients were seen, as a loss scaler makes them on purpose."""
    path: tuple[str, ...] = ()
    broken: tuple[int, ...] = ()
    """Places of all of its broken rules among those of the run."""
    proven: tuple[bool, ...] = ()
    """Whether the limit of each of them is a proof; never where a loss scaler is at work."""


@dataclass(frozen=True)
class NumbersJudgement:
    """The answers of all rules."""

    causes: tuple[NumberCause, ...]
    counts: tuple[RuleCount, ...]
    notes: tuple[str, ...] = ()
    """Sentences on the judgement as a whole."""
    marks: NumberMarks | None = None
    """The answer about each single tensor."""
    distances: ReferenceMarks | None = None
    """The distance of each single tensor from the reference."""


def judge_numbers(dataset: Dataset) -> NumbersJudgement:
    """The causes of wrong numbers, the roots first, and how often each rule was asked."""
    kind, plain = hash_kind(dataset), dataset
    dataset = with_marks(dataset, kind)
    units = collective_units(dataset)
    printed, unlike = check_printed(dataset, units)
    sums = check_sums(dataset, units)
    equal = check_equality(dataset, units)
    # different tensors often have the same XOR
    replicas = check_replicas(*((plain, collective_units(plain)) if kind == "xor" else (dataset, units)))
    nonfinite = find_nonfinite(dataset, units)
    summed = _sum_breaks(dataset, units, sums)
    asked = {**sums.asked, **equal.asked, "E1p": printed, **replicas.asked, "NF": nonfinite.asked}
    broken = dict(sums.broken.group_by("rule").len().iter_rows()) | equal.counts | replicas.counts
    broken["E1p"] = len(unlike)
    for one in nonfinite.broken:
        broken[one.rule] = broken.get(one.rule, 0) + 1
    counts = tuple(RuleCount(rule, asked[rule], broken.get(rule, 0)) for rule in RULES if asked.get(rule))
    places = _Places(dataset, _settled(dataset, [*equal.broken, *summed]) + unlike + replicas.broken + nonfinite.broken)
    spread = ValueSpread(dataset)
    causes = _related(spread, [_with_gradients(dataset, cause) for cause in places.causes(nonfinite)])
    roots = [cause for cause in causes if cause.explained_by is None]
    states, rows = _states(causes, len(places.broken)), tuple(cause.first.row for cause in roots)
    rules = JudgedRules(sums.nearest, (equal.rows, replicas.rows), places.broken, states, rows)
    marks = row_marks(dataset, units, rules, _reached(spread, roots))
    return NumbersJudgement(tuple(causes), counts, marks=marks)


def _states(causes: Sequence[NumberCause], count: int) -> list[RowState]:
    """The state that each broken rule gives to its tensors, by the cause to which it belongs."""
    states = [RowState.SUSPICIOUS] * count
    for cause in causes:
        follows = cause.explained_by is not None
        for place, is_proof in zip(cause.broken, cause.proven, strict=True):
            wrong = RowState.WRONG if is_proof else RowState.SUSPICIOUS
            states[place] = RowState.FOLLOWS if follows else wrong
    return states


def _reached(spread: ValueSpread, roots: Sequence[NumberCause]) -> dict[int, int]:
    """By rank the order from which on it may hold values that a proof calls wrong."""
    origins: dict[int, int] = {}
    for cause in roots:
        if any(cause.proven):
            for rank, order in spread.origins(cause.first).items():
                origins[rank] = min(order, origins.get(rank, order))
    return spread.reached(origins) if origins else {}


def _sum_breaks(dataset: Dataset, units: CollectiveUnits, sums: SumChecks) -> list[BrokenRule]:
    """The broken rules of reductions, each with its members and two of its inputs."""
    if sums.broken.is_empty():
        return []
    facts = units.rows.join(sums.broken.select("unit").unique(), on="unit", how="semi").group_by("unit").agg(
        members=pl.col("rank").unique().sort(), inputs=pl.col("row").filter(~pl.col("is_out")),
        step=pl.col("step").first(), order=pl.col("order").min(),
    )  # fmt: skip
    rows = sums.broken.join(facts, on="unit").sort("step", "order", "row").head(MOST_BROKEN)
    notes: dict[int, str] = {}
    out = []
    for rule, row, unit, value, limit, members, inputs in rows.select(
        "rule", "row", "unit", "value", "limit", "members", "inputs"
    ).iter_rows():
        if unit not in notes:
            few = len(notes) < MOST_NOTES and len(inputs) <= MOST_NOTED_MEMBERS
            notes[unit] = contribution_note(dataset, row, inputs) if few else ""
        out.append(BrokenRule(rule, row, (), (), tuple(members), value, limit, tuple(inputs[:2]), notes[unit]))
    return out


def _settled(dataset: Dataset, broken: list[BrokenRule]) -> list[BrokenRule]:
    """Ties between members, settled by the inputs: the outputs that are no sum of them are wrong."""
    told = dataset.tensors.select("group", "seq", "op", "hash")
    wrong: defaultdict[Hashable, set[int]] = defaultdict(set)
    for one in broken:
        if RULES[one.rule].variant == "not-the-sum":
            group, seq, op, own = told.row(one.row)
            wrong[group, seq, op].add(own)
    out = []
    for one in broken:
        if one.rule == "E1" and one.candidates:
            group, seq, op, _ = told.row(one.row)
            out.append(_by_inputs(dataset, one, wrong.get((group, seq, op), set())))
        else:
            out.append(one)
    return out


def _by_inputs(dataset: Dataset, tie: BrokenRule, wrong: set[int]) -> BrokenRule:
    first = dataset.tensors.row(tie.row, named=True)
    same = (pl.col("group") == first["group"]) & pl.col("slot").eq_missing(first["slot"])
    same &= pl.col("seq").eq_missing(first["seq"]) & pl.col("slice").eq_missing(first["slice"])
    outs = dataset.tensors.with_row_index("row").filter(same).select("row", "rank", "hash")
    bad = outs.filter(pl.col("hash").is_in(list(wrong)))
    if bad.is_empty() or bad["rank"].n_unique() == outs["rank"].n_unique():
        return tie
    good = outs.filter(~pl.col("hash").is_in(list(wrong)))["row"].to_list()
    ranks = tuple(bad["rank"].unique().sort())
    note = "only the others hold the sum of the inputs"
    return replace(tie, row=bad["row"][0], ranks=ranks, candidates=(), rows=tuple(good[:2]), note=note)


@dataclass(frozen=True)
class _Places:
    """Broken rules with their places in the program."""

    dataset: Dataset
    broken: Sequence[BrokenRule]

    @cached_property
    def _told(self) -> list[tuple[object, ...]]:
        """Step, order, slot, site, name, group, seq and operation of the row of each broken rule."""
        names = ("step", "order", "slot", "site", "name", "group", "seq", "op")
        rows = [one.row for one in self.broken]
        return self.dataset.tensors.select(names)[rows].rows() if rows else []

    def causes(self, nonfinite: NonFiniteSource) -> list[NumberCause]:
        """Broken rules of one variant and subject together, the earliest first."""
        sets: defaultdict[Hashable, list[int]] = defaultdict(list)
        for place in sorted(range(len(self.broken)), key=self._time):
            sets[self._key(place)].append(place)
        return [self._cause(places, nonfinite) for places in sorted(sets.values(), key=lambda own: self._time(own[0]))]

    def _time(self, place: int) -> tuple[int, int]:
        step, order = self._told[place][:2]
        return (step if isinstance(step, int) else 0), (order if isinstance(order, int) else 0)

    def _key(self, place: int) -> Hashable:
        """The subject of a broken rule: a group and operation, replicas, or the ranks that it names."""
        one, (*_, group, _, op) = self.broken[place], self._told[place]
        variant = RULES[one.rule].variant
        if variant in _SELF_EVIDENT:
            # rules that break in the same operation have one cause, and so have those that follow in the group
            return "group", group, op, one.candidates if op in ("send", "recv") else ()
        if variant in ("same-input", "schedule-changes"):
            return variant
        return variant, one.rule if variant == "replicas-differ" else one.ranks or one.candidates

    def _cause(self, places: list[int], nonfinite: NonFiniteSource) -> NumberCause:
        calls = [(self._told[i][0], *self._told[i][2:]) for i in places]
        here = [self.broken[i] for i, call in zip(places, calls, strict=True) if call == calls[0]]
        order = list(RULES)
        strictest: dict[str, BrokenRule] = {}
        for one in sorted(here, key=lambda one: (not one.ranks, order.index(one.rule))):
            strictest.setdefault(one.rule, one)
        rule, strict = next(iter(strictest.items()))
        first = self._joined(strict, [one for one in here if one.rule == rule])
        variant = RULES[first.rule].variant
        scaled = variant == "non-finite" and first.rule == "NF" and not nonfinite.has_nan
        return NumberCause(
            variant, first, tuple(strictest.values()), len(set(calls)), self._time(places[-1])[0],
            is_loss_scaling=scaled, path=nonfinite.path if variant == "non-finite" else (),
            broken=tuple(places),
            proven=tuple(not scaled and RULES[self.broken[i].rule].standing == "proof" for i in places),
        )  # fmt: skip

    @staticmethod
    def _joined(first: BrokenRule, alike: Iterable[BrokenRule]) -> BrokenRule:
        """The first one with the ranks of all that break the same rule at the same place: replicas of several sets."""
        alike = list(alike)
        ranks, candidates, members = (
            tuple(sorted({rank for one in alike for rank in getattr(one, name)}))
            for name in ("ranks", "candidates", "members")
        )
        others = tuple(rank for rank in candidates if rank not in ranks)
        return replace(first, ranks=ranks, candidates=others, members=members)


def _with_gradients(dataset: Dataset, cause: NumberCause) -> NumberCause:
    """The cause; of parameters that part also whether their gradients were equal before."""
    row = dataset.tensors.select(pl.col("site", "name").cast(pl.String), "step").row(cause.first.row, named=True)
    if cause.variant != "replicas-differ" or row["site"] not in ("parameter", "optimizer"):
        return cause
    same = (pl.col("site") == "gradient") & (pl.col("name").cast(pl.String) == row["name"])
    reduced = dataset.tensors.filter(same & (pl.col("slot") == "out0") & (pl.col("step") <= row["step"]))
    reduced = reduced.filter(pl.col("rank").is_in(cause.first.members))
    steps = reduced.group_by("step").agg(pl.col("hash").n_unique(), ranks=pl.col("rank").n_unique()).sort("step")
    steps = steps.filter(pl.col("ranks") > 1)
    if steps.is_empty():
        return cause
    apart = steps.filter(pl.col("hash") > 1)["step"].to_list()
    note = "its gradients are equal up to there, so look at the optimizer, its state and the memory"
    if apart:
        note = f"its gradients differ after their reduction, first in step {apart[0]}: it leaves them out"
    return replace(cause, first=replace(cause.first, note=f"{cause.first.note}; {note}"))


def _related(spread: ValueSpread, causes: list[NumberCause]) -> list[NumberCause]:
    """The causes with the one that explains them, roots first."""
    some = causes[:MOST_CAUSES]
    explained: dict[int, int] = {}
    for place, cause in enumerate(some):
        if place in explained or cause.is_loss_scaling:
            continue
        reached: dict[int, int] | None = None
        for at, other in enumerate(some):
            if at == place or at in explained or not _may_follow(cause, other):
                continue
            if reached is None:
                reached = spread.reached(spread.origins(cause.first))
            if spread.is_after(reached, other.first) and explained.get(place) != at:
                explained[at] = place
    roots = [place for place in range(len(causes)) if place not in explained]
    order = roots + sorted(explained)
    new = {old: at for at, old in enumerate(order)}
    return [
        replace(causes[old], explained_by=new[explained[old]] if old in explained else None)
        for old in order
    ]  # fmt: skip


def _may_follow(cause: NumberCause, other: NumberCause) -> bool:
    """Whether wrong values from elsewhere can break the rule of `other`."""
    if other.variant in _SELF_EVIDENT:
        accused = cause.first.ranks
        return bool(accused) and cause.variant in _SELF_EVIDENT and set(other.first.ranks) == set(accused)
    weaker = RULES[cause.first.rule].standing != "proof" and RULES[other.first.rule].standing == "proof"
    return other.variant not in _BY_ITSELF and not weaker
