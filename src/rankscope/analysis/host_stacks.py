"""Stacks of the hosts: the owner of each frame, the activity that a stack shows, and one stack for each rank."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

import polars as pl

from rankscope.schema import Dataset, Frame

FrameOwner = Literal["user", "torch", "native", "python"]
"""Owner of a frame: the job's own code or one of its libraries, torch, native code, or the interpreter."""

_TORCH_FILE = re.compile(
    r"(?:^|/)(?:site|dist)-packages/torch/"
    r"|(?:^|/)torch/(?:_\w+|distributed|nn|autograd|utils|optim|multiprocessing|cuda|fx|jit|library|csrc"
    r"|(?:_tensor|serialization)\.py)(?:/|$)"
    r"|(?:^|/)rankscope/capture/(?!demo/)|(?:^|/)torchinductor_[^/]+/|^<eval_with_key>"
)
"""Code that torch.compile writes counts as torch's, as do hooks of the capture, which stand between job and torch."""
_NATIVE_FILE = re.compile(r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|so(?:\.\d+)*)$|^\?*$")
_PYTHON_FILE = re.compile(
    r"(?:^|/)lib(?:64)?/python3[.\d]*/(?!(?:site|dist)-packages/)|^<frozen "
    r"|^(?:asyncio|collections|concurrent|ctypes|encodings|http|importlib|json|logging|multiprocessing|urllib)/"
    r"|^(?:bdb|cmd|codecs|contextlib|copy|functools|gzip|pdb|pickle|pickletools|queue|random|runpy|selectors|shutil"
    r"|signal|socket|socketserver|ssl|subprocess|tarfile|tempfile|threading|weakref|zipfile)\.py$"
)
"""py-spy writes files of the interpreter and of packages without their install directory."""
_PACKAGE_FILE = re.compile(
    r"(?:^|/)(?:site|dist)-packages/"
    r"|^(?:accelerate|aiobotocore|boto3|botocore|datasets|deepspeed|fsspec|gcsfs|grpc|huggingface_hub|lightning|numpy"
    r"|pandas|PIL|pyarrow|pytorch_lightning|ray|requests|s3fs|safetensors|torchdata|torchvision|tqdm|transformers"
    r"|triton|urllib3|wandb|webdataset|zmq)/"
)

_ARGUMENTS = re.compile(r"(?<=.)[<({].*", re.DOTALL)
_LONGEST_NAME = 80


def kind_of(frame: Frame) -> FrameOwner:
    """The owner of a frame, by its file; Windows paths work too."""
    path = frame.file.replace("\\", "/")
    if _NATIVE_FILE.search(path) or is_native(frame):
        return "native"
    if _TORCH_FILE.search(path):
        return "torch"
    return "python" if _PYTHON_FILE.search(path) else "user"


def is_native(frame: Frame) -> bool:
    """Whether the frame is of a library or of the interpreter itself: such frames have no line."""
    return frame.line <= 0 and not frame.file.endswith((".py", ">"))


