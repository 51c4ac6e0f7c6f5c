"""Findings for a job with only stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankscope.analysis.host_stacks import HostStack, StackSite, UnrankedStack, stack_sites
from rankscope.analysis.model import Culprit, Evidence, Finding
from rankscope.features.stacks.stack_text import MOST_SITES as MOST_PLACES
from rankscope.features.stacks.stack_text import find_pattern, frames_text, host_text, site_text, tools_of
from rankscope.text.wording import plural, ranks_text, wait_text

_STEPS = (
    "Set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1, and collect the dumps of all ranks.",
    "Run py-spy dump --native on all ranks again after a minute: a rank that has not moved is stuck.",
)
MOST_SITES = 16
"""Most quoted places."""
MOST_EVIDENCE = 4
FEWEST_HOSTS = 3
"""Fewest hosts that make a majority."""
_AMBIGUOUS_ACTIVITIES = frozenset({"blocked", "device", "backward"})
"""Activities that may be a wait for other ranks, or for a kernel that waits, without a frame that tells."""


@dataclass(frozen=True)
class LogContext:
    """Log lines that matter for the stacks."""

    unanswered: Mapping[int, Evidence] = field(default_factory=dict)
    """Ranks that sent no stack when all were asked, with the line that says so."""
    waited: frozenset[int] = frozenset()
    """Ranks that gave up waiting or were harmed from elsewhere, whatever their stacks show."""
    logs: bool = False
    """Whether the logs tell anything else."""


def find_alone(hosts: Mapping[int, HostStack], beside: LogContext, unranked: Sequence[UnrankedStack] = ()) -> Finding:
    """One finding: the rank that stands apart if it is clear which, else the pattern of the hosts.

    `unranked` are processes beside them whose ranks nothing tells: if all of these wait for others, a rank that does
    not is a candidate.
    """
    pattern = find_pattern(hosts)
    found = stack_sites(hosts.values())
    text = pattern.text if pattern else f"rank {found[0].first.rank} is {host_text(found[0].first)}"
    letter = f"pattern {pattern.letter}, " if pattern else ""
    few = tuple(sorted(beside.unanswered)) if len(beside.unanswered) < len(hosts) else ()
    mute = f"{ranks_text(few)} gave no answer; " if few else ""
    apart = _candidates(hosts, pattern.leaving if pattern else (), beside.waited)
    others = [process.host for process in unranked]
    if others and all(host.communicates for host in others):
        apart = tuple(sorted({*apart, *(r for r, host in hosts.items() if not host.communicates)} - beside.waited))
        text += f"; {plural(len(others), 'process')} without a known rank {host_text(others[0])}"
    finding = Finding(
        kind="missing-dump",
        severity="warning",
        title=f"{_front(hosts, beside)}: {mute}{letter}{text}",
        explanation=(
            "Without a flight recorder dump, the operations are not known: stacks alone rarely prove who is to blame."
            + (f" {_mute_text(few)}" if few else "")
            + (f" {ranks_text(apart).capitalize()} {_stands(apart)} at another place than the others." if apart else "")
        ),
        candidates=tuple(sorted({*apart, *few})),
        confidence="low",
        confidence_reasons=("stacks show one moment: they do not prove that the job had stopped",),
        evidence=(*(beside.unanswered[rank] for rank in few[:MOST_EVIDENCE]), *map(_evidence, found[:MOST_SITES])),
        next_steps=_STEPS,
    )
    if pattern and pattern.leaving:
        return _leaving(finding, pattern.leaving)
    alone = _apart(hosts)
    if alone is None or few or alone in beside.waited:
        return finding
    return _accused(finding, alone, hosts)


def _candidates(hosts: Mapping[int, HostStack], leaving: Sequence[int], waited: frozenset[int]) -> tuple[int, ...]:
    """Outliers: ranks that are leaving, or do not wait for others, if they are not more than those that do.

    If nobody is in a named call of communication, outliers are the ranks that do not share the unnamed wait (as for a
    kernel) of more than half of all.
    """
    if leaving:
        return tuple(leaving)
    waiting = [rank for rank, host in hosts.items() if host.communicates or rank in waited]
    others = tuple(sorted(set(hosts) - set(waiting)))
    if waiting:
        return others if len(others) <= len(waiting) else ()
    first = stack_sites(hosts.values())[0]
    if (
        len(hosts) < FEWEST_HOSTS
        or first.activity.doing not in _AMBIGUOUS_ACTIVITIES
        or 2 * len(first.ranks) <= len(hosts)
    ):
        return ()
    return tuple(sorted(set(hosts) - set(first.ranks)))


def _front(hosts: Mapping[int, HostStack], beside: LogContext) -> str:
    what = "py-spy dumps" if tools_of(hosts.values()) == "py-spy" else "stacks"
    return f"no flight recorder dump, but {what}" if beside.logs else f"only {what} were found"


def _evidence(site: StackSite) -> Evidence:
    first = site.first
    return Evidence(
        f"{first.tool}: {site_text(site)}", file=first.path or None, rank=first.rank, time_ns=first.written_ns
    )


def _mute_text(ranks: Sequence[int]) -> str:
    its = "its process is" if len(ranks) == 1 else "their processes are"
    return f"{ranks_text(ranks).capitalize()} did not answer the debug server: {its} gone, stopped or held up in C++."


def _stands(ranks: Sequence[object]) -> str:
    return "stands" if len(ranks) == 1 else "stand"


def _apart(hosts: Mapping[int, HostStack]) -> int | None:
    """The single rank that waits for nobody while all others, at least two, are in the same call; None without one."""
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
            f"{wait_text(others)} {call}; rank {rank} is the only one that is in no call to other ranks. Stacks do "
            "not show which collective it is, or whether the rank issued it."
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
    """A cleanup deadlock: the logs of the leaving ranks have the cause."""
    step = f"Read the log of {ranks_text(ranks)} before destroy_process_group: an exception there is the cause."
    return replace(
        finding,
        explanation=(
            f"{ranks_text(ranks).capitalize()} left the loop and waits in the cleanup; the others are still in it. "
            "Read the logs of the ranks that leave, not of those that wait."
        ),
        next_steps=(step, *finding.next_steps),
    )


# A job whose ranks all saw that they stand still, and whose recorders do not show why.

_STILL = "every rank took its stacks because it had made no progress for long"
_STANDSTILL_STEPS = (
    "Read the code at these places: what does each of these calls wait for, and who should have made it?",
    "Gloo records no sends and receives: a log line before each of them shows which one has no partner.",
)


def find_standstill(hosts: Mapping[int, HostStack]) -> Finding | None:
    """The finding about ranks that all stand still; None if nobody waits for others, or most do not.

    A rank in no call to others, while all others are, is who they wait for. Of several, or of one in a call that its
    stack does not name, nobody is accused.
    """
    waiting = tuple(sorted(rank for rank, host in hosts.items() if host.communicates))
    apart = tuple(sorted(set(hosts) - set(waiting)))
    if len(hosts) < 2 or len(apart) > len(waiting):
        return None
    sites = stack_sites(hosts.values())
    calls = " or ".join(dict.fromkeys(hosts[rank].activity.words for rank in waiting))
    evidence = tuple(_evidence(site) for site in sorted(sites, key=lambda site: site.first.communicates)[:MOST_SITES])
    if not apart:
        return Finding(
            kind="stuck-in-collective", severity="critical", root_cause=True,
            title=f"all {len(hosts)} ranks stand still, each {calls}",
            explanation=(
                f"No rank is anywhere else, so they wait for each other, or for the network. {_STILL.capitalize()}. "
                "Stacks do not show which operation it is."
            ),
            confidence="low", confidence_reasons=("stacks show where ranks are, not whom they wait for",),
            waiting_ranks=waiting, blast_radius=len(waiting), evidence=evidence, next_steps=_STANDSTILL_STEPS,
        )  # fmt: skip
    sure = len(apart) == 1 and hosts[apart[0]].is_away
    away = stack_sites([hosts[rank] for rank in apart])
    where = "; ".join(map(_standing_text, away[:MOST_PLACES]))
    where += f"; and {plural(len(away) - MOST_PLACES, 'more place')}" if len(away) > MOST_PLACES else ""
    return Finding(
        kind="missing-rank", severity="critical", root_cause=True,
        title=f"{where}, while all others stand still {calls}",
        explanation=(
            f"{wait_text(waiting)} {calls}; {ranks_text(apart)} {'is' if len(apart) == 1 else 'are'} in no call to "
            f"other ranks. {_STILL.capitalize()}. Stacks do not show which operation the others wait in."
        ),
        culprit_ranks=apart if sure else (),
        culprits=tuple(Culprit(rank, None, hosts[rank].pid) for rank in apart) if sure else (),
        candidates=() if sure else apart,
        waiting_ranks=waiting, blast_radius=len(waiting),
        confidence="medium" if sure else "low",
        confidence_reasons=(
            "no dump shows the operation that the others wait in"
            if sure
            else "stacks show where ranks are, not whom they wait for",
        ),
        evidence=evidence,
        next_steps=(f"Read the log of {ranks_text(apart)}, and the code at its place.", *_STANDSTILL_STEPS[1:]),
    )  # fmt: skip


def _standing_text(site: StackSite) -> str:
    """ "rank 2 is sleeping, at load train.py:11"."""
    are = "is" if len(site.ranks) == 1 else "are"
    place = frames_text(site.first.trains.own, 1)
    return f"{ranks_text(site.ranks)} {are} {site.activity.words}{f', at {place}' if place else ''}"


# Processes without a rank: their stacks are compared all the same.

MOST_NAMES = 4
"""Most processes of one place that are named one by one."""


def find_unranked(processes: Sequence[UnrankedStack]) -> Finding:
    """One finding about processes whose ranks nothing tells: the one that stands apart, else all places."""
    names = {process.host.rank: process.name for process in processes}
    hosts = {process.host.rank: process.host for process in processes}
    odd = _candidates(hosts, (), frozenset())
    found = sorted(stack_sites(hosts.values()), key=lambda site: not set(site.ranks) <= set(odd))
    apart = [names[rank] for rank in odd]
    places = "; ".join(_unranked_text(site, names) for site in found[:MOST_PLACES])
    more = f"; and {plural(len(found) - MOST_PLACES, 'more place')}" if len(found) > MOST_PLACES else ""
    told = f"{_joined(apart)} {_stands(apart)} at another place than the others" if apart else ""
    return Finding(
        kind="missing-dump",
        severity="warning",
        title=f"stacks of {plural(len(hosts), 'process')} without a known rank: {places}{more}",
        explanation=(
            "Neither file names nor command lines show the ranks of these processes."
            + (f" {told}: find out which rank that is." if told else "")
        ),
        confidence="low",
        confidence_reasons=("stacks show one moment: they do not prove that the job had stopped",),
        evidence=tuple(_unranked_evidence(site, names) for site in found[:MOST_SITES]),
        next_steps=("Name the files rank_0.txt, rank_1.txt, ..., or give --rank-from.", *_STEPS),
    )


def _joined(names: Sequence[str]) -> str:
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*names[:MOST_NAMES], *more])


def _unranked_text(site: StackSite, names: Mapping[int, str]) -> str:
    return f"{_joined([names[rank] for rank in site.ranks])} {host_text(site.first)}"


def _unranked_evidence(site: StackSite, names: Mapping[int, str]) -> Evidence:
    first = site.first
    return Evidence(f"{first.tool}: {_unranked_text(site, names)}", file=first.path or None, time_ns=first.written_ns)


# Collectives that few issued: the stacks tell whether the few are odd, or the rest share one cause.

_EXIT_ACTIVITIES = frozenset({"exit", "none"})
"""Activities of a rank that has left the training loop."""


def judge_few(finding: Finding, hosts: Mapping[int, HostStack]) -> Finding:
    """The finding corrected by the stacks of the rest, if stacks of at least half of them are there."""
    rest = [hosts[rank] for rank in finding.candidates if rank in hosts]
    if 2 * len(rest) <= len(finding.candidates):
        return finding
    doing = {host.activity.doing for host in rest}
    seen = f"{tools_of(rest)} saw {len(rest):,} of {plural(len(finding.candidates), 'rank')} of the rest"
    if doing <= _EXIT_ACTIVITIES:
        return replace(finding, confidence_reasons=(f"{seen}: they have left the loop",))
    if not all(host.is_away and host.activity.doing not in _EXIT_ACTIVITIES for host in rest):
        return finding
    places = stack_sites(rest)
    words = {host.activity.words for host in rest}
    one_cause = len(places) == 1 or (len(words) == 1 and "running" not in doing)
    return _shared(finding, rest, seen) if one_cause else _open(finding, seen)


def _shared(finding: Finding, rest: Sequence[HostStack], seen: str) -> Finding:
    """The rest never came, for one cause: the few only wait."""
    few, ranks = finding.culprit_ranks, finding.candidates
    words = rest[0].activity.words
    waiting = tuple(sorted({*finding.waiting_ranks, *few} - set(ranks)))
    label = f"{finding.op} #{finding.seq} of {finding.group.description or finding.group.id}" if finding.group else "it"
    return replace(
        finding,
        kind="missing-rank",
        title=f"{ranks_text(ranks)} never issued {label}: all of them are {words}",
        explanation=(
            f"{wait_text(few)} in {label}. The others never issued it, and their hosts are all {words}: they share "
            "one cause, such as storage or a service they all use."
        ),
        culprit_ranks=ranks,
        culprits=tuple(Culprit(host, None) for host in ranks),
        candidates=(),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="medium",
        confidence_reasons=(seen,),
        stack=(),
        evidence=(*finding.evidence, *finding.counter_evidence),
        counter_evidence=(),
        next_steps=("Look for what they share: file system, object store, name service, a lock file.",),
    )


def _open(finding: Finding, seen: str) -> Finding:
    """The rest never came, each for its own reason: nobody is accused."""
    return replace(
        finding,
        culprit_ranks=(),
        culprits=(),
        candidates=tuple(sorted({*finding.culprit_ranks, *finding.candidates})),
        confidence="low",
        confidence_reasons=(f"{seen}: they are busy at different places, so either side may be the odd one",),
    )
