"""The policy of logs: which rule is asked when, what it needs, and what its findings outrank.

Dumps are judged first, and their roots stand when the first stage of `POLICY` is asked. The table below is read from
the top: a stage may turn roots of earlier ones, and of dumps, into consequences of its own, as its rows say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.freeze import Freeze
from rankscope.analysis.model import Finding
from rankscope.analysis.settings_comparison import find_settings
from rankscope.analysis.verdict import Scene
from rankscope.features.logs.rules import (
    absent_ranks,
    c10d_reports,
    engine_reports,
    failures,
    first_exit,
    hardware_faults,
    initialisation,
    known_causes,
    nccl_start,
    ras,
    survived,
    unmatched,
)
from rankscope.features.logs.rules.log_lines import LogEvidence, read_lines, with_ranks
from rankscope.features.logs.rules.merged_roots import MergedRoots
from rankscope.kinds.error_traits import GAVE_UP
from rankscope.kinds.finding_kinds import FINDINGS

ISSUE_AHEAD_NS = 10_000_000_000
"""Operations may be issued for this long after NCCL failed in one communicator."""
NOTICE_LAG_NS = 25 * 60_000_000_000
"""NCCL may notice a failure this long after the last operation was issued; time zones are half an hour apart."""

UNEXPLAINED = "unexplained ends"

Findings = Iterable[Finding]
Needs = Callable[[LogEvidence, MergedRoots], bool]
Joins = Callable[[LogEvidence, MergedRoots, Sequence[Finding]], None]


def nothing(_logs: LogEvidence, _merged: MergedRoots) -> bool:
    """Asked always."""
    return True


def no_root(_logs: LogEvidence, merged: MergedRoots) -> bool:
    """Asked while no root cause is known."""
    return not merged.roots


def no_root_that_ended(_logs: LogEvidence, merged: MergedRoots) -> bool:
    """Asked while no root cause is the end of a rank."""
    return not any(FINDINGS[root.kind].ended for root in merged.roots)


def no_critical_finding(_logs: LogEvidence, merged: MergedRoots) -> bool:
    """Asked while nothing critical is known."""
    return not any(f.severity == "critical" for f in (*merged.roots, *merged.rest))


def no_known_cause(logs: LogEvidence, merged: MergedRoots) -> bool:
    """Asked while no root is known, and no known cause is critical."""
    return not merged.roots and not any(f.severity == "critical" for f in logs.once(known_causes.known_causes))


def a_traceback(logs: LogEvidence, merged: MergedRoots) -> bool:
    """Asked while nothing critical is known, if a program printed a traceback."""
    return no_critical_finding(logs, merged) and any(line.kind == "traceback" for line in logs.lines)


def a_root_or_no_end(_logs: LogEvidence, merged: MergedRoots) -> bool:
    """Asked if there is a root, or if the stage of unexplained ends found nothing."""
    return bool(merged.roots) or UNEXPLAINED not in merged.answered


def beside(_logs: LogEvidence, merged: MergedRoots, findings: Sequence[Finding]) -> None:
    """Outrank nothing: they come behind the roots."""
    merged.rest += findings


def over_those_who_wait(logs: LogEvidence, merged: MergedRoots, findings: Sequence[Finding]) -> None:
    """Outrank roots that accuse nobody, or one of the same ranks, or only ranks without a dump; all of them if it is
    not known who failed. So a dump that shows another rank as the cause takes precedence, and dumps that show whose
    operation does not fit explain a rank that only met it."""
    seen = set(logs.dataset.seen_ranks)
    disagreeing = [root for root in merged.accusing if FINDINGS[root.kind].status == "mismatch"]
    for finding in findings:
        failed = set(finding.culprit_ranks)
        if disagreeing and logs.once(failures.first_failures).of_either_end:
            merged.follow(disagreeing[0], finding)
            continue

        def follows(root: Finding, failed: set[int] = failed) -> bool:
            accused = set(root.culprit_ranks)
            return not accused or bool(accused & failed) or not accused & seen or not failed

        merged.explain(finding, follows)


def over_those_harmed(logs: LogEvidence, merged: MergedRoots, findings: Sequence[Finding]) -> None:
    """Outrank roots that accuse nobody, or one of the same ranks, or that show harmed ranks as held up.

    Candidates alone outrank nothing, and are of no use beside an accused rank.
    """
    harmed = {end.rank for end in logs.once(first_exit.job_ends).harmed}
    for finding in findings:
        ended = set(finding.culprit_ranks)

        def follows(root: Finding, ended: set[int] = ended) -> bool:
            accused = set(root.culprit_ranks)
            waits = FINDINGS[root.kind].needs_stillness
            return not accused or bool(accused & ended) or (waits and accused <= harmed)

        if finding.root_cause:
            merged.explain(finding, follows)
        elif not any(root.culprit_ranks for root in merged.roots):
            merged.rest.append(finding)


def over_nameless(_logs: LogEvidence, merged: MergedRoots, findings: Sequence[Finding]) -> None:
    """Outrank roots that accuse nobody; for other roots they are evidence where they agree, else against them."""
    _support(merged, findings, of_logs=False)


def over_nameless_and_later(logs: LogEvidence, merged: MergedRoots, findings: Sequence[Finding]) -> None:
    """As `over_nameless`; without dumps, one on an earlier operation of the same ranks takes precedence too."""
    _support(merged, findings, of_logs=logs.dataset.from_logs)


def _support(merged: MergedRoots, findings: Sequence[Finding], *, of_logs: bool) -> None:
    for finding in findings:
        if finding.root_cause:
            merged.support(finding, of_logs)
        else:
            merged.rest.append(finding)


def in_front(_logs: LogEvidence, merged: MergedRoots, findings: Sequence[Finding]) -> None:
    """Outrank what stands behind the roots; there is no other root."""
    for finding in findings:
        if finding.root_cause:
            merged.roots.append(finding)
        else:
            merged.rest.insert(0, finding)


def over_all_if_nobody_is_accused(_logs: LogEvidence, merged: MergedRoots, findings: Sequence[Finding]) -> None:
    """The first outranks all, if it is critical and no root accuses anybody; the others outrank nothing."""
    others = list(findings)
    if others and others[0].severity == "critical" and not merged.accusing:
        merged.explain(replace(others.pop(0), root_cause=True), lambda _: True)
    merged.rest += [replace(finding, severity="warning") for finding in others]


def as_consequence(_logs: LogEvidence, merged: MergedRoots, findings: Sequence[Finding]) -> None:
    """Outrank nothing: they follow from the first root, if there is one."""
    if merged.roots:
        merged.caused += [(finding, merged.roots[0]) for finding in findings]
    else:
        merged.rest += findings


class Rule(NamedTuple):
    """A rule about logs."""

    name: str
    find: Callable[[LogEvidence], Findings]
    outranks: Joins
    needs: Needs = nothing


class Stage(NamedTuple):
    """Rules that are asked about the same roots: those of dumps and of earlier stages."""

    name: str
    rules: tuple[Rule, ...]
    first_answer: bool = False
    """Only the first rule that finds something is heard; else all are, in this order."""
    leads_alone: bool = False
    """Without dumps, a root with which one of the findings agrees outranks roots of other ranks."""


POLICY = (
    # a process that failed by itself explains the ranks that wait for it; rivals that dumps prove stay roots
    Stage("own failures", (
        Rule("first failure", failures.find_first, over_those_who_wait),
        Rule("later failures", failures.find_later, beside),
        Rule("faults of hardware", hardware_faults.find_faults, beside),
    )),
    # else the rank that ended first, by the notes of the capture
    Stage("ends", (
        Rule("first exit", first_exit.find_ended, over_those_harmed, no_root_that_ended),
    )),
    # the program that was over on some ranks is asked before others that name ranks: these then agree or not
    Stage("left programs", (
        Rule("left program", absent_ranks.find_left, over_nameless),
    )),
    # lines that name ranks; what dumps show of ranks takes precedence, and they are for or against it
    Stage("named ranks", (
        Rule("late arrival", absent_ranks.find_late_arrival, over_nameless_and_later),
        Rule("reports of c10d", c10d_reports.find_named, over_nameless_and_later),
        Rule("startup", initialisation.find_startup, over_nameless_and_later),
        Rule("counts of parameters", initialisation.find_parameter_counts, over_nameless_and_later),
        Rule("setup of communicators", initialisation.find_init_hangs, over_nameless_and_later),
        Rule("RAS and Inspector", ras.find_ras, over_nameless_and_later),
    ), leads_alone=True),
    # without any root: who is the odd one among those that waited
    Stage("silent ranks", (
        Rule("did not give up", absent_ranks.find_silent, in_front, no_root),
        Rule("experts", engine_reports.find_experts, in_front, no_root),
        Rule("members that are absent", absent_ranks.find_absent, in_front, no_root),
        Rule("counts that did not come", initialisation.find_uncounted, in_front, no_root),
    ), first_answer=True),
    # causes that accuse nobody lead where nobody is accused
    Stage("causes", (
        Rule("unknown errors of NCCL", known_causes.find_unknown_causes, over_all_if_nobody_is_accused, no_known_cause),
        Rule("known causes", known_causes.find_known_causes, over_all_if_nobody_is_accused),
    )),
    # what is left of a job without a cause
    Stage(UNEXPLAINED, (
        Rule("timeouts", known_causes.find_timeouts, in_front, no_critical_finding),
        Rule("critical harm", known_causes.find_broken, in_front, no_critical_finding),
        Rule("ends with a traceback", known_causes.find_unexplained_ends, in_front, a_traceback),
        Rule("signs of a timeout", known_causes.find_signalled, in_front, no_critical_finding),
        Rule("other ends", known_causes.find_unexplained_ends, in_front, no_critical_finding),
        Rule("harm", known_causes.find_harmed, in_front, no_critical_finding),
        Rule("returned errors of NCCL", known_causes.find_returned_errors, in_front, no_critical_finding),
    ), first_answer=True),
    Stage("notes", (
        Rule("lines that show harm", known_causes.count_harm, as_consequence, a_root_or_no_end),
        Rule("start of NCCL", nccl_start.find_start, beside),
        Rule("NCCL's own check", hardware_faults.find_diagnosed, beside),
        Rule("other analysers", engine_reports.find_analysed, beside),
        Rule("other operations at equal counts", unmatched.find_counted, beside),
        Rule("sends without a receive", unmatched.find_unmatched, beside),
        Rule("settings", lambda logs: find_settings(logs.dataset, logs.place), beside),
        Rule("survived errors", survived.find_survived, beside),
        Rule("earlier attempts", survived.find_earlier_ends, beside),
    )),
)  # fmt: skip


def with_logs(findings: Sequence[Finding], scene: Scene) -> list[Finding]:
    """The findings joined with those of logs, roots first, with new ids.

    Roots are what makes a job hang or fail: a rank that only makes it slow explains no line of a log.
    """
    facts, places, moves = scene.facts, scene.places, scene.moves
    dataset = facts.dataset
    merged = MergedRoots([f for f in findings if _ends_job(f)], [f for f in findings if not _ends_job(f)])
    lines, survivors = survived.part_survived(with_ranks(read_lines(dataset)), dataset)
    logs = LogEvidence(facts, places.culprit, lines, survivors, moves, dump_roots=tuple(merged.roots))
    for stage in POLICY:
        _ask(stage, logs, merged)
    return merged.numbered()


def _ends_job(finding: Finding) -> bool:
    """Whether a finding is the root of a hang or a failure."""
    return finding.root_cause and finding.severity == "critical"


def _ask(stage: Stage, logs: LogEvidence, merged: MergedRoots) -> None:
    """Asks the rules of a stage, and joins their findings to the roots."""
    logs.roots = tuple(merged.roots)
    answers: list[tuple[Rule, list[Finding]]] = []
    for rule in stage.rules:
        findings = list(rule.find(logs)) if rule.needs(logs, merged) else []
        if findings:
            answers.append((rule, findings))
            merged.answered.add(stage.name)
            if stage.first_answer:
                break
    for rule, findings in answers:
        rule.outranks(logs, merged, findings)
    chief = next(iter(merged.accusing), None)
    if stage.leads_alone and logs.dataset.from_logs and chief is not None:
        accused = set(chief.culprit_ranks)
        if any(set(finding.culprit_ranks) & accused for _, findings in answers for finding in findings):
            merged.only(chief, lambda root: not set(root.culprit_ranks) & accused)


def stopped_by_log(freeze: Freeze, facts: Facts) -> Freeze:
    """The standstill corrected by logs, whatever the times of files.

    A job whose watchdog gave up had stopped, and so had a job that did nothing more after NCCL failed in a
    communicator.
    """
    messages = facts.dataset.messages
    late = (pl.col("kind") == "watchdog-timeout") | pl.col("values").str.contains(f'"{GAVE_UP}"', literal=True)
    if messages.is_empty() or freeze.proven:
        return freeze
    waited = messages.select(late.any()).item()
    if not waited and (freeze.stopped or not _failed_last(facts)):
        return freeze
    what = "a rank that gave up waiting" if waited else "a failure of NCCL, and no operation since"
    reason = freeze.reason if freeze.stopped else f"a log shows {what}"
    return replace(freeze, stopped=True, reason=reason, proven=waited)


def _failed_last(facts: Facts) -> bool:
    """Whether NCCL failed when the last operation was issued, or soon after; unknown if a log has no time.

    A job may recover from an error, and a log may hold an earlier run. Times of another time zone do not match.
    """
    newest = facts.dataset.ops["created_ns"].max()
    failed = facts.dataset.messages.filter(pl.col("kind") == "async-error")["time_ns"].max()
    return isinstance(newest, int) and isinstance(failed, int) and -ISSUE_AHEAD_NS <= failed - newest <= NOTICE_LAG_NS
