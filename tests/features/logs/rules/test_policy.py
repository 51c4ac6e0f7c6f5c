"""The table of rules about logs."""

from __future__ import annotations

import pytest

from rankscope.features.logs.rules.log_findings import POLICY, UNEXPLAINED, Rule

RULES = [rule for stage in POLICY for rule in stage.rules]


@pytest.mark.parametrize("names", [[stage.name for stage in POLICY], [rule.name for rule in RULES]])
def test_names_differ(names: list[str]) -> None:
    """A name stands for one row."""
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_row_can_be_read(rule: Rule) -> None:
    """What a rule needs and what it outranks stands in words where its row points."""
    assert rule.needs.__doc__
    assert rule.outranks.__doc__


def test_the_note_on_harm_comes_behind_the_ends() -> None:
    """That rule asks whether the stage before it found something."""
    names = [stage.name for stage in POLICY]
    with_harm = next(stage.name for stage in POLICY for rule in stage.rules if rule.name == "lines that show harm")
    assert names.index(UNEXPLAINED) < names.index(with_harm)
