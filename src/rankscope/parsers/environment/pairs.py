"""Names and values from the forms in which an environment is written down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"(?:export |declare -x )?([A-Za-z_][\w.%()\-]{0,199})=(.*)", re.DOTALL)
_QUOTED = re.compile(r"\"(.*)\"|'(.*)'|\$'(.*)'", re.DOTALL)


class Pair(NamedTuple):
    """A variable as it stands in a file."""

    name: str
    value: str
    line: int


def of_nul(text: str) -> Iterator[Pair]:
    """/proc/PID/environ: entries that end with a NUL."""
    for entry in text.split("\0"):
        name, equals, value = entry.partition("=")
        if equals:
            yield Pair(name, value, 1)


def of_lines(text: str) -> tuple[list[Pair], int]:
    """What env, export or declare print, and how many lines belong to nothing.

    A value with line ends goes on to the next line that begins a variable; bash prints functions like this.
    """
    found: list[Pair] = []
    lost = 0
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        pair = pair_of(line, number)
        if pair is not None:
            found.append(pair)
            inside = pair.value.startswith("() {") or _open(pair.value)
        elif line.strip() and not inside:
            lost += 1
    return found, lost


def pair_of(line: str, number: int) -> Pair | None:
    """The variable that a line sets; None if it sets none."""
    found = _LINE.fullmatch(line.strip())
    return Pair(found[1], _unquoted(found[2]), number) if found is not None else None


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value)
    return next(part for part in quoted.groups() if part is not None) if quoted is not None else value


def _open(value: str) -> bool:
    """Whether a quote is not closed: the value goes on in the next line."""
    return value[:1] in ('"', "'") and (len(value) < 2 or value[-1] != value[0])
