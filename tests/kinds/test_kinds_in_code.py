"""Kinds that the code makes or asks for are rows of a table, every row is made, and no list of kinds is beside them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rankscope.kinds import input_kinds
from rankscope.kinds.event_kinds import EVENTS
from rankscope.kinds.finding_kinds import FINDINGS, SEVERITIES
from rankscope.kinds.input_kinds import INPUTS
from tests.house.sources import walked

GOLDEN = Path(__file__).parents[1] / "report" / "golden"
JUDGES = ("analysis", "features")
READERS = ("parsers", "assemble", "features")
MAKES_FINDINGS = ("Finding", "Root", "_note", "finding")
MAKES_EVENTS = ("message_event", "record_event")
FINDING_NAMES = ("f", "finding", "root", "cause", "accusing")
EVENT_NAMES = ("event", "line")


@cache
def nodes_by_place() -> dict[Path, tuple[ast.AST, ...]]:
    """The nodes of each module of the package but the tables themselves, by its place."""
    places = {Path(*name.split(".")): nodes for name, nodes in walked().items() if name != "rankscope"}
    return {path.relative_to("rankscope"): nodes for path, nodes in places.items() if path.parts[1] != "kinds"}


def nodes(*packages: str) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the modules of some packages; of all without a name."""
    for path, parts in nodes_by_place().items():
        if not packages or path.parts[0] in packages:
            yield from ((path, node) for node in parts)


def read_nodes() -> Iterator[tuple[Path, ast.AST]]:
    """Every node of what reads files and makes rows of them."""
    return (
        (path, node)
        for path, node in nodes(*READERS)
        if path.parts[0] != "features" or {"read", "rows"} & {*path.parts}
    )


def texts(node: ast.AST) -> set[str]:
    """The constant texts in a node."""
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def given(node: ast.Call) -> list[ast.expr]:
    """The argument `kind` of a call: by name, else the first."""
    return [k.value for k in node.keywords if k.arg == "kind"] or node.args[:1]


def made(makers: tuple[str, ...], *packages: str) -> dict[str, Path]:
    """Kinds that calls of some names are given as a constant, with a module that does so."""
    calls = ((path, node) for path, node in nodes(*packages) if isinstance(node, ast.Call) and called(node) in makers)
    return {text: path for path, node in calls for argument in given(node) for text in texts(argument)}


def asked(names: tuple[str, ...]) -> dict[str, Path]:
    """Constants that the attribute `kind` of some names is compared with."""
    found: dict[str, Path] = {}
    for path, node in nodes():
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "kind":
            owner = node.left.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in names:
                found |= {text: path for other in node.comparators for text in texts(other)}
    return found


def test_findings_that_are_made_or_asked_for_are_in_the_table() -> None:
    used = made(MAKES_FINDINGS, *JUDGES) | asked(FINDING_NAMES)
    assert len(used) > 15
    assert {kind: path for kind, path in used.items() if kind not in FINDINGS} == {}


def test_events_that_are_told_or_asked_for_are_in_the_table() -> None:
    rows = {
        text: path
        for path, node in read_nodes()
        if isinstance(node, ast.Dict) and path.parts[0] != "parsers"
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "kind"
        for text in texts(value)
    }
    called_kind = {
        text: path
        for path, node in read_nodes()
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "KIND" for target in node.targets)
        for text in texts(node.value)
    }
    used = made(MAKES_EVENTS, *READERS) | rows | called_kind | asked(EVENT_NAMES)
    assert len(used) > 35
    assert {kind: path for kind, path in used.items() if kind not in EVENTS} == {}


@pytest.mark.parametrize("package", ["analysis", "assemble", "parsers", "features"])
def test_columns_are_asked_for_kinds_that_there_are(package: str) -> None:
    """`pl.col("kind") == "process-end"`; what traces call kinds of tracks is another matter."""
    others = ((path, node) for path, node in nodes(package) if not {"traces", "traced_times"} & {*path.parts})
    own = (node for _, node in others if isinstance(node, ast.Compare))
    told = {text for node in own if ast.unparse(node.left) == "pl.col('kind')" for text in texts(node.comparators[0])}
    assert told <= {*EVENTS, *INPUTS}


def test_no_row_is_left_that_nothing_makes() -> None:
    in_analysis = {text for _, node in nodes(*JUDGES) if isinstance(node, ast.Constant) for text in texts(node)}
    in_parsers = {text for _, node in nodes(*READERS) if isinstance(node, ast.Constant) for text in texts(node)}
    named = {node.id for _, node in nodes() if isinstance(node, ast.Name)}
    rows = {name: row for name, row in vars(input_kinds).items() if isinstance(row, input_kinds.InputKind)}
    assert set(FINDINGS) - in_analysis == set()
    assert set(EVENTS) - in_parsers == set()
    assert len(rows) == len(INPUTS)
    assert {name for name, row in rows.items() if not row.begins} - named == set()


@pytest.mark.parametrize("table", [FINDINGS, EVENTS], ids=["findings", "events"])
def test_no_list_of_kinds_is_beside_the_table(table: dict[str, object]) -> None:
    """A tuple, list or set of nothing but names of kinds says of them what belongs into their rows."""
    lists = [
        (str(path), sorted(texts(node)))
        for path, node in nodes()
        if isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1
        if all(isinstance(one, ast.Constant) and one.value in table for one in node.elts)
    ]
    assert lists == []


def test_no_finding_is_more_severe_than_its_kind() -> None:
    order = list(SEVERITIES)
    told = {
        (finding["kind"], finding["severity"])
        for path in GOLDEN.glob("*.json")
        for finding in json.loads(path.read_bytes())["findings"]
    }
    for _, node in nodes(*JUDGES):
        if isinstance(node, ast.Call) and called(node) == "Finding":
            severity = next((k.value for k in node.keywords if k.arg == "severity"), None)
            told |= {(kind, s) for arg in given(node) for kind in texts(arg) for s in texts(severity or ast.Pass())}
    known = {(kind, severity) for kind, severity in told if kind in FINDINGS and severity in SEVERITIES}
    assert len(known) > 10
    assert [one for one in known if order.index(one[1]) < order.index(FINDINGS[one[0]].worst)] == []


@pytest.mark.parametrize("table", [FINDINGS, INPUTS, EVENTS], ids=["findings", "inputs", "events"])
def test_a_row_stands_under_its_name(table: dict[str, object]) -> None:
    assert list(table) == [getattr(row, "name", "") for row in table.values()]
    assert all(getattr(row, "meaning", "") for row in table.values())
