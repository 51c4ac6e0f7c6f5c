"""Installed packages that add rows to the tables of kinds: a site's own features.

An entry point of the group `rankscope.features` names a tuple of rows. A package with a row that cannot be used is left
out as a whole, because its rows need each other; its problem says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec

from rankscope.kinds.features import FEATURES, Feature
from rankscope.kinds.finding_kinds import FINDINGS, FindingKind
from rankscope.kinds.functions import GROUP, KindTable, log_failure, names_packages, reason_of
from rankscope.kinds.input_kinds import INPUTS, InputKind
from rankscope.kinds.view_kinds import TABS, VIEWS, ViewKind

SiteRow = InputKind | FindingKind | Feature | ViewKind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Allowed:
    """The use that a package may make of a row."""

    table: KindTable[Any]
    noun: str
    calls: tuple[str, ...]
    """Fields that name functions."""
    more: tuple[str, ...]
    """Other fields; the rest is for rows of rankscope's own."""


_ALLOWED: dict[type[Any], _Allowed] = {
    InputKind: _Allowed(
        table=INPUTS,
        noun="input",
        calls=("begins", "decode", "read", "restore", "add_rows"),
        more=("name", "meaning", "noun", "place", "most_bytes", "pickled", "told_if_broken", "is_ranked"),
    ),
    FindingKind: _Allowed(
        table=FINDINGS, noun="finding", calls=("find",), more=tuple(f.name for f in fields(FindingKind))
    ),
    Feature: _Allowed(
        table=FEATURES, noun="feature", calls=("join", "find", "section"), more=("name", "tables", "place")
    ),
    ViewKind: _Allowed(table=VIEWS, noun="page", calls=("page",), more=tuple(f.name for f in fields(ViewKind))),
}
_SHORT = re.compile(r"(?=.{0,70}$)(?:[^{}]|\{who\}|\{what\})*")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_CALL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_BEHIND = 1_000
"""What is added to places of packages, so that theirs stand behind rankscope's own."""


class _RowError(Exception):
    """A row that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class SitePackage:
    """An installed package that adds rows."""

    name: str
    version: str
    rows: tuple[SiteRow, ...] = ()
    problem: str = ""
    """The reason why it adds nothing; "" if it does."""

    @property
    def adds(self) -> str:
        """Its rows in words: "input fabricwatch, finding link-flapped"."""
        return ", ".join(f"{_ALLOWED[type(row)].noun} {row.name}" for row in self.rows)

    @property
    def calls(self) -> list[str]:
        """All functions that its rows name."""
        names = (getattr(row, call) for row in self.rows for call in _ALLOWED[type(row)].calls)
        return [name for name in names if name]


@cache
def site_packages() -> tuple[SitePackage, ...]:
    """The packages, by their names; each is imported, and no function of it."""
    found: list[SitePackage] = []
    if names_packages():
        for entry in sorted(entry_points(group=GROUP), key=lambda entry: (_owner(entry), entry.name)):
            before = [row for package in found for row in package.rows]
            name, version = _owner(entry)
            try:
                found.append(SitePackage(name, version, _rows_of(entry, name, before)))
            except _RowError as error:
                found.append(SitePackage(name, version, problem=str(error)))
    return tuple(found)


def _owner(entry: EntryPoint) -> tuple[str, str]:
    """Name and version of the package of an entry point."""
    return (entry.dist.name, entry.dist.version) if entry.dist is not None else (entry.name, "")


def _rows_of(entry: EntryPoint, package: str, before: Sequence[SiteRow]) -> tuple[SiteRow, ...]:
    """The rows that an entry point names, behind those of packages `before`. Raises _RowError."""
    try:
        named = entry.load()
    except (Exception, SystemExit) as error:
        log_failure(error)
        raise _RowError(f"{entry.value} cannot be imported: {reason_of(error, entry.module)}") from error
    if not isinstance(named, tuple | list):
        raise _RowError(f"{entry.value} is no tuple of rows")
    rows: list[SiteRow] = []
    for place, row in enumerate(named, 1):
        if type(row) not in _ALLOWED:
            raise _RowError(f"row {place} of {entry.value} is of type {type(row).__name__}, which no package may add")
        rows.append(_checked(row, package, [*before, *rows]))
    return tuple(rows)


def _checked(row: Any, package: str, before: Sequence[SiteRow]) -> SiteRow:
    """The row, its functions marked as those of the package. Raises _RowError."""
    kind: type[Any] = type(row)
    allowed = _ALLOWED[kind]
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    what = f"the {allowed.noun} {str(row.name)[:40]!r}"
    try:
        msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _RowError(f"{what}: {error}") from error
    if not _NAME.fullmatch(row.name):
        raise _RowError(f"{what}: a name is small letters, digits and hyphens")
    same = [other for other in before if type(other) is kind]
    if row.name in allowed.table.ours or row.name in {other.name for other in same}:
        raise _RowError(f"{what}: there is one of this name already")
    if isinstance(row, ViewKind) and row.tab not in TABS:
        raise _RowError(f"{what}: its tab {row.tab} is none of {', '.join(map(str, TABS))}")
    if isinstance(row, FindingKind) and not _SHORT.fullmatch(row.short):
        raise _RowError(f"{what}: short is a title of at most 70 characters, with {{who}} and {{what}} alone in braces")
    default = kind(**{name: values[name] for name in (*allowed.calls, *allowed.more)})
    if other := next((name for name in values if values[name] != getattr(default, name)), None):
        raise _RowError(f"{what}: {other} is for rows of rankscope's own")
    calls = {name: values[name] for name in allowed.calls if values[name]}
    if wrong := next((name for name in calls.values() if not _CALL.fullmatch(name)), None):
        raise _RowError(f"{what}: {wrong!r} is no name of a function, as module:function")
    if isinstance(row, InputKind) and not all(values[name] for name in ("begins", "decode", "restore")):
        raise _RowError(f"{what}: an input needs begins, decode and restore")
    marked: dict[str, Any] = {name: f"{package}/{call}" for name, call in calls.items()}
    if "place" in values:
        marked["place"] = row.place + _BEHIND
    checked: SiteRow = replace(row, **marked)
    return checked
