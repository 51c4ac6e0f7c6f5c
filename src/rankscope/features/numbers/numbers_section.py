"""Rules about numbers, for people and programs: how often each was asked and broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.model import NUMBER_RESULTS, RULES
from rankscope.kinds.finding_kinds import Standing
from rankscope.report.blocks import Bullets, Grid, Section
from rankscope.report.json import Count, ReportPart
from rankscope.schema import Dataset


class RuleObject(ReportPart):
    """A rule about numbers, and how often it was asked and broken."""

    rule: str
    limit: Standing
    asked: Count
    broken: Count
    statement: str


class NumbersObject(ReportPart):
    """The rules about numbers."""

    rules: Sequence[RuleObject]
    notes: Sequence[str]


class NumberKeys(ReportPart):
    """The key of numbers in the JSON report, only where there are summaries of tensors."""

    numbers: NumbersObject | UnsetType = UNSET


def json_keys(_: Dataset, analysis: Analysis) -> NumberKeys:
    """The rules that were asked, and what a reference run adds."""
    numbers = NUMBER_RESULTS.find(analysis)
    if numbers is None or not numbers.counts:
        return NumberKeys()
    rules = [
        RuleObject(rule.name, rule.standing, count.asked, count.broken, rule.statement)
        for rule, count in ((RULES[count.rule], count) for count in numbers.counts)
    ]
    return NumberKeys(NumbersObject(rules, numbers.notes))


def section(dataset: Dataset, analysis: Analysis) -> Iterator[Section]:
    """The rules that were asked, and what a reference run adds, in a report for people."""
    numbers = json_keys(dataset, analysis).numbers
    if numbers is UNSET:
        return
    rows = [(rule.rule, rule.limit, f"{rule.asked:,}", f"{rule.broken:,}", rule.statement) for rule in numbers.rules]
    notes = [Bullets([note[:1].upper() + note[1:] for note in numbers.notes], "Reference run")] if numbers.notes else []
    grid = Grid(head=RuleObject.__struct_fields__, rows=rows, numbers=(2, 3))
    yield Section("Rules about numbers", (grid, *notes))
