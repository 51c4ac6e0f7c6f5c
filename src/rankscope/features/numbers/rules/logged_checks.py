"""Findings on numbers that a framework checked itself, as its log tells."""

from __future__ import annotations

import re
from dataclasses import replace

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.event_kinds import NUMERIC_CHECKS

_CHECK_EXIT = re.compile(r"exit code 1[67]\b")
"""Exit codes of Megatron's rerun state machine: resume on another device, and a result that is wrong."""


def with_logged_checks(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with findings on numbers that logs tell, and with their verdict where nothing else is wrong.

    A process that ended because its numbers were wrong is no cause.
    """
    dataset = facts.dataset
    if not dataset.messages["kind"].is_in(NUMERIC_CHECKS).any():
        return analysis
    # few jobs have such lines
    from rankscope.features.logs.rules.engine_reports import numeric_reports
    from rankscope.features.numbers.rules.number_findings import in_order, with_verdict

    first = len(analysis.findings) + 1
    written = [replace(finding, id=f"f{first + at}") for at, finding in enumerate(numeric_reports(dataset))]
    critical = [finding for finding in written if finding.severity == "critical"]
    before = tuple(_as_consequence(f, critical[0].id) if critical else f for f in analysis.findings)
    joined = replace(analysis, findings=in_order(before, written))
    if any(finding.severity == "critical" for finding in before):
        return joined
    return with_verdict(dataset, joined, written)


def _as_consequence(finding: Finding, cause: str) -> Finding:
    """The end of a process by a check of its numbers, as a consequence of what the check found."""
    if finding.kind != "rank-failed" or not _CHECK_EXIT.search(finding.title):
        return finding
    return replace(finding, severity="info", root_cause=False, caused_by=cause)
