"""Analysis from a dataset to the verdict."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rankscope.analysis.data_gaps import find_gaps
from rankscope.analysis.divergence import find_consequences, find_divergences, follow_failures
from rankscope.analysis.facts import Facts
from rankscope.analysis.finding_writer import FindingWriter
from rankscope.analysis.freeze import Freeze, judge_freeze
from rankscope.analysis.graph import Root, WaitGraph, build_graph
from rankscope.analysis.mesh_recovery import find_misfits, recover_mesh
from rankscope.analysis.mismatch import find_mismatches, find_wrong_splits
from rankscope.analysis.missing_ranks import find_cut, find_gone, find_missing
from rankscope.analysis.model import Analysis, ChainStep, Finding
from rankscope.analysis.reliability import Reliability, judge_reliability
from rankscope.analysis.replicas import ReplicaCohorts
from rankscope.analysis.scene import Scene
from rankscope.analysis.sink_rules import SinkRules
from rankscope.analysis.uneven_lanes import find_uneven_lanes
from rankscope.analysis.unmatched_p2p import LostPairs
from rankscope.analysis.verdict import VerdictBasis, verdict
from rankscope.kinds.features import called
from rankscope.kinds.functions import function, is_of_package
from rankscope.schema import Dataset
from rankscope.text.wording import duration

WRITING_NS = 15_000_000_000
"""Longest time that a process takes to write its first dump, with cold caches (torch 2.13: 12 s)."""


def analyse(dataset: Dataset, settle: Callable[[Freeze], Freeze] | None = None) -> Analysis:
    """The cause of the failure, as far as the inputs tell; for a watched job `settle` corrects the standstill."""
    facts = Facts(dataset)
    freeze = _freeze(facts)
    freeze = freeze if settle is None else settle(freeze)
    facts = _with_waits(facts, freeze)
    with ThreadPoolExecutor(1) as beside:
        # the largest tables: polars makes them without the lock of the interpreter
        calls = beside.submit(lambda: facts.calls)
        _ = facts.pairs, calls.result()
    reliability, cohorts = judge_reliability(facts), ReplicaCohorts(facts)
    uneven = find_uneven_lanes(facts, still=freeze.stopped is True)
    graph = build_graph(facts, reliability, uneven.instances)
    lost = LostPairs(facts, graph, cohorts)
    certain = find_mismatches(facts, cohorts) + find_wrong_splits(facts) + uneven.roots + lost.out_of_step()
    _stop_at(graph, certain)
    follow_failures(facts, graph, certain)
    judge = SinkRules(facts, graph, reliability, cohorts, lost, frozenset(node for r in certain for node in r.nodes))
    roots = certain + judge.judge()
    roots += find_missing(facts, judge, roots)
    roots += find_cut(facts, judge, roots)
    roots += find_gone(facts, judge, roots) if freeze.stopped is True else []
    suspects, roots = _still(facts, _explained(_independent(roots)), freeze, reliability)
    concluded = _conclude(FindingWriter(facts, graph, judge), reliability, freeze, roots, suspects)
    return _completed(facts, concluded)


def _with_waits(facts: Facts, freeze: Freeze) -> Facts:
    """The facts with pending operations of hooks that learn of no completion, unless the job is seen to move."""
    if not facts.blind_files or freeze.stopped is False:
        return facts
    from rankscope.analysis.unfinished_operations import as_waiting

    waiting = as_waiting(facts.dataset, facts.blind_files)
    return facts if waiting is None else Facts(waiting)


def standstill(dataset: Dataset) -> Freeze:
    """The standstill by the files of the job: the argument that `analyse` gives to `settle`."""
    return _freeze(Facts(dataset))


def _stop_at(graph: WaitGraph, certain: list[Root]) -> None:
    """Makes each of these roots a sink of the graph, so that no other root explains it."""
    for root in certain:
        for node in root.nodes:
            if node in graph.edges:
                graph.edges[node] = []


def _independent(roots: list[Root]) -> list[Root]:
    """The roots without those whose culprits an older mismatch accuses: a rank off the path disagrees everywhere."""
    out: list[Root] = []
    for root in roots:
        off = [other for other in out if not other.needs_stillness and not other.settled]
        blamed = {rank for other in off for rank in other.culprits}
        own = set(root.culprits)
        if own and (own <= blamed or (not root.needs_stillness and own & blamed)):
            continue
        out.append(root)
    return out


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
    return [
        root for root in roots
        if root.kind != "stuck-in-collective" or not accusing or (not certain and root.since_ns < oldest)
    ]  # fmt: skip


def _still(facts: Facts, roots: list[Root], freeze: Freeze, reliability: Reliability) -> tuple[list[Root], list[Root]]:
    """(suspects, roots): in a job that still moves, roots that need a standstill become suspects."""
    if freeze.stopped is False or (freeze.stopped is None and facts.blind_files):
        return [r for r in roots if r.needs_stillness], [r for r in roots if not r.needs_stillness]
    reasons = []
    if freeze.stopped is None:
        reasons.append(f"assumes that the job had stopped: {freeze.reason}")
    elif _seen_once(facts, freeze) and freeze.still_ns is not None and freeze.still_ns < WRITING_NS:
        took = f"the files are only {duration(freeze.still_ns)} newer than the last event"
        reasons.append(f"{took}, and writing the first dump of a process may take as long: dump again to be sure")
    if reliability.outdated:
        reasons.append("the dumps were taken at different times")
    return [], [r.weaken("medium", *reasons) if reasons and r.needs_stillness else r for r in roots]


def _seen_once(facts: Facts, freeze: Freeze) -> bool:
    """Whether only one set of dumps shows the standstill."""
    return not freeze.proven and not freeze.watched and facts.dataset.repeats.is_empty()


def _conclude(
    writer: FindingWriter, reliability: Reliability, freeze: Freeze, roots: list[Root], suspects: list[Root]
) -> Analysis:
    facts = writer.facts
    leading = [root for root in roots if not root.settled] or roots
    written = sorted(
        ((writer.write(r), r) for r in leading),
        key=lambda item: (-item[0].blast_radius, item[1].since_ns, item[0].title),
    )
    causes = [replace(f, id=f"f{i}") for i, (f, _) in enumerate(written, 1)]
    divergences = find_divergences(facts, writer.graph, reliability, [*roots, *suspects])
    # a watched job always has a pending operation; one dump alone may be of a hang that has just begun
    slow = [] if roots or (suspects and not freeze.watched) else _slow(facts)
    rest = [*slow, *([_moving(writer, suspects, freeze)] if suspects else [])]
    rest += [replace(writer.write(r, "warning"), root_cause=False) for r in roots if r not in leading]
    rest += find_consequences(facts, divergences, causes[0].id) if causes else []
    mesh = recover_mesh(facts.dataset)
    rest += find_misfits(facts.dataset, mesh, writer.places.hosts) if roots or suspects else []
    rest += find_gaps(facts, hung=bool(causes))
    findings = [*causes, *(replace(f, id=f"f{i}") for i, f in enumerate(rest, len(causes) + 1))]
    moves = freeze.watched and freeze.stopped is False
    still = freeze.stopped is True and not reliability.outdated
    findings = _joined(findings, Scene(facts, writer.places, still=still, moves=moves))
    since = [i.since_ns for i in writer.graph.instances.values() if i.since_ns]
    status, line = verdict(VerdictBasis(facts, findings, bool(since), freeze, reliability, writer.places))
    return Analysis(
        verdict=line,
        status=status,
        findings=tuple(findings),
        divergences=divergences,
        frozen_for_ns=freeze.still_ns,
        hang_since_ns=min(since, default=None),
        waits=_waits(writer, [root for _, root in written] or suspects),
        mesh=mesh,
    )


def _slow(facts: Facts) -> list[Finding]:
    # imported only for jobs that do not hang
    from rankscope.analysis.straggler import find_stragglers

    return find_stragglers(facts)


def _freeze(facts: Facts) -> Freeze:
    freeze = judge_freeze(facts)
    for settle in called(facts.dataset, "settle"):
        freeze = function(settle)(freeze, facts)
    return freeze


def _joined(findings: list[Finding], scene: Scene) -> list[Finding]:
    """The findings with evidence for and against them from all inputs; waits in a job that moves are suspicions."""
    for join in called(scene.facts.dataset, "join"):
        if is_of_package(join):
            # imported only where a package is installed
            from rankscope.analysis.package_findings import joined

            findings = joined(join, findings, scene)
        else:
            findings = function(join)(findings, scene)
    if not scene.moves:
        return findings
    from rankscope.analysis.live_state import held_back

    return held_back(findings)


def _completed(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with the results of all features, and with the part of the job that was read."""
    for find in called(facts.dataset, "find"):
        if is_of_package(find):
            from rankscope.analysis.package_findings import completed

            analysis = completed(find, facts, analysis)
        else:
            analysis = function(find)(facts, analysis)
    words = facts.dataset.parts.words
    return replace(analysis, verdict=f"{analysis.verdict} (read: {words})") if words else analysis


