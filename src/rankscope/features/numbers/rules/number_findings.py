"""Findings on numbers: every rule is asked, what breaks one is grouped by cause, and each cause is worded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, BrokenLimit, Confidence, Evidence, Finding, GroupRef, Severity, Status
from rankscope.analysis.places import Places
from rankscope.features.numbers.rules.collective_units import CollectiveUnits, collective_units, row_marks
from rankscope.features.numbers.rules.equality_checks import check_equality, check_replicas
from rankscope.features.numbers.rules.model import (
    MOST_BROKEN,
    NUMBER_RESULTS,
    RULES,
    BrokenRule,
    NumberMarks,
    NumberResults,
    ReferenceMarks,
    RowState,
    RuleCount,
)
from rankscope.features.numbers.rules.optimizer_checks import check_optimizer
from rankscope.features.numbers.rules.step_laws import check_step_laws
from rankscope.features.numbers.rules.sum_checks import SumChecks, check_sums, contribution_note
from rankscope.features.numbers.rules.tensor_matching import check_printed, hash_kind, with_marks
from rankscope.features.numbers.rules.wrong_values import NonFiniteSource, ValueSpread, find_nonfinite
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

MOST_CAUSES = 64
"""Most groups of broken rules that are held against each other."""
_BY_ITSELF = ("same-input", "stale-input", "weights-changed", "state-wrong")
"""Variants that wrong values from elsewhere do not bring about."""
MOST_NOTES, MOST_NOTED_MEMBERS = 16, 1024
"""Most operations, and members of one, of which it is tried what the wrong output is made of."""
_SCHEDULED = ("flow-changes", "digits-change", "calls-change", "parts-overlap", "level-changes")
"""Variants that the program itself brings about, on all ranks: a schedule, other data, a type that is switched on."""
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

    @property
    def is_note(self) -> bool:
        """Whether it may be what the program is meant to do, as it names nobody: it is no fault then."""
        return self.variant in _SCHEDULED and not self.first.ranks

    @property
    def is_root(self) -> bool:
        """Whether it is a fault that no other one explains."""
        return self.explained_by is None and not self.is_note


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
    sums = check_sums(dataset, units)
    equal = check_equality(dataset, units)
    # different tensors often have the same XOR
    replicas = check_replicas(*((plain, collective_units(plain)) if kind == "xor" else (dataset, units)))
    nonfinite = find_nonfinite(dataset, units)
    laws = [] if kind else check_step_laws(dataset, units)
    others = [check_printed(dataset, units), *replicas, *check_optimizer(dataset), *laws]
    asked, broken = Counter(sums.asked), Counter[str](dict(sums.broken.group_by("rule").len().iter_rows()))
    for answer in (*equal, *others):
        asked[answer.rule] += answer.asked
        broken[answer.rule] += answer.places
    asked["NF"] += nonfinite.asked
    broken.update(one.rule for one in nonfinite.broken)
    counts = tuple(RuleCount(rule, asked[rule], broken[rule]) for rule in RULES if asked[rule])
    exact = [one for answer in equal for one in answer.broken]
    settled = _settled(dataset, [*exact, *_sum_breaks(dataset, units, sums)])
    places = _Places(dataset, [*settled, *(one for answer in others for one in answer.broken), *nonfinite.broken])
    spread = ValueSpread(dataset)
    causes = _related(spread, [_with_gradients(dataset, cause) for cause in places.causes(nonfinite)])
    roots = [cause for cause in causes if cause.is_root]
    states, rows = _states(causes, len(places.broken)), tuple(cause.first.row for cause in roots)
    # by rank the order from which on it may hold values that a proof calls wrong
    origins: dict[int, int] = {}
    for cause in roots:
        if any(cause.proven):
            for rank, order in spread.origins(cause.first).items():
                origins[rank] = min(order, origins.get(rank, order))
    reached = spread.reached(origins) if origins else {}

    marks = row_marks(
        dataset, units, sums.nearest, [*equal, *others], places.broken, states, reached=reached, roots=rows
    )
    return NumbersJudgement(tuple(causes), counts, marks=marks)


def _states(causes: Sequence[NumberCause], count: int) -> list[RowState]:
    """The state that each broken rule gives to its tensors, by the cause to which it belongs."""
    states = [RowState.SUSPICIOUS] * count
    for cause in causes:
        for place, is_proof in zip(cause.broken, cause.proven, strict=True):
            if cause.explained_by is not None:
                states[place] = RowState.FOLLOWS
            elif cause.is_note:
                states[place] = RowState.RIGHT
            else:
                states[place] = RowState.WRONG if is_proof else RowState.SUSPICIOUS
    return states


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
    calls = dataset.tensors.select("group", "seq", "op", "hash")
    wrong: defaultdict[Hashable, set[int]] = defaultdict(set)
    for broken_rule in broken:
        if RULES[broken_rule.rule].variant == "not-the-sum":
            group, seq, op, digest = calls.row(broken_rule.row)
            wrong[group, seq, op].add(digest)
    out = []
    for broken_rule in broken:
        if broken_rule.rule == "E1" and broken_rule.candidates:
            group, seq, op, _ = calls.row(broken_rule.row)
            out.append(_by_inputs(dataset, broken_rule, wrong.get((group, seq, op), set())))
        else:
            out.append(broken_rule)
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
        return [
            self._cause(places, nonfinite) for places in sorted(sets.values(), key=lambda rows: self._time(rows[0]))
        ]

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
        if variant in ("same-input", "schedule-changes", "state-wrong"):
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
        note = (
            f"its gradients differ after their reduction, first in step {apart[0]}: a rank never reduces this gradient"
        )
    return replace(cause, first=replace(cause.first, note=f"{cause.first.note}; {note}"))


def _related(spread: ValueSpread, causes: list[NumberCause]) -> list[NumberCause]:
    """The causes with the one that explains them, roots first."""
    some = causes[:MOST_CAUSES]
    explained: dict[int, int] = {}
    for place, cause in enumerate(some):
        if place in explained or cause.is_loss_scaling or cause.is_note:
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
    return [replace(causes[old], explained_by=new[explained[old]] if old in explained else None) for old in order]


def _may_follow(cause: NumberCause, other: NumberCause) -> bool:
    """Whether wrong values from elsewhere can break the rule of `other`."""
    if other.variant in _SELF_EVIDENT:
        accused = cause.first.ranks
        return bool(accused) and cause.variant in _SELF_EVIDENT and set(other.first.ranks) == set(accused)
    weaker = RULES[cause.first.rule].standing != "proof" and RULES[other.first.rule].standing == "proof"
    return other.variant not in _BY_ITSELF and not weaker


KIND = "numeric-divergence"
NEEDS_REFERENCE = "a fault that all ranks share needs a reference"
_JUDGED = ("unknown", "suspect", "numbers-ok")
"""Statuses of a job of which nothing but numbers may be known."""


class WrongNumber(NamedTuple):
    """A kind of wrong number in words."""

    named: str
    """Title with the ranks that are named."""
    unnamed: str
    next_steps: tuple[str, ...]


_KINDS: dict[str, WrongNumber] = {
    "members-differ": WrongNumber(
        "{who} hold{s} another result of {where} than the other members, {when}",
        "the members of {where} hold different results, {when}",
        (
            "Run the node of the named rank through its vendor's memory and link tests; run the step again elsewhere.",
            "Look for code on that rank alone that writes to the output before it has waited for it.",
            "If the backend reduces in the switch (NVLS, SHARP), run once with NCCL_NVLS_ENABLE=0 and compare.",
        ),
    ),
    "moved-wrong": WrongNumber(
        "{who} {moved} wrong data in {where}, {when}",
        "one of {who} sent or got wrong data in {where}, {when}",
        ("Look for writes to the buffer between the call and its wait, on the sender and on the receiver.",),
    ),
    "not-the-sum": WrongNumber(
        "{who} hold{s} no {kind} of the inputs of {where}, {when}",
        "{where} does not give the {kind} of its inputs, {when}",
        (
            "Look for reads of the output before its wait, and for writes to the inputs while the collective runs.",
            "Record every step with modules, "
            'numbers.start(model, every=1, level="modules"), to see what made the inputs.',
        ),
    ),
    "non-finite": WrongNumber(
        "{who} hold{s} {what} in {where}, {when}, before any other rank",
        "{where} holds {what}, {when}",
        ("Record modules in the steps before, to see which operation makes the first one.",),
    ),
    "replicas-differ": WrongNumber(
        "{where} on {who} differs from the other replicas, {when}",
        "{where} differs between its replicas on {who}, {when}",
        ("Look for a reduction that leaves this tensor out, or uses another group; record gradients of every step.",),
    ),
    "recompute-differs": WrongNumber(
        "{where} on {who} is not what it was when it is computed again, {when}",
        "{where} is not what it was when it is computed again, {when}",
        (
            "Look at the random states that checkpoint() keeps, "
            "and for inputs that are changed in place after their use.",
        ),
    ),
    "weights-changed": WrongNumber(
        "{where} on {who} changed between two steps, before it was used {when}",
        "{where} changed between two steps, before it was used {when}",
        ("Run the memory test of this device; look for code on this rank alone that writes to weights between steps.",),
    ),
    "state-wrong": WrongNumber(
        "{where} on {who} is not what the optimizer makes of it, {when}",
        "{where} is not what the optimizer makes of it, {when}",
        ("Look at what loads, clears or moves the state of the optimizer behind the step before, and at its options.",),
    ),
    "flow-changes": WrongNumber(
        "{who} change{s} what is given to {where} on its way there, since {when_step}",
        "what is given to {where} is changed on its way there, since {when_step}",
        ("Look at the code between the two operations, and at what changed in it between those steps.",),
    ),
    "scale-changes": WrongNumber(
        "{where} on {who} is no average of its sum any more, since {when_step}",
        "{where} is no average of its sum any more, since {when_step}",
        ("Look at what divides gradients after their reduction, and at options that switch it off.",),
    ),
    "digits-change": WrongNumber(
        "{where} on {who} fits a narrower type than in the steps before, since {when_step}",
        "{where} fits a narrower type than in the steps before, since {when_step}",
        ("Look for a cast, or an autocast region, between this tensor and the one before it.",),
    ),
    "calls-change": WrongNumber(
        "{who} run{s} a module more often than in the steps before: see {where}, since {when_step}",
        "a module runs more often than in the steps before: see {where}, since {when_step}",
        ("Look at what calls this module, and at what it depends on there.",),
    ),
    "parts-overlap": WrongNumber(
        "{who} give{s} to {where} what is another member's part, since {when_step}",
        "members of {where} give what is another member's part, since {when_step}",
        ("Look at the mask of rows, experts or tokens that this member does not have.",),
    ),
    "level-changes": WrongNumber(
        "{where} on {who} jumps from one step to the next, in {when_step}",
        "{where} jumps from one step to the next, in {when_step}",
        (
            "Look at what scales the loss: its denominator, the number of micro batches, a factor.",
            "New kinds of data, or another size of batches, do this as well.",
        ),
    ),
    "schedule-changes": WrongNumber(
        "{who} leave{s} out an operation of earlier steps: {where}, as {when}",
        "an operation of earlier steps is left out: {where}, as {when}",
        ("Look at what the program skips from the next step on, and at the groups that it uses there.",),
    ),
    "schedule-differs": WrongNumber(
        "{who} first record{s} another tensor than the reference at {where}, {when}",
        "another tensor than in the reference is recorded at {where}, {when}",
        ("Compare the code and settings of the two runs at this place: rankscope diff shows settings.",),
    ),
    "differs-from-reference": WrongNumber(
        "{who} first differ{s} from the reference in {where}, {when}",
        "the first difference from the reference is in {where}, {when}",
        ("Record modules around this place in both runs, in float32, with the same data and seeds.",),
    ),
    "same-input": WrongNumber(
        "{who} bring the same data to {where}, {when}",
        "{who} bring the same data to {where}, {when}",
        ("Look at the sampler and the seeds of the data loaders of these ranks.",),
    ),
    "stale-input": WrongNumber(
        "{who} bring{s} to {where} what it brought in an earlier step, {when}",
        "{where} gets an input of an earlier step, {when}",
        ("Look for a buffer that is reduced before it is filled, or again.",),
    ),
}
"""By variant."""
LONGEST_RANKS = 40
"""Characters of ranks in a title."""
_STANDINGS: dict[str, tuple[Confidence, str]] = {
    "proof": ("high", "the limit is a proof"),
    "model": ("medium", "the limit takes roundings for independent"),
    "heuristic": ("medium", "the rule holds in practice, and is no proof"),
}


def with_numbers(facts: Facts, analysis: Analysis, judged: NumbersJudgement | None = None) -> Analysis:
    """The analysis with findings on numbers, and with their verdict where nothing else is wrong; by the rules that need
    no reference, unless `judged` holds the answers of others."""
    judged = judge_numbers(facts.dataset) if judged is None else judged
    writer = _NumberWriter(facts)
    first = len(analysis.findings) + 1
    written = [writer.write(cause, f"f{first + place}", first) for place, cause in enumerate(judged.causes)]
    before = NUMBER_RESULTS.find(analysis) or NumberResults()
    results = NumberResults(
        (*before.counts, *judged.counts),
        (*before.notes, *judged.notes),
        judged.marks or before.marks,
        judged.distances or before.distances,
    )
    with_results = NUMBER_RESULTS.put(replace(analysis, findings=in_order(analysis.findings, written)), results)
    if any(f.severity == "critical" for f in analysis.findings):
        return with_results
    return with_verdict(facts.dataset, with_results, written)


def in_order(before: tuple[Finding, ...], written: list[Finding]) -> tuple[Finding, ...]:
    """Critical causes first, as reports list them."""
    roots = [f for f in written if f.root_cause and f.severity == "critical"]
    known = [f for f in before if f.root_cause]
    rest = [f for f in before if not f.root_cause]
    return (*known, *roots, *(f for f in written if f not in roots), *rest)


def with_verdict(dataset: Dataset, analysis: Analysis, written: list[Finding]) -> Analysis:
    """The verdict on numbers of a job of which nothing worse is known."""
    roots = [f for f in written if f.root_cause]
    critical = [f for f in roots if f.severity == "critical"]
    if critical:
        more = f" (and {plural(len(critical) - 1, 'more root cause')})" if len(critical) > 1 else ""
        return replace(analysis, status="mismatch", verdict=critical[0].title + more)
    if analysis.status != "healthy" and analysis.status not in _JUDGED:
        return analysis
    if roots:
        findings = (roots[0], *(f for f in analysis.findings if f is not roots[0]))
        # where a run first differs from its reference, and whether it breaks a law behind it
        proven = any(f.severity == "critical" for f in written)
        status: Status = "mismatch" if proven else "suspect"
        return replace(analysis, status=status, verdict=roots[0].title, findings=findings)
    if any(f.kind == KIND and f.root_cause for f in analysis.findings):
        # the verdict is on numbers that were judged before these
        return analysis
    if analysis.verdict and not dataset.from_tensors:
        return analysis
    results = NUMBER_RESULTS.find(analysis) or NumberResults()
    asked = sum(count.asked for count in results.counts)
    if not asked:
        return replace(analysis, status="unknown", verdict="numbers were found, and no rule applies")
    kept = asked - sum(count.broken for count in results.counts)
    checks = f"{plural(kept, 'check')} {'holds' if kept == 1 else 'hold'}"
    text = checks if results.distances is not None else f"{checks}; {NEEDS_REFERENCE}"
    return replace(analysis, status="numbers-ok", verdict=text)


@dataclass(frozen=True)
class _NumberWriter:
    facts: Facts

    @cached_property
    def _paths(self) -> dict[int, str]:
        return dict(self.facts.dataset.files.select("file", "path").iter_rows())

    @cached_property
    def _places(self) -> Places:
        return Places(self.facts.dataset)

    def write(self, cause: NumberCause, number: str, first: int) -> Finding:
        """The finding of one cause; `first` is the number of the first finding on numbers."""
        broken, row = cause.first, self._row(cause.first.row)
        standing = RULES[broken.rule].standing
        named = cause.rules or (broken,)
        proven = any(RULES[one.rule].standing == "proof" for one in named) and not cause.is_loss_scaling
        severity: Severity = "critical" if proven else "info" if cause.is_note else "warning"
        confidence, reason = _STANDINGS["proof" if proven else standing]
        return Finding(
            kind=KIND, severity=severity, title=self.title(cause), explanation=" ".join(self._explanation(cause)),
            id=number, root_cause=cause.is_root,
            caused_by=None if cause.explained_by is None else f"f{first + cause.explained_by}",
            culprit_ranks=tuple(sorted(broken.ranks)),
            culprits=tuple(map(self._places.culprit, sorted(broken.ranks))),
            candidates=broken.candidates, confidence=confidence, confidence_reasons=(reason,),
            group=self._group(row), seq=row["seq"], op=row["op"], peer=row["peer"],
            stack=self.facts.dataset.stack(row["stack_id"]), evidence=tuple(self._evidence(cause)),
            next_steps=_KINDS[cause.variant].next_steps, about=broken.members,
            limits=tuple(BrokenLimit(one.rule, RULES[one.rule].standing, one.value, one.limit) for one in named),
        )  # fmt: skip

    def title(self, cause: NumberCause) -> str:
        """One line: who, what, where and when."""
        broken, row = cause.first, self._row(cause.first.row)
        kind = _KINDS[cause.variant]
        ranks = broken.ranks or broken.candidates
        return (kind.named if broken.ranks else kind.unnamed).format(
            who=ranks_text(ranks, LONGEST_RANKS) if ranks else "the members",
            s="s" if len(ranks) == 1 else "",
            where=self._where(row),
            when=f"in step {row['step']}" if row["step"] is not None else "in an unknown step",
            when_step=f"step {row['step']}",
            kind={"avg": "average", "max": "maximum", "min": "minimum"}.get(row["reduce_op"] or "", "sum"),
            what="an infinite value" if cause.is_loss_scaling else "a NaN or infinite value",
            moved="sent" if broken.rows and self._row(broken.rows[0])["rank"] in broken.ranks else "got",
        )

    def _explanation(self, cause: NumberCause) -> Iterator[str]:
        strict, *others = cause.rules or (cause.first,)
        rule = RULES[strict.rule]
        off = f": the value is {_number(strict.value)}, the limit {_number(strict.limit)}"
        yield f"{rule.fault[:1].upper()}{rule.fault[1:]}{off if strict.limit or strict.value else ''}."
        yield f"Rule {rule.name} ({rule.standing}): {rule.statement}."
        if others:
            yield f"Rules that follow from it: {', '.join(one.rule for one in others)}."
        if cause.first.note:
            yield f"{cause.first.note[:1].upper()}{cause.first.note[1:]}."
        if cause.is_loss_scaling:
            yield "Nothing is NaN: a loss scaler makes infinite gradients on purpose and skips the step."
        for step in cause.path[:4]:
            yield f"{step[:1].upper()}{step[1:]}."
        if cause.times > 1:
            last = f", the last one in step {cause.last_step}" if cause.last_step is not None else ""
            yield f"The same is wrong in {plural(cause.times - 1, 'more place')}{last}."
        if not cause.first.ranks and len(cause.first.candidates) > 1:
            suspects = ranks_text(cause.first.candidates, LONGEST_RANKS)
            yield f"The numbers tell of {suspects}, and not which of them is wrong."
        if cause.is_note:
            yield "All ranks do this, as a schedule, other data or an option may ask for, so it is a note."
        elif not cause.first.ranks and not cause.first.candidates:
            yield "The numbers do not tell which member is to blame."

    def _evidence(self, cause: NumberCause) -> Iterator[Evidence]:
        rules = cause.rules or (cause.first,)
        shown = dict.fromkeys(row for rule in rules for row in (rule.row, rule.after, *rule.rows) if row is not None)
        for row in list(shown)[:6]:
            tensor = self._row(row)
            yield Evidence(_row_text(tensor), self._paths.get(tensor["file"]), tensor["rank"], None, tensor["line"])

    def _row(self, row: int) -> dict[str, Any]:
        return self.facts.dataset.tensors.row(row, named=True)

    def _where(self, row: dict[str, Any]) -> str:
        if row["site"] == "p2p":
            source, target = (row["rank"], row["peer"]) if row["op"] == "send" else (row["peer"], row["rank"])
            return f"a send from rank {source} to rank {target}"
        if row["site"] == "collective":
            group = f" of {self.facts.label(row['group'])}" if row["group"] is not None else ""
            number = f" #{row['seq']}" if row["seq"] is not None else ""
            return f"{row['op'] or 'a collective'}{number}{group}"
        is_input = (row["slot"] or "").startswith("in")
        noun = {
            "forward": "the input of" if is_input else "the output of",
            "backward": "the gradient at",
            "optimizer": "the new" if row["slot"] == "out0" else f"{row['slot']} of",
        }.get(row["site"], "the")
        what = {"forward": "", "backward": "", "optimizer": "parameter "}.get(row["site"], f"{row['site']} ")
        return f"{noun} {what}{row['name'] or ('' if what else 'the model')}".strip()

    def _group(self, row: dict[str, Any]) -> GroupRef | None:
        if row["group"] is None:
            return None
        found = self.facts.groups[row["group"]]
        return GroupRef(found.name, found.description, found.ranks, key=found.id)


def _number(value: float) -> str:
    return f"{value:.4g}"


def _row_text(row: dict[str, Any]) -> str:
    """A row of the table in words: "out0 of all_reduce, [64,32] f32: hash 00ab..., norm 3.2"."""
    what = " ".join(str(part) for part in (row["op"] or row["site"], row["name"]) if part)
    shape = "" if row["shape"] is None else f" [{','.join(map(str, row['shape']))}]"
    facts = [f"hash {row['hash']:016x}"] if row["hash"] is not None else []
    facts += [row["md5"].replace(":", " ", 1)] if row["md5"] is not None else []
    printed = (("norm", "l2"), ("sum", "sum"), *((("min", "min"), ("max", "max")) if row["tool"] is not None else ()))
    facts += [f"{name} {_number(row[key])}" for name, key in printed if row[key] is not None]
    facts += [f"{row[key]} {name}" for name, key in (("NaN", "nan"), ("infinite", "inf")) if row[key]]
    part = f" slice {row['slice']}" if row["slice"] is not None else ""
    kind = f",{shape} {row['dtype'] or ''}".rstrip() if shape or row["dtype"] else ""
    return f"{row['slot'] or 'tensor'}{part} of {what}{kind}: {', '.join(facts) or 'no statistics'}"
