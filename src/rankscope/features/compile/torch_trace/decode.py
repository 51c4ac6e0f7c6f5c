"""Decoder of structured logs of torch.compile: a stream of lines, of which only a few are parsed.

    V1126 17:50:33.852000 18241 torch/_dynamo/utils.py:2009] {"compilation_metrics": {...}, "rank": 1, ...
    V1126 17:50:33.873000 18241 torch/_dynamo/guards.py:5400] {"artifact": {"name": "recompile_reasons", ...}, ...
    (tab) "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"

Lines that begin with a tab are the payload of the line above. tlparse's raw.jsonl has the same objects alone.
Source: torch/_logging/_internal.py, and files that torch 2.13 and tlparse made.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

import orjson

from rankscope.features.compile.torch_trace.model import (
    BACKWARD,
    BREAK,
    COMPILE,
    LIMIT,
    RECOMPILE,
    TorchTrace,
    TracedCompilation,
)
from rankscope.parsers.safe_values import RANK_LIMIT, safe_integer, safe_text
from rankscope.parsers.streams import STREAM_ERRORS, stream_problem
from rankscope.text.wording import plural

LINE_LIMIT = 4 << 20
"""Bytes of a line that are read; metrics with all settings have 60 KB."""
MOST_COMPILATIONS = 50_000
REASON_LIMIT = 300
LIMIT_ERRORS = frozenset({"FailOnRecompileLimitHit", "RecompileLimitExceeded", "CacheLimitExceeded"})
"""Exceptions by which torch.compile gives up a function that it has compiled too often."""
_HEAD = re.compile(
    rb"[VDIWE]\d{4} \d\d:\d\d:\d\d\.\d{1,9} (\d{1,20}) [\w./\-]{0,200}\btorch/[\w./\-]{1,200}\.py:\d{1,7}\] (?=\{\")"
)
_RAW = re.compile(rb'\{"string_table":\[')
_WANTED = re.compile(
    rb'"(?:(?:bwd_)?compilation_metrics|dynamo_start|str)": ?[\[{]|"(?:recompile_reasons|dynamo_graph_break_reason)"'
)
_MOMENT = re.compile(rb'\s*"ts": (\d{13,19})(?:\.\d+)?,?\s*$')
"""Time of an event in microseconds since the epoch, in the payload of a chromium event."""
_QUOTED = re.compile(rb'\s*("(?:[^"\\]|\\.){1,2000}"),?\s*$')
_BROKEN_AT = re.compile(r"Graph break in user code at (\S.{0,400}?):(\d{1,9})\s*$")
_BROKEN_WHY = re.compile(r"(?:Graph Break )?Reason: (\S.{0,300})")
CACHE_SETTINGS = (
    "fx_graph_cache", "fx_graph_remote_cache", "autotune_local_cache", "autotune_remote_cache",
    "bundled_autotune_remote_cache", "force_disable_caches", "enable_autograd_cache", "enable_remote_autograd_cache",
)  # fmt: skip
_VERSIONS = {"pytorch_version": "version:torch", "triton_version": "version:triton"}
_CACHES = tuple(f"{name}_cache" for name in ("inductor_fx_local", "inductor_fx_remote", "aotautograd_local"))


def looks_like_torch_trace(head: bytes) -> bool:
    """Whether the first bytes begin a file of TORCH_TRACE, or of tlparse."""
    return _HEAD.match(head) is not None or _RAW.match(head) is not None


def decode_torch_trace(data: bytes) -> TorchTrace:
    """The content of `data`."""
    return read_torch_trace(io.BytesIO(data), len(data), (0, 1))


def read_torch_trace(stream: IO[bytes], size: int, part: tuple[int, int]) -> TorchTrace:
    """The content of a stream; nothing for all parts but the first, which reads all of it."""
    del size
    reader = _TraceReader()
    if part[0]:
        return reader.content
    try:
        for number, line in enumerate(_lines(stream), 1):
            reader.take(line, number)
    except STREAM_ERRORS as error:
        reader.content.problem = stream_problem(error)
    return reader.result()


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of a stream; of a longer one the beginning."""
    while line := stream.readline(LINE_LIMIT):
        yield line
        while not line.endswith(b"\n") and (line := stream.readline(LINE_LIMIT)):
            pass


