"""The comparison of two runs as one HTML page with pictures: no script, and nothing that is loaded from elsewhere.

htpy escapes every text and attribute; text of files goes through `shown` before. The page forbids itself all but its
own style by a Content-Security-Policy (https://www.w3.org/TR/CSP3/, hash sources).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

import htpy as h
from htpy import Node
from markupsafe import Markup

from rankscope import __version__
from rankscope.analysis.stack_frames import own_frames
from rankscope.features.comparison.report.comparison_charts import (
    heat_picture,
    lanes_picture,
    outliers,
    ratios_picture,
    scatter_picture,
    series_picture,
)
from rankscope.features.comparison.report.comparison_report import (
    LEAST,
    MOST_METRICS,
    gate_headline,
    groups_lines,
    metric_rows,
)
from rankscope.features.comparison.rules.model import (
    ComparisonPictures,
    GateCheck,
    Hypothesis,
    PartState,
    RunComparison,
    RunDifference,
    SettingRow,
)
from rankscope.features.comparison.rules.picture_data import MOST_POINTS
from rankscope.features.comparison.rules.run_statistics import candidates_text
from rankscope.report.blocks import Picture
from rankscope.report.svg_marks import figure, shown
from rankscope.schema import Frame
from rankscope.text.wording import plural, rank_ranges

MOST_DIFFERENCES = 12
MOST_HYPOTHESES = 8
MOST_FRAMES = 8
MOST_SETTINGS = 200
MOST_LINES = 40
"""Most lines of a part or a difference."""
_KINDS = {
    "schedule": "schedule-differs",
    "settings": "settings-differ",
    "values": "values-differ",
    "durations": "durations-differ",
}


def comparison_page(found: RunComparison, is_redacted: bool = False) -> str:
    """The page; `is_redacted` tells that names were replaced before."""
    style = files("rankscope.report").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    page = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(http_equiv="Content-Security-Policy", content=policy),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.meta(name="referrer", content="no-referrer"),
            h.title[f"rankscope diff: {shown(found.headline)}"],
            h.style[Markup(style)],
        ],
        h.body[_Sections(found).main(), _footer(found, is_redacted)],
    ]
    return f"{page}\n"


class _Sections:
    """The sections of a page, which number their pictures."""

    def __init__(self, found: RunComparison) -> None:
        self._found = found
        self._drawn = 0
        self._pictures = part_pictures(found.pictures)

    def main(self) -> Node:
        """All that the page says: the answer, the differences, their causes, then each part."""
        return h.main[
            h.header[
                h.p(".tool")[f"rankscope diff {__version__}"], list(_gate(self._found.gate)),
                h.h1[shown(self._found.headline)],
                _runs(self._found), _parts(self._found),
                list(map(_next_step, self._found.hypotheses[:1])),
            ],
            list(self._differences()), list(self._causes()), list(_sides(self._found)), list(self._details()),
        ]  # fmt: skip

    def _figures(self, part: str) -> list[Node]:
        """The pictures of a part that no section before has shown."""
        pictures = self._pictures.pop(part, [])
        self._drawn += len(pictures)
        return [figure(one, self._drawn - place) for place, one in enumerate(pictures)]

    def _differences(self) -> Iterator[Node]:
        differences = self._found.differences
        if differences:
            yield h.h2["Differences, the earliest first"]
        for number, one in enumerate(differences[:MOST_DIFFERENCES], 1):
            yield _difference(number, one, candidates_text(one.runs, self._found.groups))
            if number == 1:
                part = next((name for name, kind in _KINDS.items() if kind == one.kind), "")
                yield from self._figures(part)
        if len(differences) > MOST_DIFFERENCES:
            yield h.p[f"{len(differences) - MOST_DIFFERENCES:,} more are in the JSON report."]

    def _causes(self) -> Iterator[Node]:
        if self._found.hypotheses:
            yield h.h2["Possible causes, and how to decide"]
            yield from map(_cause, self._found.hypotheses[:MOST_HYPOTHESES])

    def _details(self) -> Iterator[Node]:
        """Each part with its lines, its pictures and, for settings, its table."""
        for part in self._found.parts:
            pictures = self._figures(part.name)
            rows = self._found.pictures.settings if part.name == "settings" else ()
            if pictures or rows or part.lines:
                yield h.h2[part.name.capitalize()]
                yield h.p[shown(part.answer)]
                yield from pictures
                yield _settings(rows) if rows else _list(part.lines)


def part_pictures(data: ComparisonPictures) -> dict[str, list[Picture]]:
    """The pictures of each part that its data allow."""
    # without a rank that stands apart, the times of ranks are noise
    apart = data.scatter is not None and bool(outliers(data.scatter.dots))
    maps = {one.kind: heat_picture(one) for one in data.heat_maps if apart or one.kind != "times"}
    drawn: dict[str, list[Picture | None]] = {
        "schedule": [lanes_picture(data.lanes), maps.get("schedule")],
        "values": [*map(series_picture, data.series), maps.get("values")],
        "durations": [
            ratios_picture(data.times),
            scatter_picture(data.scatter) if data.scatter else None,
            maps.get("times"),
        ],
    }
    return {part: [one for one in pictures if one is not None] for part, pictures in drawn.items()}


def _runs(found: RunComparison) -> Node:
    head = h.tr[[h.th(scope="col")[name] for name in ("run", "path", "ranks", "verdict")]]
    rows = [
        h.tr[
            h.th(f".side-{run.label[:1].lower()}", scope="row")[shown(run.label)],
            h.td[h.code[shown(run.title)]],
            h.td[f"{run.world_size:,}" if run.world_size else "unknown"],
            h.td[shown(run.verdict)],
        ]
        for run in found.runs
    ]
    return h.table(".runs")[h.thead[head], h.tbody[rows]]


def _parts(found: RunComparison) -> Node:
    rows = [h.tr[h.th(scope="row")[part.name], _STATES[part.state], h.td[shown(part.summary)]] for part in found.parts]
    head = h.tr[[h.th(scope="col")[name] for name in ("compared", "answer", "how much")]]
    return h.table[h.thead[head], h.tbody[rows]]


_STATES: Mapping[PartState, Node] = {
    PartState.DIFFERS: h.td(".verdict.differs")["differs"],
    PartState.UNCOUNTED: h.td(".verdict")["none that counts"],
    PartState.NOT_COMPARED: h.td["not compared"],
    PartState.EQUAL: h.td(".verdict")["no difference"],
}
"""The answer of a part in some words."""


def _next_step(one: Hypothesis) -> Node:
    """The first of the causes in short, so that the first screen says what to do."""
    return h.p(".next")["May be the cause: ", shown(one.cause), ". ", h.strong[f"To decide: {shown(one.experiment)}"]]


def _difference(number: int, one: RunDifference, candidates: str) -> Node:
    stacks = [("A", one.stacks.in_a), ("B", one.stacks.in_b)]
    return h.article[
        h.h3[f"{number}. {shown(one.title)} ", h.span(".kind")[one.kind]],
        _list((candidates, *one.details) if candidates else one.details),
        h.div(".pair")[[_stack(label, frames) for label, frames in stacks]] if any(f for _, f in stacks) else None,
    ]


def _stack(label: str, frames: Sequence[Frame]) -> Node:
    own = own_frames(frames) or frames
    lines = [f"{frame.function} ({frame.file}:{frame.line})" for frame in own[:MOST_FRAMES]]
    left = len(own) - MOST_FRAMES
    text = "\n".join([*map(shown, lines), *([f"{plural(left, 'more frame')}"] if left > 0 else [])])
    return h.div[
        h.strong(f".side-{label.lower()}")[f"Stack in {label}"],
        " (innermost first)",
        h.pre[text] if frames else h.p["No stack is recorded."],
    ]


def _cause(one: Hypothesis) -> Node:
    reasons = [*(("for", text) for text in one.speaks_for), *(("against", text) for text in one.speaks_against)]
    rows = [[h.dt[label], h.dd[shown(text)]] for label, text in reasons]
    return h.article(".cause")[
        h.h3[shown(one.cause)], h.dl[rows, h.dt["decides"], h.dd[h.strong[shown(one.experiment)]]]
    ]


def _list(lines: Sequence[str]) -> Node:
    left = len(lines) - MOST_LINES
    more = h.li[f"{left:,} more are in the JSON report."] if left > 0 else None
    return h.ul[[h.li[shown(line)] for line in lines[:MOST_LINES]], more] if lines else None


def _settings(rows: Sequence[SettingRow]) -> Node:
    """The table of settings that differ, those that decide results first."""
    names = ("setting", "in A", "in B", "ranks", "matters for", "effect")
    body = [
        h.tr[
            h.th(scope="row")[h.code[shown(one.name)]],
            h.td[h.code[shown(one.value_a)]],
            h.td[h.code[shown(one.value_b)]],
            h.td[rank_ranges(one.ranks, 40)],
            h.td[one.weight],
            h.td(".effect")[shown(one.effect)],
        ]
        for one in rows[:MOST_SETTINGS]
    ]
    left = len(rows) - MOST_SETTINGS
    return [
        h.div(".wide")[h.table(".settings")[h.thead[h.tr[[h.th(scope="col")[n] for n in names]]], h.tbody[body]]],
        h.p[f"{left:,} more are in the JSON report."] if left > 0 else None,
    ]


def _gate(checks: Sequence[GateCheck]) -> Iterator[Node]:
    """The answer of a gate and its budgets; nothing without a gate."""
    if not checks:
        return
    failed = any(one.outcome != "passed" for one in checks)
    yield h.p(".verdict.differs" if failed else ".verdict")[h.strong[gate_headline(checks)]]
    rows = [(one.budget, one.outcome, one.reason) for one in checks]
    yield _table([("budget", "outcome", "reason"), *rows])


def _sides(found: RunComparison) -> Iterator[Node]:
    """Metrics over the runs of both sides, and what the runs say about each other; nothing for two runs."""
    lines, rows = list(groups_lines(found)), metric_rows(found)
    if lines or rows:
        yield h.h2["Runs"]
        yield h.dl[[[h.dt[label], h.dd[shown(text)]] for label, text in lines]]
    if rows:
        left = len(found.metrics) - MOST_METRICS
        yield h.div(".wide")[_table(rows)]
        yield h.p[f"{left:,} more are in the JSON report."] if left > 0 else None
        yield h.p[LEAST] if found.groups and found.groups.pooled else None


def _table(rows: Sequence[Sequence[str]]) -> Node:
    head, *others = rows
    body = [h.tr[h.th(scope="row")[shown(row[0])], [h.td[shown(cell)] for cell in row[1:]]] for row in others]
    return h.table[h.thead[h.tr[[h.th(scope="col")[name] for name in head]]], h.tbody[body]]


def _footer(found: RunComparison, is_redacted: bool) -> Node:
    return h.footer[
        h.h2["Not on this page"],
        h.ul[[h.li[line] for line in missing(found, is_redacted)]],
        h.p[f"Made with rankscope {__version__}. The page loads nothing and runs no script."],
    ]


def missing(found: RunComparison, is_redacted: bool) -> Iterator[str]:
    """Sentences on what the page leaves out, for those who only get the page."""
    yield "Dumps, logs and traces themselves, and tensors: the page has only what rankscope took from them."
    yield f"Frames of libraries, and more than {MOST_FRAMES} frames of a stack."
    data = found.pictures
    if any(one.count > len(one.steps) for one in data.series):
        yield f"Some steps of long series: each of {MOST_POINTS} parts keeps its highest and lowest values."
    lacks = {
        "series by step: no training series with common steps": not data.series,
        "ratios of durations: no durations that both runs have": not data.times,
        "times of ranks: too few collectives that both runs have": data.scatter is None,
    }
    yield from (f"A picture of {words}." for words, is_missing in lacks.items() if is_missing)
    yield (
        "Secrets: values of settings with KEY, TOKEN, SECRET or PASSWORD in their names, and known shapes of tokens. "
        "They are hidden."
    )
    if is_redacted:
        yield "Names of hosts and users, and paths: stand-ins such as host-1 and dir-1 replace them."
    else:
        yield "Not hidden are names of hosts and users, and paths: --redact replaces them."
