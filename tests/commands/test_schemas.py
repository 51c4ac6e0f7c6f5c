"""`rankscope tool schema` prints what the docs publish."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.cli import run
from rankscope.command_line.acting import SCHEMAS

DOCS = Path(__file__).parents[2] / "docs"
Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_printed(name: str, capsys: Captured) -> None:
    assert run(["tool", "schema", name]) == 0
    assert capsys.readouterr().out.encode() == (DOCS / f"{name}.schema.json").read_bytes()


def test_the_report_is_the_default(capsys: Captured) -> None:
    assert run(["tool", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_other_names_are_refused(capsys: Captured) -> None:
    assert run(["tool", "schema", "verdict"]) == 2
    assert "'verdict' is not one of 'report', 'watch', 'frame'" in capsys.readouterr().err
