"""Lines of TORCH_DISTRIBUTED_DEBUG=DETAIL for every collective, and of monitored barriers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rankscope.parsers.logs.c10d.event_builder import matched_number, message_event
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = ("CollectiveFingerPrint(", "monitoredBarrier")
_PRINT = re.compile(
    r"CollectiveFingerPrint\(SequenceNumber=(?P<seq>\d{1,18})(?:, )?OpType=(?P<op>[A-Za-z_]{1,64})(?=[,)])"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]*)\], TensorDtypes=(?P<dtype>[^,()]{1,200})"
    r", TensorDeviceTypes=(?P<device>.*))?"
)
_DEVICE = re.compile(r"device=(\w{1,32})")
_MISMATCH = re.compile(r"Detected mismatch between collectives on ranks\. Rank (\d{1,9}) is running collective: ")
_OTHER_RANK = re.compile(r", but Rank (\d{1,9}) is running collective: ")
_ASPECTS = re.compile(r"Collectives differ in the following aspects:(.{0,1000})")
_ASPECT = re.compile(
    r"(Sequence number|Op type|(?:Tensor )+(?:shapes|dtypes|devices)): ?(.*?) ?vs (.*?)(?=\s{2}|\t|\s*$)"
)
_FAILED_RANKS = re.compile(r"Ranks? (\d[\d, ]{0,8000}) failed to pass monitoredBarrier in (\d+) ms")
_REPORTER = re.compile(r"\[Rank (\d{1,9})\]: ")
_REACHED_RANK = re.compile(r"Rank (\d{1,9}) successfully reached monitoredBarrier")
_LATE_RANK = re.compile(r"Rank (\d{1,9}) timed out in monitoredBarrier after (\d+) ms")


def events(record: Record) -> Iterator[Event]:
    """The events in a record."""
    text = record.text
    if (mismatch := _MISMATCH.search(text)) is not None:
        yield message_event("fingerprint-mismatch", record, **_mismatch(text, mismatch))
    elif "Running collective: " in text and (printed := _PRINT.search(text)) is not None:
        yield message_event("fingerprint", record, **_fields(printed))
    elif "monitoredBarrier" in text:
        yield from _barrier(record)


def _fields(printed: re.Match[str]) -> dict[str, Any]:
    """`seq`, `op`, `shape`, `dtype`, `device`; the last three are None for a collective without a tensor."""
    device = _DEVICE.search(printed["device"] or "")
    shape = None if printed["shape"] is None else [int(n) for n in re.findall(r"\d{1,18}", printed["shape"])]
    return {
        "seq": int(printed["seq"]), "op": printed["op"], "shape": shape, "dtype": printed["dtype"],
        "device": device[1] if device else None,
    }  # fmt: skip


def _mismatch(text: str, mismatch: re.Match[str]) -> dict[str, Any]:
    """`ranks` of the group, their `fingerprints` [seq, op, shape, dtype, device], `aspects` [what, one, other]."""
    other = _OTHER_RANK.search(text, mismatch.end())
    ends = other.start() if other else len(text)
    first, second = _PRINT.search(text, mismatch.end(), ends), _PRINT.search(text, other.end()) if other else None
    aspects = _ASPECTS.search(text)
    return {
        "ranks": [int(mismatch[1]), *([int(other[1])] if other else [])],
        "fingerprints": [list(_fields(p).values()) for p in (first, second) if p is not None],
        "aspects": [[re.sub(r"(?:Tensor )+", "", a[1]).lower(), a[2], a[3]] for a in _ASPECT.finditer(aspects[1])]
        if aspects
        else [],
    }


def _barrier(record: Record) -> Iterator[Event]:
    """Values: `outcome`, `failed_ranks`, `reporter`, `timeout_ms`, all of the group's ranks."""
    text = record.text
    reporter = matched_number(record, _REPORTER.search(text))
    if (failed := _FAILED_RANKS.search(text)) is not None:
        ranks = sorted({int(r) for r in re.findall(r"\d{1,9}", failed[1])})
        values: dict[str, Any] = {
            "outcome": "failed",
            "failed_ranks": ranks,
            "timeout_ms": matched_number(record, failed, 2),
        }
        yield message_event("monitored-barrier", record, **values, reporter=reporter)
    elif (late := _LATE_RANK.search(text)) is not None:
        values = {"outcome": "timed-out", "failed_ranks": [], "timeout_ms": matched_number(record, late, 2)}
        yield message_event("monitored-barrier", record, **values, reporter=int(late[1]))
    elif (reached := _REACHED_RANK.search(text)) is not None:
        values = {"outcome": "reached", "failed_ranks": [], "timeout_ms": None}
        yield message_event("monitored-barrier", record, **values, reporter=int(reached[1]))
