"""Types of the events of a trace, and the meaning of their names and categories.

Phases and keys are those of libkineto's output_json.cpp and torch's ParamCommsUtils; older names of a key date from
2021 to 2024. Arguments stay raw at first: only a few events need them.
"""

from __future__ import annotations

import re
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


PHASES = "sftICBEbneSTpFNOD"
"""Skipped phases of the trace event format: flows, counters."""
Event = Any
"""CompleteEvent, MetadataEvent, InstantEvent, or a skipped event."""
_UNION = CompleteEvent | MetadataEvent | InstantEvent
for _number, _phase in enumerate(PHASES):
    _UNION |= msgspec.defstruct(f"Skipped{_number}", [], gc=False, tag_field="ph", tag=_phase)

EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[_UNION])
LOOSE_EVENTS: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[_UNION], strict=False)
"""The same for numbers that are written as texts."""
EVENT: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_UNION)


class LaunchLink(msgspec.Struct, gc=False, rename={
    "collective": "Collective name", "copied": "bytes", "speed": "memory bandwidth (GB/s)",
}):  # fmt: skip
    """The link from a call of the runtime to its work on a device, whether that is a collective, and what it copies."""

    correlation: Scalar = None
    collective: Scalar = None
    copied: Scalar = None
    speed: Scalar = None


class CommArgs(msgspec.Struct, gc=False, rename={
    "external": "External id", "external_2021": "external id", "collective": "Collective name",
    "in_elements": "In msg nelems", "out_elements": "Out msg nelems", "in_size": "In msg size",
    "out_size": "Out msg size", "group_size": "Group size", "group": "Process Group Name",
    "group_id": "Process Group ID", "description": "Process Group Description", "members": "Process Group Ranks",
    "in_splits": "In split size", "out_splits": "Out split size",
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
    in_splits: list[Any] | Scalar = None
    out_splits: list[Any] | Scalar = None


LINKS: msgspec.json.Decoder[list[LaunchLink | None]] = msgspec.json.Decoder(list[LaunchLink | None])
COMMS: msgspec.json.Decoder[list[CommArgs | None]] = msgspec.json.Decoder(list[CommArgs | None])
VALUES: msgspec.json.Decoder[list[dict[str, Any] | None]] = msgspec.json.Decoder(list[dict[str, Any] | None])
MEMORIES: msgspec.json.Decoder[list[MemoryArgs | None]] = msgspec.json.Decoder(list[MemoryArgs | None])
JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding text that is no JSON, or has other types."""


CURRENT_CATEGORIES = {
    "operator": "cpu_op", "kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset",
    "runtime": "cuda_runtime", "python": "python_function", "python function": "python_function",
}  # fmt: skip
"""Categories of 2021, in lower case, with their current names."""
DEVICE_CATEGORIES = frozenset({
    "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "cuda_profiler_range",
    "mtia_ccp_events", "mtia_workloadd", "collective_comm", "concurrent_kernel",
})  # fmt: skip
"""Categories whose process is a device and whose thread is a stream."""
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset"})
COPY_BYTES, COPY_SPEED = "bytes", "memory bandwidth (GB/s)"
"""Arguments of a copy or memset: what it moves, and how fast, from a duration with all its decimals."""
MEASURED_CATEGORIES = frozenset({"cuda_sync", "cuda_profiler_range"})
"""Categories whose arguments hold numbers: what a stream waits for, and counters of a device."""
MIRROR = "mirror"
"""Category of rows that show once more what other rows show."""
PROFILER_CATEGORIES = frozenset({"Trace", MIRROR})
"""Categories with rows of their own, about the profiler itself."""
PROCESS_CATEGORIES = {
    "Ascend Hardware": "kernel", "Communication": "collective_comm", "HCCL": "collective_comm",
    "Overlap Analysis": MIRROR, "AI Core Freq": MIRROR,
}  # fmt: skip
"""Categories of events that have none, by the name of their process (torch_npu)."""
MIRRORED_THREADS = ("Plane ",)
"""Threads of these processes that show the parts of what others show."""
UNLINKED_CATEGORIES = frozenset(
    {"cpu_op", "user_annotation", "python_function", "gpu_user_annotation", "overhead", "Trace", ""}
)
"""Categories without a correlation of the runtime: an autograd sequence number is none."""
STEP = "ProfilerStep#"
PARAM_COMMS = "record_param_comms"
LIBRARIES = r"nccl2?|ncclx|rcclx?|xccl|mccl|hccl|bccl|gloo|ucc|mpi"
_ENDS = r"(?: (?P<own>\d{1,9})(?:->|<-)(?P<peer>\d{1,9}))?"
ANNOTATION_NAME = re.compile(rf"(?P<library>{LIBRARIES}):(?P<op>[\w.]{{1,64}}){_ENDS}")
"""The name of an annotation around an operation: "nccl:send 0->1" is a send to the member at place 1."""
ISSUED_NAME = re.compile(r"c10d::(\w{1,64})")
RUN_NAMES = r"(?:void )?(?:(?:nccl|rccl|msccl|oneccl|hccl)[A-Z_]|hcom_[a-z])"
_RUN_NAME = re.compile(RUN_NAMES)
"""Names of kernels that are collectives: ncclKernel_* until 2.18, ncclDevKernel_* since, *_Generic on RCCL."""


def current_category(category: str, name: str) -> str:
    """The current name of a category."""
    now = CURRENT_CATEGORIES.get(category.lower(), category)
    return "user_annotation" if now == "cpu_op" and name.startswith(STEP) else now


def is_collective(name: str) -> bool:
    """Whether an event of this name may be an operation of a process group, or enclose one."""
    return (
        name == PARAM_COMMS
        or ISSUED_NAME.match(name) is not None
        or is_run(name)
        or ANNOTATION_NAME.match(name) is not None
    )


def is_run(name: str) -> bool:
    """Whether a kernel of this name runs a collective."""
    return _RUN_NAME.match(name) is not None


def op_of_collective(name: str) -> str:
    """The recorder's name of an operation, from its name in record_param_comms."""
    return _OPS.get(name, name)


_OPS = {
    "allreduce": "all_reduce", "allreduce_": "all_reduce", "allreduce_sparse": "all_reduce_sparse",
    "allreduce_coalesced": "allreduce_coalesced", "allreduce_coalesced_": "allreduce_coalesced",
    "allgather": "all_gather", "allgather_": "all_gather", "_allgather_base": "_all_gather_base",
    "_allgather_base_": "_all_gather_base", "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor_coalesced", "broadcast_": "broadcast",
    "reduce_": "reduce", "reduce_scatter_": "reduce_scatter", "_reduce_scatter_base_": "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor_coalesced", "all_to_allv": "all_to_all",
    "alltoall": "all_to_all", "alltoall_": "all_to_all", "alltoall_base": "all_to_all",
    "alltoall_base_": "all_to_all", "gather_": "gather", "scatter_": "scatter", "recv_": "recv",
    "recv_any_source_": "recv_any_source", "monitored_barrier_": "monitored_barrier",
}  # fmt: skip
START, END = "startcoalesced", "endcoalesced"
PSEUDO_OPS = frozenset({"wait", "init", START, END})
"""Names in record_param_comms that are no collectives, in lower case."""
