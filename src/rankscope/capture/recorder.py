"""The bytes of torch's flight recorders.

A process has one for NCCL (`_dump_nccl_trace`) and one for gloo and all others (`_dump_fr_trace`). Calling them holds
the interpreter: 10 to 30 ms for 2,000 operations.
"""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

NCCL_FILE, OTHER_FILE = "nccl_trace_rank_", "fr_trace_rank_"
"""Names of dumps, before the rank; torch's own tools take them as prefixes."""
_SAFE_WHEN_GONE = {"gloo"}
"""Backends that record no device events: their recorder can be read after its process groups were destroyed."""
_NAMES = re.compile(r"[a-z_0-9]+")
_ENTRY, _ENTRIES, _NUMBER = b"profiling_name", b"entries", b"record_id"
_VALUE = 24
"""The number of the first entry stands within so many bytes of its name."""
_NOTICED = ("time_discovered_started_ns", "time_discovered_completed_ns")
"""What each dump of an operation that nobody has retired says anew: when this dump found that it had started or ended.
Once NCCL failed nobody retires anything, and no two dumps are the same any more."""


class Recorder(NamedTuple):
    """A recorder of this process."""

    file: str
    """Name of its dumps, before the rank."""
    function: str


NCCL = Recorder(NCCL_FILE, "_dump_nccl_trace")
OTHER = Recorder(OTHER_FILE, "_dump_fr_trace")


def backends(configurations: Iterable[str]) -> set[str]:
    """The backends in strings such as "gloo" and "cpu:gloo,cuda:nccl"."""
    return {_NAMES.findall(part)[-1] for text in configurations for part in text.lower().split(",") if part.strip()}


def recorders(used: set[str], destroyed: bool) -> list[Recorder]:
    """Those that the backends write to and that can be read."""
    c10d = _c10d()
    names = [NCCL] * ("nccl" in used and not destroyed)
    if used - {"nccl"} and (not destroyed or used <= _SAFE_WHEN_GONE):
        names.append(OTHER)
    return [recorder for recorder in names if hasattr(c10d, recorder.function)]


def read(recorder: Recorder, stacks: bool) -> bytes:
    """The recorder's own pickle."""
    function = getattr(_c10d(), recorder.function)
    try:
        return bytes(function(includeCollectives=True, includeStackTraces=stacks, onlyActive=False))
    except TypeError:
        # torch 2.2 takes no arguments
        return bytes(function())


def says_same(one: bytes, other: bytes) -> bool:
    """Whether nothing went on between two reads of a recorder of this process."""
    begin = one.find(_NUMBER, one.find(_ENTRIES)) + _VALUE
    if one == other or len(one) != len(other) or one[:begin] != other[:begin]:
        # of a ring that went on the first entry is another
        return one == other
    try:
        first, second = (pickle.loads(data) for data in (one, other))  # noqa: S301 - this process has written them
        entries = zip(first.pop("entries"), second.pop("entries"), strict=True)
        return bool(first == second and all(_is_same(before, after) for before, after in entries))
    except Exception:  # noqa: BLE001 - what cannot be compared is not the same
        return False


def _is_same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether an entry says the same, but for when it was noticed what it says."""
    if before == after or before.keys() != after.keys() or after.get("retired"):
        return before == after
    return all(
        value == after[key] or (key in _NOTICED and None not in (value, after[key])) for key, value in before.items()
    )


def has_entries(data: bytes) -> bool:
    """Whether any operation was recorded."""
    return _ENTRY in data


def stacks_are_cheap() -> bool:
    """Whether what torch imports to name frames (it looks for an attribute that is loaded lazily) is there already."""
    return "torch._inductor" in sys.modules


def _c10d() -> Any:
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
