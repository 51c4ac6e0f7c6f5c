"""Findings of rules of installed packages, and findings on packages that fail. Only loaded where one is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, Finding
from rankscope.analysis.verdict import Scene
from rankscope.kinds.finding_kinds import FINDINGS, SEVERITIES
from rankscope.kinds.functions import PackageError, function
from rankscope.kinds.site_packages import site_packages

KIND = "broken-package"


def findings_of(call: str, facts: Facts, hung: bool) -> list[Finding]:
    """The findings of a rule of a package; if it fails, the one that says so."""
    try:
        return _checked(call, function(call)(facts, hung))
    except PackageError as error:
        return [_broken(str(error))]


def joined(call: str, findings: list[Finding], scene: Scene) -> list[Finding]:
    """The findings as a feature of a package joins them; if it fails, the same with one that says so."""
    try:
        return _checked(call, function(call)(findings, scene))
    except PackageError as error:
        return [*findings, replace(_broken(str(error)), id=f"f{len(findings) + 1}")]


def completed(call: str, facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis as a feature of a package completes it; if it fails, the same with a finding that says so."""
    try:
        result: Any = function(call)(facts, analysis)
        if not isinstance(result, Analysis):
            raise _error(call, f"gives {type(result).__name__}, and no analysis")
        _checked(call, result.findings)
    except PackageError as error:
        note = replace(_broken(str(error)), id=f"f{len(analysis.findings) + 1}")
        return replace(analysis, findings=(*analysis.findings, note))
    return result


def left_out_packages() -> list[Finding]:
    """Packages that add nothing, because one of their rows cannot be used."""
    return [
        _broken(f"the package {package.name} {package.version} is left out: {package.problem}")
        for package in site_packages()
        if package.problem
    ]


def _checked(call: str, findings: Any) -> list[Finding]:
    """Findings that a package gives. Raises PackageError for anything that no report could show."""
    if not isinstance(findings, Sequence) or not all(isinstance(finding, Finding) for finding in findings):
        raise _error(call, "gives something else than findings")
    order = list(SEVERITIES)
    for finding in findings:
        if finding.kind not in FINDINGS or finding.severity not in order:
            raise _error(call, "gives a finding whose kind or severity is not known")
        if order.index(finding.severity) < order.index(FINDINGS[finding.kind].worst):
            raise _error(call, f"gives a finding that is worse than {FINDINGS[finding.kind].worst!r}")
        texts = (finding.title, finding.explanation, *finding.next_steps, *(one.text for one in finding.evidence))
        ranks = (*finding.culprit_ranks, *finding.candidates, *finding.waiting_ranks)
        if not all(isinstance(text, str) for text in texts) or not all(type(rank) is int for rank in ranks):
            raise _error(call, "gives a finding with a text that is none, or a rank that is none")
    return list(findings)


def _error(call: str, reason: str) -> PackageError:
    package, _, place = call.rpartition("/")
    return PackageError(package, place, reason)


def _broken(title: str) -> Finding:
    return Finding(
        kind=KIND,
        severity=FINDINGS[KIND].worst,
        title=title,
        explanation="This report is without what the package adds, and complete otherwise.",
        next_steps=("Run rankscope doctor: it lists the installed packages that add to rankscope.",),
    )
