"""Recognition of Chrome traces by their first keys, whoever wrote them, and their pieces of whole events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

from rankscope.parsers.streams import STREAM_ERRORS, stream_problem

_DOCUMENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"')
_KEYS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|traceEvents|distributedInfo|baseTimeNanoseconds|displayTimeUnit|traceName'
    rb'|cupti_version|roctracer_version|systemTraceEvents|viztracer_metadata|highres-ticks)"\s*:'
)
_LIST = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{[^{}]{0,400}?(?:\{[^{}]{0,400}\}[^{}]{0,200}?)?"ph"\s*:')


def looks_like_trace(head: bytes) -> bool:
    """Whether the first bytes of a file can begin a trace."""
    if _DOCUMENT.match(head) is not None and _KEYS.search(head) is not None:
        return True
    return _LIST.match(head) is not None


# Programs that write the trace event format. A trace is torch's if it has a key, a category or a name that only torch
# writes; the text is searched until one is found, so that only other programs' files are searched to their end.

_TORCH = re.compile(
    rb'"(?:deviceProperties|distributedInfo|cupti_version|roctracer_version|rocprofiler-sdk_version|record_shapes'
    rb'|cuda_runtime_version|hip_runtime_version|with_modules)"\s*:|"schemaVersion"\s*:\s*\d'
    rb'|"cat"\s*:\s*"(?:cpu_op|user_annotation|gpu_user_annotation|python_function|cuda_runtime|cuda_driver|ac2g'
    rb"|fwdbwd|cpu_instant_event|xpu_runtime|mtia_runtime|privateuse1_runtime|async_npu|enqueue|dequeue|Operator"
    rb'|[Pp]ython function|HostToDevice)"'
    rb'|"name"\s*:\s*"(?:aten::|autograd::|c10d::|ProfilerStep#|record_param_comms|nccl:|gloo:|hccl:|Ascend Hardware'
    rb'|Iteration Start: PyTorch)|"CPU functions"'
)
"""Text that only torch's profiler writes, or one that it drives."""
_LIKE_TORCH = re.compile(rb'"cat"\s*:\s*"(?:[Kk]ernel|gpu_memcpy|gpu_memset|[Mm]emcpy|[Mm]emset|[Rr]untime)"')
"""Text that other programs may write, too."""
_WRITERS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("py-spy", rb'"cat"\s*:\s*"py-spy"'),
        ("viztracer", rb'"cat"\s*:\s*"(?:FEE|fee|viztracer)|"viztracer_metadata"'),
        ("JAX or XLA", rb'PjitFunction|"/device:(?:TPU|GPU|CUSTOM)|"/host:(?:CPU|metadata)|XlaModule|TfrtCpuClient'),
        ("TensorFlow", rb'"/job:[^"]{0,200}/task:|"cat"\s*:\s*"Op"'),
        (
            "the Chrome browser (DevTools)",
            rb'"cat"\s*:\s*"[^"]{0,200}(?:devtools|blink|disabled-by-default-|\bv8\b|__metadata|toplevel|loading)'
            rb"|Cr(?:Renderer|Browser|GpuMain|Utility)|TracingStartedInBrowser",
        ),
        (
            "torch.compile (tlparse)",
            rb'"cat"\s*:\s*"dynamo_timed"|"chromium_event"|"name"\s*:\s*"(?:dynamo|_compile\.)',
        ),
        ("Ray", rb'"cat"\s*:\s*"(?:task::|worker_idle|ray|submit_task|task:execute)'),
        ("Horovod", rb"NEGOTIATE_(?:ALLREDUCE|ALLGATHER|BROADCAST|ALLTOALL)"),
        ("NCCL's profiler plugin", rb'"cat"\s*:\s*"(?:GROUP|COLL|P2P|PROXY|NET|GPU)"'),
        ("ONNX Runtime", rb'"cat"\s*:\s*"(?:Session|Node|Api)"'),
        ("rocprof", rb'"(?:HIP_API|HSA_API|COPY|CPU HIP API|GPU[0-9]+)"|"BeginNs"|"rocprof'),
        ("Nsight Systems", rb"nsys|NVTX|\[CUDA mem"),
        ("Proton (Triton)", rb'"proton|"cat"\s*:\s*"(?:triton|scope)"'),
        ("clang's -ftime-trace", rb'"name"\s*:\s*"(?:ExecuteCompiler|Total ExecuteCompiler|ParseClass)"'),
        ("Bazel", rb'"cat"\s*:\s*"(?:build phase marker|general information|action processing)"'),
        (
            "pipeline stages (a simulator's, or a trainer's timers)",
            rb'"name"\s*:\s*"(?:forward|backward|fwd|bwd|F|B|W)[-_ ]?(?:compute|\d+)?"',
        ),
    )
)
_PADDLE = re.compile(rb'"span_indx"\s*:')
"""A key of PaddlePaddle's traces, which are else like torch's."""
_ANYBODY = "another program"
_HEAD = 1 << 16
_RANKED = re.compile(r"\[?rank ?\d{1,7}\]?(?: \(.*\))?", re.IGNORECASE | re.DOTALL)
_INSTEAD = "record each rank with torch.profiler, and give the traces that export_chrome_trace writes"


