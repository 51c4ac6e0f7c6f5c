"""Verdicts and titles in one line of a terminal with 80 columns: whole sentences without names of files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from rankscope.analysis.model import Analysis, Finding, Status
from rankscope.analysis.verdict import waiting_ranks
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.text.wording import clipped, plural, rank_ranges, ranks_text

LONGEST_HEADLINE = 70
"""Characters of a headline; the badge of the status stands before it."""
_LONGEST_RANKS = 16
"""Characters of ranks by their numbers; of more their count is told."""
_LONGEST_OPERATION = 32
_CLAUSE = re.compile(r"; |, because |, and ")
"""Ends of clauses behind which a title only adds to what stands before."""
_ASIDE = re.compile(r" \([^()]*\)")
_FEWEST_WORDS = 3
"""Words of a beginning before a colon that says something by itself."""
_UNEXPLAINED: dict[Status, str] = {
    "healthy": "nothing wrong was found in what was read",
    "progressing": "the job moves; nothing is proven to hang",
    "hang": "operations are pending",
    "mismatch": "operations do not fit together",
    "failed": "a process failed",
    "slow": "the job is slower than it could be",
    "suspect": "something may be wrong; nothing is proven",
    "numbers-ok": "all checks hold; a fault of all ranks needs a reference",
    "unknown": "what was read does not show whether the job went on",
}
"""Sentences for verdicts that are longer than a headline and come from no finding."""


def short_verdict(analysis: Analysis) -> str:
    """The verdict in at most LONGEST_HEADLINE characters: that of its first cause, and how many ranks wait for it."""
    lead = _lead(analysis)
    if lead is not None:
        return with_waiting(lead)
    if len(analysis.verdict) <= LONGEST_HEADLINE:
        return analysis.verdict
    warning = next((finding for finding in analysis.findings if finding.severity == "warning"), None)
    # a verdict without a cause ends with its first warning, which no shorter one may leave out
    return short_title(warning) if warning is not None else _UNEXPLAINED[analysis.status]


def with_waiting(finding: Finding) -> str:
    """The short title of a finding, and where they fit the ranks that wait for it."""
    title, waiting = short_title(finding), waiting_ranks(finding)
    if not waiting or finding.severity != "critical" or "wait" in title:
        return title
    texts = (f"{title}; {waiting}", f"{title}; {waiting.replace(' ranks ', ' ').replace(' rank ', ' ')}", title)
    return next(text for text in texts if len(text) <= LONGEST_HEADLINE)


def short_title(finding: Finding) -> str:
    """The title of a finding in at most LONGEST_HEADLINE characters.

    Of a longer one, what stands without asides and further clauses; else the title of its kind, if a rank is accused or
    it names none; else the beginning. A short title never says more than the long one.
    """
    title = _ASIDE.sub("", _without_files(finding))
    forms = (_without_files(finding), title, *_clauses(title), *_of_kind(finding), *_before_colon(title))
    return next((text for text in forms if len(text) <= LONGEST_HEADLINE), clipped(title, LONGEST_HEADLINE))


def _lead(analysis: Analysis) -> Finding | None:
    """The finding of which the verdict speaks: a root cause, what is critical, or what makes the job slow."""
    by_rank = (
        [f for f in analysis.findings if f.severity == "critical" and f.root_cause],
        [f for f in analysis.findings if f.severity == "critical"],
        [f for f in analysis.findings if f.kind in FINDINGS and FINDINGS[f.kind].status == analysis.status == "slow"],
        [f for f in analysis.findings if f.severity == "warning" and analysis.status == "suspect"],
    )
    return next((findings[0] for findings in by_rank if findings), None)


def _without_files(finding: Finding) -> str:
    """The title without the parentheses that name a file of its evidence."""
    title = finding.title
    for name in {PurePath(evidence.file).name for evidence in finding.evidence if evidence.file}:
        title = re.sub(rf" \([^()]*{re.escape(name)}[^()]*\)", "", title)
    return title


def _clauses(title: str) -> Iterator[str]:
    """The beginnings of a title that end with a clause outside of quotes, the longest first."""
    for match in reversed(list(_CLAUSE.finditer(title))):
        if title[: match.start()].count('"') % 2 == 0:
            yield title[: match.start()]


def _before_colon(title: str) -> Iterator[str]:
    beginning, colon, _ = title.partition(": ")
    if colon and len(beginning.split()) >= _FEWEST_WORDS:
        yield beginning


def _of_kind(finding: Finding) -> Iterator[str]:
    """The short title of its kind, without the operation if that is long.

    One that names ranks says what they did, so it is for ranks that are accused, not for all who are in question.
    """
    kind = FINDINGS[finding.kind]
    accused = bool(finding.culprit_ranks) and not set(finding.culprit_ranks) <= set(finding.candidates)
    if not kind.short or ("{who}" in kind.short and not accused):
        return
    group = finding.group.description or f"group {finding.group.id}" if finding.group else ""
    number = f"#{finding.seq}" if finding.seq is not None else ""
    operation = " ".join(filter(None, (finding.op, number)))
    for what in (f"{operation} of {group}" if operation and group else operation, operation, number, "an operation"):
        if what and len(what) <= _LONGEST_OPERATION:
            yield kind.short.format(who=_who(finding), what=what)


def _who(finding: Finding) -> str:
    ranks = finding.culprit_ranks
    return ranks_text(ranks) if len(rank_ranges(ranks)) <= _LONGEST_RANKS else plural(len(ranks), "rank")
