"""Each kind stands in docs/report.md with the words of its row, and the docs name no kind that there is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from rankscope.kinds.event_kinds import EVENTS, EventKind
from rankscope.kinds.finding_kinds import FINDINGS, FindingKind
from rankscope.kinds.input_kinds import INPUTS, InputKind

DOCS = Path(__file__).parents[2] / "docs"
REPORT = (DOCS / "report.md").read_text("utf-8")
Table = Mapping[str, FindingKind] | Mapping[str, InputKind] | Mapping[str, EventKind]
LISTS: dict[str, Table] = {"Kinds": FINDINGS, "Kinds of files": INPUTS, "Kinds of lines": EVENTS}


def listed(heading: str) -> dict[str, str]:
    """By kind the words of its row in the table below a heading; several kinds may share a row."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", REPORT, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", section[1] if section else "", re.MULTILINE)
    return {kind: meaning for kinds, meaning in rows for kind in re.findall("`([^`]+)`", kinds)}


@pytest.mark.parametrize("heading", LISTS)
def test_a_list_says_of_a_kind_what_its_row_says(heading: str) -> None:
    table = LISTS[heading]
    assert {kind: words for kind, words in listed(heading).items() if kind not in table} == {}
    assert {kind: table[kind].meaning for kind in listed(heading)} == listed(heading)


@pytest.mark.parametrize("heading", LISTS)
def test_a_list_has_every_kind(heading: str) -> None:
    assert [kind for kind in LISTS[heading] if kind not in listed(heading)] == []
