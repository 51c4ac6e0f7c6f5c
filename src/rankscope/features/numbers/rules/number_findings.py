"""Findings on numbers: who holds wrong values, by which rule, beyond which limit, and what to record next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, BrokenLimit, Confidence, Evidence, Finding, GroupRef, Severity
from rankscope.analysis.places import Places
from rankscope.features.numbers.rules.model import NUMBER_RESULTS, RULES, NumberResults
from rankscope.features.numbers.rules.number_rules import NumberCause, NumbersJudgement, judge_numbers
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

KIND = "numeric-divergence"
_UNPROVEN = "no number is proven wrong, but: "
_TITLES: dict[str, tuple[str, str]] = {
    "members-differ": (
        "{who} hold{s} another result of {where} than the other members, {when}",
        "the members of {where} hold different results, {when}",
    ),
    "moved-wrong": ("{who} {moved} wrong data in {where}, {when}",
                    "one of {who} sent or got wrong data in {where}, {when}"),
    "not-the-sum": ("{who} hold{s} no {kind} of the inputs of {where}, {when}",
                    "{where} does not give the {kind} of its inputs, {when}"),
    "non-finite": ("{who} hold{s} {what} in {where}, {when}, before any other rank", "{where} holds {what}, {when}"),
    "replicas-differ": ("{where} on {who} differs from the other replicas, {when}",
                        "{where} differs between its replicas on {who}, {when}"),
    "recompute-differs": ("{where} on {who} is not what it was when it is computed again, {when}",
                          "{where} is not what it was when it is computed again, {when}"),
    "weights-changed": ("{where} on {who} changed between two steps, before it was used {when}",
                        "{where} changed between two steps, before it was used {when}"),
    "schedule-changes": ("{who} leave{s} out an operation of earlier steps: {where}, as {when}",
                         "an operation of earlier steps is left out: {where}, as {when}"),
    "schedule-differs": ("{who} first record{s} another tensor than the reference at {where}, {when}",
                         "another tensor than in the reference is recorded at {where}, {when}"),
    "differs-from-reference": ("{who} first differ{s} from the reference in {where}, {when}",
                               "the first difference from the reference is in {where}, {when}"),
    "same-input": ("{who} bring the same data to {where}, {when}", "{who} bring the same data to {where}, {when}"),
    "stale-input": ("{who} bring{s} to {where} what it brought in an earlier step, {when}",
                    "{where} gets an input of an earlier step, {when}"),
}  # fmt: skip
"""Titles by variant: with ranks that are named, and without."""
LONGEST_RANKS = 40
"""Characters of ranks in a title."""
_STANDINGS: dict[str, tuple[Confidence, str]] = {
    "proof": ("high", "the limit is a proof"),
    "model": ("medium", "the limit takes roundings for independent"),
    "heuristic": ("medium", "the rule holds in practice, and is no proof"),
}
_NEXT: dict[str, tuple[str, ...]] = {
    "weights-changed": (
        "Run the memory test of this device; look for code on this rank alone that writes to weights between steps.",
    ),
    "recompute-differs": (
        "Look at the random states that checkpoint() keeps, and for inputs that are changed in place after their use.",
    ),
    "schedule-changes": (
        "Look at what the program skips from the next step on, and at the groups that it uses there.",
    ),
    "members-differ": (
        "Run the node of the named rank through its vendor's memory and link tests; run the step again elsewhere.",
        "Look for code on that rank alone that writes to the output before it has waited for it.",
        "If the backend reduces in the switch (NVLS, SHARP), run once with NCCL_NVLS_ENABLE=0 and compare.",
    ),
    "moved-wrong": ("Look for writes to the buffer between the call and its wait, on the sender and on the receiver.",),
    "not-the-sum": (
        "Look for reads of the output before its wait, and for writes to the inputs while the collective runs.",
        'Record every step with modules, numbers.start(model, every=1, level="modules"), to see what made the inputs.',
    ),
    "non-finite": ("Record modules in the steps before, to see which operation makes the first one.",),
    "replicas-differ": (
        "Look for a reduction that leaves this tensor out, or uses another group; record gradients of every step.",
    ),
    "schedule-differs": (
        "Compare the code and settings of the two runs at this place: rankscope diff shows settings.",
    ),
    "differs-from-reference": (
        "Record modules around this place in both runs, in float32, with the same data and seeds.",
    ),
    "same-input": ("Look at the sampler and the seeds of the data loaders of these ranks.",),
    "stale-input": ("Look for a buffer that is reduced before it is filled, or again.",),
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
    told = NUMBER_RESULTS.put(replace(analysis, findings=in_order(analysis.findings, written)), results)
    if any(f.severity == "critical" for f in analysis.findings):
        return told
    return with_verdict(facts.dataset, told, written)


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
    if analysis.status not in ("healthy", "unknown"):
        return analysis
    if roots:
        findings = (roots[0], *(f for f in analysis.findings if f is not roots[0]))
        # where a run first differs from its reference, and whether it breaks a law behind it
        proven = any(f.severity == "critical" for f in written)
        text = f"{'' if proven else _UNPROVEN}{roots[0].title}"
        return replace(analysis, status="mismatch" if proven else "unknown", verdict=text, findings=findings)
    if analysis.verdict.startswith(_UNPROVEN):
        return analysis
    if analysis.verdict and not dataset.from_tensors:
        return analysis
    results = NUMBER_RESULTS.find(analysis) or NumberResults()
    asked = sum(count.asked for count in results.counts)
    text = f"numbers of {plural(len(dataset.seen_ranks), 'rank')}: all of {plural(asked, 'check')} hold"
    return replace(analysis, status="unknown", verdict=text if asked else "numbers were found, and no rule applies")


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
        severity: Severity = "critical" if proven else "warning"
        confidence, reason = _STANDINGS["proof" if proven else standing]
        return Finding(
            kind=KIND, severity=severity, title=self.title(cause), explanation=" ".join(self._explanation(cause)),
            id=number, root_cause=cause.explained_by is None,
            caused_by=None if cause.explained_by is None else f"f{first + cause.explained_by}",
            culprit_ranks=tuple(sorted(broken.ranks)),
            culprits=tuple(map(self._places.culprit, sorted(broken.ranks))),
            candidates=broken.candidates, confidence=confidence, confidence_reasons=(reason,),
            group=self._group(row), seq=row["seq"], op=row["op"], peer=row["peer"],
            stack=self.facts.dataset.stack(row["stack_id"]), evidence=tuple(self._evidence(cause)),
            next_steps=_NEXT[cause.variant], about=broken.members,
            limits=tuple(BrokenLimit(one.rule, RULES[one.rule].standing, one.value, one.limit) for one in named),
        )  # fmt: skip

    def title(self, cause: NumberCause) -> str:
        """One line: who, what, where and when."""
        broken, row = cause.first, self._row(cause.first.row)
        named, unnamed = _TITLES[cause.variant]
        ranks = broken.ranks or broken.candidates
        return (named if broken.ranks else unnamed).format(
            who=ranks_text(ranks, LONGEST_RANKS) if ranks else "the members",
            s="s" if len(ranks) == 1 else "", where=self._where(row),
            when=f"in step {row['step']}" if row["step"] is not None else "in an unknown step",
            kind={"avg": "average", "max": "maximum", "min": "minimum"}.get(row["reduce_op"] or "", "sum"),
            what="an infinite value" if cause.is_loss_scaling else "a NaN or infinite value",
            moved="sent" if broken.rows and self._row(broken.rows[0])["rank"] in broken.ranks else "got",
        )  # fmt: skip

    def _explanation(self, cause: NumberCause) -> Iterator[str]:
        strict, *others = cause.rules or (cause.first,)
        rule = RULES[strict.rule]
        off = f"The value is {_number(strict.value)}; the limit is {_number(strict.limit)}."
        yield f"Rule {rule.name} ({rule.standing}): {rule.statement}."
        yield off if strict.limit or strict.value else "Here it does not hold."
        if others:
            yield f"Broken as well: {', '.join(one.rule for one in others)}."
        if cause.first.note:
            yield f"{cause.first.note[:1].upper()}{cause.first.note[1:]}."
        if cause.is_loss_scaling:
            yield "Nothing is NaN: a loss scaler makes infinite gradients on purpose and skips the step."
        for step in cause.path[:4]:
            yield f"{step[:1].upper()}{step[1:]}."
        if cause.times > 1:
            last = f", the last one in step {cause.last_step}" if cause.last_step is not None else ""
            yield f"The same is wrong in {plural(cause.times - 1, 'more place')}{last}."
        if not cause.first.ranks and not cause.first.candidates:
            yield "The numbers do not tell which member is to blame."

    def _evidence(self, cause: NumberCause) -> Iterator[Evidence]:
        rules = cause.rules or (cause.first,)
        shown = dict.fromkeys(row for one in rules for row in (one.row, one.after, *one.rows) if row is not None)
        for row in list(shown)[:6]:
            told = self._row(row)
            yield Evidence(_row_text(told), self._paths.get(told["file"]), told["rank"], None, told["line"])

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
            "optimizer": "the new",
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