@dataclass
class TraceOrigin:
    """The program that wrote a trace, as far as its text tells."""

    torch: bool = False
    """Only torch's profiler writes so."""
    like_torch: bool = False
    writer: str = ""
    """Another program that writes so; "" if none is known."""
    other: str = ""
    """Another program that surely wrote it, although it writes what torch does."""

    def look(self, text: bytes) -> None:
        """Searches a part of the file; does nothing once torch is known."""
        if _PADDLE.search(text, 0, _HEAD) is not None:
            self.other = "PaddlePaddle"
        if self.torch or _TORCH.search(text) is not None:
            self.torch = True
            return
        self.like_torch = self.like_torch or _LIKE_TORCH.search(text) is not None
        self.writer = self.writer or next((name for name, pattern in _WRITERS if pattern.search(text)), "")

    def joined(self, other: TraceOrigin) -> TraceOrigin:
        """The origin of two parts of one file."""
        like_torch = self.like_torch or other.like_torch
        return TraceOrigin(
            self.torch or other.torch, like_torch, self.writer or other.writer, self.other or other.other
        )

    def foreign(self, processes: Sequence[str]) -> str | None:
        """The reason for the user why the file is no trace of one rank, with what to give instead; None if it is.

        `processes` are the names of its processes.
        """
        if processes and all(_RANKED.fullmatch(name) for name in processes):
            return (
                "holds traces of several ranks that were merged into one file, as `rankscope export` writes them: "
                "give the traces that it was made of"
            )
        if not self.other and (self.torch or (self.like_torch and not self.writer)):
            return None
        return f"a Chrome trace of {self.other or self.writer or _ANYBODY}, not of torch's profiler: {_INSTEAD}"


CHUNK_BYTES = 4 << 20
LONGEST_GAP = 64 << 20
"""Most bytes without the beginning of an event; then the rest is given up."""
_SPACE = b", \t\r\n"
_BETWEEN = frozenset(_SPACE)
_LONGEST_HEAD = 1 << 20
"""Longest last event, whose end is searched as text; a longer one is damaged."""
_CLOSED = re.compile(rb'\}\s*\](?=\s*(?:,\s*"|\}|$))')
"""The end of the last event and of the list of events."""
_END = re.compile(rb"[\s,{}]{0,4096}\]")
"""The end of the list behind its last event; some writers put an empty object there."""


class EventPiece(NamedTuple):
    """Whole events: the beginning of a text, up to `stop`."""

    text: bytes
    stop: int


@dataclass
class TraceMargins:
    """The text before the first event and behind the last, and the reason why the read ended early."""

    before: bytes = b""
    after: bytes = b""
    whole: bool = False
    """The read reached the end of the file, and the last event was closed."""
    torn: bytes = b""
    """An event that is cut by the end of the file."""
    problem: str | None = None


def event_pieces(
    stream: IO[bytes], around: TraceMargins, begin: int = 0, end: int | None = None
) -> Iterator[EventPiece]:
    """Events that begin at or behind `begin` and before `end`, a few MB at a time. Fills in `around`.

    The stream stands at `begin`. Each piece begins at the brace of an event, and ends at a brace or at the comma before
    the next event.
    """
    text, at, started = b"", begin, False
    for more in _blocks(stream, around):
        text = text + more if text else more
        if not started:
            first = _start_of(text, 0) if begin else _first_of_file(text)
            if first < 0:
                text, at = _unstarted(text, at, around)
                continue
            started = True
            around.before, text, at = (text[:first] if begin == 0 else b""), text[first:], at + first
        if end is not None and at + len(text) > end:
            stop = 0 if at >= end else _start_of(text, end - at)
            if stop >= 0:
                yield EventPiece(text, stop)
                return
        last = _last_of(text)
        if last > 0:
            yield EventPiece(text, last)
            text, at = text[last:], at + last
        elif len(text) > LONGEST_GAP:
            text, at = _unstarted(text, at, around)
    if started:
        yield from _last_pieces(text, around)
    elif begin == 0:
        around.before = text


def end_of(piece: EventPiece) -> int:
    """The end of the last event of a piece."""
    stop = piece.stop
    while stop and piece.text[stop - 1] in _BETWEEN:
        stop -= 1
    return stop