def short_function_name(frame: Frame) -> str:
    """The function name; without the long arguments of native templates and functions."""
    name = _ARGUMENTS.sub("", frame.function) if is_native(frame) else frame.function
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def own_frames(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of the job's own code, innermost first; without any, those of packages it uses."""
    user = tuple(frame for frame in stack if kind_of(frame) == "user")
    own = tuple(frame for frame in user if not _PACKAGE_FILE.search(frame.file.replace("\\", "/")))
    return own or user


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
    FramePattern(0, "exit", "taking its communicator down, in {}",
        r"(c10d::NCCLComm::)?ncclComm(Abort|Destroy|Finalize|Revoke)|c10d::ProcessGroupNCCL::(abort\w*|shutdown)|"
        r"c10d::NCCLComm::(abort|destroy)", native=True),
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
    FramePattern(2, "collective", "waiting for other ranks, in {}",
        r"ccl_(all|reduce|broadcast|barrier|send|recv)\w*|Hccl(All|Reduce|Broadcast|Scatter|Send|Recv|Barrier)\w*|"
        r"P?MPI_(All|Reduce|Gather|Scatter|B|Send|Recv|Wait)\w*", native=True),
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
        r"(cuda|hip|cu|aclrt)\w*(Synchronize|EventQuery|Memcpy)\w*|ze\w*Synchronize|(ur::\w+::)?ur(EventWait|QueueFinish)",
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
    FramePattern(9, "blocked", "waiting for a lock, in {}",
        r"_*(pthread_(mutex_lock|rwlock_(wr|rd)lock)\w*|lll_(mutex_)?lock\w*|L_lock_\d+|GI___lll_lock_wait)",
        native=True),
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
_LONGEST_COMPARED_NAME = 200
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
    return _CLASS_PREFIX.sub("", frame.function[:_LONGEST_COMPARED_NAME])


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


_HELPER_THREADS = re.compile(
    r"pin_memory|QueueFeeder|tqdm|monitor|heartbeat|tensorboard|wandb|MsgRouter|asyncio_|profil|watchdog|InductorSubproc",
    re.IGNORECASE,
)
"""Names of helper threads, which never train."""
_NAMELESS = re.compile(r"\?\?|0x[0-9a-fA-F]+")
"""Functions of libraries without symbols, as debuggers write them."""
_TITLE = re.compile(r"[A-Za-z]{2,12}::[\w.:\-]{1,80}")
"""The title that a server gives to a process: `VLLM::Worker_PP0_TP1`."""
_TRAINING_ACTIVITIES = COMMUNICATION_ACTIVITIES | {"exit", "data", "storage", "device", "compile"}
"""Activities of the training thread if the main thread waits for it."""


@dataclass(frozen=True)
class HostThread:
    """A thread of a process that belongs to a rank."""

    name: str
    """ "MainThread", "Thread-3 (pin_memory)"; "" if it has none."""
    thread_id: int | None
    is_main: bool
    gil: bool | None
    stack: tuple[Frame, ...]
    """Innermost first."""
    own: tuple[Frame, ...]
    """The frames of the job's own code, innermost first."""
    activity: StackActivity
    """The activity of the thread."""

    @property
    def label(self) -> str:
        """The name of the thread for people."""
        return self.name or (f"thread {self.thread_id}" if self.thread_id is not None else "an unnamed thread")


class _ThreadRow(NamedTuple):
    """The needed columns of a row of `threads`."""

    rank: int
    file: int
    pid: int | None
    thread: str | None
    thread_id: int | None
    is_main: bool | None
    active: bool | None
    gil: bool | None
    stack_id: int | None
    written_ns: int | None
    tool: str | None


class _ThreadFactory:
    """Builds threads from rows; analyses each distinct stack once, however many ranks share it."""

    def __init__(self, dataset: Dataset, table: pl.DataFrame) -> None:
        self._dataset, self._table = dataset, table
        self._known: dict[tuple[int | None, bool | None], tuple[tuple[Frame, ...], StackActivity]] = {}

    def thread(self, row: _ThreadRow) -> HostThread:
        """The thread of a row."""
        stack = self._dataset.stack(row.stack_id)
        key = (row.stack_id, row.active)
        if key not in self._known:
            self._known[key] = (own_frames(stack), classify_stack(stack, row.active))
        return HostThread(row.thread or "", row.thread_id, bool(row.is_main), row.gil, stack, *self._known[key])

    def process(self, row: _ThreadRow) -> list[_ThreadRow]:
        """All threads of the process of a row, in the order of the dump."""
        first = int(self._table["rank"].search_sorted(row.rank, "left"))
        after = int(self._table["rank"].search_sorted(row.rank, "right"))
        rows = map(_ThreadRow._make, self._table[first:after].iter_rows())
        return [other for other in rows if (other.file, other.pid) == (row.file, row.pid)]


@dataclass(frozen=True)
class HostStack:
    """The stacks of one rank."""

    rank: int
    pid: int | None
    path: str
    """The dump of py-spy, or the log that holds the stacks."""
    written_ns: int | None
    trains: HostThread
    """The main thread, or the thread that works while the main thread waits for it."""
    holder: HostThread | None
    """The thread that held the interpreter lock, unless it is `trains`."""
    _row: _ThreadRow = field(repr=False, compare=False)
    _maker: _ThreadFactory = field(repr=False, compare=False)

    @cached_property
    def threads(self) -> tuple[HostThread, ...]:
        """All threads of the process, in the order of the dump."""
        return tuple(map(self._maker.thread, self._maker.process(self._row)))

    @property
    def tool(self) -> str:
        """The tool that took the stack: "py-spy", "faulthandler", "pystack"."""
        return self._row.tool or "py-spy"

    @property
    def activity(self) -> StackActivity:
        """The activity of the rank."""
        return self.trains.activity

    @property
    def is_away(self) -> bool:
        """Whether its stack shows that it waits for no other rank."""
        return self.activity.doing in LOCAL_ACTIVITIES

    @property
    def communicates(self) -> bool:
        """Whether it was in a call that waits for other ranks."""
        return self.activity.doing in COMMUNICATION_ACTIVITIES


def host_stacks(dataset: Dataset, ranks: Collection[int] | None = None) -> dict[int, HostStack]:
    """The newest stacks of each rank, or of each of `ranks`; without worker processes such as those of a data
    loader."""
    threads = dataset.threads
    if threads.is_empty():
        return {}
    own = threads.filter(pl.col("rank").is_not_null() & pl.col("parent_pid").is_null())
    if ranks is not None:
        own = own.filter(pl.col("rank").is_in(list(ranks)))
    newest = pl.col("written_ns").max().over("rank")
    own = own.filter(newest.is_null() | (pl.col("written_ns") == newest)).sort(
        "rank", "file", "pid", maintain_order=True
    )
    own = own.select(_ThreadRow._fields)
    maker, paths = _ThreadFactory(dataset, own), dict(dataset.files.select("file", "path").iter_rows())
    telling = pl.col("is_main") | pl.col("gil") | pl.struct("rank", "file", "pid").is_first_distinct()
    rows = map(_ThreadRow._make, own.filter(telling).iter_rows())
    return {rank: _of_rank(maker, list(found), paths) for rank, found in groupby(rows, lambda row: row.rank)}


class UnrankedStack(NamedTuple):
    """The stacks of a process whose rank is not known."""

    name: str
    """Its title with its process id: "VLLM::Worker_PP0_TP1 (process 4711)", "process 4711", or its file."""
    pid: int | None
    host: HostStack
    """Its stacks; the rank in it is only a number of these processes."""


def unranked_stacks(dataset: Dataset) -> list[UnrankedStack]:
    """The newest stacks of processes that may be ranks, of which nothing tells the rank."""
    paths = dict(dataset.files.select("file", "path").iter_rows())
    own = dataset.threads.filter(pl.col("rank").is_null() & pl.col("process").is_not_null())
    if own.is_empty():
        return []
    places = {file: path.rpartition("/")[0] for file, path in paths.items()}
    # a process without an id is another one in each dump
    unnamed = pl.struct("file", "process").rank("dense").cast(pl.Int64)
    process = [pl.col("file").replace_strict(places, return_dtype=pl.String), "command", pl.coalesce("pid", -unnamed)]
    newest = pl.col("written_ns").max().over(process)
    own = own.filter(newest.is_null() | (pl.col("written_ns") == newest))
    own = own.with_columns(rank=(pl.struct("file", "process").rank("dense") - 1).cast(pl.Int32))
    commands = dict(own.select("rank", "command").iter_rows())
    own = own.sort("rank", maintain_order=True).select(_ThreadRow._fields)
    maker, rows = _ThreadFactory(dataset, own), map(_ThreadRow._make, own.iter_rows())
    hosts = [_of_rank(maker, list(found), paths) for _, found in groupby(rows, lambda row: row.rank)]
    return [UnrankedStack(_process_name(commands[host.rank], host), host.pid, host) for host in hosts]


def _process_name(command: str, host: HostStack) -> str:
    title = command.strip() if _TITLE.fullmatch(command.strip()) else ""
    own = f"process {host.pid}" if host.pid is not None else f"the process of {host.path}"
    return f"{title} ({own})" if title else own


def _of_rank(maker: _ThreadFactory, rows: list[_ThreadRow], paths: dict[int, str]) -> HostStack:
    """The process of a rank that communicates, or has the deepest stack in the job's own code."""
    processes = [list(found) for _, found in groupby(rows, lambda row: (row.file, row.pid))]
    made = [(threads, *_trains(maker, threads)) for threads in processes]
    threads, row, trains = max(
        made, key=lambda process: (process[2].activity.doing in COMMUNICATION_ACTIVITIES, len(process[2].own))
    )
    holder = next((maker.thread(r) for r in threads if r.gil and r != row), None)
    return HostStack(row.rank, row.pid, paths.get(row.file) or "", row.written_ns, trains, holder, row, maker)


def _trains(maker: _ThreadFactory, rows: Sequence[_ThreadRow]) -> tuple[_ThreadRow, HostThread]:
    """The main thread; if it waits for another thread, or none of its frames has a name, the one that works."""
    main = next((row for row in rows if row.is_main), rows[0])
    thread = maker.thread(main)
    nameless = all(_NAMELESS.match(frame.function) for frame in thread.stack)
    if thread.activity.doing in OTHER_THREAD_ACTIVITIES or nameless:
        for row in maker.process(main):
            other = maker.thread(row)
            if row != main and other.activity.doing in _TRAINING_ACTIVITIES and not _HELPER_THREADS.search(other.name):
                return row, other
    return main, thread


@dataclass(frozen=True)
class StackSite:
    """Ranks whose hosts were at one place with one activity."""

    ranks: tuple[int, ...]
    first: HostStack
    """The stack of the lowest rank."""

    @property
    def activity(self) -> StackActivity:
        """The activity of these hosts."""
        return self.first.activity


def stack_sites(hosts: Iterable[HostStack]) -> list[StackSite]:
    """The hosts grouped by place, the place of most ranks first."""
    by_site: dict[tuple[str, tuple[Frame, ...]], list[HostStack]] = {}
    for host in hosts:
        by_site.setdefault((host.activity.words, host.trains.own), []).append(host)
    made = [StackSite(tuple(h.rank for h in same), same[0]) for same in by_site.values()]
    return sorted(made, key=lambda site: (-len(site.ranks), site.ranks))


# Commands that collect stacks of further hosts.

MOST_NAMED_RANKS = 3
"""Most ranks that are named one by one."""
