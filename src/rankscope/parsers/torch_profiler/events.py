"""Types of the events of a trace; msgspec skips other fields at the speed of C.

Phases and keys are those of libkineto's output_json.cpp and torch's ParamCommsUtils; older names of a key date from
2021 to 2024. Arguments stay raw at first: only a few events need them.
"""

from __future__ import annotations

from typing import Any

import msgspec

Name = int | str
Scalar = int | float | str | None
NO_ARGS = msgspec.Raw(b"null")


class CompleteEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a duration; `ts` and `dur` are microseconds."""

    ts: float
    cat: str = ""
    name: str = ""
    pid: Name = 0
    tid: Name = 0
    dur: float = 0.0
    args: msgspec.Raw = NO_ARGS


class LabelArgs(msgspec.Struct, gc=False):
    """Arguments of a metadata event."""

    name: Scalar = None
    labels: Scalar = None
    sort_index: Scalar = None


class MetadataEvent(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or thread, and its place on the screen."""

    name: str = ""
    pid: Name = 0
    tid: Name = 0
    args: LabelArgs | None = None


class InstantEvent(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An event without a duration; those named `MEMORY_EVENT` tell what an allocator holds."""

    ts: float = 0.0
    name: str = ""
    args: msgspec.Raw = NO_ARGS


MEMORY_EVENT = "[memory]"


class MemoryArgs(msgspec.Struct, gc=False, rename={
    "reserved": "Total Reserved", "allocated": "Total Allocated", "index": "Device Id", "type": "Device Type",
}):  # fmt: skip
    """Arguments of a memory event: bytes on a device after it; the type is c10::DeviceType."""

    reserved: Scalar = None
    allocated: Scalar = None
    index: Scalar = None
    type: Scalar = None


def _skipped(phase: str, number: int) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"Skipped{number}", [], gc=False, tag_field="ph", tag=phase)


PHASES = "sftICBEbneSTpFNOD"
"""Skipped phases of the trace event format: flows, counters."""
Event = Any
"""CompleteEvent, MetadataEvent, InstantEvent, or a skipped event."""
_UNION = CompleteEvent | MetadataEvent | InstantEvent
for _number, _phase in enumerate(PHASES):
    _UNION |= _skipped(_phase, _number)

EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[_UNION])
LOOSE_EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[_UNION], strict=False)
"""The same for numbers that are written as texts."""
EVENT: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_UNION)


class LaunchLink(msgspec.Struct, gc=False, rename={"collective": "Collective name"}):
    """The link from a call of the runtime to its work on a device, and whether that is a collective."""

    correlation: Scalar = None
    collective: Scalar = None


class CommArgs(msgspec.Struct, gc=False, rename={
    "external": "External id", "external_2021": "external id", "collective": "Collective name",
    "in_elements": "In msg nelems", "out_elements": "Out msg nelems", "in_size": "In msg size",
    "out_size": "Out msg size", "group_size": "Group size", "group": "Process Group Name",
    "group_id": "Process Group ID", "description": "Process Group Description", "members": "Process Group Ranks",
    "comms_id": "Comms Id", "rank": "Rank", "start": "Global rank start", "stride": "Global rank stride", "seq": "Seq",
    "source": "Src Rank", "target": "Dst Rank", "dims": "Input Dims", "types": "Input type",
}):  # fmt: skip
    """Arguments of record_param_comms, of kernels that carry them, and of annotations and operators around them."""

    correlation: Scalar = None
    external: Scalar = None
    external_2021: Scalar = None
    collective: Scalar = None
    dtype: Scalar = None
    in_elements: Scalar = None
    out_elements: Scalar = None
    in_size: Scalar = None
    out_size: Scalar = None
    group_size: Scalar = None
    group: Scalar = None
    group_id: Scalar = None
    description: Scalar = None
    members: list[Any] | Scalar = None
    rank: Scalar = None
    start: Scalar = None
    stride: Scalar = None
    seq: Scalar = None
    comms_id: Scalar = None
    source: Scalar = None
    target: Scalar = None
    dims: msgspec.Raw = NO_ARGS
    types: msgspec.Raw = NO_ARGS


LINKS: msgspec.json.Decoder[list[LaunchLink | None]] = msgspec.json.Decoder(list[LaunchLink | None])
COMMS: msgspec.json.Decoder[list[CommArgs | None]] = msgspec.json.Decoder(list[CommArgs | None])
VALUES: msgspec.json.Decoder[list[dict[str, Any] | None]] = msgspec.json.Decoder(list[dict[str, Any] | None])
MEMORIES: msgspec.json.Decoder[list[MemoryArgs | None]] = msgspec.json.Decoder(list[MemoryArgs | None])
JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding text that is no JSON, or has other types."""
