"""Activities of threads, recognised by the frames of their stacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rankscope.analysis.stack_frames import is_native, kind_of
from rankscope.schema import Frame

# Patterns of functions and files of torch, CPython, NCCL, gloo, CUDA and common packages.

ActivityKind = Literal[
    "exit", "setup", "collective", "p2p", "device", "data", "storage", "network", "compile", "import", "thread",
    "process", "lock", "gc", "sleep", "debugger", "backward", "none", "running", "blocked",
]  # fmt: skip
"""Kinds of activity. "running" and "blocked" are stacks that no pattern fits; "none" is a stack without frames."""


@dataclass(frozen=True)
class FramePattern:
    """A pattern of a frame, with the activity that it shows."""

    tier: int
    """Precedence: the lowest tier wins, then Python before native, then the innermost frame."""
    doing: ActivityKind
    words: str
    """Words that follow "rank 3 is"; `{}` is the name of the function."""
    function: str
    """Pattern of the whole function name, without its class."""
    file: str = ""
    """Pattern of any part of the file path."""
    native: bool = False
    """True for frames of libraries, False for frames of Python."""


CALLBACK_TIER = 6
"""Patterns of this tier and above hold only if no frame of the job's own code was called back from there."""

_NCCL_CALLS = (
    r"nccl(AllReduce|AllGather\w*|ReduceScatter\w*|Broadcast|Reduce|Send|Recv|AlltoAll|GroupEnd|CommInit\w*|CommSplit)"
)
"""Calls of NCCL that wait for other ranks, or may: wrappers in Python name their functions after them."""
_C10D = r"torch/distributed/(distributed_c10d|_functional_collectives\w*|nn/functional)\.py$"