def _blocks(stream: IO[bytes], around: TraceMargins) -> Iterator[bytes]:
    """The stream in blocks. Unlike read(), it keeps the bytes before damage in a packed file."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    parts, size = [], 0
    try:
        while part := read(CHUNK_BYTES - size):
            parts.append(part)
            size += len(part)
            if size == CHUNK_BYTES:
                yield b"".join(parts) if len(parts) > 1 else part
                parts, size = [], 0
    except STREAM_ERRORS as error:
        around.problem = stream_problem(error)
    if parts:
        yield b"".join(parts)


def _unstarted(text: bytes, at: int, around: TraceMargins) -> tuple[bytes, int]:
    """Text without an event so far: kept up to a length, else only its end."""
    if len(text) <= LONGEST_GAP:
        return text, at
    around.problem = "no event in a long stretch"
    return text[-CHUNK_BYTES:], at + len(text) - CHUNK_BYTES


def _last_pieces(text: bytes, around: TraceMargins) -> Iterator[EventPiece]:
    """The last events: mostly one, unless those behind it cannot be parsed."""
    while text:
        around.after, around.whole = b"", False
        last_one = _last(text, around)
        yield EventPiece(last_one, len(last_one))
        text = around.after.lstrip(_SPACE) if not around.whole and around.after.lstrip().startswith(b",") else b""


def _last(text: bytes, around: TraceMargins) -> bytes:
    """The last event; the text behind it goes to `around`."""
    head = text[:_LONGEST_HEAD].decode("utf-8", "surrogateescape")
    try:
        _, stop = json.JSONDecoder(strict=False).raw_decode(head)
    except (ValueError, RecursionError):
        closed = _CLOSED.search(text)
        if closed is None:
            around.torn = text
            return b""
        around.after, around.whole = text[closed.start() + 1 :], True
        return text[: closed.start() + 1]
    stop = len(head[:stop].encode("utf-8", "surrogateescape"))
    around.after, around.whole = text[stop:], _END.match(text, stop) is not None
    return text[:stop]


# Beginnings of events, whatever the order of their keys.

_PHASE = b'"ph"'
_EVENT_KEYS = rb'"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s|sf|tts|tdur|cname|scope)"\s*:'
BOUNDARY = re.compile(rb"\}\s*,\s*\{(?=\s*" + _EVENT_KEYS + rb")")
"""The end of an event and the beginning of the next."""
_AT_ONCE = re.compile(rb"[\s,]{0,256}(\{)(?=\s*" + _EVENT_KEYS + rb")")
_FIRST = re.compile(rb'(?:"traceEvents"\s*:|\A(?:\xef\xbb\xbf)?)\s*\[\s*\{')
_SEARCHED = 1 << 16
"""Bytes before a place in which an event is searched first, and length up to which one that is no JSON may be cut."""


def _first_of_file(text: bytes) -> int:
    """The first event of a file; -1 without one in this beginning of it."""
    if len(text) > CHUNK_BYTES and _PHASE not in text:
        # blanks without end would be searched anew with each block
        return -1
    found = _FIRST.search(text)
    return found.end() - 1 if found is not None else _start_of(text, 0)


def _start_of(text: bytes, least: int) -> int:
    """The first event that begins at or behind `least`; -1 if more text is needed.

    It depends on no text before `least`, so that the reader of the range before ends where that of the next begins.
    """
    found = text.find(_PHASE, least)
    while found >= 0:
        brace = text.rfind(b"{", least, found)
        if brace >= 0 and text.find(b"}", brace, found) < 0:
            return brace
        for start in _starts(text, least, found):
            whole = _is_event(text, start)
            if whole is None:
                return -1
            if whole:
                return start
        found = text.find(_PHASE, found + 1)
    return -1


def _starts(text: bytes, least: int, end: int) -> Iterator[int]:
    """Braces between two places that an event may begin with."""
    at_once = _AT_ONCE.match(text, least, end)
    if at_once is not None:
        yield at_once.start(1)
    yield from (found.end() - 1 for found in BOUNDARY.finditer(text, least, end))


def _is_event(text: bytes, start: int) -> bool | None:
    """Whether the object at a brace is an event; None if the text ends before that is sure."""
    part = text[start : start + _SEARCHED].decode("utf-8", "surrogateescape")
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(part)
    except (ValueError, RecursionError):
        end = BOUNDARY.search(text, start)
        if end is None:
            return None if len(text) - start < _SEARCHED else False
        return text.find(_PHASE, start, end.start()) >= 0
    return isinstance(found, dict) and "ph" in found


def _last_of(text: bytes) -> int:
    """The last event of a text that begins with one; 0 or less if there is no other."""
    phase = max(0, text.rfind(_PHASE))
    brace = text.rfind(b"{", 0, phase)
    if brace < 0 or text.find(b"}", brace, phase) < 0:
        return brace
    stop, size = phase, _SEARCHED
    while stop > 0:
        stop = max(0, phase - size)
        for found in reversed([match.end() - 1 for match in BOUNDARY.finditer(text, stop, phase)]):
            if _is_event(text, found):
                return found
        size *= 8
    return -1
