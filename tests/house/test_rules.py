"""The rules of the house: what keeps a newcomer's way through it short."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest

from rankscope.kinds.input_kinds import INPUTS
from tests.house.sources import circles, definitions, imports, modules, path_of

ROLES = frozenset({"__init__", "__main__", "decode", "model"})
"""Basenames that stand for a role in each package."""
ROWS = [row.decode for row in INPUTS.values() if row.decode.startswith("parsers.")]
FORMATS = sorted({row.partition(":")[0].split(".")[1] for row in ROWS})
"""Packages and modules of `parsers` that read one format each, by the rows of inputs; features are held apart by
the contracts of import-linter."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
RIDDLE = re.compile(r"(?:What|Of|That|And|Or|But|Such|So)\b(?! if\b)")
"""Words that no docstring begins with: it names its subject."""


def test_names_of_modules_are_unique() -> None:
    paths: dict[str, list[str]] = defaultdict(list)
    for name in modules():
        paths[path_of(name).stem].append(name)
    assert {base: own for base, own in paths.items() if len(own) > 1 and base not in ROLES} == {}


def test_names_of_classes_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for name, node in definitions((ast.ClassDef,)):
        found[getattr(node, "name", "")].append(name)
    assert {cls: own for cls, own in found.items() if len(own) > 1} == {}


def test_nothing_imports_in_a_circle() -> None:
    """A package without code does not count: importing a module of it imports nothing else."""
    empty = {name for name, tree in modules().items() if path_of(name).name == "__init__.py" and len(tree.body) <= 1}
    assert circles({name: own - empty for name, own in imports().items()}) == []


def test_a_circle_is_found() -> None:
    edges = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"a", "d"}), "d": frozenset[str]()}
    assert circles(edges) == [["a", "b", "c"]]


@pytest.mark.parametrize("package", FORMATS)
def test_formats_know_nothing_of_each_other(package: str) -> None:
    """Code that several formats need lies beside them, in `parsers` itself."""
    others = re.compile(rf"rankscope\.parsers\.(?:{'|'.join((*FORMATS, 'files', 'workers'))})(?:\.|$)")
    own = re.compile(rf"rankscope\.parsers\.{package}(?:\.|$)")
    used = {
        (name, other)
        for name, known in imports().items()
        if own.match(name)
        for other in known
        if others.match(other) and not own.match(other)
    }
    assert any(map(own.match, modules())) and used == set()


def test_docstrings_name_their_subject() -> None:
    found = []
    for name, node in definitions((ast.Module, ast.ClassDef, *FUNCTIONS)):
        assert isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        text = ast.get_docstring(node) or ""
        if RIDDLE.match(text):
            found.append(f"{name}: {text[:60]}")
    assert found == []
