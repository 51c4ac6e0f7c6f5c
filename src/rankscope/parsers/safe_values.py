"""Checked conversions of values in files, and safe unpickling. A value of the wrong kind gives None, never an error."""

from __future__ import annotations

import io
import pickle
from functools import lru_cache
from typing import Any, NoReturn

import orjson

from rankscope.kinds.functions import RefusalError
from rankscope.parsers.members import Members, shared_members
from rankscope.text.secrets import clip

TEXT_LIMIT = 4096
"""Longest string; longer ones are cut, and no genuine name or path is longer."""
INT64_LIMIT = 2**63 - 1
"""Largest integer of a column."""
REMEMBERED_LENGTH = 1 << 20
"""Longest text of ranks that is remembered."""
RANK_LIMIT = 1 << 18
"""Most ranks of a job: a file must not make lists of billions."""


def safe_integer(value: Any) -> int | None:
    """A 64-bit integer; JSON dumps write some as strings."""
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


def safe_text(value: Any) -> str | None:
    """A string that any output can encode."""
    if not isinstance(value, str):
        return None
    if len(value) <= TEXT_LIMIT and value.isascii():
        return value
    return clip(value, TEXT_LIMIT).encode("utf-8", "replace").decode("utf-8")


def safe_truth(value: Any) -> bool | None:
    """A boolean."""
    return value if isinstance(value, bool) else None


def rank_list(value: Any) -> Members | None:
    """Ranks of a list or its text ("[0, 1]"); None for anything else."""
    if isinstance(value, str):
        return _remembered(value) if len(value) <= REMEMBERED_LENGTH else _ranks_in(value)
    if not isinstance(value, list | tuple) or not set(map(type, value)) <= {int}:
        return None
    fits = not value or (min(value) >= 0 and max(value) < RANK_LIMIT and len(set(value)) == len(value))
    return shared_members(value) if fits else None


def _ranks_in(value: str) -> Members | None:
    try:
        ranks = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return rank_list(ranks) if isinstance(ranks, list) else None


_remembered = lru_cache(maxsize=64)(_ranks_in)

# Pickles of strangers.

NAME_LIMIT = 100
"""Longest name of a global in a message."""


class RefusedError(RefusalError):
    """The pickle asks for a global; the message names it."""

    def __init__(self, module: str, name: str) -> None:
        super().__init__(f"asks for {safe_text(f'{module}.{name}'[:NAME_LIMIT])}: refused")


class SafeUnpickler(pickle.Unpickler):
    """Unpickler that resolves no global."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raises RefusedError."""
        raise RefusedError(module, name)


def safe_unpickler(data: bytes) -> SafeUnpickler:
    """An unpickler of bytes."""
    # a BufferedReader has peek(), without which the C unpickler makes a call for every opcode
    return SafeUnpickler(io.BufferedReader(io.BytesIO(data)))