FRAME_PATTERNS = (
    FramePattern(0, "exit", "in {}", r"destroy_process_group|_shutdown_backend|_?abort_process_group", _C10D),
    FramePattern(1, "setup", "setting up process groups, in {}",
        r"init_process_group|new_\w*group\w*|split_group|_store_based_barrier|_new_process_group_helper|"
        r"_create_process_group_wrapper", _C10D),
    FramePattern(1, "setup", "setting up process groups, in {}", r"_?init_device_mesh|_init_process_groups",
        r"torch/distributed/device_mesh\.py$"),
    FramePattern(1, "setup", "meeting the other ranks at the store", r"\w+", r"torch/distributed/rendezvous\.py$"),
    FramePattern(1, "setup", "meeting the other ranks at the store", r"c10d::\w*Store::.*", native=True),
    FramePattern(2, "p2p", "in {}", r"i?send|i?recv|(send|recv)_object_list|batch_isend_irecv", _C10D),
    FramePattern(2, "collective", "in {}",
        r"(monitored_)?barrier|(all_)?(gather|reduce|to_all)\w*|_?reduce_scatter\w*|_all_gather\w*|broadcast\w*|"
        r"scatter\w*|_?wait_tensor", _C10D),
    FramePattern(2, "collective", "in {}", rf"{_NCCL_CALLS}|all_\w+|reduce_scatter\w*|broadcast|send|recv|group_end",
        r"(^|/)(pynccl|pyhccl|pymscclpp|custom_all_reduce|quick_all_reduce|symm_mem)\w*\.py$"),
    FramePattern(2, "collective", "in {}",
        r"_?all_(reduce|gather|to_all)\w*|reduce_scatter\w*|gather|barrier|(broadcast|send|recv)_(object|tensor_dict)\w*",
        r"(vllm|sglang)/(srt/)?distributed/(parallel_state|communication_op)\.py$"),
    FramePattern(2, "collective", "in {}",
        r"wait|trigger_wait|wait_tensor", r"torch/distributed/_functional_collectives\w*\.py$"),
    FramePattern(2, "collective", "in {}",
        r"(synchronize|barrier|join|(grouped_)?(allreduce|allgather|reducescatter)\w*|broadcast\w*|alltoall\w*)_?",
        r"(^|/)horovod/\w+/(mpi_ops|functions)\.py$"),
    FramePattern(2, "collective", "in {}",
        r"(all|reduce)?(reduce|gather|scatter)\w*|broadcast\w*|barrier|send\w*|recv\w*",
        r"(^|/)ray/util/collective/"),
    FramePattern(2, "collective", "in {} of experts", r"(internode_|intranode_|low_latency_)?(dispatch|combine)",
        r"(^|/)deep_ep\w*/\w+\.py$"),
    FramePattern(2, "collective", "waiting for other ranks, in {}",
        r"nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|GroupEnd|CommInit\w*|CommSplit)\w*|gloo::.*|"
        r"c10d::ProcessGroup.*|c10d::Work::.*", native=True),
    FramePattern(3, "debugger", "in a debugger", r"interaction|_?cmdloop|set_trace", r"^(.*/)?(pdb|bdb|cmd|code)\.py$"),
    FramePattern(3, "compile", "building an extension",
        r"load|load_inline|_jit_compile|_write_ninja\w*|_run_ninja\w*|wait",
        r"torch/utils/(cpp_extension|file_baton|_cpp_extension\w*)\.py$"),
    FramePattern(3, "compile", "compiling",
        r"_?compile\w*|fx_codegen\w*|codegen\w*|_?convert_frame\w*|transform\w*|autotune\w*|benchmark\w*",
        r"torch/_(dynamo|inductor)/|triton/(compiler|runtime)/"),
    FramePattern(3, "storage", "in torch.{}", r"save|load", r"torch/serialization\.py$"),
    FramePattern(4, "process", "waiting for the next message of its engine",
        r"acquire_read|dequeue", r"(^|/)shm_broadcast\.py$"),
    FramePattern(4, "process", "waiting for the next message of its engine",
        r"recv_requests|recv_multimodal\w*", r"sglang/srt/managers/\w+\.py$"),
    FramePattern(4, "storage", "reading or writing a checkpoint", r"\w+",
        r"torch/(serialization\.py$|distributed/checkpoint/)|(^|/)safetensors/"),
    FramePattern(4, "storage", "reading or writing remote storage", r"\w+",
        r"(^|/)(fsspec|s3fs|gcsfs|boto3|botocore|aiobotocore|smart_open)/"),
    FramePattern(4, "storage", "copying or packing files", r"\w+", r"^(.*/)?(shutil|tarfile|zipfile|gzip)\.py$"),
    FramePattern(4, "data", "waiting for the data loader", r"_try_get_data|_get_data|_next_data|__next__",
        r"torch/utils/data/dataloader\.py$"),
    FramePattern(4, "data", "reading data",
        r"\w+", r"torch/utils/data/|(^|/)(datasets|webdataset|torchdata|streaming)/"),
    FramePattern(4, "device", "waiting for the device, in {}",
        r"synchronize|wait", r"torch/(cuda|npu|xpu|accelerator)/"),
    FramePattern(4, "device", "reading a value from the device, as .item() does",
        r".*_local_scalar_dense.*", native=True),
    FramePattern(5, "device", "waiting for the device, in {}",
        r"(cuda|hip|cu|aclrt)\w*(Synchronize|EventQuery|Memcpy)\w*",
        native=True),
    FramePattern(5, "lock", "waiting for the GIL", r"take_gil|PyGILState_Ensure|PyEval_RestoreThread",
        native=True),
    FramePattern(5, "gc", "collecting garbage", r"gc_collect\w*|_?PyGC_Collect|deduce_unreachable", native=True),
    FramePattern(5, "storage", "in {}, on a file", r"\w*?(p?read|p?write|f(data)?sync|open(at)?|fallocate)(64)?",
        r"libc[-.]|libpthread|^\(kernel\)$", native=True),
    # the capture tells which function in C the innermost frame calls: work.wait(), loss.item()
    FramePattern(5, "collective", "in {}", r"wait", r"^\(C\)$", native=True),
    FramePattern(5, "device", "waiting for the device, in {}",
        r"item|tolist|cpu|to|copy_|numpy|synchronize|nonzero", r"^\(C\)$", native=True),
    FramePattern(6, "network", "talking to a server", r"\w+",
        r"(^|/)(http|urllib3|requests|huggingface_hub|wandb|grpc|aiohttp|httpx)/|^(.*/)?(ssl|socket)\.py$"),
    FramePattern(6, "process", "waiting for another process",
        r"_?(wait|poll|communicate|join|recv|get)\w*|acquire|__enter__",
        r"^(.*/)?(subprocess|multiprocessing/\w+)\.py$"),
    FramePattern(6, "thread", "waiting for another thread",
        r"wait|join|_wait_for_tstate_lock|get|put|result|wait_for|_?shutdown|acquire|__enter__",
        r"^(.*/)?(threading|queue|concurrent/futures/\w+)\.py$"),
    FramePattern(6, "thread", "in an event loop", r"run_forever|run_until_complete|_run_once|select",
        r"^(.*/)?(asyncio/\w+|selectors)\.py$"),
    FramePattern(6, "sleep", "sleeping", r"(pysleep|time_sleep|sleep|\w*nanosleep)\w*", native=True),
    FramePattern(7, "backward", "in backward", r"_engine_run_backward|backward", r"torch/(autograd/|_tensor\.py$)"),
    FramePattern(8, "import", "importing modules", r"_find_and_load\w*|exec_module|create_module|get_data|get_code",
        r"^<frozen importlib"),
)  # fmt: skip
"""All patterns; only the tiers set their precedence."""


