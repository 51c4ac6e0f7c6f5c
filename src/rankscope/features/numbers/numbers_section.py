"""Rules about numbers, for people and programs: how often each was asked and broken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.model import NUMBER_RESULTS, RULES, NumberResults
from rankscope.report.blocks import Bullets, Grid, Section
from rankscope.schema import Dataset

HEAD = ("rule", "limit", "asked", "broken", "statement")


def section(_: Dataset, analysis: Analysis) -> Iterator[Section]:
    """The rules that were asked, and what a reference run adds, in a report for people."""
    numbers = NUMBER_RESULTS.find(analysis)
    if numbers is None or not numbers.counts:
        return
    rows = [
        (rule, standing, f"{asked:,}", f"{broken:,}", statement)
        for rule, standing, asked, broken, statement in _rule_rows(numbers)
    ]
    notes = [Bullets([note[:1].upper() + note[1:] for note in numbers.notes], "Reference run")] if numbers.notes else []
    yield Section("Rules about numbers", (Grid(head=HEAD, rows=rows, numbers=(2, 3)), *notes))


def json_keys(_: Dataset, analysis: Analysis) -> dict[str, Any]:
    """The key `numbers` of the JSON report, only where there are summaries of tensors."""
    numbers = NUMBER_RESULTS.find(analysis)
    if numbers is None or not numbers.counts:
        return {}
    rules = [dict(zip(HEAD, row, strict=True)) for row in _rule_rows(numbers)]
    return {"numbers": {"rules": rules, "notes": numbers.notes}}


def _rule_rows(numbers: NumberResults) -> list[tuple[str, str, int, int, str]]:
    known = [(RULES[count.rule], count) for count in numbers.counts]
    return [(rule.name, rule.standing, count.asked, count.broken, rule.statement) for rule, count in known]
