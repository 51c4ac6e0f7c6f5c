"""The Markdown report for an issue or a postmortem, for readers who do not know rankscope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rankscope import __version__
from rankscope.analysis.model import Analysis, Evidence, Finding, RankExplanation
from rankscope.features.logs import log_excerpts
from rankscope.report import settings_section, words
from rankscope.report.words import host_sections, why_sections
from rankscope.schema import Dataset
from rankscope.text.escaping import code_block, markdown
from rankscope.text.secrets import hide
from rankscope.text.wording import plural, ranks_text


def render_markdown(dataset: Dataset, analysis: Analysis) -> str:
    """The report as GitHub-flavoured Markdown in which nothing from a file can act as markup."""
    leading = words.leading(analysis)
    notes = [f for f in leading if f.severity == "info"]
    parts = [*_head(dataset, analysis)]
    for why in analysis.whys:
        parts += _why(why)
    for number, finding in enumerate((f for f in leading if f.severity != "info"), 1):
        parts += _finding(number, finding, dataset, analysis)
    parts += [
        *_numbers(analysis),
        *_memory(analysis),
        *_model(analysis),
        *_traces(dataset, analysis),
        *_messages(dataset),
        *_settings(dataset),
        *_notes(notes),
    ]
    parts += [*_unread(dataset), *_next_steps(leading)]
    parts += [f"*Made with rankscope {__version__}.*"]
    return "\n\n".join(parts) + "\n"


def _head(dataset: Dataset, analysis: Analysis) -> Iterator[str]:
    yield f"# {analysis.status.capitalize()}: {_inline(analysis.verdict)}"
    unread = tuple(dataset.unread_dumps)
    none = dataset.dumpless_ranks
    culprits = ranks_text(analysis.culprits) if analysis.culprits else ""
    hosts = "; ".join(dict.fromkeys(words.who(f) for f in analysis.findings if f.root_cause and words.who(f)))
    rows = [
        ("Culprits", hosts or culprits),
        ("Stopped", words.stillness(analysis, dataset)),
        ("Not seen", words.unseen(analysis, dataset)),
        ("Read", words.summary(dataset)),
        ("Mesh", str(analysis.mesh) if analysis.mesh is not None else ""),
        ("Not opened", dataset.unopened),
        ("No dump of", ranks_text(none) if none else ""),
        ("No readable dump of", ranks_text(unread) if unread else ""),
    ]
    yield from _facts(rows)


def _why(why: RankExplanation) -> Iterator[str]:
    yield f"## Why? {_inline(why.title[:1].upper() + why.title[1:])}"
    yield _table(("", ""), [(label, line) for label, lines in why_sections(why) for line in lines])


def _finding(number: int, finding: Finding, dataset: Dataset, analysis: Analysis) -> Iterator[str]:
    root = ", root cause" if finding.root_cause else ""
    yield f"## {number}. {finding.severity.capitalize()}{root}: {_inline(finding.title)}"
    if finding.explanation:
        yield _inline(finding.explanation)
    others = tuple(r for r in finding.candidates if r not in finding.culprit_ranks)
    yield from _facts(
        [
            ("Kind", finding.kind),
            ("Who", words.who(finding)),
            ("On the mesh", words.on_mesh(finding, analysis.mesh)),
            (words.instead(finding), ranks_text(others) if others else ""),
            ("Where", words.place(finding)),
            ("Held up", words.held_up(finding)),
            ("Confidence", words.certainty(finding)),
        ]
    )
    yield from _evidence("Evidence", finding.evidence)
    yield from _evidence("Speaks against it", finding.counter_evidence)
    yield from _bullets("Chain of waits", words.steps(finding, words.descriptions(dataset)), numbered=True)
    for title, frames in words.stacks(finding, dataset):
        yield f"**Stack of {title}** (innermost first)"
        yield code_block(frames)
    for title, frames in host_sections(finding, dataset):
        yield f"**Host stack of {_inline(title)}** (innermost first)"
        yield code_block(frames)
    yield from _bullets("Follows from it", words.following_lines(analysis, finding))


def _evidence(title: str, evidence: Sequence[Evidence]) -> Iterator[str]:
    if not evidence:
        return
    rows = [
        (words.source(e), "" if e.rank is None else str(e.rank), hide(e.text)) for e in evidence[: words.MOST_EVIDENCE]
    ]
    left = len(evidence) - len(rows)
    if left > 0:
        rows.append(("", "", f"{left:,} more in the JSON report"))
    yield f"**{title}**"
    yield _table(("where", "rank", "what"), rows)


def _traces(dataset: Dataset, analysis: Analysis) -> Iterator[str]:
    if analysis.traces is None:
        return
    # imported only for jobs with traces
    from rankscope.features.traces import path_section, trace_section

    if not analysis.traces.path.is_empty():
        yield f"## {path_section.path_title(analysis.traces)}"
        yield _table(path_section.HEAD, path_section.ranks_on_path(analysis.traces))
        yield from _bullets("Largest parts", path_section.path_lines(dataset, analysis.traces))
    yield "## Time of each step, from traces"
    yield _table(trace_section.HEAD, trace_section.breakdown(analysis.traces)[: words.MOST_FILES])
    yield from _bullets("Last to come", trace_section.last_lines(dataset, analysis.traces)[: words.MOST_FILES])
    speeds = trace_section.bandwidth(dataset, analysis.traces)[: words.MOST_FILES]
    if speeds:
        yield "**Speed, from the last arrival to the end**"
        yield _table(trace_section.BANDWIDTH_HEAD, speeds)
    yield from _bullets("Kernels that operators launch again and again", path_section.pattern_lines(analysis.traces, 8))
    yield from _bullets("Counters of devices", path_section.counter_lines(analysis.traces))
    yield from _bullets("Clocks", trace_section.clock_lines(analysis.traces))


def _numbers(analysis: Analysis) -> Iterator[str]:
    if analysis.number_counts:
        yield "## Rules about numbers"
        yield _table(
            ("rule", "limit", "asked", "broken", "statement"),
            [tuple(map(str, row)) for row in words.rule_facts(analysis)],
        )
    yield from _bullets("Reference run", analysis.number_notes)


def _memory(analysis: Analysis) -> Iterator[str]:
    if analysis.memory is not None and not analysis.memory.held.is_empty():
        # imported only for jobs with samples of memory
        from rankscope.features.memory import memory_section

        yield f"## {memory_section.TITLE}"
        yield _table(memory_section.HEAD, memory_section.shown_rows(analysis.memory))


def _model(analysis: Analysis) -> Iterator[str]:
    if analysis.model is not None:
        # imported only for jobs with records of models
        from rankscope.features.model import model_section

        rows = list(model_section.shown_rows(analysis.model))
        yield f"## {model_section.TITLE}"
        yield _table(model_section.shown_head(analysis.model), iter(rows))
        yield from (note.replace("*", "\\*") for note in model_section.notes(analysis.model, len(rows)))


def _messages(dataset: Dataset) -> Iterator[str]:
    said, more = log_excerpts.shown_excerpts(dataset)
    if not said:
        return
    rows = [
        (one.role, one.who, one.text[: log_excerpts.LONGEST_LINE], log_excerpts.excerpt_source(one)) for one in said
    ]
    if more:
        rows.append(("", "", f"{plural(more, 'line')} more in the JSON report", ""))
    yield "## Lines of logs"
    yield _table(("role", "who", "what", "where"), rows)


def _settings(dataset: Dataset) -> Iterator[str]:
    found = settings_section.differing_settings(dataset)
    if not found:
        return
    rows = [(one.name, "; ".join(settings_section.value_phrases(one))) for one in found[: settings_section.MOST_SHOWN]]
    left = len(found) - len(rows)
    if left > 0:
        rows.append(("", f"{plural(left, 'setting')} more in the JSON report"))
    yield "## Settings that differ between ranks"
    yield _table(("setting", "values"), rows)


def _notes(findings: Iterable[Finding]) -> Iterator[str]:
    told = [". ".join(t[:1].upper() + t[1:] for t in (f.title, f.explanation)).strip() for f in findings]
    yield from _bullets("Good to know", told, heading="##")


def _unread(dataset: Dataset) -> Iterator[str]:
    groups = words.unread(dataset)
    if not groups:
        return
    yield "## Files not read, or only in part"
    rows = [(words.paths_phrase(g), g.problem) for g in groups[: words.MOST_FILES]]
    left = len(groups) - len(rows)
    if left > 0:
        rows.append((f"{plural(left, 'other problem')}", "in the JSON report"))
    yield _table(("files", "why"), rows)


def _next_steps(findings: Iterable[Finding]) -> Iterator[str]:
    steps = list(dict.fromkeys(step for f in findings for step in f.next_steps))
    yield from _bullets("Next steps", steps, heading="##")


def _bullets(title: str, lines: Sequence[str], heading: str = "", numbered: bool = False) -> Iterator[str]:
    """A titled list; nothing without lines."""
    if lines:
        yield f"{heading} {title}" if heading else f"**{title}**"
        yield "\n".join(f"{f'{i}.' if numbered else '-'} {_inline(line)}" for i, line in enumerate(lines, 1))


def _facts(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A table of labels and values, without empty ones."""
    known = [(label, value) for label, value in rows if value]
    if known:
        yield _table(("", ""), known)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(head), tuple("---" for _ in head), *(tuple(map(_inline, row)) for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _inline(text: str) -> str:
    return markdown(text, words.LONGEST_LINE)
