"""What containers were started with, as docker and Kubernetes tell it: not all of what a process in them has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from rankscope.parsers.environment.pairs import Pair, pair_of

_POD = re.compile(r"(?m)^\s*-?\s*name:\s*([A-Za-z_]\w{0,199})\s*\n\s*value:[ \t]*(.*)$")
_BLOCK = re.compile(r"^(\s*)Environment:\s*$")
_DESCRIBED = re.compile(r"^\s+([A-Za-z_]\w{0,199}):\s+(.*)$")
DEPTH = 64


def of_json(document: Any) -> list[list[Pair]]:
    """Each list of variables in a document: `Env` of docker, `env` of Kubernetes, or the document itself."""
    if isinstance(document, dict) and document and all(isinstance(value, str) for value in document.values()):
        return [[Pair(str(name), value, 1) for name, value in document.items()]]
    return list(_lists(document, DEPTH))


def _lists(node: Any, depth: int) -> Iterator[list[Pair]]:
    if depth == 0:
        return
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("Env", "env") and isinstance(value, list) and (found := list(_pairs(value))):
                yield found
            else:
                yield from _lists(value, depth - 1)
    elif isinstance(node, list):
        for value in node:
            yield from _lists(value, depth - 1)


def _pairs(rows: list[Any]) -> Iterator[Pair]:
    for row in rows:
        if isinstance(row, str) and (pair := pair_of(row, 1)) is not None:
            yield pair
        elif isinstance(row, dict) and isinstance(row.get("name"), str) and isinstance(row.get("value"), str):
            yield Pair(row["name"], row["value"], 1)


def of_yaml(text: str) -> list[list[Pair]]:
    """Variables of a manifest of Kubernetes: of all of its containers together."""
    found = []
    for match in _POD.finditer(text):
        value = match[2].strip()
        line = 1 + text.count("\n", 0, match.start(1))
        found.append(Pair(match[1], value.strip("\"'"), line))
    return [found] if found else []


def of_description(text: str) -> list[list[Pair]]:
    """What kubectl describe prints: a list for each container."""
    found: list[list[Pair]] = []
    indent: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        begun = _BLOCK.match(line)
        if begun is not None:
            indent = len(begun[1])
            found.append([])
        elif indent is not None:
            row = _DESCRIBED.match(line)
            if row is None or len(line) - len(line.lstrip()) <= indent:
                indent = None
            elif not row[2].startswith("<set to"):
                found[-1].append(Pair(row[1], row[2].strip(), number))
    return [pairs for pairs in found if pairs]


def loads(data: bytes) -> Any:
    """The document; None if it is damaged."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
