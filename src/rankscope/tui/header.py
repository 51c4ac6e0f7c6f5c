"""The lines over the lanes: the input and the state of the job, and the finding."""

from __future__ import annotations

import re
import textwrap
from datetime import UTC, tzinfo

import polars as pl
from rich.text import Text

from rankscope.analysis.model import Analysis, Finding
from rankscope.kinds.finding_kinds import SEVERITIES, STATUSES
from rankscope.kinds.input_kinds import UNKNOWN
from rankscope.report.headlines import short_verdict, with_waiting
from rankscope.report.words import causes_first
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clock, duration, plural, rank_ranges
from rankscope.tui.text_bars import end_of

LOGO = len(" rankscope")
_LEAST_ROOT = 8
LINES = 2
"""Most lines of the verdict."""


def title_line(
    dataset: Dataset,
    analysis: Analysis,
    width: int,
    index: int | None = None,
    zone: tzinfo | None = None,
    state: str | None = None,
) -> Text:
    """The input, its size, the state of the job, how sure the finding `index` is, and its number.

    Pieces that do not fit are left out. `state` is the state of a watched job.
    """
    # logs print the local time of their hosts; the screen shows it as it is
    zone = UTC if zone is None and dataset.from_logs else zone
    long, brief = _status_texts(analysis, zone) if state is None else (state, state)
    groups = [plural(len(dataset.group_list), "group")] if dataset.group_list else []
    pieces = [*groups, *_gaps(dataset)]
    # The status is most important; then how sure it is, then when it began, then missing data, then the rest.
    ranks = _ranks_text(dataset)
    known = "" if index is None else _sureness(dataset, analysis, index)
    for status, sure in ((long, known), (brief, known), (long, "")):
        room = width - len(" rankscope " + ranks + status + sure) - 5
        must = f" rankscope {end_of(plain(dataset.root), max(min(width // 3, room), _LEAST_ROOT))}  {ranks}".rstrip()
        if len(must) + len(status) + len(sure) + 3 <= width:
            break
    room = width - len(must) - len(status) - len(sure) - 3
    shown = ""
    for piece in reversed(pieces):
        if len(piece) + 2 <= room:
            shown = f"  {piece}{shown}"
            room -= len(piece) + 2
    text = Text.assemble((must[:LOGO], "head"), (must[LOGO:], "bold"), f"{shown} ")
    badge = f" {status} " if len(text) + len(status) + len(sure) + 2 <= width else f" {status}"
    text.append(badge, STATUSES[analysis.status].face)
    return text.append(sure.rjust(width - len(text)) if sure else "")


def _sureness(dataset: Dataset, analysis: Analysis, index: int) -> str:
    """How sure a finding is, and its number among all: "sure: high  1/3"; nothing is sure while files are read."""
    finding = analysis.findings[index]
    sure = "" if finding.severity == "info" else f"  sure: {finding.confidence}"
    if dataset.parts.whole_follows:
        sure = "  still reading"
    return f"{sure}  {causes_first(analysis).index(index) + 1}/{len(analysis.findings)} "


def room_for_state(dataset: Dataset, width: int) -> int:
    """Columns for the state of a job, if the rest of the title is as short as possible."""
    return width - len(" rankscope " + _ranks_text(dataset)) - 4 - min(_LEAST_ROOT, len(plain(dataset.root)))


def _ranks_text(dataset: Dataset) -> str:
    if dataset.is_rankless:
        return "no rank"
    known = len(dataset.told_ranks)
    whole = len(dataset.every_rank) if dataset.is_sized else known
    where = f" in {dataset.source_noun}" if dataset.source_noun else ""
    if not known:
        # logs may tell of the number of ranks alone, or of none
        return plural(whole, "rank") + where if whole else ""
    return f"{known:,} of {plural(whole, 'rank')}{where}" if known < whole else plural(known, "rank") + where


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


def _status_texts(analysis: Analysis, zone: tzinfo | None) -> tuple[str, str]:
    """The state of the job, and the same in fewer words: since when it hangs, and how long; or only how long."""
    badge = STATUSES[analysis.status].badge
    if analysis.status != "hang" or analysis.hang_since_ns is None:
        return badge, badge
    since = f"{badge} since {clock(analysis.hang_since_ns, zone, 0)}"
    if analysis.frozen_for_ns is None:
        return since, badge
    still = f", still {duration(analysis.frozen_for_ns)}"
    return since + still, badge + still


def verdict_lines(analysis: Analysis, index: int | None, width: int) -> list[Text]:
    """The finding on the screen, over at most LINES lines; the verdict if there is no finding."""
    if index is None or not analysis.findings:
        look, badge_text, text = (
            STATUSES[analysis.status],
            STATUSES[analysis.status].badge,
            plain(short_verdict(analysis)),
        )
        culprits, strong = "", "bold"
    else:
        finding = analysis.findings[index]
        look, badge_text, text = SEVERITIES[finding.severity], _badge(finding), finding_text(finding)
        badge_text = f"{badge_text}, follows" if finding.caused_by else badge_text
        culprits = rank_ranges(sorted(finding.culprit_ranks), MOST_NAMED) if finding.culprit_ranks else ""
        strong = "bold" if finding.root_cause else ""
    head = f" {badge_text} "
    lines = _wrapped(text, width - len(head) - 3)
    starts = [(head, look.face), *[(" " * len(head), "")] * (len(lines) - 1)]
    return [
        Text.assemble(" ", start, _with_culprit(f" {words}", culprits, strong))
        for start, words in zip(starts, lines, strict=True)
    ]


MOST_NAMED = 24
"""Most characters of ranks that stand out in a sentence."""


def _wrapped(text: str, width: int) -> list[str]:
    """The text in at most LINES lines."""
    lines = textwrap.wrap(text, max(width, 10), break_long_words=True) or [""]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], lines[LINES - 1][: max(width - 3, 1)] + "..."]
    return lines


def _with_culprit(words: str, culprits: str, strong: str) -> Text:
    """A line of the verdict, in which the culprits stand out."""
    at = re.search(rf"\branks? {re.escape(culprits)}(?![-,.\d]*\d)", words) if culprits else None
    if at is None:
        return Text.assemble((words, strong))
    return Text.assemble((words[: at.start()], strong), (at[0], "culprit"), (words[at.end() :], strong))


def finding_text(finding: Finding) -> str:
    """A finding in one sentence of a line, with the ranks that wait for it where they fit."""
    return plain(with_waiting(finding))


def _badge(finding: Finding) -> str:
    return "ROOT" if finding.root_cause else SEVERITIES[finding.severity].badge
