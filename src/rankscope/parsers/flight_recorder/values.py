"""Checked conversions of what a file says. A value of the wrong kind is None, never an error."""

from __future__ import annotations

from typing import Any

import orjson

TEXT_LIMIT = 4096
"""Longer strings are cut: no genuine name or path is longer."""
INT64_LIMIT = 2**63 - 1
"""Largest integer of a column."""
RANK_LIMIT = 1 << 18
"""No job has more ranks: a file must not make lists of billions."""


def integer(value: Any) -> int | None:
    """An integer of 64 bits; JSON dumps write some as strings."""
    if type(value) is int and -INT64_LIMIT <= value <= INT64_LIMIT:
        return value
    if isinstance(value, str) and len(value) < 24:
        try:
            value = int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > INT64_LIMIT:
        return None
    return value


def text(value: Any) -> str | None:
    """A string that any output can encode."""
    if not isinstance(value, str):
        return None
    if len(value) <= TEXT_LIMIT and value.isascii():
        return value
    return value[:TEXT_LIMIT].encode("utf-8", "replace").decode("utf-8")


def truth(value: Any) -> bool | None:
    """A boolean."""
    return value if isinstance(value, bool) else None


def rank_list(value: Any) -> list[int] | None:
    """Ranks, given as a list or as its text ("[0, 1]"); None if it is neither."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
    if not isinstance(value, list | tuple):
        return None
    ranks = [r for r in value if isinstance(r, int) and not isinstance(r, bool) and 0 <= r < RANK_LIMIT]
    return ranks if len(ranks) == len(value) == len(set(ranks)) else None