class _TraceReader:
    """Reader of the lines of one file, in order."""

    def __init__(self) -> None:
        self.content = TorchTrace()
        self._strings: dict[int, str] = {}
        self._reasons: dict[str, str] = {}
        self._functions: dict[str, tuple[str, str, int]] = {}
        """The function of each frame, by its number."""
        self._open: TracedCompilation | None = None
        self._latest_ns: int | None = None
        self._payload: tuple[str, str, int] | None = None
        """Name, compilation and line of the artifact whose payload follows."""
        self._damaged = self._over = 0

    def take(self, line: bytes, number: int) -> None:
        """Reads one line."""
        if line.startswith(b"\t"):
            self._take_payload(line[1:])
            return
        self._payload = None
        head = _HEAD.match(line)
        if head is not None and self.content.pid is None:
            self.content.pid = safe_integer(head[1].decode())
        text = line[head.end() :] if head is not None else line
        if _RAW.match(text) is not None:
            strings = _object(text).get("string_table")
            self._strings = {i: s for i, s in enumerate(strings) if isinstance(s, str)} if strings else {}
        elif _WANTED.search(text) is not None:
            self._take_record(_object(text), number)

    def result(self) -> TorchTrace:
        """The content; the last compilation is in it if it has begun and the file does not see it end."""
        content = self.content
        if self._open is not None:
            self._add(self._open)
        notes = [content.problem or "", f"only the first {MOST_COMPILATIONS:,} compilations kept" if self._over else ""]
        notes.append(f"{plural(self._damaged, 'record')} damaged" if self._damaged else "")
        content.problem = "; ".join(filter(None, notes)) or None
        return content

    def _take_record(self, record: dict[str, Any], number: int) -> None:
        self._damaged += not record
        rank = safe_integer(record.get("rank"))
        if self.content.rank is None and rank is not None and 0 <= rank < RANK_LIMIT:
            self.content.rank = rank
        told = record.get("str")
        if isinstance(told, list) and len(told) == 2 and isinstance(told[0], str) and isinstance(told[1], int):
            self._strings[told[1]] = told[0]
        frame, number_of = safe_integer(record.get("frame_id")), safe_integer(record.get("frame_compile_id"))
        compile_id = "" if frame is None or number_of is None else f"{frame}/{number_of}"
        artifact = record.get("artifact")
        if isinstance(artifact, dict):
            self._payload = str(artifact.get("name")), compile_id, number
        if isinstance(start := record.get("dynamo_start"), dict):
            self._begin(start, compile_id, record, number)
        for name in ("compilation_metrics", "bwd_compilation_metrics"):
            if isinstance(metrics := record.get(name), dict):
                self._end(metrics, compile_id, name.startswith("bwd_"), number)

    def _take_payload(self, line: bytes) -> None:
        moment = _MOMENT.match(line)
        if moment is not None:
            self._latest_ns = safe_integer(int(moment[1]) * 1000)
        if self._payload is None:
            return
        name, compile_id, number = self._payload
        if name == "recompile_reasons" and (quoted := _QUOTED.match(line)) is not None:
            self._reasons[compile_id] = _short(_text(quoted[1]))
            self._payload = None
        elif name == "dynamo_graph_break_reason":
            self._take_break(line.decode("utf-8", "replace"), compile_id, number)

    def _take_break(self, text: str, compile_id: str, number: int) -> None:
        at, why = _BROKEN_AT.search(text), _BROKEN_WHY.match(text)
        rows = self.content.compilations
        if at is not None:
            place = ("", at[1], int(at[2]))
            self._add(TracedCompilation(BREAK, compile_id, *place, "", self._latest_ns, None, None, None, number))
        elif why is not None and rows and rows[-1].what == BREAK and rows[-1].line == number:
            rows[-1] = rows[-1]._replace(reason=_short(why[1]))

    def _begin(self, start: dict[str, Any], compile_id: str, record: dict[str, Any], number: int) -> None:
        frames = start.get("stack")
        frame = frames[-1] if isinstance(frames, list) and frames and isinstance(frames[-1], dict) else {}
        number_of = frame.get("filename")
        path = self._strings.get(number_of, "") if isinstance(number_of, int) else ""
        code_line = safe_integer(frame.get("line")) or 0
        began = _stamp_ns(record.get("timestamp")) or self._latest_ns
        self._open = TracedCompilation(
            _kind(compile_id), compile_id, safe_text(frame.get("name")) or "", path, code_line,
            self._reasons.get(compile_id, ""), began, None, None, None, number,
        )  # fmt: skip

    def _end(self, metrics: dict[str, Any], outer_id: str, backward: bool, number: int) -> None:
        told = safe_text(metrics.get("compile_id")) or ""
        compile_id = told if re.fullmatch(r"\d{1,9}/\d{1,9}", told) else outer_id
        if self._open is not None and self._open.compile_id == compile_id:
            self._open = None
        if not self.content.settings:
            self.content.settings = _settings(metrics)
        reason = safe_text(metrics.get("recompile_reason")) or self._reasons.get(compile_id, "")
        failed = safe_text(metrics.get("fail_reason"))
        error = _error_name(metrics.get("fail_type"))
        what = BACKWARD if backward or metrics.get("is_forward") is False else _kind(compile_id)
        hits, misses = _lookups(metrics)
        self._add(TracedCompilation(
            LIMIT if error in LIMIT_ERRORS else what, compile_id, *self._function(metrics, compile_id),
            " ".join((failed or "").split())[:REASON_LIMIT] or _short(reason),
            _nanoseconds(metrics.get("start_time")), _duration(metrics), hits, misses, number, error,
        ))  # fmt: skip

    def _function(self, metrics: dict[str, Any], compile_id: str) -> tuple[str, str, int]:
        """Name, path and line of a function; of one beyond the limit, which has none, those of its frame before."""
        name, path = safe_text(metrics.get("co_name")) or "", safe_text(metrics.get("co_filename")) or ""
        frame = compile_id.partition("/")[0]
        if name:
            self._functions[frame] = name, path, safe_integer(metrics.get("co_firstlineno")) or 0
        return self._functions.get(frame, ("", "", 0))

    def _add(self, row: TracedCompilation) -> None:
        self._over += len(self.content.compilations) >= MOST_COMPILATIONS
        if not self._over:
            self.content.compilations.append(row)


