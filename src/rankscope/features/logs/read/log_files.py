"""Log files: recognised by lines of a job anywhere in their beginning, and read as a stream; of a growing log only the
new part is read each time, and a little before it.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import IO

from rankscope.features.logs.read import ras_output
from rankscope.features.logs.read.decode import decode_range, line_start
from rankscope.features.logs.read.log_record import PYTEST_MARK
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.read.record_reader import NCCL_HEAD, NO_BREAK
from rankscope.parsers import streams
from rankscope.parsers.contents import LogStretch
from rankscope.parsers.line_blocks import is_text
from rankscope.parsers.line_prefixes import COLOUR, LinePrefix, strip_prefixes, unwrapped
from rankscope.parsers.streams import memory_limit

MEMORY_BYTES = 32 << 20
"""Memory for decoding a log or a range of it, given as the size of an equal dump."""
MOST_ZEROS = 1 << 32
"""Most zero bytes that the reader skips at the beginning of a file. Such a file was emptied while a program without
append mode wrote to it, as logrotate's copytruncate does."""


def read_log(
    stream: IO[bytes], size: int, part: tuple[int, int] | None = None, named: bool = False, given: bool = False
) -> LogContent | None:
    """The log in a stream that stands at its beginning; None if it is no log.

    `part` (number, of how many) says that the stream is a plain, seekable file of `size` bytes: with more than one
    part, only that range is read. `named` says that the file has the name of a log: then any event in it makes it one.
    `given` says that the user named it: then any text is one.
    """
    first = _recognised(stream, size if part is not None else 0, named, given)
    if first is None:
        return None
    from rankscope.features.logs.read import decode

    with memory_limit(MEMORY_BYTES):
        if part is None or part[1] == 1:
            return decode.decode_log(stream, first)
        return decode.decode_part(stream, size, *part)


def _recognised(stream: IO[bytes], size: int, named: bool, given: bool) -> bytes | None:
    """The first bytes of a log after its zeros; the stream then stands behind them. None if it is no log.

    `size` is the size of a plain, seekable file, else 0.
    """

    first = _first(stream, HEAD_BYTES)
    found = (given and is_text(first)) or looks_like_log(first)
    if not found and size > len(first) and b"\0" not in first:
        behind = stream.tell()
        found = is_log_inside(stream, size)
        stream.seek(behind)
    if not found and named:
        found = has_events(first)
    return first if found else None


def is_growable(stream: IO[bytes], size: int, named: bool = False, given: bool = False) -> bool:
    """Whether a plain file is a log that can be read from any line on. Moves the stream. `named`, `given`: see
    `read_log`."""
    from rankscope.features.logs.read import ras_output

    stream.seek(0)
    first = _recognised(stream, size, named, given)
    return first is not None and not ras_output.looks_like_document(first)


def is_marked(stream: IO[bytes], start: int, marked: str) -> bool:
    """Whether the part of a log up to `start` is unchanged. Moves the stream."""
    return start > 0 and file_mark(stream, start) == marked


def read_tail(
    stream: IO[bytes], size: int, start: int, before: str, ended: bool
) -> Iterator[tuple[LogContent, LogStretch]]:
    """The new part of a growing log, behind `start`; see `read_stretches`."""
    with memory_limit(MEMORY_BYTES):
        yield from read_stretches(stream, size, start, before, ended)


def _first(stream: IO[bytes], count: int) -> bytes:
    """The first bytes of a stream after its zeros, up to any damage: the later full read reports that again."""
    read = getattr(stream, "read1", stream.read)
    found, zeros = bytearray(), 0
    with contextlib.suppress(*streams.STREAM_ERRORS):
        while len(found) < count and zeros < MOST_ZEROS and (chunk := read(count - len(found))):
            rest = chunk if found else chunk.lstrip(b"\0")
            found += rest
            zeros += len(chunk) - len(rest)
    return bytes(found)


HOLD_BYTES = 1 << 14
"""Bytes at the end, up to the next head, that are read again when more follows."""
STEP_BYTES = 16 << 20
"""Bytes of one step through a longer part."""
MARK_BYTES = 256


def file_mark(stream: IO[bytes], at: int) -> str:
    """A mark that tells this file from another one in its place: a hash of both ends of its first `at` bytes."""
    stream.seek(0)
    seen = blake2b(stream.read(min(MARK_BYTES, at)), digest_size=8)
    stream.seek(max(0, at - MARK_BYTES))
    seen.update(stream.read(min(MARK_BYTES, at)))
    return f"{at}:{seen.hexdigest()}"


