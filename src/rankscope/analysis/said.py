"""What was said of a job that moves, for as long as it takes to judge it again: some ranks have gone on meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rankscope.analysis.model import Analysis, Finding, Step


def holds_on(analysis: Analysis) -> bool:
    """Whether it stays true while some ranks go on: nobody is accused, and nothing differs."""
    accused = any(finding.root_cause for finding in analysis.findings)
    return analysis.status in ("progressing", "healthy") and not accused and not analysis.differs


def still_said(analysis: Analysis, ranks: Collection[int]) -> Analysis:
    """The same without what is over since these ranks went on, and without rows of operations: they are others now.

    Over are chains of waiting that lead through any of them, and the doubt whether one of them holds up the others.
    """
    gone = frozenset(ranks)
    waits = {rank: _chain(steps) for rank, steps in analysis.waits.items() if not _touches(steps, gone)}
    findings = [_now(finding, gone) for finding in analysis.findings if not _is_over(finding, gone)]
    divergences = [one for one in analysis.divergences if gone.isdisjoint((*one.joined, *one.absent, *one.unknown))]
    return replace(analysis, findings=tuple(findings), waits=waits, divergences=tuple(divergences))


def _is_over(finding: Finding, gone: frozenset[int]) -> bool:
    return finding.kind == "not-frozen" and not gone.isdisjoint(finding.candidates)


def _now(finding: Finding, gone: frozenset[int]) -> Finding:
    chain = () if _touches(finding.chain, gone) else _chain(finding.chain)
    return replace(finding, row=None, chain=chain)


def _touches(steps: tuple[Step, ...], gone: frozenset[int]) -> bool:
    return any(step.rank in gone or step.for_rank in gone for step in steps)


def _chain(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(replace(step, waits_in=replace(step.waits_in, row=None)) for step in steps)