_ERROR_NAME = re.compile(r"(\w{1,100})(?:'>)?\s*$")
"""The last part of `torch._dynamo.exc.Unsupported`; torch 2.1 writes `<class 'torch._dynamo.exc.Unsupported'>`."""


def _error_name(told: Any) -> str:
    found = _ERROR_NAME.search(safe_text(told) or "")
    return found[1] if found is not None else ""


def _object(text: bytes) -> dict[str, Any]:
    """The object of a line; empty if it is damaged."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(quoted: bytes) -> str:
    try:
        return safe_text(orjson.loads(quoted)) or ""
    except orjson.JSONDecodeError:
        return ""


def _short(reason: str) -> str:
    """The first line of a reason, without the number of the compiled version that it is about."""
    first = next(iter(reason.strip().splitlines()), "")
    return re.sub(r"^\d{1,7}/\d{1,7}: ", "", first)[:REASON_LIMIT]


def _kind(compile_id: str) -> str:
    return COMPILE if compile_id.endswith("/0") else RECOMPILE


def _nanoseconds(seconds: Any) -> int | None:
    fits = isinstance(seconds, float | int) and 0 <= seconds < 2**33
    return round(seconds * 1_000_000_000) if fits else None


def _stamp_ns(stamp: Any) -> int | None:
    """The time that tlparse writes; it takes the local time of the job for UTC."""
    try:
        return round(datetime.fromisoformat(stamp).timestamp() * 1_000_000) * 1000 if isinstance(stamp, str) else None
    except (ValueError, OverflowError):
        return None


def _duration(metrics: dict[str, Any]) -> int | None:
    """The time of the whole compilation; of a backward graph, where no frame is compiled, that of the backend."""
    duration = safe_integer(metrics.get("duration_us"))
    if duration is not None and 0 <= duration < 2**43:
        return duration * 1000
    return next(
        (found for name in ("entire_frame_compile_time_s", "backend_compile_time_s")
         if (found := _nanoseconds(metrics.get(name))) is not None), None,
    )  # fmt: skip


def _lookups(metrics: dict[str, Any]) -> tuple[int | None, int | None]:
    """How many lookups of caches found something, and how many nothing; None if not counted."""
    hits = [safe_integer(metrics.get(f"{name}_hit_count")) for name in _CACHES]
    misses = [safe_integer(metrics.get(f"{name}_miss_count")) for name in _CACHES]
    if all(count is None for count in (*hits, *misses)):
        return None, None
    return sum(count or 0 for count in hits), sum(count or 0 for count in misses)


def _settings(metrics: dict[str, Any]) -> dict[str, str]:
    """Settings of caches (`inductor.fx_graph_cache`), and versions, of which the metrics hold hundreds."""
    found = {}
    for part, name in (("inductor", "inductor_config"), ("functorch", "functorch_config")):
        told = metrics.get(name)
        config = _object(told.encode("utf-8", "replace")) if isinstance(told, str) else {}
        for key in CACHE_SETTINGS:
            value = config.get(key)
            if isinstance(value, bool | str):
                found[f"{part}.{key}"] = str(value).lower()[:100]
    versions = ((name, safe_text(metrics.get(key))) for key, name in _VERSIONS.items())
    return {**found, **{name: value for name, value in versions if value}}
