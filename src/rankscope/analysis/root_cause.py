"""Analysis from a dataset to the verdict: standstill, roots of the wait-for graph, findings, and what features add."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rankscope.analysis.data_gaps import find_gaps
from rankscope.analysis.facts import Facts
from rankscope.analysis.finding_writer import FindingWriter, find_consequences, find_divergences
from rankscope.analysis.freeze import Freeze, as_waiting, judge_freeze, snapshot_state
from rankscope.analysis.graph import Root, build_graph, follow_failures, stop_at
from rankscope.analysis.mesh_recovery import find_misfits, recover_mesh
from rankscope.analysis.mismatch import find_mismatches, find_wrong_splits
from rankscope.analysis.missing_ranks import find_cut, find_gone, find_missing
from rankscope.analysis.model import Analysis, ChainStep, Finding
from rankscope.analysis.places import Places
from rankscope.analysis.reliability import judge_reliability
from rankscope.analysis.replicas import ReplicaCohorts
from rankscope.analysis.shifted_calls import shifted_roots
from rankscope.analysis.sink_rules import SinkRules
from rankscope.analysis.straggler import find_stragglers
from rankscope.analysis.uneven_lanes import find_uneven_lanes
from rankscope.analysis.unmatched_p2p import LostPairs
from rankscope.analysis.verdict import Scene, verdict
from rankscope.kinds.features import called
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.functions import function, is_of_package
from rankscope.schema import Dataset
from rankscope.text.wording import duration

WRITING_NS = 15_000_000_000
"""Longest time that a process takes to write its first dump, with cold caches (torch 2.13: 12 s)."""


def analyse(dataset: Dataset, settle: Callable[[Freeze], Freeze] | None = None) -> Analysis:
    """The cause of the failure, as far as the inputs tell; for a watched job `settle` corrects the standstill."""
    facts = Facts(dataset)
    freeze = _freeze(facts) if settle is None else settle(_freeze(facts))
    facts = _with_waits(facts, freeze)
    rules, certain = _rules(facts, freeze)
    roots = _explained(_independent(_roots(rules, certain, freeze)))
    scene = Scene(facts, Places(facts.dataset), freeze, rules.reliability, rules.graph.hang_since_ns)
    suspects, roots = _weighed(scene, roots)
    analysis = _judged(scene, FindingWriter(rules, scene.places), roots, suspects)
    for find in called(facts.dataset, "find"):
        if is_of_package(find):
            # imported only where a package is installed
            from rankscope.analysis.package_findings import completed

            analysis = completed(find, facts, analysis)
        else:
            analysis = function(find)(facts, analysis)
    if facts.dataset.told_by_logs and any(finding.severity != "info" for finding in analysis.findings):
        # a job of dumps alone loads few modules, and its rules know their steps
        from rankscope.analysis.failure_advice import with_next_steps

        analysis = with_next_steps(facts.dataset, analysis)
    words = facts.dataset.parts.words
    return replace(analysis, verdict=f"{analysis.verdict} (read: {words})") if words else analysis


# The standstill, on which it depends whether a wait is a hang.


def standstill(dataset: Dataset) -> Freeze:
    """The standstill by the files of the job: the argument that `analyse` gives to `settle`."""
    return _freeze(Facts(dataset))


def _freeze(facts: Facts) -> Freeze:
    freeze = judge_freeze(facts)
    for settle in called(facts.dataset, "settle"):
        freeze = function(settle)(freeze, facts)
    return freeze


def _with_waits(facts: Facts, freeze: Freeze) -> Facts:
    """The facts with pending operations of hooks that learn of no completion, unless the job is seen to move."""
    if not facts.blind_files or freeze.stopped is False:
        return facts
    waiting = as_waiting(facts.dataset, facts.blind_files)
    return facts if waiting is None else Facts(waiting)


# Roots: what the waits of all ranks lead to.


def _rules(facts: Facts, freeze: Freeze) -> tuple[SinkRules, list[Root]]:
    """The rules of a job with its wait-for graph, and the roots that are certain without it, which are its sinks."""
    with ThreadPoolExecutor(1) as beside:
        # the largest tables: polars makes them without the lock of the interpreter
        calls = beside.submit(lambda: facts.calls)
        _ = facts.pairs, calls.result()
    reliability, cohorts = judge_reliability(facts), ReplicaCohorts(facts)
    uneven = find_uneven_lanes(facts, still=freeze.stopped is True)
    graph = build_graph(facts, reliability, uneven.instances)
    lost = LostPairs(facts, graph, cohorts)
    mismatches = find_mismatches(facts, cohorts)
    certain = shifted_roots(facts, graph, mismatches) + mismatches + find_wrong_splits(facts)
    certain += uneven.roots + lost.out_of_step()
    stop_at(graph, certain)
    follow_failures(facts, graph, certain)
    judged = frozenset(node for root in certain for node in root.nodes)
    return SinkRules(facts, graph, reliability, cohorts, lost, judged), certain


def _roots(rules: SinkRules, certain: list[Root], freeze: Freeze) -> list[Root]:
    """The certain roots, those of the other sinks, and ranks without a whole dump that explain what is left."""
    roots = certain + rules.judge()
    roots += find_missing(rules, roots)
    roots += find_cut(rules, roots)
    return roots + (find_gone(rules, roots) if freeze.stopped is True else [])


def _independent(roots: list[Root]) -> list[Root]:
    """The roots without those whose culprits an older mismatch accuses: a rank off the path disagrees everywhere."""
    kept: list[Root] = []
    for root in roots:
        off = [other for other in kept if not other.needs_stillness and not other.settled]
        blamed = {rank for other in off for rank in other.culprits}
        culprits = set(root.culprits)
        if not culprits or not (culprits <= blamed or (not root.needs_stillness and culprits & blamed)):
            kept.append(root)
    return kept


def _explained(roots: list[Root]) -> list[Root]:
    """The roots without operations that all have joined, if an older root accuses somebody.

    The computation between two operations is not recorded: an operation may wait for it, and it for the root.
    """
    suspecting = [root for root in roots if (root.culprits or root.candidates) and not root.residual]
    if any(not root.settled for root in suspecting):
        roots = [root for root in roots if not root.residual]
    accusing = [root for root in roots if root.culprits and not root.settled]
    certain = any(not root.needs_stillness for root in accusing)
    oldest = min((root.since_ns for root in accusing), default=0)
    if not accusing:
        return roots
    return [r for r in roots if r.kind != "stuck-in-collective" or (not certain and r.since_ns < oldest)]


def _weighed(scene: Scene, roots: list[Root]) -> tuple[list[Root], list[Root]]:
    """(suspects, roots): in a job that still moves, roots that need a standstill become suspects."""
    freeze = scene.freeze
    if freeze.stopped is False or (freeze.stopped is None and scene.facts.blind_files):
        return [r for r in roots if r.needs_stillness], [r for r in roots if not r.needs_stillness]
    seen_once = not freeze.proven and not freeze.watched and scene.facts.dataset.repeats.is_empty()
    reasons = []
    if freeze.stopped is None:
        reasons.append(freeze.reason)
    elif seen_once and freeze.still_ns is not None and freeze.still_ns < WRITING_NS:
        took = f"the files are only {duration(freeze.still_ns)} newer than the last event"
        reasons.append(f"{took}, and writing the first dump of a process may take as long: dump again to be sure")
    if scene.reliability.outdated:
        reasons.append("the dumps were taken at different times")
    return [], [r.weaken("medium", *reasons) if reasons and r.needs_stillness else r for r in roots]


# Findings, and the verdict over them.


def _judged(scene: Scene, writer: FindingWriter, roots: list[Root], suspects: list[Root]) -> Analysis:
    """The analysis by dumps: causes first, then what follows from them, with evidence of all features."""
    facts, freeze = scene.facts, scene.freeze
    leading = [root for root in roots if not root.settled] or roots
    written = sorted(
        ((writer.write(r), r) for r in leading),
        key=lambda item: (-item[0].blast_radius, item[1].since_ns, item[0].title),
    )
    causes = [replace(f, id=f"f{i}") for i, (f, _) in enumerate(written, 1)]
    divergences = find_divergences(writer.judge, [*roots, *suspects])
    rest: list[Finding] = []
    rest += find_stragglers(facts)
    rest += [_not_frozen(writer, suspects, freeze)] if suspects else []
    rest += [replace(writer.write(r, "warning"), root_cause=False) for r in roots if r not in leading]
    rest += find_consequences(facts, divergences, causes[0].id) if causes else []
    mesh = recover_mesh(facts.dataset)
    rest += find_misfits(facts.dataset, mesh, scene.places.hosts) if roots or suspects else []
    rest += find_gaps(facts, hung=bool(causes))
    findings = [*causes, *(replace(f, id=f"f{i}") for i, f in enumerate(rest, len(causes) + 1))]
    for join in called(facts.dataset, "join"):
        if is_of_package(join):
            from rankscope.analysis.package_findings import joined

            findings = joined(join, findings, scene)
        else:
            findings = function(join)(findings, scene)
    if any(f.severity == "critical" for f in findings):
        # who is late makes a job slow, and never makes it hang or fail
        findings = [replace(f, root_cause=False) if FINDINGS[f.kind].status == "slow" else f for f in findings]
    if scene.moves:
        from rankscope.analysis.live_state import held_back

        findings = held_back(findings)
    status, line = verdict(scene, findings)
    waits: dict[int, tuple[ChainStep, ...]] = {}
    for root in [root for _, root in written] or suspects:
        for rank, steps in writer.chains(root).items():
            waits.setdefault(rank, steps)
    return Analysis(
        verdict=line,
        status=status,
        findings=tuple(findings),
        divergences=divergences,
        frozen_for_ns=freeze.still_ns,
        hang_since_ns=scene.hang_since_ns,
        waits=waits,
        mesh=mesh,
    )


def _not_frozen(writer: FindingWriter, suspects: list[Root], freeze: Freeze) -> Finding:
    """The suspicions about a job that was caught moving, or may have been."""
    written = [writer.write(root) for root in suspects]
    first = max(written, key=lambda f: f.blast_radius)
    steps = ("Dump again after a minute: a rank that has not moved by then is stuck.",)
    explanation = f"{freeze.reason}; nobody is accused of waiting. If the job stays like this: {first.title}."
    if freeze.stopped is None:
        title = f"if the job stands still, {first.title}; these dumps do not show whether it does"
        explanation = f"{freeze.reason.capitalize()}, and the dumps do not show which operations have finished."
    elif freeze.watched:
        title = "the job was not seen to stand still yet"
    elif freeze.ends:
        title = "every process has ended, and these dumps do not show that the job stood still before"
        explanation = f"{freeze.reason}; nobody is accused of waiting. If the job stood still then: {first.title}."
        steps = ("Look for what ended the processes: an exception, a signal, the launcher's own lines.",)
    elif snapshot_state(freeze)[0] != "progressing":
        title = "these dumps do not show whether the job stood still"
    else:
        title = "the job was still moving when these dumps were written"
    return Finding(
        kind="not-frozen",
        severity="info",
        title=title,
        explanation=explanation,
        candidates=tuple(sorted({rank for f in written for rank in f.culprit_ranks})),
        waiting_ranks=first.waiting_ranks,
        chain=first.chain,
        group=first.group,
        seq=first.seq,
        op=first.op,
        next_steps=steps,
    )