COMMUNICATION_ACTIVITIES: frozenset[ActivityKind] = frozenset({"setup", "collective", "p2p"})
"""Activities that wait for other ranks, or may."""
LOCAL_ACTIVITIES: frozenset[ActivityKind] = frozenset(
    {
        "exit", "data", "storage", "network", "compile", "import", "thread", "process", "lock", "gc", "sleep",
        "debugger", "running",
    }
)  # fmt: skip
"""Activities that wait for no other rank. "device", "backward" and "blocked" may wait for a kernel, so are left out."""
OTHER_THREAD_ACTIVITIES: frozenset[ActivityKind] = frozenset({"thread", "backward", "none"})
"""Activities in which another thread of the process may do the work."""

_PATTERNS = tuple((row, re.compile(row.function), re.compile(row.file)) for row in FRAME_PATTERNS)
_CLASS_PREFIX = re.compile(r"^[\w.<>]*\.(?=[^.<>]+$)")
"""Class name before a method ("Queue" in "Queue.get", "f.<locals>" in "f.<locals>.g"); not namespaces of C++."""
_LONGEST_NAME = 200
"""Longest name that is compared; a name of a megabyte is an attack or a mistake."""


@dataclass(frozen=True)
class StackActivity:
    """The activity that a stack shows."""

    doing: ActivityKind
    words: str
    """Words that follow "rank 3 is": "in barrier", "waiting for the data loader"."""
    frame: Frame | None = None
    """The frame that shows the activity; None if no frame does."""


def classify_stack(stack: Sequence[Frame], active: bool | None = None) -> StackActivity:
    """The activity that a stack shows, innermost frame first; `active` is whether the thread was running."""
    if not stack:
        return StackActivity("none", "without a frame")
    own = next((depth for depth, frame in enumerate(stack) if kind_of(frame) == "user"), len(stack))
    rows = [(row, depth) for depth, frame in enumerate(stack) if (row := _row(frame)) is not None]
    hits = [(row.tier, row.native, depth, row) for row, depth in rows if row.tier < CALLBACK_TIER or depth < own]
    if hits:
        *_, depth, row = min(hits, key=lambda hit: hit[:3])
        return StackActivity(row.doing, row.words.format(function_name(stack[depth])), stack[depth])
    if active:
        return StackActivity("running", "running")
    # a stack alone does not tell whether the thread ran
    return StackActivity("blocked", "busy or waiting" if active is None else "in a call that the stack does not name")


def function_name(frame: Frame) -> str:
    """The function name without its class, cut to a bounded length."""
    return _CLASS_PREFIX.sub("", frame.function[:_LONGEST_NAME])


@lru_cache(1 << 16)
def _row(frame: Frame) -> FramePattern | None:
    """The pattern that fits a frame."""
    name, file, native = function_name(frame), frame.file.replace("\\", "/"), is_native(frame)
    fits = (
        row
        for row, function, path in _PATTERNS
        if row.native == native and function.fullmatch(name) and path.search(file)
    )
    return min(fits, key=lambda row: row.tier, default=None)