def _moving(writer: FindingWriter, suspects: list[Root], freeze: Freeze) -> Finding:
    """The suspicions about a job that was caught moving."""
    written = [writer.write(root) for root in suspects]
    first = max(written, key=lambda f: f.blast_radius)
    return Finding(
        kind="not-frozen",
        severity="info",
        title=_not_seen_to_stand(first, freeze),
        explanation=(
            f"{freeze.reason.capitalize()}, and the dumps do not show which operations have finished."
            if freeze.stopped is None
            else f"{freeze.reason}; nobody is accused of waiting. If the job stays like this: {first.title}."
        ),
        candidates=tuple(sorted({rank for f in written for rank in f.culprit_ranks})),
        waiting_ranks=first.waiting_ranks,
        chain=first.chain,
        group=first.group,
        seq=first.seq,
        op=first.op,
        next_steps=("Dump again after a minute: a rank that has not moved by then is stuck.",),
    )


def _not_seen_to_stand(first: Finding, freeze: Freeze) -> str:
    if freeze.stopped is None:
        return f"if the job stands still, {first.title}; these dumps do not show whether it does"
    if freeze.watched:
        return "the job was not seen to stand still yet"
    return "the job was still moving when these dumps were written"


def _waits(writer: FindingWriter, roots: list[Root]) -> dict[int, tuple[ChainStep, ...]]:
    out: dict[int, tuple[ChainStep, ...]] = {}
    for root in roots:
        for rank, steps in writer.chains(root).items():
            out.setdefault(rank, steps)
    return out
