"""Lines of c10d when a group is made and destroyed, and for each collective with TORCH_DISTRIBUTED_DEBUG=DETAIL.

`init_process_group` waits for the other ranks (source: torch's distributed_c10d.py); with DETAIL, ranks of a group meet
in the store, print each collective, and pass monitored barriers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rankscope.features.logs.read.log_record import Event, Record, matched_number, message_event

LITERALS = (
    "created ncclComm_ ", "initialization options: ", " environments: ", "in store based barrier ",
    " is setting up NCCL communicator", "[c10d - trace] set key:",
    "has NOT been destroyed before it is being destructed",
    "destroy_process_group() was not called before program exit", "CollectiveFingerPrint(", "monitoredBarrier",
)  # fmt: skip
SETTING_LIMIT = 64
_CREATED = re.compile(
    r"ProcessGroupNCCL created ncclComm_ (0x[0-9a-f]{1,16}|\(nil\)) on CUDA device: ?(.?[0-9]{0,3})", re.S
)
_HEAD = re.compile(
    r"(?:ProcessGroupNCCL|PGNCCL|HeartbeatMonitor)[ \w]{0,32} (?:initialization options|environments): (.*)"
)
_UNDESTROYED = re.compile(
    r"process group has NOT been destroyed before|destroy_process_group\(\) was not called before program exit"
)
"""Warnings at a normal end, of torch 2.4 on and of 2.6 on."""
_SETTING = re.compile(r"([A-Za-z][\w ]{0,60}?(?:\(ms\))?)(?: \([^)]{0,200}\))?: (.*)")


def events(record: Record) -> Iterator[Event]:
    """The events in a record."""
    if any(word in record.text for word in _CALL_WORDS):
        yield from _call_events(record)
    yield from _startup_events(record)
    # the events in a record: `name` of the group, `device`, `place` in it, and `address` of the process at that place
    if not record.torn and (seat := _SEAT.search(record.text)) is not None:
        yield message_event(
            "pg-seat",
            record,
            name=seat["name"],
            device=seat["device"],
            place=int(seat["place"]),
            address=seat["address"],
        )._replace(rank=None)
    if _UNDESTROYED.search(record.text) is not None:
        yield message_event("group-left", record)
    if (created := _CREATED.search(record.text)) is not None:
        # torch up to 2.5 writes the device as one raw byte, which many collectors drop
        printed = created[2]
        device = ord(printed[0]) if printed and ord(printed[0]) < 32 else None
        if printed.isdecimal() and printed.isascii():
            device = int(printed)
        yield message_event("pg-created", record, comm=created[1], device=device)
    elif (head := _HEAD.search(record.text)) is not None:
        # pairs of name and value in `A: 1, B (explanation): 2`, as texts
        pairs = [_SETTING.match(part.strip()) for part in head[1].split(", ")[:SETTING_LIMIT]]
        settings = [(pair[1], pair[2].strip()[:200]) for pair in pairs if pair is not None]
        known = {name.lower(): value for name, value in settings}
        rank = _integer(known.get("global rank"))
        made = message_event(
            "init-env",
            record,
            settings=[list(s) for s in settings],
            global_rank=rank,
            size=_integer(known.get("size")),
            timeout_ms=_integer(known.get("timeout(ms)")),
            pg_name=known.get("pg name"),
            nccl_version=known.get("nccl version"),
        )
        yield made._replace(rank=rank) if made.rank is None and rank is not None else made


def _integer(value: str | None) -> int | None:
    return int(value) if value is not None and re.fullmatch(r"[0-9]{1,15}", value) else None


_UNIQUE_ID = re.compile(
    r"\[(\d{1,7})\] is setting up NCCL communicator and retr\w{1,8} ncclUniqueId from \[(\d{1,7})\]"
)
_BARRIER = re.compile(
    r"(Timed out initializing process group|[Ww]aiting) in store based barrier .{0,60}?rank: (\d{1,7}), (?:for )?"
    r"key: \S{0,80}?store_based_barrier_key:(\S{1,80}) \(world_size=(\d{1,7}), "
    r"(?:worker_count|num_workers_joined)=(\d{1,7})"
)


def _startup_events(record: Record) -> Iterator[Event]:
    """The events in a record.

    Values of a barrier: `timed_out`, `key`, `world_size`, and `came`, the number of arrived ranks. Values of a rank
    that asks the first rank of its group for the id of a communicator: `rank_in_group` and `waits_for`, ranks of the
    group.
    """
    if (asked := _UNIQUE_ID.search(record.text)) is not None:
        made = message_event("unique-id", record)
        inside = {"rank_in_group": int(asked[1]), "waits_for": int(asked[2])}
        yield made._replace(values={**made.values, **inside})
    found = _BARRIER.search(record.text)
    if found is None:
        return
    made = message_event(
        "store-barrier",
        record,
        timed_out=found[1].startswith("Timed"),
        key=found[3],
        world_size=matched_number(record, found, 4),
        came=matched_number(record, found, 5),
    )
    yield made._replace(rank=int(found[2])) if made.rank is None else made


_SEAT = re.compile(
    r"set key:(?:\S{0,200}/)?(?P<device>[a-z]{1,16})//pg_wrapper:(?P<name>[^/\s]{1,200})/\d{1,9}/(?P<place>\d{1,7})"
    r" address:(?P<address>\S{1,100})"
)


_CALL_WORDS = ("CollectiveFingerPrint(", "monitoredBarrier")
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


def _call_events(record: Record) -> Iterator[Event]:
    """The events in a record."""
    text = record.text
    if (mismatch := _MISMATCH.search(text)) is not None:
        yield message_event("fingerprint-mismatch", record, **_mismatch(text, mismatch))
    elif "Running collective: " in text and (printed := _PRINT.search(text)) is not None:
        yield message_event("fingerprint", record, **_print_fields(printed))
    elif "monitoredBarrier" in text:
        yield from _barrier(record)


def _print_fields(printed: re.Match[str]) -> dict[str, Any]:
    """`seq`, `op`, `shape`, `dtype`, `device`; the last three are None for a collective without a tensor."""
    device = _DEVICE.search(printed["device"] or "")
    shape = None if printed["shape"] is None else [int(n) for n in re.findall(r"\d{1,18}", printed["shape"])]
    return {
        "seq": int(printed["seq"]),
        "op": printed["op"],
        "shape": shape,
        "dtype": printed["dtype"],
        "device": device[1] if device else None,
    }


def _mismatch(text: str, mismatch: re.Match[str]) -> dict[str, Any]:
    """`ranks` of the group, their `fingerprints` [seq, op, shape, dtype, device], `aspects` [what, one, other]."""
    other = _OTHER_RANK.search(text, mismatch.end())
    ends = other.start() if other else len(text)
    first, second = _PRINT.search(text, mismatch.end(), ends), _PRINT.search(text, other.end()) if other else None
    aspects = _ASPECTS.search(text)
    return {
        "ranks": [int(mismatch[1]), *([int(other[1])] if other else [])],
        "fingerprints": [list(_print_fields(p).values()) for p in (first, second) if p is not None],
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
