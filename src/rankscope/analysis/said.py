"""What was said of a job that moves, for as long as it takes to judge it again: some ranks have gone on meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rankscope.analysis.model import Analysis, Finding, Step


def holds_on(analysis: Analysis) -> bool:
    """Whether it stays true while some ranks go on: nobody is accused, and nothing differs."""
    accused = any(finding.root_cause for finding in analysis.findings)
    return analysis.status in ("progressing", "healthy") and not accused and not analysis.divergences


def still_said(analysis: Analysis, ranks: Collection[int]) -> Analysis:
    """The same without what these ranks waited in, and without rows of the operations: these are others now."""
    waits = {rank: _chain(steps) for rank, steps in analysis.waits.items() if rank not in ranks}
    return replace(analysis, findings=tuple(map(_without_rows, analysis.findings)), waits=waits)


def _without_rows(finding: Finding) -> Finding:
    return replace(finding, row=None, chain=_chain(finding.chain))


def _chain(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(replace(step, waits_in=replace(step.waits_in, row=None)) for step in steps)
