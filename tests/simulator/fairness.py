"""Answers that are fair for dumps by the hook, which say less than NCCL's own recorder does."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.job import Outcome
from tests.simulator.options import DumpOptions
from tests.simulator.truth import Truth

NOBODY: frozenset[int] = frozenset()
FULL = 1000
"""Entries of a ring that holds a whole simulated run."""


def fair(truth: Truth, outcome: Outcome, options: DumpOptions) -> Truth:
    """The truth with what must be left open in dumps by the hook; as it is for other dumps."""
    if not options.by_hook:
        return truth
    if options.copied_ns is not None and outcome.engine.hung:
        truth = _open(truth, "without file times a hang looks like a moment")
    match truth.fault:
        case "device-dead" | "compute-hang":
            truth = _stopped(truth, outcome)
        case "lost-send" | "lost-recv" | "lost-batch":
            truth = _message(truth, outcome, options)
        case "network" if options.recorder == "fallback" or _batches(outcome):
            truth = _open(truth, "something unseen may be pending")
        case "straggler" if options.recorder == "fallback":
            truth = _open(truth, "nothing tells who waited")
        case "crashed" if options.recorder == "fallback":
            truth = _open(truth, "nothing tells that anybody waits for who left no dump")
        case "lost-dump" if options.own_only:
            silent = truth.culprits | outcome.lost
            truth = replace(truth, also=truth.also | {silent, NOBODY}, note="two ranks left no dump")
    return truth


def _open(truth: Truth, note: str) -> Truth:
    """A critical finding that names nobody is fair, too."""
    either = truth.also_kinds | {"stuck-in-collective", "p2p-unmatched"}
    return replace(truth, also=truth.also | {NOBODY}, also_kinds=either, note=note)


def _stopped(truth: Truth, outcome: Outcome) -> Truth:
    """Nothing starts in these dumps: who of a group stopped is open, its members are not."""
    (rank,) = truth.culprits
    waiting = [r for r in outcome.records[rank] if r.done is None and r.role != "inner" and not r.on_host]
    groups = {frozenset(outcome.topology.groups[r.group]) for r in waiting}
    narrow = {g for g in groups if len(g) < len(outcome.records)} or groups
    return replace(
        truth, also=truth.also | {NOBODY}, within=frozenset(narrow),
        also_kinds=truth.also_kinds | {"stuck-in-collective", "p2p-unmatched", *truth.kinds},
        note="no start times: who of the group stopped is open",
    )  # fmt: skip


def _message(truth: Truth, outcome: Outcome, options: DumpOptions) -> Truth:
    """A batch leaves no pending record, only counts of each pair, and these only while the ring has them."""
    if truth.fault == "lost-batch":
        truth = replace(truth, also=truth.also | {truth.culprits.union(*truth.also)})
    gone = options.only_active or options.ring < FULL
    if gone and _batches(outcome):
        return _open(truth, "the counts of pairs are no longer in the dumps")
    return truth


def _batches(outcome: Outcome) -> bool:
    """Whether sends and receives go out in batches."""
    return any(r.is_p2p and r.role == "inner" for records in outcome.records.values() for r in records)
