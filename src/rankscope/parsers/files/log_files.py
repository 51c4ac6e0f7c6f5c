"""Logs among the files: told by what stands in them, and read as a stream."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import IO

from rankscope.parsers.contents import LogStretch
from rankscope.parsers.files import streams
from rankscope.parsers.files.streams import memory_limit
from rankscope.parsers.logs import prefixes
from rankscope.parsers.logs.c10d.event_builder import PYTEST_MARK
from rankscope.parsers.logs.decode import decode_range, line_start
from rankscope.parsers.logs.model import LogContent
from rankscope.parsers.logs.nccl import ras_output
from rankscope.parsers.logs.record_reader import COLOUR, NCCL_HEAD, unwrapped

MEMORY_BYTES = 32 << 20
"""Decoding a log or a range of one takes what a dump of this size may take."""
MOST_ZEROS = 1 << 32
"""So many bytes that are zero are passed over in the beginning of a file: it was emptied while a program that does not
append wrote to it, as logrotate's copytruncate does."""


def read_log(
    stream: IO[bytes], size: int, part: tuple[int, int] | None = None, named: bool = False
) -> LogContent | None:
    """The log in a stream that stands at its beginning; None if it is none.

    `part` (number, of how many) says that the stream is a plain file of `size` bytes that can be searched: with more
    than one, a range of it is read. `named`: it has the name of a log, and is one if it tells anything.
    """
    first = _recognised(stream, size if part is not None else 0, named)
    if first is None:
        return None
    from rankscope.parsers.logs import decode

    with memory_limit(MEMORY_BYTES):
        if part is None or part[1] == 1:
            return decode.decode_log(stream, first)
        return decode.decode_part(stream, size, *part)


def _recognised(stream: IO[bytes], size: int, named: bool) -> bytes | None:
    """The first bytes of a log but zeros, behind which the stream then stands; None if it is none.

    `size` is that of a plain file, which can be searched, else 0.
    """

    first = _first(stream, HEAD_BYTES)
    found = looks_like_log(first)
    if not found and size > len(first) and b"\0" not in first:
        behind = stream.tell()
        found = is_log_inside(stream, size)
        stream.seek(behind)
    if not found and named:
        found = has_events(first)
    return first if found else None


def is_growable(stream: IO[bytes], size: int, named: bool = False) -> bool:
    """Whether a plain file is a log that can be read from any line on; the stream is moved. `named`: see `read_log`."""
    from rankscope.parsers.logs.nccl import ras_output

    stream.seek(0)
    first = _recognised(stream, size, named)
    return first is not None and not ras_output.looks_like_document(first)


def is_marked(stream: IO[bytes], start: int, marked: str) -> bool:
    """Whether what was read of a log up to `start` still stands there; the stream is moved."""
    return start > 0 and file_mark(stream, start) == marked


def read_tail(
    stream: IO[bytes], size: int, start: int, before: str, ended: bool
) -> Iterator[tuple[LogContent, LogStretch]]:
    """What stands behind `start` in a log that grows; see `read_stretches`."""
    with memory_limit(MEMORY_BYTES):
        yield from read_stretches(stream, size, start, before, ended)


def _first(stream: IO[bytes], count: int) -> bytes:
    """The first bytes of a stream but zeros, as far as it can be read: damage shows again when all of it is read."""
    read = getattr(stream, "read1", stream.read)
    found, zeros = bytearray(), 0
    with contextlib.suppress(*streams.STREAM_ERRORS):
        while len(found) < count and zeros < MOST_ZEROS and (chunk := read(count - len(found))):
            rest = chunk if found else chunk.lstrip(b"\0")
            found += rest
            zeros += len(chunk) - len(rest)
    return bytes(found)


# A log that still grows, read from where reading stopped: each time only what is new, and a little before it.

HOLD_BYTES = 1 << 14
"""So much of the end, and up to the next head, is read again when more follows."""
STEP_BYTES = 16 << 20
"""More is read in steps of so many bytes."""
MARK_BYTES = 256


def file_mark(stream: IO[bytes], at: int) -> str:
    """What tells a file whose first `at` bytes were read from another one in its place: a hash of their two ends."""
    stream.seek(0)
    seen = blake2b(stream.read(min(MARK_BYTES, at)), digest_size=8)
    stream.seek(max(0, at - MARK_BYTES))
    seen.update(stream.read(min(MARK_BYTES, at)))
    return f"{at}:{seen.hexdigest()}"


