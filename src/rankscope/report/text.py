"""The text report for a terminal or a pipe, 80 columns wide: the verdict first, then the reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from rankscope.analysis.model import Analysis, Finding, RankExplanation
from rankscope.report import words
from rankscope.report.words import host_sections, why_sections
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clock, plural, ranks_text

if TYPE_CHECKING:
    from rankscope.analysis.live_state import LiveState

WIDTH = 80
_LABEL_WIDTH = 14
"""Columns of indent, label and gap."""


def render_text(dataset: Dataset, analysis: Analysis) -> str:
    """The report as text, with all text from files made harmless."""
    parts: list[str] = [*_head(dataset, analysis)]
    for why in analysis.whys:
        parts += ["", *_why(why)]
    for number, finding in enumerate(words.leading(analysis), 1):
        parts += ["", *_finding(number, finding, dataset, analysis)]
    parts += [
        *_numbers(analysis),
        *_memory(analysis),
        *_model(analysis),
        *_traces(dataset, analysis),
        *_messages(dataset),
        *_settings(dataset),
        *_unread(dataset),
    ]
    return "\n".join(line.rstrip() for line in parts) + "\n"


def _head(dataset: Dataset, analysis: Analysis) -> Iterator[str]:
    still = words.stillness(analysis, dataset)
    yield from _wrap(f"{analysis.status.upper()}: {analysis.verdict}")
    for line in (still, words.unseen(analysis, dataset)):
        yield from _wrap(line) if line else ()
    yield from _wrap(f"{dataset.root}: {words.summary(dataset)}" if dataset.root else words.summary(dataset))
    if analysis.mesh is not None:
        yield from _wrap(f"mesh: {analysis.mesh}")
    none = dataset.dumpless_ranks
    if dataset.unopened:
        yield from _wrap(dataset.unopened)
    if none:
        noun = "flight recorder dump" if dataset.noun == "dump" and dataset.dumps.is_empty() else dataset.noun
        yield from _wrap(f"no {noun} of {ranks_text(none)}")
    if dataset.unread_dumps:
        yield from _wrap(f"no readable dump of {ranks_text(tuple(dataset.unread_dumps))}")


def _why(why: RankExplanation) -> Iterator[str]:
    yield "-" * WIDTH
    yield from _wrap(f"Why? {why.title[:1].upper()}{why.title[1:]}", indent=3)
    for label, lines in why_sections(why):
        yield from _labelled(label, lines)


def _finding(number: int, finding: Finding, dataset: Dataset, analysis: Analysis) -> Iterator[str]:
    root = ", root cause" if finding.root_cause else ""
    yield "-" * WIDTH
    yield from _wrap(f"{number}. {finding.severity.upper()}{root}, {finding.kind}: {finding.title}", indent=3)
    if finding.explanation:
        yield from _wrap(finding.explanation, first=3, indent=3)
    for label, lines in _details(finding, dataset, analysis):
        yield from _labelled(label, lines)


def _details(finding: Finding, dataset: Dataset, analysis: Analysis) -> Iterator[tuple[str, list[str]]]:
    """The details of a finding below its title, label by label."""
    others = tuple(r for r in finding.candidates if r not in finding.culprit_ranks)
    yield "who", [words.who(finding)]
    yield "mesh", [words.on_mesh(finding, analysis.mesh)]
    yield words.instead(finding).lower(), [ranks_text(others)] if others else []
    yield "where", [words.place(finding)]
    yield "held up", [words.held_up(finding)]
    yield "confidence", [words.certainty(finding)] if finding.severity != "info" else []
    yield "waits", words.steps(finding, words.descriptions(dataset))
    for title, frames in words.stacks(finding, dataset):
        yield "stack", [f"of {title}", *frames]
    for title, frames in host_sections(finding, dataset):
        yield "host stack", [f"of {title}", *frames]
    yield "evidence", words.evidence_lines(finding.evidence)
    yield "against", words.evidence_lines(finding.counter_evidence)
    yield "follows", words.following_lines(analysis, finding)
    yield "next", list(finding.next_steps)


def _labelled(label: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines with the label before the first one; empty if all lines are empty."""
    start = f"   {label:<{_LABEL_WIDTH - 3}}"
    for line in filter(None, lines):
        first, *rest = _wrap(line, indent=2, width=WIDTH - _LABEL_WIDTH)
        yield start + first
        start = " " * _LABEL_WIDTH
        yield from (start + more for more in rest)


def _traces(dataset: Dataset, analysis: Analysis) -> Iterator[str]:
    if analysis.traces is None:
        return
    # imported only for jobs with traces
    from rankscope.features.traces import path_section, trace_section

    path = path_section.text_lines(dataset, analysis.traces)
    yield from _title(path_section.path_title(analysis.traces)) if path else ()
    for line in path:
        yield from _wrap(line, indent=5) if len(line) > WIDTH else [plain(line, words.LONGEST_LINE)]
    yield from _title("Time of each step, from traces (latest first; % of the step)")
    for line in trace_section.text_lines(dataset, analysis.traces):
        yield from _wrap(line, indent=5) if len(line) > WIDTH else [plain(line, words.LONGEST_LINE)]
    for line in trace_section.clock_lines(analysis.traces):
        yield from _wrap(line, first=3, indent=5)
    for title, lines in (
        ("Kernels that operators launch again and again", path_section.pattern_lines(analysis.traces)),
        ("Counters of devices, by operator and kernel", path_section.counter_lines(analysis.traces)),
    ):
        yield from ("", title) if lines else ()
        for line in lines:
            yield from _wrap(line, first=3, indent=5)


