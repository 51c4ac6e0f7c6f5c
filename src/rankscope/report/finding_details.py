"""The findings of a job as details, the same for every form of a report for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope.analysis.model import Analysis, Evidence, Finding
from rankscope.report import words
from rankscope.report.blocks import Card, FindingDetail, Records, Section
from rankscope.schema import Dataset
from rankscope.text.secrets import hide
from rankscope.text.wording import plural, ranks_text


def finding_card(number: int, finding: Finding, dataset: Dataset, analysis: Analysis) -> Card:
    """A finding, for a page."""
    root = ", root cause" if finding.root_cause else ""
    return Card(
        number=number,
        kind=f"{finding.severity.capitalize()}{root}",
        title=finding.title,
        text=finding.explanation,
        details=(FindingDetail("kind", "Kind", [finding.kind]), *finding_details(finding, dataset, analysis)),
        tone=finding.severity,
    )


def finding_details(finding: Finding, dataset: Dataset, analysis: Analysis) -> Iterator[FindingDetail]:
    """Details of a finding below its title and explanation."""
    others = tuple(rank for rank in finding.candidates if rank not in finding.culprit_ranks)
    instead = words.instead(finding)
    yield FindingDetail("who", "Who", _known(words.who(finding)))
    yield FindingDetail("mesh", "On the mesh", _known(words.on_mesh(finding, analysis.mesh)))
    yield FindingDetail(instead.lower(), instead, [ranks_text(others)] if others else [])
    yield FindingDetail("where", "Where", _known(words.place(finding)))
    yield FindingDetail("blocked", "Blocked", _known(words.held_up(finding)))
    yield FindingDetail("sure", "Sure", [words.certainty(finding)] if finding.severity != "info" else [])
    yield FindingDetail("waits", "Chain of waits", words.steps(finding, words.descriptions(dataset)), "steps")
    for title, frames in words.stacks(finding, dataset):
        yield FindingDetail("stack", "Stack", frames, "frames", title)
    for title, frames in words.host_sections(finding, dataset):
        yield FindingDetail("host stack", "Host stack", frames, "frames", title)
    for label, title, evidence in (
        ("evidence", "Evidence", finding.evidence),
        ("against", "Speaks against it", finding.counter_evidence),
    ):
        yield FindingDetail(label, title, words.evidence_lines(evidence), "evidence", rows=_evidence_rows(evidence))
    yield FindingDetail("follows", "Follows from it", words.following_lines(analysis, finding), "list")


def _known(text: str) -> list[str]:
    return [text] if text else []


def _evidence_rows(evidence: Sequence[Evidence]) -> list[tuple[str, str, str]]:
    rows = [
        (words.source(e), "" if e.rank is None else str(e.rank), hide(e.text)) for e in evidence[: words.MOST_EVIDENCE]
    ]
    left = len(evidence) - len(rows)
    return [*rows, ("", "", f"{left:,} more in the JSON report")] if left > 0 else rows


def next_steps(findings: Sequence[Finding]) -> list[str]:
    """The next steps of all of these findings, each once."""
    return list(dict.fromkeys(step for finding in findings for step in finding.next_steps))


def note_sentences(findings: Sequence[Finding]) -> list[str]:
    """Findings that only inform, each as sentences."""
    return [". ".join(t[:1].upper() + t[1:] for t in (f.title, f.explanation)).strip() for f in findings]


def head_facts(dataset: Dataset, analysis: Analysis) -> list[tuple[str, str]]:
    """Labels and values of what is known of the job as a whole."""
    unread, none = tuple(dataset.unread_dumps), dataset.dumpless_ranks
    culprits = ranks_text(analysis.culprits) if analysis.culprits else ""
    hosts = "; ".join(dict.fromkeys(words.who(f) for f in analysis.findings if f.root_cause and words.who(f)))
    rows = (
        ("Culprits", hosts or culprits),
        ("Stopped", words.stillness(analysis, dataset)),
        ("Not seen", words.unseen(analysis, dataset)),
        ("Read", words.summary(dataset)),
        ("Mesh", str(analysis.mesh) if analysis.mesh is not None else ""),
        ("Not opened", dataset.unopened),
        ("No dump of", ranks_text(none) if none else ""),
        ("No readable dump of", ranks_text(unread) if unread else ""),
    )
    return [(label, value) for label, value in rows if value]


def unread_files(dataset: Dataset) -> Iterator[Section]:
    """Files that could not be read, by their problem."""
    groups = words.unread(dataset)
    rows = [(words.paths_phrase(group), group.problem) for group in groups[: words.MOST_FILES]]
    left = len(groups) - len(rows)
    more = f"and {plural(left, 'other problem')}; the JSON report lists them all" if left > 0 else ""
    if rows:
        yield Section("Files not read, or only in part", (Records(head=("files", "why"), rows=rows, more=more),))
