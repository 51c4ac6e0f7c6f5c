"""What ProcessGroupNCCL prints when a group is made: its settings, and the communicator it got."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs.c10d.event_builder import tell
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record

LITERALS = ("created ncclComm_ ", "initialization options: ", " environments: ")
SETTING_LIMIT = 64
_CREATED = re.compile(
    r"ProcessGroupNCCL created ncclComm_ (0x[0-9a-f]{1,16}|\(nil\)) on CUDA device: ?(.?[0-9]{0,3})", re.S
)
_HEAD = re.compile(
    r"(?:ProcessGroupNCCL|PGNCCL|HeartbeatMonitor)[ \w]{0,32} (?:initialization options|environments): (.*)"
)
_SETTING = re.compile(r"([A-Za-z][\w ]{0,60}?(?:\(ms\))?)(?: \([^)]{0,200}\))?: (.*)")


def events(record: Record) -> Iterator[Event]:
    """The events in a record."""
    if (created := _CREATED.search(record.text)) is not None:
        yield tell("pg-created", record, comm=created[1], device=_device(created[2]))
    elif (head := _HEAD.search(record.text)) is not None:
        settings = _settings(head[1])
        known = {name.lower(): value for name, value in settings}
        rank = _integer(known.get("global rank"))
        made = tell(
            "init-env", record, settings=[list(s) for s in settings], global_rank=rank,
            size=_integer(known.get("size")), timeout_ms=_integer(known.get("timeout(ms)")),
            pg_name=known.get("pg name"), nccl_version=known.get("nccl version"),
        )  # fmt: skip
        yield made._replace(rank=rank) if made.rank is None and rank is not None else made


def _device(printed: str) -> int | None:
    """The device; up to torch 2.5 it is written as the byte of that value, which many collectors drop."""
    if printed.isdecimal() and printed.isascii():
        return int(printed)
    return ord(printed[0]) if printed and ord(printed[0]) < 32 else None


def _settings(listed: str) -> list[tuple[str, str]]:
    """Pairs of name and value of `A: 1, B (what it is): 2`, as texts."""
    pairs = [_SETTING.match(part.strip()) for part in listed.split(", ")[:SETTING_LIMIT]]
    return [(pair[1], pair[2].strip()[:200]) for pair in pairs if pair is not None]


def _integer(value: str | None) -> int | None:
    return int(value) if value is not None and re.fullmatch(r"[0-9]{1,15}", value) else None