def _numbers(analysis: Analysis) -> Iterator[str]:
    if not analysis.number_counts:
        return
    yield from _title("Rules about numbers")
    yield "   rule limit          asked  broken  statement"
    for rule, standing, asked, broken, statement in words.rule_facts(analysis):
        yield f"   {rule:<4} {standing:<9} {asked:>10,} {broken:>7,}  {statement}"
    for note in analysis.number_notes:
        yield from _wrap(note[:1].upper() + note[1:], first=3, indent=5)


def _memory(analysis: Analysis) -> Iterator[str]:
    if analysis.memory is None or analysis.memory.held.is_empty():
        return
    # imported only for jobs with samples of memory
    from rankscope.features.memory import memory_section

    yield from _title(memory_section.TITLE)
    yield from memory_section.text_lines(analysis.memory)


def _model(analysis: Analysis) -> Iterator[str]:
    if analysis.model is None:
        return
    # imported only for jobs with records of models
    from rankscope.features.model import model_section

    yield from _title(model_section.TITLE)
    yield from model_section.text_lines(analysis.model)


def _messages(dataset: Dataset) -> Iterator[str]:
    if dataset.messages.is_empty():
        return
    # imported only for jobs with logs
    from rankscope.features.logs import log_excerpts

    said, more = log_excerpts.shown_excerpts(dataset)
    if said:
        yield from _title("Lines of logs")
        for role, line in log_excerpts.text_lines(said, more):
            yield from _labelled(role, [line])


def _settings(dataset: Dataset) -> Iterator[str]:
    if dataset.settings.is_empty():
        return
    # imported only for jobs with settings
    from rankscope.report import settings_section

    lines = settings_section.text_lines(dataset)
    if lines:
        yield from _title("Settings that differ between ranks")
        for line in lines:
            yield from _wrap(line, first=3, indent=5)


def _title(text: str) -> Iterator[str]:
    yield ""
    yield "-" * WIDTH
    yield text


def _unread(dataset: Dataset) -> Iterator[str]:
    groups = words.unread(dataset)
    if not groups:
        return
    yield from _title("Files not read, or only in part")
    for group in groups[: words.MOST_FILES]:
        yield from _wrap(f"{words.paths_phrase(group)}: {group.problem}", first=3, indent=5)
    left = len(groups) - words.MOST_FILES
    if left > 0:
        yield f"   and {plural(left, 'other problem')}; the JSON report lists them all"


def _wrap(text: str, first: int = 0, indent: int = 0, width: int = WIDTH) -> list[str]:
    """Harmless lines no wider than `width`, except for longer paths, which must stay whole for copying."""
    shown = plain(text, words.LONGEST_LINE)
    wrapped = textwrap.wrap(
        shown,
        width,
        initial_indent=" " * first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return wrapped or [""]


# Lines of a followed job, for a person or a program.

MOST_GROUPS = 32
"""Most groups whose rate is told, the fastest first."""


def verdict_key(analysis: Analysis, live: LiveState) -> tuple[Any, ...]:
    """A key that changes only with the verdict: it holds the late ranks, not the groups in which they are late."""
    roots = [f for f in analysis.findings if f.root_cause]
    places = [(f.group and f.group.id, f.seq) if f.kind != "straggler" else () for f in roots]
    causes = tuple((f.kind, f.culprit_ranks, place) for f, place in zip(roots, places, strict=True))
    return live.state, live.so_far, analysis.status, causes


def render_line_json(dataset: Dataset, analysis: Analysis, live: LiveState, time_ns: int) -> bytes:
    """One line of JSON; its form is described in docs/report.md."""
    from rankscope.report.json import SCHEMA, dump_json, finding_json

    return dump_json(
        {
            "schema": SCHEMA,
            "time_ns": time_ns,
            "state": live.state,
            "status": analysis.status,
            "verdict": analysis.verdict,
            "reason": live.reason,
            "still_s": None if live.still_ns is None else live.still_ns / 1e9,
            "freeze_after_s": live.needed_ns / 1e9,
            "per_s": live.per_s,
            "rates": [
                {"group": rate.group, "description": rate.description, "per_s": rate.per_s}
                for rate in live.rates[:MOST_GROUPS]
            ],
            "culprit_ranks": list(analysis.culprits),
            "ranks": {"seen": len(dataset.seen_ranks), "missing": dataset.unseen_ranks},
            "findings": [finding_json(f) for f in analysis.findings if f.root_cause],
        },
        indented=False,
    )


def render_line_text(analysis: Analysis, live: LiveState, time_ns: int, zone: tzinfo | None = None) -> str:
    """One line: the time, the state, and the verdict."""
    speed = f" {live.per_s:.3g}/s" if live.per_s else ""
    return f"{clock(time_ns, zone, 0)}  {live.state.upper()}{speed}  {plain(analysis.verdict)}\n"
