"""A finding in full, as lines: the event, the evidence, how sure it is and the next steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope.analysis.host_stacks import kind_of
from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.finding_kinds import SEVERITIES
from rankscope.report import words
from rankscope.report.headlines import short_title
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.step_commands import command_of
from rankscope.text.wording import plural, ranks_text
from rankscope.tui.detail.stack_tree import label, user_frames
from rankscope.tui.styled_text import BLANK, Line, Role, Span, line, wrap, wrapped
from rankscope.tui.text_bars import rule

_MOST = 200
"""Lines of one part of a finding that are shown; the JSON report has them all."""
_INDENT = 2
_LABEL = 11
"""Cells of the title before a part."""


def severity_role(finding: Finding) -> Role:
    """The role for the severity of a finding."""
    return SEVERITIES[finding.severity].role


def full_text(analysis: Analysis, finding: Finding, groups: Mapping[str, str], width: int) -> list[Line]:
    """The whole text of a finding, in lines of `width` cells; `groups` are descriptions by name."""
    root = "ROOT CAUSE, " if finding.root_cause else ""
    head = line(
        Span(f"{root}{finding.severity} {plain(finding.kind)}: ", severity_role(finding)),
        Span(plain(finding.title), "bold"),
    )
    lines = wrap(head, width, _INDENT)
    if finding.explanation:
        lines += [*wrap(line(plain(finding.explanation)), width), BLANK]
    for title, texts in _parts(analysis, finding, groups):
        lines += _section(title, texts, width)
    return lines


def other_titles(analysis: Analysis, finding: Finding, width: int) -> list[Line]:
    """The titles of all findings but one, below a heading; empty if it is the only one."""
    others = ((at + 1, analysis.findings[index]) for at, index in enumerate(words.causes_first(analysis)))
    lines = [
        line(Span(f"{at:>2}  ", "dim"), Span(f"{other.severity:<9}", severity_role(other)), plain(other.title))
        for at, other in others
        if other is not finding
    ]
    head = line(Span("other findings", "head"), Span("  n next, N previous", "dim"))
    return [BLANK, head, *wrapped(lines[:_MOST], width, 4 + 9)] if lines else []


def short_text(analysis: Analysis, finding: Finding, width: int) -> list[Line]:
    """The text of a finding in the pane: explanation, how sure with reasons, counter-evidence, next steps."""
    lines = wrap(line(Span(plain(finding.title), severity_role(finding))), width)
    lines += wrap(line(plain(finding.explanation)), width) if finding.explanation else []
    parts = {
        "sure": _certainty(finding),
        words.instead(finding).lower(): _otherwise(finding),
        "caused by": _cause(analysis, finding),
        "next": list(finding.next_steps),
    }
    for title, texts in parts.items():
        lines += _section(title, texts, width)
    return lines


_CARD_LABEL = 8
"""Cells of the title before a line of a card, as before the lines of the detail."""


@dataclass(frozen=True)
class FindingCard:
    """The card of a finding: why it is believed, and what to do now."""

    why: tuple[tuple[str, str], ...]
    """Texts, each behind its title; "" for the explanation, which has none."""
    now: tuple[Line, ...]
    """The command to do now, and what to look for; long ones go on in further lines."""

    def lines(self, width: int, height: int, *, ascii_only: bool) -> list[Line]:
        """The card in at most `height` lines, if that is possible; it tells how many lines are left out."""
        now = wrapped(self.now, width, 2)
        head = [rule(line(Span(" do now ", "bold")), BLANK, width, ascii_only=ascii_only)] if now else []
        return [*fitted(self.why, width, height - len(head) - len(now)), *head, *now]


def card(dataset: Dataset, analysis: Analysis, finding: Finding) -> FindingCard:
    """The card of a finding."""
    step = next(iter(finding.next_steps), "")
    command = command_of(step)
    # within a sentence the command stays: without it, the rest would be none
    seen = step.removeprefix(command).strip(" :;,") if command else step
    now = [
        *([line(Span("$ ", "dim"), Span(plain(command), "bold"), Span("   Y copies it", "dim"))] if command else []),
        *([line(plain(seen))] if seen else []),
    ]
    return FindingCard(
        tuple((title, text) for title, text in _card_texts(dataset, analysis, finding) if text), tuple(now)
    )


def fitted(texts: Iterable[tuple[str, str]], width: int, height: int, spare: Sequence[str] = ()) -> list[Line]:
    """Texts, each behind its title, in at most `height` lines, and at least one for each.

    Those with a title in `spare` are cut first, in this order, then the longest; their last line tells how many lines
    are left out.
    """
    parts = [(title, wrap(_titled(title, text), width, _CARD_LABEL if title else 0)) for title, text in texts if text]
    left = {title: len(lines) for title, lines in parts}
    for title in spare:
        while left.get(title, 0) > 1 and sum(left.values()) > height:
            left[title] -= 1
    while sum(left.values()) > height and max(left.values(), default=0) > 1:
        longest = max(left, key=lambda title: (left[title], bool(title)))
        left[longest] -= 1
    return [part for title, lines in parts for part in _first(lines, left[title], width)]


def _titled(title: str, text: str) -> Line:
    return line(Span(f"{title:<{_CARD_LABEL}}" if title else "", "head"), plain(text))


def rest_of_card(finding: Finding, width: int) -> list[Line]:
    """The part of a finding that its card leaves out: the steps after the first."""
    return _section("then", list(finding.next_steps[1:]), width)


def _first(lines: list[Line], count: int, width: int) -> list[Line]:
    """The first lines of a part; the last of them tells how many are left out."""
    if len(lines) <= count:
        return lines
    tag = f" +{plural(len(lines) - count, 'more line')}: enter"
    kept = lines[count - 1]
    words = kept.plain
    if kept.cell_len + len(tag) > width:
        words = words[: max(width - len(tag), 1)].rpartition(" ")[0]
    return [*lines[: count - 1], line(kept[: len(words)], Span(tag, "dim"))]


def _card_texts(dataset: Dataset, analysis: Analysis, finding: Finding) -> Iterable[tuple[str, str]]:
    # the verdict above has the short form of a long title
    told = finding.title if short_title(finding) != finding.title else ""
    yield "", " ".join(filter(None, (f"{told[:1].upper()}{told[1:]}." if told else "", finding.explanation)))
    frames = user_frames(finding.stack)
    yield "line", f"{label(frames[0])} ({words.stack_title(finding, dataset)})" if frames else ""
    yield "where", words.place(finding)
    on_mesh = words.on_mesh(finding, analysis.mesh) if len(finding.culprit_ranks) == 1 else ""
    yield "mesh", on_mesh.partition(" is ")[2]
    yield "suspect", "; ".join(_otherwise(finding))
    whole_files = tuple(one for one in finding.evidence if one.line is None and one.record_id is None)
    nameless = not finding.culprit_ranks and finding.group is None
    files = "; ".join(words.troubles(replace(finding, evidence=whole_files))) if nameless else ""
    yield "files", hide(f"{files}; 7 lists all files") if files else ""
    yield "cause", "; ".join(f.title for f in _causes(analysis, finding))
    yield "sure", words.certainty(finding) if finding.severity != "info" else ""


def _parts(analysis: Analysis, finding: Finding, groups: Mapping[str, str]) -> Iterable[tuple[str, list[str]]]:
    yield "who", [words.who(finding)]
    yield words.instead(finding).lower(), _otherwise(finding)
    yield "where", [words.place(finding)]
    yield "blocked", [words.held_up(finding)]
    yield "sure", _certainty(finding)
    yield "caused by", _cause(analysis, finding)
    yield "waits", words.steps(finding, groups)
    yield "next", list(finding.next_steps)
    yield "stack", [label(f) + ("" if kind_of(f) == "user" else f" ({kind_of(f)})") for f in finding.stack]
    for name, given in (("evidence", finding.evidence), ("against", finding.counter_evidence)):
        yield name, [hide(": ".join(p for p in (words.source(e), e.text) if p)) for e in given]
    yield "follows", [f.title for f in words.following(analysis, finding)]


def _certainty(finding: Finding) -> list[str]:
    return [] if finding.severity == "info" else [words.certainty(finding)]


def _otherwise(finding: Finding) -> list[str]:
    """Other ranks that may be to blame: the counter-evidence."""
    others = [rank for rank in finding.candidates if rank not in finding.culprit_ranks]
    instead = " instead" if finding.culprit_ranks else ""
    return [f"{ranks_text(others)} may be to blame{instead}"] if others else []


def _cause(analysis: Analysis, finding: Finding) -> list[str]:
    return [f"{f.id}: {f.title}" for f in _causes(analysis, finding)]


def _causes(analysis: Analysis, finding: Finding) -> list[Finding]:
    return [f for f in analysis.findings if finding.caused_by and f.id == finding.caused_by]


def _section(title: str, texts: list[str], width: int) -> list[Line]:
    """A part with its title before it; empty without texts."""
    known = [plain(text) for text in texts if text]
    left = len(known) - _MOST
    shown = known[:_MOST] + ([f"({plural(left, 'line')} more in the JSON report)"] if left > 0 else [])
    lines: list[Line] = []
    for text in shown:
        head = Span(f"{'' if lines else title:<{_LABEL}}", "head")
        lines += wrap(line(head, text), width, _LABEL + _INDENT)
    return lines
