"""The report as one page of HTML with pictures: no script, and nothing that is loaded from elsewhere.

htpy escapes every text and attribute; text of files goes through `shown` before. The page forbids itself all but its
own style by a Content-Security-Policy (https://www.w3.org/TR/CSP3/, hash sources).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import count, groupby

import htpy as h
from htpy import Node
from markupsafe import Markup

from rankscope import __version__
from rankscope.analysis.model import Analysis, RankExplanation
from rankscope.kinds.finding_kinds import STATUSES
from rankscope.report import words
from rankscope.report.blocks import (
    Block,
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
from rankscope.report.finding_details import finding_card, head_facts, next_steps, note_sentences, unread_files
from rankscope.report.lane_pictures import lane_pictures
from rankscope.report.svg_marks import figure, shown
from rankscope.report.words import why_sections
from rankscope.schema import Dataset
from rankscope.text.wording import sentence

READ_ONLY = "Dumps, logs and traces themselves: the page has only what rankscope took from them."
SECRETS = (
    "Secrets: values of settings with KEY, TOKEN, SECRET or PASSWORD in their names, and known shapes of tokens. They "
    "are hidden."
)


def render_html(dataset: Dataset, analysis: Analysis, is_redacted: bool = False) -> str:
    """The report as a page; `is_redacted` tells that names were replaced before."""
    verdict = words.title(analysis)
    leading = words.leading(analysis)
    steps = next_steps(leading)
    is_bad = STATUSES[analysis.status].face == "critical"
    head = h.header[
        h.p(".tool")[f"rankscope report {__version__}"],
        h.h1(class_="differs" if is_bad else None)[shown(verdict)],
        _facts(head_facts(dataset, analysis)),
        h.p(".next")["Next: ", h.strong[shown(steps[0])]] if steps else None,
    ]
    whys = [draw_section(_why(why)) for why in analysis.whys]
    accusing = [finding for finding in leading if finding.severity != "info"]
    sections = (
        Section("Lanes", tuple(lane_pictures(dataset, analysis))),
        Section("Findings", tuple(finding_card(number, f, dataset, analysis) for number, f in enumerate(accusing, 1))),
        *feature_sections(dataset, analysis),
        Section("Good to know", (Bullets(note_sentences([f for f in leading if f.severity == "info"])),)),
        *unread_files(dataset),
        Section("Next steps", (Bullets(steps),)),
    )
    numbers = count(1)
    body = h.main[head, whys, [draw_section(section, numbers) for section in sections]]
    lacks = [
        READ_ONLY,
        "All lines of evidence and all rows of long tables: the JSON report has them.",
        SECRETS,
        names_line(is_redacted),
    ]
    return html_page(f"rankscope: {verdict}", body, lacks)


def sections_page(command: str, title: str, sections: Iterable[Section], is_redacted: bool) -> str:
    """Sections alone as a page."""
    numbers = count(1)
    head = h.header[h.p(".tool")[f"rankscope {command} {__version__}"], h.h1[shown(title)]]
    main = h.main[head, [draw_section(section, numbers) for section in sections]]
    return html_page(f"rankscope {command}: {title}", main, [READ_ONLY, names_line(is_redacted)])


def html_page(title: str, main: Node, lacks: Iterable[str]) -> str:
    """A whole page with its style and policy; `lacks` are sentences on what is not on it, for its footer."""
    style = files("rankscope.report").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    page = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(http_equiv="Content-Security-Policy", content=policy),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.meta(name="referrer", content="no-referrer"),
            h.title[shown(title)],
            h.style[Markup(style)],
        ],
        h.body[
            main,
            h.footer[
                h.h2["Not on this page"],
                h.ul[[h.li[line] for line in lacks]],
                h.p[f"Made with rankscope {__version__}. The page loads nothing and runs no script."],
            ],
        ],
    ]
    return f"{page}\n"


def names_line(is_redacted: bool) -> str:
    """A sentence on the names of hosts, users and paths, for those who only get the page."""
    if is_redacted:
        return "Names of hosts and users, and paths: stand-ins such as host-1 and dir-1 replace them."
    return "Not hidden are names of hosts and users, and paths: --redact replaces them."


def _why(why: RankExplanation) -> Section:
    rows = [(label, line) for label, lines in why_sections(why) for line in lines]
    return Section(f"Why? {sentence(why.title)}", (Records(head=(), rows=rows),))


def draw_section(section: Section, numbers: Iterator[int] | None = None) -> Node:
    """A section with its title; nothing without a block that shows something. `numbers` counts pictures of a page."""
    drawn = [node for block in section.blocks for node in draw(block, numbers or count(1))]
    return [h.h2[shown(section.title)], drawn] if drawn else None


def draw(block: Block, numbers: Iterator[int]) -> Iterator[Node]:
    """The elements of a block; `numbers` counts the pictures of a page, whose names must differ."""
    match block:
        case Grid():
            yield h.h3[shown(block.title)] if block.title else None
            yield _grid(block)
        case Records():
            yield _sentences(block.head, block.rows) if block.head else _facts(block.rows)
        case Bullets() if block.lines:
            yield h.h3[shown(block.title)] if block.title else None
            yield _list(block.lines)
        case Prose():
            yield h.p[shown(block.text)]
        case Picture():
            yield figure(block, next(numbers))
        case Card():
            yield _article(block)
    if isinstance(block, Grid | Records) and block.more:
        yield h.p(".more")[shown(block.more)]


def _grid(grid: Grid) -> Node:
    ends = range(1, len(grid.head)) if grid.numbers is None else grid.numbers
    edges = ["number" if at in ends else None for at in range(len(grid.head))]

    def cell(row: int, at: int, text: str) -> Node:
        kind = "verdict differs" if (row, at) in grid.marked else edges[at]
        content = h.code[shown(text)] if at in grid.code and text else shown(text)
        return h.td(class_=kind)[content] if at else h.th(class_=kind, scope="row")[content]

    names = [h.th(class_=edge, scope="col")[shown(name)] for edge, name in zip(edges, grid.head, strict=True)]
    body = [h.tr[[cell(row, at, text) for at, text in enumerate(cells)]] for row, cells in enumerate(grid.rows)]
    return h.div(".wide")[h.table(class_="said" if grid.wraps else None)[h.thead[h.tr[names]], h.tbody[body]]]


def _sentences(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Node:
    """A table of sentences."""
    return _grid(Grid(head=tuple(head), rows=[tuple(row) for row in rows], numbers=(), wraps=True))


def _facts(rows: Iterable[Sequence[str]]) -> Node:
    """Labels and texts; a label that is the one before stands once."""
    groups = groupby(rows, lambda row: row[0])
    return h.dl[[[h.dt[shown(label)], [h.dd[shown(row[1])] for row in group]] for label, group in groups]]


def _list(lines: Sequence[str], numbered: bool = False) -> Node:
    items = [h.li[shown(line)] for line in lines]
    return h.ol[items] if numbered else h.ul[items]


def _article(card: Card) -> Node:
    details = [detail for detail in card.details if detail.lines]
    facts = [(detail.title, line) for detail in details if detail.form == "fact" for line in detail.lines]
    stacks = [_stack(detail) for detail in details if detail.form == "frames"]
    return h.article(f".{card.tone}")[
        h.h3[
            f"{card.number}. " if card.number else None,
            shown(card.title),
            " ",
            h.span(".kind")[shown(card.kind)] if card.kind else None,
        ],
        h.p[shown(card.text)] if card.text else None,
        _facts(facts) if facts else None,
        [_lines(detail) for detail in details if detail.form not in ("fact", "frames")],
        h.div(".pair")[stacks] if stacks else None,
    ]


def _lines(detail: FindingDetail) -> Node:
    title = h.h4[shown(detail.title)] if detail.title else None
    if detail.form == "evidence":
        return [title, _sentences(("where", "rank", "what"), detail.rows)]
    return [title, _list(detail.lines, numbered=detail.form == "steps")]


def _stack(detail: FindingDetail) -> Node:
    title = f"{detail.title} of {detail.owner}" if detail.owner else detail.title
    return h.div[h.strong[shown(title)], " (innermost first)", h.pre["\n".join(map(shown, detail.lines))]]
