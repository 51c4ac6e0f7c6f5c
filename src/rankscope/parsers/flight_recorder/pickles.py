"""Safe unpickling: no global is ever resolved, and a torn file gives its whole entries.

Genuine dumps use no opcode that needs a global, so the refusal costs nothing.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

from rankscope.parsers.safe_values import RefusedError, SafeUnpickler

MOST_CUTS = 64
"""Most places, counted from the end, at which a torn file is cut before the slow reader takes it."""
SLOW_BYTES = 4 << 20
"""Most bytes for the slow reader."""


class _SlowUnpickler(pickle._Unpickler):
    """Safe unpickler in Python: its stack stays readable after the bytes run out."""

    metastack: list[list[Any]]
    stack: list[Any]

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raises RefusedError."""
        raise RefusedError(module, name)

    def leftovers(self) -> list[Any]:
        """All objects on its stacks, outermost first."""
        return [item for part in (*self.metastack, self.stack) for item in part]


def unpickle_safely(data: bytes) -> Any:
    """The object in `data`. Raises RefusedError for a global, and any error for damaged bytes."""
    # a BufferedReader has peek(), without which the C unpickler makes a call for every opcode
    return SafeUnpickler(io.BufferedReader(io.BytesIO(data))).load()


def salvage_pickle(data: bytes) -> Any:
    """The whole part of a torn dump: the dict or list that it began, with its complete entries; None without any."""
    found = _cut_back(data)
    return found if found is not None else _walk_stack(data[:SLOW_BYTES])


def _cut_back(data: bytes) -> Any:
    """The object of a file that is closed after one of its last entries: `u` ends an entry, `}(` begins the next."""
    end = len(data)
    for _ in range(MOST_CUTS):
        end = data.rfind(b"u}(", 0, end)
        if end < 0:
            return None
        for closing in (b"eu.", b"e."):
            found = _quietly(data[: end + 1] + closing)
            if isinstance(found, dict | list):
                return found
    return None


def _quietly(data: bytes) -> Any:
    try:
        return unpickle_safely(data)
    except RefusedError:
        raise
    except Exception:  # noqa: BLE001 - damaged bytes raise what they like
        return None


def _walk_stack(data: bytes) -> Any:
    reader = _SlowUnpickler(io.BytesIO(data))
    try:
        return reader.load()
    except RefusedError:
        raise
    except Exception:  # noqa: BLE001 - damaged bytes raise what they like
        return _rebuild(reader.leftovers() if hasattr(reader, "metastack") else [])


def _rebuild(items: list[Any]) -> Any:
    """The outermost dict or list of a stack, with the values that were read but not yet put in."""
    if not items or not isinstance(items[0], dict | list):
        return None
    outer, rest = items[0], items[1:]
    if isinstance(outer, list):
        return outer + [x for x in rest if isinstance(x, dict) and "profiling_name" in x]
    while len(rest) > 1 and isinstance(rest[0], str) and rest[0] != "entries":
        outer[rest[0]] = rest[1]
        rest = rest[2:]
    if len(rest) > 1 and rest[0] == "entries" and isinstance(rest[1], list):
        outer["entries"] = rest[1] + [x for x in rest[2:] if isinstance(x, dict) and "profiling_name" in x]
    return outer
