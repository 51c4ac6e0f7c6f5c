"""The answer in a few lines: what differs, who, where, why it may be, what decides, and a command to copy."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from rankscope.analysis.comparison.model import ComparedRun, DifferenceKind, Hypothesis, RunDifference
from rankscope.text.wording import plural, ranks_text
from rankscope.tui.comparison.compared_view import ComparedView, diff_command, shown
from rankscope.tui.detail.finding_text import fitted
from rankscope.tui.detail.stack_tree import one_line
from rankscope.tui.styled_text import Line, Role, Span, line

HEADLINE_LINES = 3
"""Most lines of the headline."""
LEAST_PARTS = 4
"""Lines below the card that stay free: one for each part."""
_IMPORTANT = ("means", "why", "decide", "copy Y", "who", "where", "in A", "in B", "for", "against", "run A", "run B")
"""Lines of the card, the most important first: low terminals leave out the last ones."""
_ORDER = ("means", "who", "where", "in A", "in B", "why", "for", "against", "decide", "copy Y", "run A", "run B")
_LABEL = 8
_MOST_HOSTS = 2
_LONGEST_RANKS = 40
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")
_KINDS: dict[DifferenceKind, str] = {
    "schedule-differs": "schedule", "settings-differ": "settings", "values-differ": "values",
    "durations-differ": "durations",
}  # fmt: skip


class Place(NamedTuple):
    """The difference and the cause on the card, by their numbers from 0."""

    difference: int = 0
    cause: int = 0


def headline_lines(view: ComparedView, at: Place, width: int) -> list[Line]:
    """The sentence over the card: the headline, or another difference with its number."""
    found = view.found
    text = found.headline if not at.difference else f"{found.differences[at.difference].title}"
    badge: tuple[str, Role] = (" SAME ", "fine") if found.is_same else (" DIFFERS ", "critical")
    count = len(found.differences)
    number = f" {at.difference + 1}/{count}" if count > 1 else ""
    room = max(width - len(badge[0]) - 2, 10)
    pieces = textwrap.wrap(shown(text), room - len(number), break_on_hyphens=False) or [""]
    if len(pieces) > HEADLINE_LINES:
        pieces = [*pieces[: HEADLINE_LINES - 1], f"{pieces[HEADLINE_LINES - 1][: room - len(number) - 3]}..."]
    lines = [line(" ", Span(*badge), " ", Span(pieces[0], "bold"))]
    lines += [line(" " * (len(badge[0]) + 2), Span(piece, "bold")) for piece in pieces[1:]]
    gap = " " * max(width - lines[0].cell_len - len(number) - 1, 0)
    return [line(lines[0], gap, Span(number, "dim")), *lines[1:]]


def card_lines(view: ComparedView, at: Place, width: int, height: int) -> list[Line]:
    """The card in at most `height` lines of `width` cells."""
    texts = {label: text for label, text in _texts(view, at, width) if text}
    kept = [label for label in _IMPORTANT if label in texts][: max(height, 0)]
    wanted = [(label, texts[label]) for label in _ORDER if label in kept]
    return fitted(wanted, width, max(height, len(kept)), _IMPORTANT[::-1])


def _texts(view: ComparedView, at: Place, width: int) -> Iterator[tuple[str, str]]:
    """The lines of the card with their labels; those of the cause belong to the earliest difference."""
    found = view.found
    if found.differences:
        yield from _of_difference(view, found.differences[at.difference], width)
    if found.hypotheses and not at.difference:
        cause, count = found.hypotheses[at.cause], len(found.hypotheses)
        number = f" ({at.cause + 1} of {count}, c shows the next)" if count > 1 else ""
        yield "why", shown(cause.cause) + number
        yield "for", shown("; ".join(cause.speaks_for))
        yield "against", shown("; ".join(cause.speaks_against))
        yield "decide", shown(cause.experiment)
    if found.is_same:
        yield "means", "equal as far as both runs record it; equal printed values do not prove equal bits"
    yield "copy Y", shown(command(view, at))
    for run in found.runs[:2]:
        yield f"run {run.label}", shown(f"{run.title}: {run.verdict}")


def _of_difference(view: ComparedView, one: RunDifference, width: int) -> Iterator[tuple[str, str]]:
    yield "who", _who(one, view.whole.runs)
    step = f"step {one.step}" if one.step is not None else ""
    yield "where", shown("; ".join(filter(None, (step, *one.details))))
    yield "in A", one_line(one.stacks.in_a, width - _LABEL)
    yield "in B", one_line(one.stacks.in_b, width - _LABEL)


def _who(one: RunDifference, runs: tuple[ComparedRun, ...]) -> str:
    """The ranks of a difference, and their hosts in B if these are few."""
    if not one.ranks:
        return "both runs as a whole" if one.kind != "values-differ" else "the job: one rank prints for all"
    ops = runs[1].dataset.ops
    hosts = ops.filter(pl.col("rank").is_in(one.ranks))["host"].cast(pl.String).drop_nulls().unique().sort().to_list()
    known = [host for host in hosts if host]
    where = f" on {' and '.join(known)}" if 0 < len(known) <= _MOST_HOSTS else ""
    many = f", {plural(len(one.ranks), 'rank')}" if len(one.ranks) > 1 else ""
    return shown(f"{ranks_text(one.ranks, _LONGEST_RANKS)}{many}{where}")


def command(view: ComparedView, at: Place) -> str:
    """A command for the next step: of the cause on the card, of a run that failed, or for a report to share."""
    found = view.found
    cause = found.hypotheses[at.cause] if found.hypotheses and not at.difference else None
    if cause is not None and (own := _command_of(view, cause)):
        return own
    accused = set(found.differences[at.difference].ranks) if found.differences else set()
    failed = [
        (not accused & set(run.analysis.culprits), facts.title, min(run.analysis.culprits))
        for run, facts in zip(view.whole.runs[::-1], found.runs[::-1], strict=True)
        if run.analysis.is_critical and run.analysis.culprits
    ]
    if failed:
        _, title, rank = min(failed, key=lambda one: one[0])
        return f"rankscope report {shlex.quote(title)} --why {rank}"
    return diff_command(found, "-o diff.md")


def _command_of(view: ComparedView, cause: Hypothesis) -> str:
    """The command in an experiment, or the one that gives a setting of A its value in B."""
    if "rankscope repro --determinism" in cause.experiment:
        return f"rankscope repro {shlex.quote(view.found.runs[0].title)} --determinism"
    for change in view.whole.grounds.settings.changes:
        if cause.cause.startswith(f"{change.name} differs") and _VARIABLE.fullmatch(change.name):
            value = change.changes[0][1]
            unset = value.startswith("unset")
            return f"unset {change.name}" if unset else f"export {change.name}={shlex.quote(value)}"
    return ""


class AnswerEntry(NamedTuple):
    """A line below the card: a part to open, or a difference or a cause for the card."""

    text: Line
    part: str = ""
    """Name of the part that it opens."""
    place: Place = Place()
    """What it shows on the card, unless it opens a part."""


def entries(view: ComparedView) -> list[AnswerEntry]:
    """The parts, then differences and causes if there are several. Without colours their marks tell the same."""
    found = view.found
    differs = {_KINDS.get(one.kind) for one in found.differences}
    rows = []
    for part in found.parts:
        left = part.summary.startswith("not compared")
        mark: tuple[str, Role] = ("- ", "dim") if left else ("! ", "warn") if part.name in differs else ("= ", "good")
        text = line(Span(*mark), Span(f"{part.name:<11}", "bold"), Span(shown(part.summary), _faint(left)))
        rows.append(AnswerEntry(text, part.name))
    for number, one in enumerate(found.differences if len(found.differences) > 1 else ()):
        words = line(Span(f"{number + 1:>2}. ", "dim"), shown(f"{one.kind}: {one.title}"))
        rows.append(AnswerEntry(words, place=Place(number)))
    for number, cause in enumerate(found.hypotheses if len(found.hypotheses) > 1 else ()):
        words = line(Span(f" ?{number + 1} ", "dim"), shown(f"cause: {cause.cause}; {cause.experiment}"))
        rows.append(AnswerEntry(words, place=Place(0, number)))
    return rows


def _faint(left: bool) -> Role:
    return "dim" if left else "text"
