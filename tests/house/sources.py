"""The sources of the package as trees, and who imports whom."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import rankscope

ROOT = Path(rankscope.__file__).parent


@cache
def modules() -> dict[str, ast.Module]:
    """All modules by dotted name; a package has the name of its folder."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


@cache
def walked() -> dict[str, tuple[ast.AST, ...]]:
    """Every node of each module, as `ast.walk` yields them: each walk over the package takes a second."""
    return {name: tuple(ast.walk(tree)) for name, tree in modules().items()}


def path_of(name: str) -> Path:
    """The file of a module."""
    path = ROOT.parent.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def imports() -> dict[str, frozenset[str]]:
    """By module the modules of the package that it imports, in functions and for types as well."""
    return {name: frozenset(_imported(name)) for name in modules()}


def _imported(name: str) -> Iterator[str]:
    package = name if path_of(name).name == "__init__.py" else name.rpartition(".")[0]
    for node in walked()[name]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                target = f"{base}.{alias.name}"
                known = target if target in modules() else base
                if known in modules() and known != name:
                    yield known


def circles(edges: dict[str, frozenset[str]]) -> list[list[str]]:
    """The sets of modules that import each other (Tarjan's strongly connected components), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component = sorted(stack[at:])
            del stack[at:]
            if len(component) > 1:
                found.append(component)

    for node in edges:
        if node not in index:
            visit(node)
    return found


def definitions(kinds: tuple[type[ast.AST], ...]) -> Iterable[tuple[str, ast.AST]]:
    """All definitions of some kinds with the modules that they are in."""
    return ((name, node) for name, nodes in walked().items() for node in nodes if isinstance(node, kinds))
