"""The rows of findings name finders that there are, and texts that can be filled in."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from rankscope.analysis import data_gaps
from rankscope.analysis.data_gaps import find_gaps
from rankscope.analysis.root_cause import analyse
from rankscope.kinds.finding_kinds import FINDINGS, FindingKind
from rankscope.kinds.functions import function
from tests.report import samples

FOUND = [kind for kind in FINDINGS.values() if kind.find]


@pytest.mark.parametrize("kind", FOUND, ids=lambda kind: kind.name)
def test_finders_are_there(kind: FindingKind) -> None:
    inspect.signature(function(kind.find)).bind(None, False)


def test_every_finder_of_gaps_is_in_a_row() -> None:
    finders = [
        f"analysis.data_gaps:{name}"
        for name, finder in inspect.getmembers(data_gaps, inspect.isfunction)
        if finder.__module__ == data_gaps.__name__ and not name.startswith("_") and name != find_gaps.__name__
    ]
    assert len(finders) >= 7
    # features find theirs, too
    assert sorted(finders) == sorted(kind.find for kind in FOUND if not kind.find.startswith("features."))


def test_a_finder_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, _ = samples.hang()
    assert [f.kind for f in analyse(dataset).findings if f.kind == "truncated-file"] == ["truncated-file"]
    # a row that is taken out and put back would stand last, in another order than in the published schemas
    monkeypatch.setitem(FINDINGS.ours, "truncated-file", replace(FINDINGS["truncated-file"], find=""))
    assert "truncated-file" not in [f.kind for f in analyse(dataset).findings]


@pytest.mark.parametrize("kind", FINDINGS.values(), ids=lambda kind: kind.name)
def test_what_would_clear_it_can_be_filled_in(kind: FindingKind) -> None:
    assert "{" not in kind.clears.format(subject="all_reduce #1")
    assert "{" not in kind.rule
    assert not (kind.ended and kind.needs_stillness)