def read_stretches(
    stream: IO[bytes], size: int, start: int, before: str, ended: bool
) -> Iterator[tuple[LogContent, LogStretch]]:
    """The stretches from `start`, where a line begins, to `size`, in order; only the last one is not firm.

    `before` is the mark of the file up to `start`; "" at the beginning. A file that is emptied meanwhile gives no more
    stretches. A last line without line end waits for it, unless the log has `ended`.
    """
    until = size if ended else _last_line_end(stream, start, size)
    firm = min(line_start(stream, max(start, until - HOLD_BYTES)), until) if until - start > HOLD_BYTES else start
    while start < firm:
        end = min(line_start(stream, start + STEP_BYTES), firm) if firm - start > STEP_BYTES else firm
        found = _stretch(stream, start, end, True)
        if before and file_mark(stream, start) != before:
            return
        yield found
        start, before = end, found[1].mark
    if until > start:
        found = _stretch(stream, start, until, False)
        if not before or file_mark(stream, start) == before:
            yield found


def _stretch(stream: IO[bytes], start: int, end: int, firm: bool) -> tuple[LogContent, LogStretch]:
    stream.seek(start)
    content = decode_range(stream, start, end, ranged=True)
    return content, LogStretch(start, end, file_mark(stream, end), firm)


def _last_line_end(stream: IO[bytes], start: int, size: int) -> int:
    """The end of the last whole line; `start` if there is none."""
    while size > start:
        begin = max(start, size - HOLD_BYTES)
        stream.seek(begin)
        found = stream.read(size - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return start


_MINOR_ROLES = ("noise", "context")


def has_events(text: bytes) -> bool:
    """Whether a piece of a file holds an end, an error or a peer."""
    if text.count(b"\0") > len(text) // 16:
        return False
    found = decode_range(io.BytesIO(text), 0, None)
    return bool(found.ras or found.inspected) or any(e.values.get("role") not in _MINOR_ROLES for e in found.events)


HEAD_BYTES = 1 << 16
"""Bytes that are checked at the beginning of a file, and at each sample."""
SAMPLE_PLACES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Places of samples in a large file, as shares of its size."""
_SIGNS = (
    b"NCCL", b"RCCL", b"[rank", b"ProcessGroup", b"torch.distributed", b"torch/distributed", b"Traceback (most",
    b'_perf"', b"Job summary", b" operation counts", b" managed by process ", b"PyTorch version: ", b"opCount",
    b"Communicators...", b'"event"', b"srun: error", b"slurmstepd: ", b"Error: ", b"Exception: ", b"Error): ",
    b"(raylet", b"ray.exceptions", b"[launch.py", b"died unexpectedly", b"died, exit code", b"  exitcode  : ",
    b"Root Cause (first", b"store based barrier", b"NVRM: ", b"oom-kill", b"Kill process", b"Killed process",
    b"NVSMI LOG", b"hca_id:", b"# Port counters", b"Health Monitor Report", b"SXid (", b"mlx5_core ", b"amdgpu ",
    b"PCIe Bus Error", b": AER: ", b"Got completion ",
    b"NIC Link is Down", b"what(): ", b"terminate called", b"missing ranks", b"atchdog timeout", b"hit an exception",
    b"RAS Monitor Mode", b"noticed that process", b"RankID:", b"most recent call first):", b"most recent call last):",
    b"Fatal Python error: ", b"/handler/dump_traceback", b"/handler/pyspy_dump", b"py dump for PID",
    b"does not have a coalesced end", b"has an empty op list", b" from ranks ", b"input_sizes=[",
    b"ollective, sequence number: ", b"ollective sequence number: ", b"hanging ranks: ", b"DeepEP ", b"__recompiles",
    b"__graph_breaks", b"hit config.", b"] HCCL(", b"actor is dead because", b"the device handle for",
    b"initialize NVML", b" Aborted ",
    b" Killed ", b"(core dumped)", b"OOMKilled", b"PBS: job killed: ", b"TERM_MEMLIMIT: ", b"TERM_RUNLIMIT: ",
    b"memory summary, device ID", b" Terminated", b"Evicted", b"Preempt", b"NodeNotReady ", b"NodeLost ",
    b"NodeShutdown ", b"TaintManagerEviction ",
    b"STRAGGLER DETECTION WARNING: ", b"GPU relative performance:",
    b"GPU individual performance:", b" Diagnostics ===", b" in comm 0x",
)  # fmt: skip
"""Words of lines that may tell of a job. Looking for each is three times as fast as one expression of all."""
_SIGN_FORMS = re.compile(rb"\[[IWEF](?:\d{3,4})? |E[A-Z]\d{4}\)?: |Thread \d{1,19} \((?:active|idle)")
_STAMP = r"[VDIWEF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9} "
_LINES = re.compile(
    rf"{NCCL_HEAD}|(?:NCCL|RCCL) version\s*:? \d"
    rf"|\[(?:{_STAMP}|[IWEF] )(?:\d{{1,10}} )?[\w./\-]{{1,200}}\.(?:cpp|hpp|h|cu|py):\d{{1,6}}\]"
    rf"|{_STAMP}\d{{1,10}} [\w./\-]{{1,200}}\.(?:cpp|hpp|h|cu|py):\d{{1,6}}\]"
    r"|torch\.distributed\.\S{1,100}: \[(?:ERROR|WARNING|INFO)\]"
    r"|PyTorch version: \d\S{0,60}\s*$"
    r"|Traceback \(most recent call last\):\s*$|srun: error: |torch\.distributed\.\S{0,100}Error: "
    r"|\w{1,64}: opCount [0-9a-f]{1,16} sendbuff "
)
_ENDS = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}\w{0,60}(?:Error|Exception)(?:\(\w{1,60}\))?: .{0,300}?"
    r"(?:CUDA|NCCL|nccl|HCCL|gloo|[Rr]anks? \d|\[\d{1,6}\] is setting up|DataLoader worker|process group"
    r"|store based barrier|CollectiveFingerPrint|ray::|torch_npu|terminated with (?:signal|exit code))"
    r"|(?:ERROR|WARNING|INFO):torch\.distributed\.|\(raylet(?:, ip=\S{2,45})?\) |ray\.exceptions\.\w"
    r"|\[(?:INFO|WARNING|ERROR)\] \[launch\.py:\d{1,6}:|slurmstepd: error: "
    r"|NVRM: (?:Xid |The NVIDIA GPU |GPU \S{7,20}: GPU has )"
    r"|=+NVSMI LOG=+|hca_id:\s|# Port counters: "
    r"|\|? ?Health Monitor Report|nvidia-nvswitch\d{1,3}: SXid \(PCI:"
    r"|(?:mlx5_core|amdgpu|pcieport|nvidia|nvme) [0-9a-f]{4}:[0-9a-f]{2}:"
    r"|(?:\[PID: \d{1,10}\] \S{1,40} )?(?:\w{1,60}\()?E[A-Z]\d{4}\)?: |\[ERROR\] HCCL\(\d{1,10},"
    r"|mpirun\S{0,20} noticed that process rank \d"
    r"|(?:Unhandled exception: \S{1,80} |\s{0,8})what\(\): "
    r"|(?:oom-kill:|Out of memory: |Memory cgroup out of memory: )|terminate called after throwing an instance of "
    r"|(?:Worker|Engine core) (?:proc )?\S{1,80} (?:pid \d{1,10} )?died(?: unexpectedly|, exit code)"
    r"|The actor is dead because its worker process has died\.|(?:Unable to determine the device handle for|Failed to "
    r"initialize NVML: )|\S{1,200}: line \d{1,6}: {1,8}\d{1,10} (?:Aborted|Killed|Segmentation fault|Bus error)\b"
    r"|(?:\w{1,60} )?[Ww]atchdog timeout \(self\."
    r"|(?:Waiting|Timed out initializing process group) in store based barrier |\w{1,40} hit an exception: Traceback "
    r"| {2}exitcode {2}: -?\d{1,5} +\(pid: \d{1,10}\)|Root Cause \(first observed failure\):"
    r"|(?:(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16}(?: \[.{0,64}\])?|Stack) \(most recent call first\):\s*$"
    r"|Traceback for thread \d{1,10}(?: \(.{0,64}\))? \[.{0,100}\] \(most recent call last\):\s*$"
    r"|Fatal Python error: |=== Rank \d{1,7}: \S{0,1000}/handler/(?:dump_traceback|pyspy_dump)\S{0,1000} ===\s*$"
    r"|Py-?[Ss]py dump for PID \d|(?:Warning: )?DeepEP (?:error: )?[^,]{0,80}?timeout\b"
    r"|Not all ranks joining collective, sequence number: \d|Collective sequence number: \d{1,18} has errors"
    r"|Rank \d{1,7} (?:does not have a coalesced end|has an empty op list)\.|We cannot decide what's wrong with this"
    r"|AssertionError: Missing dump files from ranks |[a-z_]\w{0,60}\((?:s=\d+ d=\d+, )?input_sizes=\[\["
    r"|Thread (?:0x[0-9A-Fa-f]{1,16}|\d{1,19}) \((?:active|idle)(?:\+gil)?\)(?:: \"|\s*$)"
    r"|Input/output mismatch in the collective sequence number: \d|hanging ranks: [\[{(]?\d"
    r"|\s*(?:[Rr]eason:|\"reason\":)\s+\"?OOMKilled\b"
    r"|(?:[\w.\-]{1,253} +)?\d{1,3}/\d{1,3} +(?:OOMKilled|Evicted|NodeLost)\b"
    r"|\s*(?:Last )?State: +Terminated\s*$|Reason: +(?:Evicted|Preempt|Node)"
    r"|\S{1,20}(?: \(x\d+ over \S+\))? +(?:Normal|Warning) +"
    r"(?:Evicted|Preempt\w+|NodeNotReady|NodeShutdown|TaintManagerEviction) +pod/"
    r"|=>> PBS: job killed: |TERM_(?:MEM|RUN)LIMIT: job killed"
    r"|=== (?:NCCL|RAS) Diagnostics ===|\[(?:OK|INFO|WARN|ERROR|FAIL)\] .{1,1000} in comm 0x[0-9a-f]"
    r"|STRAGGLER DETECTION WARNING: Some GPUs "
    r"|(?:\[NeMo .{1,100}\] ?)?\s{0,8}GPU (?:relative|individual) performance:\s*$"
    r"|\|\s{1,60}PyTorch \w{2,8} memory summary, device ID \d"
    r"|(?:Stalled ops:)?.{1,300}\[missing ranks: \d|One or more tensors were submitted to be reduced"
)
"""Beginnings of lines in which launchers, schedulers, Ray and servers report an end, and of exceptions that name parts
of such a job."""
_BARE = re.compile(
    r"(?:\[\d{1,4}\] )?NCCL WARN |(?:\[\d{1,4}\] )?\S{1,200}\.(?:cc|h|c|cu):\d{1,6} (?:\(\w{1,100}\) )?NCCL WARN "
    r"|(?:NCCL WARN )?NET/IB ?: Got completion "
)
_BAR = re.compile(r"\d(?:it|s|B|ex)/(?:it|s)\]")
"""The end of a progress bar; another bar may follow in the same line."""
_RANKED = re.compile(r"\[rank\d{1,7}\]:|\[rank=\d{1,7}\] \|\||\(PID:\d{1,10}, Device:-?\d{1,6}, RankID:")
_INSPECTOR = re.compile(r'\{.{0,2000}"(?:coll|p2p)_perf": ?\{')
_EVENT = re.compile(r'\{.{0,2000}"event": ?"[A-Z_]{3,40}".{0,2000}"peer": ?\{')
_RAS = re.compile(
    r"\s{0,8}(?:Job summary\s*$|Communicators\.\.\.|RAS Monitor Mode "
    r"|Communicator ranks have different \w{1,40} operation"
    r"|Rank \d{1,9}(?: has launched up to operation \d{1,18})? -- GPU \d{1,4}\S{0,9} managed by process \d)"
)
_MARKDOWN = re.compile(rb"\s*#{1,6} \S(?s:.*)\n```")


def looks_like_log(text: bytes) -> bool:
    """Whether a piece of a file holds a line of a log. Its first and last line may be cut."""
    if not is_text(text) or _MARKDOWN.match(text):
        return False
    if ras_output.looks_like_document(text):
        return True
    text = text.replace(NO_BREAK, b" ")
    signs, formed = [sign for sign in _SIGNS if sign in text], _SIGN_FORMS.search(text) is not None
    if not signs and not formed:
        return False
    return any(
        _is_line(line)
        for line in re.split(rb"[\r\n]", text)
        if any(sign in line for sign in signs) or (formed and _SIGN_FORMS.search(line))
    )


def is_log_inside(stream: IO[bytes], size: int) -> bool:
    """Whether a large file holds a line of a log at a sample or at its end. Moves the stream."""
    # a job may print only losses until it fails
    for place in (*(int(size * share) for share in SAMPLE_PLACES), max(0, size - HEAD_BYTES)):
        stream.seek(place)
        if looks_like_log(stream.read(HEAD_BYTES)):
            return True
    return False


def _is_line(line: bytes) -> bool:
    text = COLOUR.sub(b"", line[:4096]).decode("utf-8", "replace")
    if (inner := unwrapped(line)) is not None:
        text = COLOUR.sub(b"", inner[0]).decode("utf-8", "replace")
    front = strip_prefixes(text)
    if text.startswith(PYTEST_MARK, front.end):
        front, text = LinePrefix(0, None, "", None), text[front.end + len(PYTEST_MARK) :].lstrip()
    patterns = (_LINES, _ENDS, _BARE, _INSPECTOR, _EVENT, _RAS)
    bar = _BAR.search(text)
    if bar is not None and _LINES.search(text, bar.end()):
        return True
    return bool(_RANKED.search(front.label)) or any(pattern.match(text, front.end) for pattern in patterns)
