"""What can be said of a job of which there are only dumps of py-spy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope.analysis.host_patterns import find_pattern
from rankscope.analysis.host_stacks import HostStack, sites
from rankscope.analysis.host_words import host_text, site_text
from rankscope.analysis.model import Culprit, Evidence, Finding
from rankscope.analysis.wording import ranks_text, wait_text

_STEPS = (
    "Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1, and collect the dumps of all ranks.",
    "Run py-spy dump --native on all ranks again after a minute: who has not moved is stuck.",
)
SITES = 16
"""Places that are quoted."""


def find_alone(hosts: Mapping[int, HostStack]) -> Finding:
    """One finding: the rank that stands apart, if it is clear which, or else how the hosts stand to each other."""
    pattern = find_pattern(hosts)
    found = sites(hosts.values())
    evidence = tuple(
        Evidence(f"py-spy: {site_text(s)}", file=s.first.path or None, rank=s.first.rank, time_ns=s.first.written_ns)
        for s in found[:SITES]
    )
    text = pattern.text if pattern else f"rank {found[0].first.rank} is {host_text(found[0].first)}"
    letter = f"pattern {pattern.letter}, " if pattern else ""
    finding = Finding(
        kind="missing-dump",
        severity="warning",
        title=f"only py-spy dumps are here: {letter}{text}",
        explanation="Without a flight recorder dump nothing tells who issued what: stacks alone seldom convict a rank.",
        candidates=_candidates(hosts, pattern.leaving if pattern else ()),
        confidence="low",
        confidence_reasons=("stacks show one moment: nothing tells whether the job had stopped",),
        evidence=evidence,
        next_steps=_STEPS,
    )
    if pattern and pattern.leaving:
        return _leaving(finding, pattern.leaving)
    apart = _apart(hosts)
    return _accused(finding, apart, hosts) if apart is not None else finding


def _candidates(hosts: Mapping[int, HostStack], leaving: Sequence[int]) -> tuple[int, ...]:
    """Who stands apart: those that leave, or the minority that does not wait for others."""
    if leaving:
        return tuple(leaving)
    waiting = [rank for rank, host in hosts.items() if host.communicates]
    others = tuple(sorted(set(hosts) - set(waiting)))
    return others if 0 < len(others) < len(waiting) else ()


def _apart(hosts: Mapping[int, HostStack]) -> int | None:
    """The one rank that waits for nobody while all others, two at least, are in the same call; None if it is not so."""
    away = [host for host in hosts.values() if not host.communicates]
    calls = {host.activity.words for host in hosts.values() if host.communicates}
    clear = len(away) == 1 and away[0].is_away and len(hosts) >= 3 and len(calls) == 1
    return away[0].rank if clear else None


def _accused(finding: Finding, rank: int, hosts: Mapping[int, HostStack]) -> Finding:
    others = tuple(sorted(set(hosts) - {rank}))
    call = hosts[others[0]].activity.words
    return replace(
        finding,
        kind="missing-rank",
        severity="critical",
        root_cause=True,
        title=f"rank {rank} is {hosts[rank].activity.words} while all others are {call}",
        explanation=(
            f"{wait_text(others)} {call}; rank {rank} is the only one that is in no call to other ranks. Only py-spy "
            "dumps are here: which collective it is, and whether it was issued there, they do not tell."
        ),
        culprit_ranks=(rank,),
        culprits=(Culprit(rank, None, hosts[rank].pid),),
        candidates=(),
        waiting_ranks=others,
        blast_radius=len(others),
        confidence="medium",
        confidence_reasons=(*finding.confidence_reasons, "no flight recorder dump"),
    )


def _leaving(finding: Finding, ranks: Sequence[int]) -> Finding:
    """A cleanup deadlock: the log of who leaves has the cause."""
    step = f"Read the log of {ranks_text(ranks)} before destroy_process_group: an exception there is the cause."
    return replace(
        finding,
        explanation=(
            f"{ranks_text(ranks).capitalize()} left the loop and waits in the cleanup; the others are still in it. "
            "Look in the log of who leaves, not at who waits."
        ),
        next_steps=(step, *finding.next_steps),
    )
