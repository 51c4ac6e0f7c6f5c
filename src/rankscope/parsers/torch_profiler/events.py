"""The events of a trace as types: what is not named here is skipped where it stands, at the speed of C.

Phases and keys as libkineto's output_json.cpp and torch's ParamCommsUtils write them; the older names of a key are
those of 2021 to 2024. Arguments are kept as they are at first: only a few events have any that are needed.
"""

from __future__ import annotations

from typing import Any

import msgspec

Name = int | str
Scalar = int | float | str | None
NO_ARGS = msgspec.Raw(b"null")


class CompleteEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """Something that took time; `ts` and `dur` are microseconds."""

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
    """What a process or thread is called, and where it is to be shown."""

    name: str = ""
    pid: Name = 0
    tid: Name = 0
    args: LabelArgs | None = None


def _skipped(phase: str, number: int) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"Skipped{number}", [], gc=False, tag_field="ph", tag=phase)


PHASES = "sfitICBEbneSTpFNOD"
"""Phases of the trace event format of which nothing is needed: flows, instants, counters."""
Event = Any
"""Complete, Metadata, or one of those that are skipped."""
_UNION = CompleteEvent | MetadataEvent
for _number, _phase in enumerate(PHASES):
    _UNION |= _skipped(_phase, _number)

EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[_UNION])
EVENT: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_UNION)


class LaunchLink(msgspec.Struct, gc=False, rename={"collective": "Collective name"}):
    """What ties a call of the runtime to what it started on a device, and whether that is a collective."""

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
JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding text raises that is no JSON, or not of these types."""