def read_stretches(
    stream: IO[bytes], size: int, start: int, before: str, ended: bool
) -> Iterator[tuple[LogContent, LogStretch]]:
    """What stands between `start`, where a line begins, and `size`, in order; only the last stretch is not firm.

    `before` is the mark of what stands before `start`; "" at the beginning. A file that is emptied meanwhile tells no
    more. A last line without its end waits for it, unless the log has `ended`.
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
    """Where the last whole line ends; `start` if none does."""
    while size > start:
        begin = max(start, size - HOLD_BYTES)
        stream.seek(begin)
        found = stream.read(size - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return start


# Whether a file that has the name of a log tells anything, where no line of it is unmistakably one of a job.

_NOTHING = ("noise", "context")


def has_events(text: bytes) -> bool:
    """Whether the readers find an end, an error or a peer in a piece of a file."""
    if text.count(b"\0") > len(text) // 16:
        return False
    found = decode_range(io.BytesIO(text), 0, None)
    return bool(found.ras or found.inspected) or any(e.values.get("role") not in _NOTHING for e in found.events)


# Whether a file is a log of a job: by what stands in it, wherever in its beginning.

HEAD_BYTES = 1 << 16
"""Looked at in the beginning of a file, and at each sample."""
SAMPLE_PLACES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Places where a large file is looked at too."""
_SIGNS = re.compile(
    rb"NCCL|RCCL|\[rank\d|ProcessGroup|torch[./]distributed|Traceback \(most|_perf\"|\[[IWEF]\d{3,4} |Job summary"
    rb"|\[[IWEF] |PyTorch version: |opCount|Communicators\.\.\.|\"event\"|srun: error"
    rb"|slurmstepd: |Error: |Exception: |Error\): |\(raylet|ray\.exceptions|\[launch\.py|died unexpectedly"
    rb"|died, exit code|  exitcode  : |Root Cause \(first"
    rb"|store based barrier|NVRM: |oom-kill|Killed process|what\(\): |terminate called|missing ranks|Watchdog timeout"
    rb"|hit an exception|RAS Monitor Mode|\bE[A-Z]\d{4}: |noticed that process|RankID:"
    rb"|most recent call (?:first|last)\):|Fatal Python error: |/handler/(?:dump_traceback|pyspy_dump)"
)
_STAMP = r"[IWEF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9} "
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
    r"|\[(?:INFO|WARNING|ERROR)\] \[launch\.py:\d{1,6}:|slurmstepd: error: |NVRM: (?:Xid|The NVIDIA GPU) "
    r"|E[IJ]\d{4}: |mpirun\S{0,20} noticed that process rank \d"
    r"|(?:Unhandled exception: \S{1,80} |\s{0,8})what\(\): "
    r"|(?:oom-kill:|Out of memory: |Memory cgroup out of memory: )|terminate called after throwing an instance of "
    r"|Worker (?:proc )?\S{1,80} (?:pid \d{1,10} )?died(?: unexpectedly|, exit code)|Watchdog timeout \(self\."
    r"|(?:Waiting|Timed out initializing process group) in store based barrier |\w{1,40} hit an exception: Traceback "
    r"| {2}exitcode {2}: -?\d{1,5} +\(pid: \d{1,10}\)|Root Cause \(first observed failure\):"
    r"|(?:(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16}(?: \[.{0,64}\])?|Stack) \(most recent call first\):\s*$"
    r"|Traceback for thread \d{1,10}(?: \(.{0,64}\))? \[.{0,100}\] \(most recent call last\):\s*$"
    r"|Fatal Python error: |=== Rank \d{1,7}: \S{0,1000}/handler/(?:dump_traceback|pyspy_dump)\S{0,1000} ===\s*$"
    r"|(?:Stalled ops:)?.{1,300}\[missing ranks: \d|One or more tensors were submitted to be reduced"
)
"""How launchers, schedulers, Ray and servers begin to tell of an end, and exceptions that name parts of such a job."""
_BARE = re.compile(
    r"(?:\[\d{1,4}\] )?NCCL WARN |(?:\[\d{1,4}\] )?\S{1,200}\.(?:cc|h|c|cu):\d{1,6} (?:\(\w{1,100}\) )?NCCL WARN "
)
_BAR = re.compile(r"\d(?:it|s|B|ex)/(?:it|s)\]")
"""The end of a bar of progress, behind which another may have gone on in the same line."""
_RANKED = re.compile(r"\[rank\d{1,7}\]:|\[rank=\d{1,7}\] \|\||\(PID:\d{1,10}, Device:-?\d{1,6}, RankID:")
_INSPECTOR = re.compile(r'\{.{0,2000}"(?:coll|p2p)_perf": ?\{')
_EVENT = re.compile(r'\{.{0,2000}"event": ?"[A-Z_]{3,40}".{0,2000}"peer": ?\{')
_RAS = re.compile(r"Job summary\s*$|Communicators\.\.\.|RAS Monitor Mode ")
_MARKDOWN = re.compile(rb"\s*#{1,6} \S(?s:.*)\n```")
_NEVER = (b"\x80", b"PK", b"\x7fELF", b"\x89PNG", b"%PDF")


def looks_like_log(text: bytes) -> bool:
    """Whether a line of a log stands in a piece of a file. Its first and last line may be cut."""
    if text.startswith(_NEVER) or _MARKDOWN.match(text) or text.count(b"\0") > len(text) // 16:
        return False
    if ras_output.looks_like_document(text):
        return True
    if not _SIGNS.search(text):
        return False
    return any(_is_line(line) for line in re.split(rb"[\r\n]", text) if _SIGNS.search(line))


def is_log_inside(stream: IO[bytes], size: int) -> bool:
    """Whether a line of a log stands at any of some places in a large file, or at its end; the stream is moved."""
    # a job may print nothing but its losses until it fails
    for place in (*(int(size * share) for share in SAMPLE_PLACES), max(0, size - HEAD_BYTES)):
        stream.seek(place)
        if looks_like_log(stream.read(HEAD_BYTES)):
            return True
    return False


def _is_line(line: bytes) -> bool:
    text = COLOUR.sub(b"", line[:4096]).decode("utf-8", "replace")
    if (inner := unwrapped(line)) is not None:
        text = COLOUR.sub(b"", inner[0]).decode("utf-8", "replace")
    front = prefixes.strip_prefixes(text)
    if text.startswith(PYTEST_MARK, front.end):
        front, text = prefixes.LinePrefix(0, None, "", None), text[front.end + len(PYTEST_MARK) :].lstrip()
    patterns = (_LINES, _ENDS, _BARE, _INSPECTOR, _EVENT, _RAS)
    bar = _BAR.search(text)
    if bar is not None and _LINES.search(text, bar.end()):
        return True
    return bool(_RANKED.search(front.label)) or any(pattern.match(text, front.end) for pattern in patterns)
