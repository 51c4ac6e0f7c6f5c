"""Entries made alike and of the right types, one at a time: the slow way, for dumps that are damaged or odd.

What an entry cannot do without decides whether it is kept; anything else that is wrong becomes None.
"""

from __future__ import annotations

from typing import Any

from rankscope.parsers.flight_recorder.columns import FRAME_LIMIT
from rankscope.parsers.flight_recorder.values import integer, text, truth

TENSOR_LIMIT = 65536
"""Longer lists of sizes or dtypes are dropped: an all_to_all over every rank of a large job has one for each rank."""
DIMENSION_LIMIT = 64


def clean(entries: list[Any]) -> tuple[list[dict[str, Any]], int]:
    """The entries that can be used, all with the same keys and checked values, and how many were dropped."""
    cleaned = [entry for entry in map(_entry, entries) if entry is not None]
    return cleaned, len(entries) - len(cleaned)


def _entry(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict):
        return None
    seq = integer(entry.get("collective_seq_id", entry.get("seq_id")))
    name = text(entry.get("profiling_name"))
    if seq is None or name is None:
        return None
    # a column of numbers has no room for None where 0 says the same
    numbers = {key: integer(entry.get(key)) for key in ("record_id", "p2p_seq_id", "op_id")}
    return {
        "collective_seq_id": seq,
        "profiling_name": name,
        **{key: _MISSING if value is None else value for key, value in numbers.items()},
        **{key: integer(entry.get(key)) for key in _INTEGERS},
        **{key: text(entry.get(key)) for key in ("thread_name", "thread_id", "state")},
        **{key: truth(entry.get(key)) for key in ("retired", "is_p2p")},
        "process_group": _group(entry.get("process_group")),
        "duration_ms": _millis(entry.get("duration_ms")),
        "input_sizes": _sizes(entry.get("input_sizes")),
        "output_sizes": _sizes(entry.get("output_sizes")),
        "input_dtypes": _dtypes(entry.get("input_dtypes")),
        "output_dtypes": _dtypes(entry.get("output_dtypes")),
        "frames": _frames(entry.get("frames")),
    }


_MISSING = -(2**63)
_INTEGERS = (
    "pg_id", "timeout_ms", "time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns",
)  # fmt: skip


def _group(value: Any) -> tuple[str, str] | None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        return None
    name, description = text(value[0]), text(value[1])
    return None if name is None else (name, description or "")


def _millis(value: Any) -> float | None:
    return float(value) if isinstance(value, float | int) and not isinstance(value, bool) and value < 1e12 else None


def _sizes(value: Any) -> list[list[int]] | None:
    if not isinstance(value, list) or len(value) > TENSOR_LIMIT:
        return None
    good = all(isinstance(dims, list) and len(dims) <= DIMENSION_LIMIT for dims in value)
    return value if good and all(type(d) is int and integer(d) is not None for dims in value for d in dims) else None


def _dtypes(value: Any) -> list[str] | None:
    if not isinstance(value, list) or len(value) > TENSOR_LIMIT:
        return None
    names = [text(item) for item in value]
    return None if None in names else [name for name in names if name is not None]


def _frames(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    frames = [f for f in value[:FRAME_LIMIT] if isinstance(f, dict)]
    return [f for f in frames if text(f.get("name")) is not None and text(f.get("filename")) is not None
            and integer(f.get("line")) is not None]  # fmt: skip
