"""The text report for a terminal or a pipe, 80 columns wide: the verdict first, then the reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rankscope.analysis.model import Analysis, Finding, RankExplanation
from rankscope.report import words
from rankscope.report.blocks import (
    Bullets,
    Card,
    FindingDetail,
    Grid,
    Picture,
    Prose,
    Records,
    Section,
    feature_sections,
)
from rankscope.report.finding_details import finding_details, unread_files
from rankscope.report.words import why_sections
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import ranks_text

WIDTH = 80
_LABEL_WIDTH = 14
"""Columns of indent, label and gap."""


def render_text(dataset: Dataset, analysis: Analysis) -> str:
    """The report as text, with all text from files made harmless."""
    parts: list[str] = [*_head(dataset, analysis)]
    for why in analysis.whys:
        parts += ["", *_why(why)]
    for number, finding in enumerate(words.leading(analysis), 1):
        parts += ["", *_card(_finding(number, finding, dataset, analysis))]
    for section in (*feature_sections(dataset, analysis), *unread_files(dataset)):
        parts += section_lines(section)
    return "\n".join(line.rstrip() for line in parts) + "\n"


def sections_text(sections: Iterable[Section]) -> str:
    """Sections alone as text, with a rule between them."""
    numbered = enumerate(sections)
    return text_of(line for number, section in numbered for line in section_lines(section, ruled=number > 0))


def text_of(lines: Iterable[str]) -> str:
    """A text of lines of sections, without the empty one before the first."""
    _, *rest = (line.rstrip() for line in lines)
    return "\n".join(rest) + "\n"


def _head(dataset: Dataset, analysis: Analysis) -> Iterator[str]:
    still = words.stillness(analysis, dataset)
    yield from _wrap(words.headline(analysis))
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


def _finding(number: int, finding: Finding, dataset: Dataset, analysis: Analysis) -> Card:
    """A finding with its next steps: the text has no list of them at its end."""
    root = ", root cause" if finding.root_cause else ""
    steps = FindingDetail("next", "Next", finding.next_steps, "list")
    return Card(
        number=number,
        kind=f"{finding.severity.upper()}{root}, {finding.kind}",
        title=finding.title,
        text=finding.explanation,
        details=(*finding_details(finding, dataset, analysis), steps),
    )


def _card(card: Card) -> Iterator[str]:
    number = f"{card.number}. " if card.number else ""
    yield "-" * WIDTH
    yield from _wrap(f"{number}{f'{card.kind}: ' if card.kind else ''}{card.title}", indent=3)
    if card.text:
        yield from _wrap(card.text, first=3, indent=3)
    for detail in card.details:
        owner = [f"of {detail.owner}"] if detail.owner else []
        yield from _labelled(detail.label, [*owner, *detail.lines])


def _labelled(label: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines with the label before the first one; empty if all lines are empty."""
    start = f"   {plain(label):<{_LABEL_WIDTH - 3}}"
    for line in filter(None, lines):
        first, *rest = _wrap(line, indent=2, width=WIDTH - _LABEL_WIDTH)
        yield start + first
        start = " " * _LABEL_WIDTH
        yield from (start + more for more in rest)


def section_lines(section: Section, *, ruled: bool = True) -> Iterator[str]:
    """The lines of a section behind an empty one; `ruled`: below a rule."""
    yield ""
    if ruled:
        yield "-" * WIDTH
    if section.title:
        yield from _wrap(section.title)
    for block in section.blocks:
        match block:
            case Grid():
                yield from ("", *_wrap(block.title)) if block.title else ()
                yield from _grid(block)
            case Records():
                yield from _records(block)
            case Bullets():
                yield from ("", *_wrap(block.title)) if block.title else ()
                for line in block.lines:
                    yield from _wrap(line, first=3, indent=5)
            case Prose():
                yield from _wrap(block.text, first=3, indent=3)
            case Card():
                yield from _card(block)
            case Picture():
                yield from ("", *_wrap(block.title), *_wrap(block.caption, first=3, indent=3))


def _grid(grid: Grid) -> Iterator[str]:
    rows = [row[: grid.narrow] for row in (grid.head, *grid.rows)]
    columns = range(len(rows[0]))
    widths = [max(len(row[at]) for row in rows) for at in columns]
    ends = columns[1:] if grid.numbers is None else grid.numbers
    if grid.headed:
        widths[0] = min(widths[0], max(WIDTH - sum(widths[1:]) - 2 * len(widths) - 1, 6))
    for first, *others in rows:
        if len(first) > widths[0]:
            yield plain(f"   {first}", WIDTH)
        row = ("" if len(first) > widths[0] else first, *others)
        cells = (row[at].rjust(widths[at]) if at in ends else row[at].ljust(widths[at]) for at in columns)
        line = "   " + "  ".join(cells).rstrip()
        if grid.wraps and len(line) > WIDTH:
            yield from _wrap(
                line.lstrip(), first=len(line) - len(line.lstrip()), indent=sum(widths[:-1]) + 2 * len(widths) + 1
            )
        else:
            yield plain(line, words.LONGEST_LINE)
    yield from _wrap(grid.more, first=3, indent=3) if grid.more else ()


def _records(records: Records) -> Iterator[str]:
    for label, *cells in records.rows:
        place = cells.pop() if records.placed else ""
        text = ": ".join(cells) + (f" ({place})" if place else "")
        yield from _labelled(label, [text]) if records.labelled else _wrap(f"{label}: {text}", first=3, indent=5)
    if records.more:
        indent = _LABEL_WIDTH if records.labelled else 3
        yield from _wrap(records.more, first=indent, indent=indent)


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
