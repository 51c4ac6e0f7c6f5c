"""The lines over the lanes: the input and the state of the job, and the finding."""

from __future__ import annotations

import textwrap
from datetime import UTC, tzinfo

import polars as pl
from rich.text import Text

from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.finding_kinds import SEVERITIES, STATUSES
from rankscope.kinds.input_kinds import UNKNOWN
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clock, duration, plural
from rankscope.tui.footer import DIM
from rankscope.tui.options import Palette
from rankscope.tui.palette import badge, named
from rankscope.tui.text_bars import end_of

_LEAST_ROOT = 8
LINES = 2
"""Most lines of the verdict."""


def title_line(
    dataset: Dataset,
    analysis: Analysis,
    width: int,
    palette: Palette,
    zone: tzinfo | None = None,
    state: str | None = None,
) -> Text:
    """The input, its size and the state of the job; pieces that do not fit are left out.

    `state` is the state of a watched job.
    """
    # logs print the local time of their hosts; the screen shows it as it is
    zone = UTC if zone is None and dataset.from_logs else zone
    status = _status_text(analysis, zone) if state is None else state
    groups = [plural(len(dataset.group_list), "group")] if dataset.group_list else []
    pieces = [*groups, *_gaps(dataset)]
    # The status is most important; then missing data, then the rest.
    ranks = _ranks_text(dataset)
    room = width - len(" rankscope " + ranks + status) - 5
    must = f" rankscope {end_of(plain(dataset.root), max(min(width // 3, room), _LEAST_ROOT))}  {ranks}".rstrip()
    room = width - len(must) - len(status) - 3
    shown = ""
    for piece in reversed(pieces):
        if len(piece) + 2 <= room:
            shown = f"  {piece}{shown}"
            room -= len(piece) + 2
    style = named(STATUSES[analysis.status].colour, palette, bold=True)
    return Text.assemble((must, "bold"), f"{shown}  ", (status, style))


def room_for_state(dataset: Dataset, width: int) -> int:
    """Columns for the state of a job, if the rest of the title is as short as possible."""
    return width - len(" rankscope " + _ranks_text(dataset)) - 4 - min(_LEAST_ROOT, len(plain(dataset.root)))


def _ranks_text(dataset: Dataset) -> str:
    told, whole = len(dataset.told_ranks), dataset.world_size
    where = f" in {dataset.source_noun}" if dataset.source_noun else ""
    if not told:
        # logs may tell of the number of ranks alone, or of none
        return plural(whole, "rank") + where if whole else ""
    return f"{told:,} of {plural(whole, 'rank')}{where}" if told < whole else plural(told, "rank") + where


def _gaps(dataset: Dataset) -> list[str]:
    """Parts of the input that are not shown: other attempts, files of no known kind, and unreadable ones."""
    out = []
    if dataset.attempts.height > 1:
        out.append(f"attempt {dataset.attempt + 1}/{dataset.attempts.height}")
    kinds = dataset.files.filter(pl.col("problem").is_not_null() & ~pl.col("used"))["kind"]
    unknown = int((kinds == UNKNOWN.name).sum())
    if unknown:
        out.append(plural(unknown, "unknown file"))
    if len(kinds) > unknown:
        out.append(f"{plural(len(kinds) - unknown, 'file')} unread")
    return out


def _status_text(analysis: Analysis, zone: tzinfo | None) -> str:
    text = STATUSES[analysis.status].badge
    if analysis.status == "hang" and analysis.hang_since_ns is not None:
        text += f" since {clock(analysis.hang_since_ns, zone, 0)}"
        if analysis.frozen_for_ns is not None:
            text += f", still {duration(analysis.frozen_for_ns)}"
    return text


def verdict_lines(analysis: Analysis, index: int | None, width: int, palette: Palette) -> list[Text]:
    """The finding on the screen, over at most LINES lines, with its number; the verdict if there is no finding."""
    if index is None or not analysis.findings:
        look, badge_text, text = STATUSES[analysis.status], STATUSES[analysis.status].badge, plain(analysis.verdict)
        place = ""
    else:
        finding = analysis.findings[index]
        look, badge_text, text = SEVERITIES[finding.severity], _badge(finding), finding_text(finding)
        place = f"  {index + 1}/{len(analysis.findings)} "
    head = f" {badge_text} "
    lines = textwrap.wrap(text, max(width - len(head) - len(place) - 2, 10), break_long_words=True) or [""]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], lines[LINES - 1][: max(width - len(head) - len(place) - 5, 1)] + "..."]
    strong = "bold" if index is None or analysis.findings[index].root_cause else ""
    first = Text.assemble(" ", (head, badge(look.colour, palette)), (f" {lines[0]}", strong))
    first.append(" " * (width - len(first) - len(place)) + place, DIM)
    return [first, *(Text(" " * (len(head) + 2) + line, strong) for line in lines[1:])]


def finding_text(finding: Finding) -> str:
    """A finding in one sentence: title, ranks that it holds up, and confidence."""
    text = plain(finding.title)
    if finding.blast_radius and "wait" not in text:
        text += f"; {finding.blast_radius} wait{'s' if finding.blast_radius == 1 else ''}"
    if finding.confidence != "high" and finding.severity != "info":
        text += f" ({finding.confidence} confidence)"
    return text


def _badge(finding: Finding) -> str:
    return "ROOT" if finding.root_cause else SEVERITIES[finding.severity].badge
