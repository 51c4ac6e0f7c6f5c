"""The Markdown report for an issue or a postmortem, for readers who do not know rankscope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rankscope import __version__
from rankscope.analysis.model import Analysis, RankExplanation
from rankscope.report import words
from rankscope.report.blocks import Block, Bullets, Card, Grid, Picture, Prose, Records, Section, feature_sections
from rankscope.report.finding_details import finding_card, head_facts, next_steps, note_sentences, unread_files
from rankscope.report.output_files import write_next
from rankscope.report.words import why_sections
from rankscope.schema import Dataset
from rankscope.text.escaping import code_block, markdown


def render_markdown(dataset: Dataset, analysis: Analysis) -> str:
    """The report as GitHub-flavoured Markdown in which nothing from a file can act as markup."""
    leading = words.leading(analysis)
    notes = [f for f in leading if f.severity == "info"]
    parts = [*_head(dataset, analysis)]
    for why in analysis.whys:
        parts += _why(why)
    for number, finding in enumerate((f for f in leading if f.severity != "info"), 1):
        parts += _card(finding_card(number, finding, dataset, analysis))
    for section in feature_sections(dataset, analysis):
        parts += markdown_section(section)
    parts += _list("Good to know", note_sentences(notes), heading="##")
    for section in unread_files(dataset):
        parts += markdown_section(section)
    parts += _list("Next steps", next_steps(leading), heading="##")
    parts += [f"*Made with rankscope {__version__}.*"]
    return "\n\n".join(parts) + "\n"


def sections_markdown(title: str, sections: Iterable[Section]) -> str:
    """Sections alone as a page of Markdown."""
    return (
        "\n\n".join([f"# {_inline(title)}", *(part for section in sections for part in markdown_section(section))])
        + "\n"
    )


def _head(dataset: Dataset, analysis: Analysis) -> Iterator[str]:
    yield f"# {_inline(words.title(analysis))}"
    yield _table(("", ""), head_facts(dataset, analysis))


def _why(why: RankExplanation) -> Iterator[str]:
    yield f"## Why? {_inline(why.title[:1].upper() + why.title[1:])}"
    yield _table(("", ""), [(label, line) for label, lines in why_sections(why) for line in lines])


def _card(card: Card) -> Iterator[str]:
    number = f"{card.number}. " if card.number else ""
    yield f"## {number}{f'{_inline(card.kind)}: ' if card.kind else ''}{_inline(card.title)}"
    if card.text:
        yield _inline(card.text)
    details = [detail for detail in card.details if detail.lines]
    if facts := [(detail.title, line) for detail in details if detail.form == "fact" for line in detail.lines]:
        yield _table(("", ""), facts)
    # what proves it comes first: the reader of a thread looks for it
    for detail in sorted(details, key=lambda detail: detail.form != "evidence"):
        match detail.form:
            case "evidence":
                yield f"**{detail.title}**"
                yield _table(("where", "rank", "what"), detail.rows)
            case "frames":
                title = f"{detail.title} of {_inline(detail.owner)}" if detail.owner else detail.title
                yield f"**{title}** (innermost first)"
                yield code_block(detail.lines)
            case "steps" | "list":
                yield from _list(detail.title, detail.lines, numbered=detail.form == "steps")


def markdown_section(section: Section) -> Iterator[str]:
    """A section with its title, as paragraphs of Markdown."""
    yield f"## {_inline(section.title)}"
    for block in section.blocks:
        yield from markdown_block(block)


def markdown_block(block: Block) -> Iterator[str]:
    """A block as paragraphs of Markdown."""
    match block:
        case Grid():
            yield from [f"**{_inline(block.title)}**"] if block.title else ()
            yield _table(block.head, block.rows)
            yield from [_inline(block.more)] if block.more else ()
        case Records() if not block.head:
            yield "\n".join(f"- {_inline(label)}: {_inline(text)}" for label, text in block.rows)
        case Records():
            # a place that is left out is in the last cell but one
            blank = [""] * (len(block.head) - 1)
            more = [(*blank[:-1], block.more, "") if block.placed else (*blank, block.more)] if block.more else []
            yield _table(block.head, [*block.rows, *more])
        case Bullets():
            yield from _list(block.title, block.lines)
        case Prose():
            yield _inline(block.text)
        case Picture():
            yield f"**{_inline(block.title)}**"
            yield _inline(block.caption)
        case Card():
            yield from _card(block)


def _list(title: str, lines: Sequence[str], heading: str = "", numbered: bool = False) -> Iterator[str]:
    """A titled list; nothing without lines."""
    if lines:
        if title:
            yield f"{heading} {_inline(title)}" if heading else f"**{_inline(title)}**"
        yield "\n".join(f"{f'{i}.' if numbered else '-'} {_inline(line)}" for i, line in enumerate(lines, 1))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    names = tuple(map(_inline, head))
    lines = [names, tuple("---" for _ in head), *(tuple(map(_inline, row)) for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _inline(text: str) -> str:
    return markdown(text, words.LONGEST_LINE)


def export_markdown(dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """Writes the Markdown report as `findings.md`, or the next free `findings-2.md`, and returns its place in words."""
    content = render_markdown(dataset, analysis).encode("utf-8", "backslashreplace")
    return write_next(directory, "findings", content)
