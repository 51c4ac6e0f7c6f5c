"""Bytes of torch's flight recorders.

A process has one for NCCL (`_dump_nccl_trace`) and one for gloo and all others (`_dump_fr_trace`). Since torch 2.15 a
hook records every backend without a recorder, "nccl" included, each into a separate ring, and `_dump_fr_trace` needs
the name of the ring: an unknown name gives an empty dump. A call holds the interpreter for 10 to 30 ms with 2,000
operations.
"""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from .identity import ITSELF, NOBODY, Backend
from .settings import RECORDER_OFF, recorder_off

NCCL_FILE, OTHER_FILE = "nccl_trace_rank_", "fr_trace_rank_"
"""Prefixes of dumps, before the rank; torch's own tools take them as options."""
_OF_OWN_FILE = "{}_trace_rank_"
"""Prefix of dumps from the ring of another backend."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NCCL, _GLOO = "nccl", "gloo"
_SAFE_BACKENDS = {_GLOO}
"""Backends that record no device events: their recorder can be read after the end of its process groups."""
_ENTRY, _ENTRIES, _NUMBER = b"profiling_name", b"entries", b"record_id"
_VALUE_BYTES = 24
"""Bytes behind the name within which the number of the first entry stands."""
_NOTICE_TIMES = ("time_discovered_started_ns", "time_discovered_completed_ns")
"""Times at which a dump noticed the start or end of an unretired operation; they differ in each dump. After a failure
of NCCL no operation is retired, so no two dumps are equal."""


class Recorder(NamedTuple):
    """A recorder of this process."""

    file: str
    """Prefix of its dumps, before the rank."""
    function: str
    backend: str = ""
    """The ring of the call; empty if the function has only one."""


NCCL = Recorder(NCCL_FILE, "_dump_nccl_trace")
OTHER = Recorder(OTHER_FILE, "_dump_fr_trace")


def recorders(used: Sequence[Backend], destroyed: bool) -> list[Recorder]:
    """The readable recorders of these backends, in their order."""
    c10d = _c10d()
    # a shared ring is safe only if all of its backends are
    all_safe = {backend.name for backend in used} <= _SAFE_BACKENDS
    safe = [b for b in used if b.name in _SAFE_BACKENDS and (b.ring or all_safe)] if destroyed else used
    known = dict.fromkeys(recorder for recorder in map(of_backend, safe) if recorder is not None)
    return [recorder for recorder in known if hasattr(c10d, recorder.function)]


def of_backend(backend: Backend) -> Recorder | None:
    """The recorder of a backend's operations; None without one."""
    if backend.recorder == NOBODY:
        return None
    if backend.name == _NCCL:
        return NCCL
    if not backend.ring:
        return OTHER
    file = OTHER_FILE if backend.recorder == ITSELF else _OF_OWN_FILE.format(_NO_NAME.sub("_", backend.name))
    return Recorder(file, OTHER.function, backend.ring)


def why_nothing(used: Sequence[Backend], issued: Collection[int]) -> str:
    """The reason why no recorder holds anything, as far as this process knows.

    `issued` are the operations that the process groups count; empty where none counts.
    """
    said = recorder_off()
    if said is not None:
        return RECORDER_OFF.format(said)
    names = ", ".join(backend.name for backend in used)
    if not recorders(used, False):
        return f"nothing is recorded: this torch has no flight recorder for {names or 'these process groups'}"
    if any(issued) and all(backend.name == _GLOO for backend in used):
        why = "only sends, receives and monitored barriers were issued, which its recorder does not hold"
    elif any(issued):
        why = "operations were issued only inside of CUDA graphs"
    elif issued:
        why = "no operation was issued"
    elif _SAFE_BACKENDS & {backend.name for backend in used if backend.recorder == ITSELF}:
        why = "no collective was issued; gloo records no send and no receive"
    else:
        why = "no operation was issued, or only inside of CUDA graphs"
    return f"nothing was recorded so far of {names}: {why}"


def read_ring(recorder: Recorder, stacks: bool) -> bytes:
    """The pickle of a recorder."""
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
    """Whether nothing happened between two reads of a recorder of this process."""
    begin = one.find(_NUMBER, one.find(_ENTRIES)) + _VALUE_BYTES
    if one == other or len(one) != len(other) or one[:begin] != other[:begin]:
        # a ring that went on has another first entry
        return one == other
    try:
        first, second = (pickle.loads(data) for data in (one, other))  # noqa: S301 - this process has written them
        entries = zip(first.pop("entries"), second.pop("entries"), strict=True)
        return bool(first == second and all(_is_same(before, after) for before, after in entries))
    except Exception:  # noqa: BLE001 - dumps that cannot be compared count as different
        return False


def _is_same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two entries are equal, but for the times of notice."""
    if before == after or before.keys() != after.keys() or after.get("retired"):
        return before == after
    return all(
        value == after[key] or (key in _NOTICE_TIMES and None not in (value, after[key]))
        for key, value in before.items()
    )


def has_entries(data: bytes) -> bool:
    """Whether any operation was recorded."""
    return _ENTRY in data


def stacks_are_cheap() -> bool:
    """Whether the modules that torch imports for the names of frames (for a lazy attribute) are already loaded."""
    return "torch._inductor" in sys.modules


def _c10d() -> Any:
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
