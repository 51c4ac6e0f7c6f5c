"""Whether the few that issued a collective are odd, or the rest that did not share one cause: their stacks tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope.analysis.host_stacks import HostStack, sites
from rankscope.analysis.host_words import tools_of
from rankscope.analysis.model import Culprit, Finding
from rankscope.analysis.wording import plural, ranks_text, wait_text

_PAST = frozenset({"exit", "none"})
"""What a rank does that has left the loop."""


def judge_few(finding: Finding, hosts: Mapping[int, HostStack]) -> Finding:
    """The finding as the stacks of the rest leave it, of which at least half must have been looked at."""
    rest = [hosts[rank] for rank in finding.candidates if rank in hosts]
    if 2 * len(rest) <= len(finding.candidates):
        return finding
    doing = {host.activity.doing for host in rest}
    seen = f"{tools_of(rest)} saw {len(rest)} of {plural(len(finding.candidates), 'rank')} of the rest"
    if doing <= _PAST:
        return replace(finding, confidence_reasons=(f"{seen}: they have left the loop",))
    if not all(host.is_away and host.activity.doing not in _PAST for host in rest):
        return finding
    places = sites(rest)
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
    """The rest never came, each for reasons of its own: nobody is accused."""
    return replace(
        finding,
        culprit_ranks=(),
        culprits=(),
        candidates=tuple(sorted({*finding.culprit_ranks, *finding.candidates})),
        confidence="low",
        confidence_reasons=(f"{seen}: they are busy at different places, so either side may be the odd one",),
    )
