"""Meaning of the names and categories of events."""

from __future__ import annotations

import re

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
MEASURED_CATEGORIES = frozenset({"cuda_sync", "cuda_profiler_range"})
"""Categories whose arguments hold numbers: what a stream waits for, and counters of a device."""
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset"})
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
