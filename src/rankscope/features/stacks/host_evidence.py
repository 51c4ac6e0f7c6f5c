"""Stacks of hosts as evidence for or against findings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.host_stacks import HostStack, host_stacks, stack_sites, unranked_stacks
from rankscope.analysis.model import Culprit, Evidence, Finding
from rankscope.analysis.verdict import Scene
from rankscope.features.stacks.stack_outliers import LogContext, find_alone, find_standstill, find_unranked, judge_few
from rankscope.features.stacks.stack_text import HostPattern, find_pattern, same_call, site_text, tools_of
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema.tables import AT_STANDSTILL
from rankscope.text.wording import duration, ranks_text

MOMENT_NS = 180 * 10**9
"""A stack taken further than this from the dump of its rank shows another moment."""
NO_ANSWER = "no-answer"
"""Kind of the line that says that a rank did not send its stacks."""
MOST_SITES = 4
"""Most quoted places of hosts for one finding."""
_UNRELATED_ACTIVITIES = frozenset({"exit", "storage", "data", "debugger", "compile"})
"""Activities that a rank waiting in a collective does not have, unless it issued the collective asynchronously."""


def with_host_stacks(findings: Sequence[Finding], scene: Scene) -> list[Finding]:
    """The findings with evidence from stacks.

    Without any dump of the flight recorder, the finding of the stacks alone comes first.
    """
    facts = scene.facts
    hosts = _current(facts, host_stacks(facts.dataset))
    if not hosts:
        return [*findings, *_unranked(facts)] if facts.dataset.told_by_logs else [*_unranked(facts), *findings]
    if not facts.dataset.seen_ranks:
        alone = _standstill(facts, hosts) or find_alone(hosts, _beside(facts, hosts), unranked_stacks(facts.dataset))
        return [replace(f, id=f"f{i}") for i, f in enumerate([alone, *findings], 1)]
    if not any(finding.root_cause for finding in findings):
        standstill = None if scene.moves else _standstill(facts, hosts)
        found = [standstill, *findings] if standstill is not None else findings
        return [replace(finding, id=f"f{i}") for i, finding in enumerate(found, 1)]
    look = _HostEvidence(facts, hosts, scene.still)
    return [look.joined(f) if f.root_cause else f for f in findings]


def _current(facts: Facts, hosts: Mapping[int, HostStack]) -> dict[int, HostStack]:
    """The hosts without those whose standstill is over: their ranks have issued operations since."""
    newest = dict(facts.dataset.ops.group_by("rank").agg(pl.col("created_ns").max()).iter_rows())
    return {
        rank: host
        for rank, host in hosts.items()
        if host.tool != AT_STANDSTILL or (newest.get(rank) or 0) <= (host.written_ns or 0)
    }


def _standstill(facts: Facts, hosts: Mapping[int, HostStack]) -> Finding | None:
    """The finding about stacks that every rank took at a standstill."""
    still = all(host.tool == AT_STANDSTILL for host in hosts.values())
    return find_standstill(hosts) if still and set(hosts) == set(facts.dataset.every_rank) else None


def _unranked(facts: Facts) -> list[Finding]:
    """The finding about stacks of processes without a rank, if there is nothing better."""
    if facts.dataset.seen_ranks:
        return []
    processes = unranked_stacks(facts.dataset)
    return [find_unranked(processes)] if processes else []


def _unanswered(facts: Facts, hosts: Collection[int]) -> dict[int, Evidence]:
    """Ranks without stacks that did not answer when all ranks were asked, each with the line that says so."""
    dataset = facts.dataset
    lines = dataset.messages.filter((pl.col("kind") == NO_ANSWER) & ~pl.col("rank").is_in(list(hosts)))
    rows = lines.join(dataset.files.select("file", "path"), on="file", how="left").sort("rank", "file", "offset")
    columns = rows.select("rank", "text", "path", "line").drop_nulls("rank")
    return {rank: Evidence(text, file=path, rank=rank, line=line) for rank, text, path, line in columns.iter_rows()}


def _beside(facts: Facts, hosts: Collection[int]) -> LogContext:
    """The log lines that support the stacks."""
    messages = facts.dataset.messages
    # a watchdog that only saw no progress does not tell whether its process waited
    stuck_alone = ~pl.col("pattern").is_in(["watchdog-stuck", "scheduler-stuck"])
    harmed = messages.filter((pl.col("kind") == "watchdog-timeout") | ((pl.col("role") == "victim") & stuck_alone))
    waited = frozenset(harmed["rank"].drop_nulls().to_list())
    return LogContext(_unanswered(facts, hosts), waited, bool((messages["kind"] != NO_ANSWER).any()))


@dataclass(frozen=True)
class _HostEvidence:
    facts: Facts
    hosts: dict[int, HostStack]
    still: bool

    @cached_property
    def pattern(self) -> HostPattern | None:
        return find_pattern(self.hosts)

    @cached_property
    def _dumped(self) -> dict[int, int]:
        """When the dump of each rank was written."""
        return dict(self.facts.dataset.dumps.select("rank", "mtime_ns").drop_nulls().iter_rows())

    def joined(self, finding: Finding) -> Finding:
        """A root cause with evidence from the stacks."""
        given = finding.kind
        if given == "extra-collective":
            finding = judge_few(finding, self.hosts)
        shown = self._of(finding.culprit_ranks) or self._of(finding.candidates) or self._of(_members(finding))
        text = [_evidence(site_text(site), site.first) for site in stack_sites(shown)[:MOST_SITES]]
        against = self._against(finding)
        finding = replace(
            finding,
            culprits=tuple(self._known(c) for c in finding.culprits),
            evidence=(*text, *self._pattern_evidence(finding), *finding.evidence),
            counter_evidence=(*finding.counter_evidence, *against),
            next_steps=(*self._log_step(finding), *finding.next_steps),
        )
        if against:
            return self._doubted(finding)
        return self._surer(finding) if given == finding.kind else finding

    def _of(self, ranks: Sequence[int]) -> list[HostStack]:
        return [self.hosts[rank] for rank in ranks if rank in self.hosts]

    @cached_property
    def _names(self) -> dict[int, str]:
        return dict(self.facts.dataset.files.select("rank", "host").drop_nulls().iter_rows())

    def _known(self, culprit: Culprit) -> Culprit:
        """The culprit with its host and process, if they are known."""
        if culprit.rank is None or culprit.rank not in self.hosts:
            return culprit
        name, pid = self._names.get(culprit.rank), self.hosts[culprit.rank].pid
        return replace(culprit, host=culprit.host or name, pid=pid if culprit.pid is None else culprit.pid)

    def _pattern_evidence(self, finding: Finding) -> list[Evidence]:
        """The pattern of all hosts, if it says more than the stacks of this finding."""
        pattern = self.pattern
        if pattern is None or (pattern.letter == "A" and not self._leaving(finding)):
            return []
        return [Evidence(f"{tools_of(self.hosts.values())}, pattern {pattern.letter}: {pattern.text}")]

    def _leaving(self, finding: Finding) -> tuple[int, ...]:
        """The culprits that are leaving their groups while others are not."""
        leaving = self.pattern.leaving if self.pattern else ()
        return tuple(rank for rank in finding.culprit_ranks if rank in leaving)

    def _log_step(self, finding: Finding) -> tuple[str, ...]:
        leaving = self._leaving(finding) or (self.pattern.leaving if self.pattern else ())
        if not leaving:
            return ()
        return (
            f"Read the log of {ranks_text(leaving)} before destroy_process_group: an exception there is the cause.",
        )

    def _against(self, finding: Finding) -> list[Evidence]:
        """Counter-evidence from stacks: the accused itself waits, or a rank said to wait does not."""
        if FINDINGS[finding.kind].absent != "culprits":
            return []
        accused = [h for h in self._of(finding.culprit_ranks) if h.communicates]
        out = [
            _evidence(f"{site_text(s)}: {_excuse(finding, s.first)}", s.first)
            for s in stack_sites(accused)[:MOST_SITES]
        ]
        members = set(_members(finding)) & set(finding.waiting_ranks)
        busy = [h for h in self._of(sorted(members)) if h.activity.doing in _UNRELATED_ACTIVITIES]
        out += [
            _evidence((f"{site_text(s)}, although its dump says that it waits"), s.first)
            for s in stack_sites(busy)[:MOST_SITES]
        ]
        return out

    def _doubted(self, finding: Finding) -> Finding:
        """The finding, no surer than its counter-evidence allows; does not accuse a rank without a dump that was
        seen waiting."""
        apart = self._apart_of(finding)
        if apart:
            return _capped(finding, "medium", apart)
        accused = [h.rank for h in self._of(finding.culprit_ranks) if h.communicates]
        if accused:
            tools = tools_of(self._of(accused))
            finding = _capped(finding, "low", f"{tools} saw {ranks_text(accused)} wait for other ranks")
            return _acquitted(finding, set(accused) - set(self.facts.dataset.seen_ranks))
        by = tools_of(self._of(sorted(set(_members(finding)) & set(finding.waiting_ranks))))
        return _capped(finding, "medium", f"{by} did not see all of the waiting ranks wait")

    def _surer(self, finding: Finding) -> Finding:
        """The finding with high confidence if the stacks show every culprit outside communication at the time of the
        dumps."""
        hosts = self._of(finding.culprit_ranks)
        apart = self._apart_of(finding)
        if apart:
            return replace(finding, confidence_reasons=(*finding.confidence_reasons, apart))
        if finding.kind == "stuck-in-collective" and self.pattern and self.pattern.letter == "C":
            same = "the same stack on all hosts: the network or the hardware rather than the program"
            return replace(finding, confidence_reasons=(*finding.confidence_reasons, same))
        away = FINDINGS[finding.kind].absent == "culprits" and all(h.is_away for h in hosts)
        agrees = away and not finding.counter_evidence
        if not hosts or not agrees:
            return finding
        reason = f"{tools_of(hosts)} saw {ranks_text([h.rank for h in hosts])} outside of any collective"
        if not self.still or len(hosts) < len(finding.culprit_ranks):
            return replace(finding, confidence_reasons=(*finding.confidence_reasons, reason))
        return replace(finding, confidence="high", confidence_reasons=(reason,))

    def _apart_of(self, finding: Finding) -> str:
        return next((note for host in self._of(finding.culprit_ranks) if (note := self._apart(host))), "")

    def _apart(self, host: HostStack) -> str:
        """The time between the stack of a host and its dump, or the last dump, in words; "" if close or unknown."""
        dumped = self._dumped.get(host.rank, max(self._dumped.values(), default=None))
        if host.tool == AT_STANDSTILL or dumped is None or host.written_ns is None:
            # the rank stays there until it issues something
            return ""
        if abs(host.written_ns - dumped) <= MOMENT_NS:
            return ""
        order = "after" if host.written_ns > dumped else "before"
        return f"{host.tool} looked at rank {host.rank} {duration(abs(host.written_ns - dumped))} {order} the dumps"


def _members(finding: Finding) -> tuple[int, ...]:
    return finding.group.ranks if finding.group else ()


def _evidence(text: str, host: HostStack) -> Evidence:
    return Evidence(f"{host.tool}: {text}", file=host.path or None, rank=host.rank, time_ns=host.written_ns)


def _excuse(finding: Finding, host: HostStack) -> str:
    if same_call(finding.op, host.activity):
        return "inside the call that its dump lacks: not recorded yet, or the stack is newer than the dump"
    return "waits for other ranks in an operation that its dump does not show"


def _capped(finding: Finding, confidence: str, reason: str) -> Finding:
    levels = ("high", "medium", "low")
    lower = max(finding.confidence, confidence, key=levels.index)
    return replace(finding, confidence=lower, confidence_reasons=(*finding.confidence_reasons, reason))  # type: ignore[arg-type]


def _acquitted(finding: Finding, ranks: set[int]) -> Finding:
    """The finding without `ranks` as culprits; they stay candidates."""
    return replace(
        finding,
        culprit_ranks=tuple(r for r in finding.culprit_ranks if r not in ranks),
        culprits=tuple(c for c in finding.culprits if c.rank not in ranks),
        candidates=tuple(sorted({*finding.candidates, *ranks})),
    )
