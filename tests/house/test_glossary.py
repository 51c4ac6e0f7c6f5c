"""Each mark, kind and level that the code knows stands in docs/glossary.md, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from pathlib import Path
from typing import get_args

import pytest

from rankscope.analysis.job_state import JobState
from rankscope.analysis.model import Confidence
from rankscope.analysis.presence import Absence
from rankscope.features.numbers.page.number_grid import LOOKS
from rankscope.features.traces.page.activity import letters
from rankscope.kinds.finding_kinds import FINDINGS, STATUSES
from rankscope.tui.detail.screens.mesh_page import MARKS
from rankscope.tui.letters import LETTERS
from rankscope.tui.overview import TABLE
from tests.house.sources import ROOT

GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text("utf-8")


def entries(heading: str) -> list[str]:
    """The first column of the table below a heading, without the quotes."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", GLOSSARY, re.MULTILINE | re.DOTALL)
    cells = re.findall(r"^\| (?:`(.+?)`|\*\*(.+?)\*\*) \| ", section[1] if section else "", re.MULTILINE)
    return [(code or term).replace("\\|", "|") for code, term in cells]


def legend(name: str) -> set[str]:
    """The marks of a legend of the help, a tuple of marks with their meanings, wherever it is defined."""
    texts = (path.read_text("utf-8") for path in (ROOT / "tui").rglob("*.py"))
    values = (
        node.value
        for text in texts
        if f"\n{name} = (" in text
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple) and ast.unparse(node.targets[0]) == name
    )
    return {mark for value in values for mark, _ in ast.literal_eval(value)}


KNOWN: dict[str, Collection[str]] = {
    "Statuses": STATUSES,
    "Confidence": get_args(Confidence),
    "States of a watched job": get_args(JobState),
    "Why an operation is not in a dump": list(Absence),
    "Marks in the lanes": legend("_MARKS"),
    "Marks left of the ranks": legend("_RANK_MARKS"),
    "Marks in the overview": {chr(byte) for byte in TABLE} - {" "},
    "Marks on the page of numbers": {look.text for look in LOOKS if not look.text.isdigit()} - {" "} | {"0"},
    "Marks in lanes of traces": [mark for mark, _ in letters()],
    "Marks on the mesh": MARKS,
    "Kinds of findings": FINDINGS,
}


@pytest.mark.parametrize("heading", KNOWN)
def test_the_glossary_has_every_entry_of_the_code(heading: str) -> None:
    assert sorted(entries(heading)) == sorted(KNOWN[heading]) != []


def test_kinds_of_findings_have_the_words_of_their_rows() -> None:
    assert [kind for kind, row in FINDINGS.items() if f"| `{kind}` | {row.meaning} |" not in GLOSSARY] == []


def test_every_letter_of_an_operation_is_explained() -> None:
    words = " ".join(GLOSSARY.split())
    assert [letter for letter, name, _ in LETTERS if f"`{letter}` {name}" not in words] == []


def test_terms_stand_once_and_in_order() -> None:
    terms = entries("Terms")
    assert len(terms) > 30 and terms == sorted(set(terms))
