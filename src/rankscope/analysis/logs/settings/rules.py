"""The rules about settings: two tables of the package."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import NamedTuple

_PACKAGE = "rankscope.analysis.logs.settings"


class Rule(NamedTuple):
    """What is known of one setting."""

    name: str
    scope: str
    """ "same" on all ranks, the same within a "node", or a rank's "own"."""
    default: str
    """What being unset means; "" if that is not known."""
    harm: str
    """What a mismatch can do: "hang", "result", "speed", "evidence"."""
    effect: str


class PackRule(NamedTuple):
    """What a mode asks of one setting, where a trigger says that the mode is on."""

    pack: str
    trigger: str
    value: str
    name: str
    wants: str
    required: str
    effect: str


@cache
def rules() -> dict[str, Rule]:
    """All rules by name."""
    return {row[0]: Rule(*row) for row in _rows("rules.tsv")}


@cache
def packs() -> tuple[PackRule, ...]:
    """The rules of modes."""
    return tuple(PackRule(*row) for row in _rows("packs.tsv"))


def _rows(name: str) -> Iterator[list[str]]:
    text = (resources.files(_PACKAGE) / name).read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return (line.split("\t") for line in lines[1:])
