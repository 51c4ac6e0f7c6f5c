"""One verdict from dumps, logs and traces: hangs come first, then late ranks from any source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankscope.analysis.model import Analysis, Evidence, Finding, Status
from rankscope.analysis.places import Places
from rankscope.analysis.traces.late_ranks import FEWEST_UNITS
from rankscope.analysis.traces.lateness import MATCH_COLUMNS, communication_spans, most_frequent_last
from rankscope.analysis.traces.slow_links import link_findings
from rankscope.analysis.traces.trace_story import TraceStory
from rankscope.analysis.traces.trace_stragglers import StragglerWriter
from rankscope.text.wording import duration, plural, ranks_text

LONGEST_RANGES = 60
"""Longest list of ranks in a verdict."""


def with_traces(analysis: Analysis, story: TraceStory) -> Analysis:
    """The analysis with the results of traces: findings, `traces`, and the verdict if nothing worse is known."""
    dataset = story.dataset
    places = Places(dataset)
    late, links = StragglerWriter(story, places).findings(), link_findings(story, places)
    worse = any(f.severity == "critical" for f in analysis.findings)
    if worse:
        late = [replace(f, root_cause=False) for f in late]
    findings = _joined(analysis.findings, late, links, worse=worse)
    told = replace(analysis, findings=findings, traces=story.analysis())
    if worse or analysis.status == "failed":
        return told
    slow = [f for f in findings if f.kind == "straggler"]
    if slow:
        shared = places.shared(slow)
        return replace(told, status="slow", verdict=slow[0].title + (f"; {shared.short}" if shared else ""))
    status, verdict = _quiet(story, links)
    if dataset.from_traces:
        return replace(told, status=status, verdict=verdict)
    if analysis.status not in ("healthy", "unknown") or status != "healthy":
        return told
    return replace(told, status=status, verdict=f"{analysis.verdict}; traces of {verdict}")


def _joined(
    known: Sequence[Finding], late: Sequence[Finding], links: Sequence[Finding], *, worse: bool
) -> tuple[Finding, ...]:
    """All findings with new ids. Late ranks from dumps become evidence if traces name them as well.

    Accusations from traces take precedence, because traces show the activity of ranks, and dumps only issue times.
    """
    dumped = {f.culprit_ranks: f for f in known if f.kind == "straggler"}
    late = [_supported(f, dumped[f.culprit_ranks]) if f.culprit_ranks in dumped else f for f in late]
    rest = [f for f in known if not (late and f.kind == "straggler")]
    ordered = [*rest, *late, *links] if worse else [*late, *rest, *links]
    ids = {f.id: f"f{i}" for i, f in enumerate(ordered, 1) if f.id}
    return tuple(
        replace(f, id=f"f{i}", caused_by=ids.get(f.caused_by or "", f.caused_by)) for i, f in enumerate(ordered, 1)
    )


def _supported(finding: Finding, dumped: Finding) -> Finding:
    """The finding with the evidence of dumps."""
    said = Evidence(f"the dumps say so too: {dumped.title}", rank=dumped.culprit_ranks[0])
    return replace(finding, evidence=(*finding.evidence, said), counter_evidence=finding.counter_evidence)


def _quiet(story: TraceStory, links: Sequence[Finding]) -> tuple[Status, str]:
    """The verdict of traces without a rank that is late again and again."""
    dataset = story.dataset
    ranks = sorted(dataset.traces["rank"].drop_nulls().unique().to_list())
    if len(ranks) < 2 < dataset.world_size + 1:
        return "unknown", f"only {ranks_text(ranks)} of {dataset.world_size:,} was traced: no wait can be seen"
    if len(ranks) < 2 and not dataset.seen_ranks:
        waits = dataset.traced.height or not communication_spans(dataset).is_empty()
        why = "it waits for others, which were not traced" if waits else "there is nobody to wait for"
        return "unknown" if waits else "healthy", f"1 trace, which has no rank: {why}"
    if len(ranks) < 2:
        return "healthy", "1 rank traced: there is nobody to wait for"
    return _judged(story, links, len(ranks))


def _judged(story: TraceStory, links: Sequence[Finding], ranks: int) -> tuple[Status, str]:
    """The verdict of traces of several ranks."""
    matched = story.matches.select(MATCH_COLUMNS).unique().height
    if not matched:
        why = next(iter(story.refused()), "the traces hold none in common")
        return "unknown", f"{plural(ranks, 'rank')} traced, but no collective could be matched: {why}"
    untraced = sorted(set(range(story.dataset.world_size)) - story.traced_ranks)
    of_all = f" of {story.dataset.world_size:,} traced" if untraced else ""
    text = f"{ranks:,}{of_all or ' ranks'}, {plural(matched, 'operation')} matched"
    if story.joined.is_empty():
        return "unknown", f"{text}, but none that all traced ranks of a group joined: the last to come is not known"
    units = story.joined.select("window", "unit").drop_nulls().unique().height
    if units < FEWEST_UNITS:
        return (
            "unknown",
            f"{text}: {most_frequent_last(story.last)}in {plural(units, 'step')}: too few to call a rank late",
        )
    if links:
        return "slow", f"{text}; {links[0].title}"
    return _not_late(story, text, untraced)


def _not_late(story: TraceStory, text: str, untraced: Sequence[int]) -> tuple[Status, str]:
    """The verdict if no rank is late by itself: healthy, if all ranks were traced and none loses much."""
    lost = story.unsteady
    if lost is not None and lost.late_in > 1:
        unit = "parts of the window" if story.steps.is_empty() else "steps"
        times, by = f"{lost.late_in} of {lost.units} {unit}", duration(lost.lost_ns)
        share = f"{100 * lost.lost_ns / max(lost.unit_ns, 1):.0f} %"
        return "unknown", (
            f"{text}: rank {lost.rank} comes late in {times}, by {by} ({share} of one), but unevenly, which may be "
            "chance: record more steps"
        )
    if untraced:
        was = "was" if len(untraced) == 1 else "were"
        missing = ranks_text(untraced, LONGEST_RANGES)
        return "unknown", f"{text}: none of these ranks comes late again and again; {missing} {was} not traced"
    once = f", rank {lost.rank} once, by {duration(lost.most_ns)}" if lost is not None else ""
    return "healthy", f"{text}: nobody comes late again and again{once}"
