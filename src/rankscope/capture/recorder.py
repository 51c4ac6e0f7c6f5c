"""The bytes of torch's flight recorders.

A process has one for NCCL (`_dump_nccl_trace`) and one for gloo and all others (`_dump_fr_trace`). Since torch 2.15 a
hook records every backend that does not do so itself, "nccl" with them, each into a ring of its own, and
`_dump_fr_trace` has to be told which: a name that it does not know gives an empty dump. Calling them holds the
interpreter: 10 to 30 ms for 2,000 operations.
"""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from .identity import ITSELF, NOBODY, Backend
from .settings import RECORDER_OFF, recorder_off

NCCL_FILE, OTHER_FILE = "nccl_trace_rank_", "fr_trace_rank_"
"""Names of dumps, before the rank; torch's own tools take them as prefixes."""
_OF_OWN_FILE = "{}_trace_rank_"
"""The same of the ring of any other backend."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NCCL = "nccl"
_SAFE_WHEN_GONE = {"gloo"}
"""Backends that record no device events: their recorder can be read after its process groups were destroyed."""
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
    backend: str = ""
    """The ring that the function is asked for; empty where it knows of one only."""


NCCL = Recorder(NCCL_FILE, "_dump_nccl_trace")
OTHER = Recorder(OTHER_FILE, "_dump_fr_trace")


def recorders(used: Sequence[Backend], destroyed: bool) -> list[Recorder]:
    """Those that the backends write to and that can be read, in the order of the backends."""
    c10d = _c10d()
    # what shares a ring with others is safe only if they are
    all_safe = {backend.name for backend in used} <= _SAFE_WHEN_GONE
    safe = [b for b in used if b.name in _SAFE_WHEN_GONE and (b.ring or all_safe)] if destroyed else used
    found = dict.fromkeys(one for one in map(of_backend, safe) if one is not None)
    return [one for one in found if hasattr(c10d, one.function)]


def of_backend(backend: Backend) -> Recorder | None:
    """The recorder that holds what a backend did; None if none does."""
    if backend.recorder == NOBODY:
        return None
    if backend.name == _NCCL:
        return NCCL
    if not backend.ring:
        return OTHER
    file = OTHER_FILE if backend.recorder == ITSELF else _OF_OWN_FILE.format(_NO_NAME.sub("_", backend.name))
    return Recorder(file, OTHER.function, backend.ring)


def why_nothing(used: Sequence[Backend]) -> str:
    """Why no recorder holds anything, as far as this process can tell."""
    said = recorder_off()
    if said is not None:
        return RECORDER_OFF.format(said)
    names = ", ".join(backend.name for backend in used)
    if not recorders(used, False):
        return f"nothing is recorded: this torch has no flight recorder for {names or 'these process groups'}"
    return f"nothing was recorded so far of {names}: no operation was issued, or only inside of CUDA graphs"


def read_ring(recorder: Recorder, stacks: bool) -> bytes:
    """The recorder's own pickle."""
    function = getattr(_c10d(), recorder.function)
    ring = {"backend": recorder.backend} if recorder.backend else {}
    try:
        return bytes(function(includeCollectives=True, includeStackTraces=stacks, onlyActive=False, **ring))
    except TypeError:
        if ring:
            raise
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
