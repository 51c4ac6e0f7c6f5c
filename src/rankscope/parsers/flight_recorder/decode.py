"""Decoder of dumps: the bytes of a file to a Dump. No global of a pickle is ever resolved.

Genuine dumps use no opcode that needs a global, so the refusal costs nothing.
"""

from __future__ import annotations

import io
import pickle
import re
from itertools import chain
from typing import Any, NoReturn

import orjson

from rankscope.kinds.functions import RefusalError
from rankscope.parsers.flight_recorder import clog, dump_columns, fast_reader
from rankscope.parsers.flight_recorder.dump_columns import FRAME_LIMIT, is_dump, split_document
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.flight_recorder.opcodes import OtherLayoutError
from rankscope.parsers.flight_recorder.ring_cut import cut_as_chosen
from rankscope.parsers.safe_values import RefusedError, safe_integer, safe_text, safe_truth, safe_unpickler

MOST_SLOW_CUTS = 64
"""Most places, counted from the end, at which a torn file is cut before the slow reader takes it."""
SLOW_BYTES = 4 << 20
"""Most bytes for the slow reader."""


class _SlowUnpickler(pickle._Unpickler):
    """Safe unpickler in Python: its stack stays readable after the bytes run out."""

    metastack: list[list[Any]]
    stack: list[Any]

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raises RefusedError."""
        raise RefusedError(module, name)

    def leftovers(self) -> list[Any]:
        """All objects on its stacks, outermost first."""
        return [item for part in (*self.metastack, self.stack) for item in part]


def unpickle_safely(data: bytes) -> Any:
    """The object in `data`. Raises RefusedError for a global, and any error for damaged bytes."""
    return safe_unpickler(data).load()


def salvage_pickle(data: bytes) -> Any:
    """The whole part of a torn dump: the dict or list that it began, with its complete entries; None without any."""
    found = _cut_back(data)
    return found if found is not None else _walk_stack(data[:SLOW_BYTES])


def _cut_back(data: bytes) -> Any:
    """The object of a file that is closed after one of its last entries: `u` ends an entry, `}(` begins the next."""
    end = len(data)
    for _ in range(MOST_SLOW_CUTS):
        end = data.rfind(b"u}(", 0, end)
        if end < 0:
            return None
        for closing in (b"eu.", b"e."):
            found = _quietly(data[: end + 1] + closing)
            if isinstance(found, dict | list):
                return found
    return None


def _quietly(data: bytes) -> Any:
    try:
        return unpickle_safely(data)
    except RefusedError:
        raise
    except Exception:  # noqa: BLE001 - damaged bytes raise what they like
        return None


def _walk_stack(data: bytes) -> Any:
    reader = _SlowUnpickler(io.BytesIO(data))
    try:
        return reader.load()
    except RefusedError:
        raise
    except Exception:  # noqa: BLE001 - damaged bytes raise what they like
        return _rebuild(reader.leftovers() if hasattr(reader, "metastack") else [])


def _rebuild(items: list[Any]) -> Any:
    """The outermost dict or list of a stack, with the values that were read but not yet put in."""
    if not items or not isinstance(items[0], dict | list):
        return None
    outer, rest = items[0], items[1:]
    if isinstance(outer, list):
        return outer + [x for x in rest if isinstance(x, dict) and "profiling_name" in x]
    while len(rest) > 1 and isinstance(rest[0], str) and rest[0] != "entries":
        outer[rest[0]] = rest[1]
        rest = rest[2:]
    if len(rest) > 1 and rest[0] == "entries" and isinstance(rest[1], list):
        outer["entries"] = rest[1] + [x for x in rest[2:] if isinstance(x, dict) and "profiling_name" in x]
    return outer


BYTES_PER_ENTRY = 40
"""Fewest bytes of an entry; a file with more entries repeats one object."""

FREE_CHARACTERS = 16 << 20
"""Characters that the tables of any dump may hold, whatever its size."""

NOT_A_DUMP = "not a flight recorder dump"


_JSON_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*[\"}]|\[\s*[{\]])")
_WORDS = rb"(?:version|entries|pg_config|pg_status|frames|\w*_version|\w*comm_state|\w*seq_id)"
_JSON_KEYS = re.compile(b'"' + _WORDS + b'"')
_PICKLE_KEYS = re.compile(_WORDS)
_HEAD = 512
_SHORTEST = 24
_GLOBALS = (b"c", b"\x8c")
"""Beginnings of a pickle that asks for a global at once: it is refused by name."""


class NotADumpError(RefusalError):
    """The file is no dump; the message says what it is."""


def looks_like_dump(head: bytes) -> bool:
    """Whether the first bytes can begin a dump, a pickled or JSON dict or list, or a pickle to refuse."""
    if head[:1] == b"\x80":
        # the recorder writes protocol 2; a script may have saved it again in a later one
        start = head[11:12] if head[2:3] == b"\x95" else head[2:3]
        return head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and start in (b"}", b"]", b"", *_GLOBALS)
    if clog.looks_like_clog(head):
        return True
    # traces and logs are JSON too, and large: a dump names itself in its first keys
    return _JSON_START.match(head) is not None and (len(head) < _SHORTEST or _JSON_KEYS.search(head) is not None)


def decode_dump(data: bytes) -> Dump:
    """The dump in `data`, with the entries that the user wants. Raises NotADumpError, or RefusedError for a pickle that
    asks for a global."""
    return cut_as_chosen(_decoded(data))


def _decoded(data: bytes) -> Dump:
    if clog.looks_like_clog(data[:_HEAD]):
        return clog.decode_clog(data)
    slow = None
    if fast_reader.is_suited(data):
        try:
            quickly = fast_reader.decode_fast(data)
        except OtherLayoutError as error:
            slow = str(error)
        else:
            _check_text(quickly, len(data))
            return quickly
    dump = decode_whole_dump(data)
    dump.slow = slow
    return dump


def decode_whole_dump(data: bytes) -> Dump:
    """The dump in `data`, unpickled or parsed as a whole: the way for short and odd files."""
    document, torn = _document(data)
    if not is_dump(document):
        began = len(data) < _SHORTEST or _PICKLE_KEYS.search(data[:_HEAD])
        raise NotADumpError(torn if torn and began else NOT_A_DUMP)
    dump, entries = split_document(document)
    dump.truncated = torn is not None
    kept = entries[: len(data) // BYTES_PER_ENTRY + 1]
    repeated = len(entries) - len(kept)
    dropped = _fill(dump, kept, len(data))
    _check_text(dump, len(data))
    notes = [
        f"{torn}: {dump.rows:,} whole entries kept" if torn else "",
        f"{repeated} entries left out: more than the file has room for" if repeated else "",
        f"{dropped} damaged entries dropped" if dropped else "",
    ]
    dump.problem = "; ".join(note for note in notes if note) or None
    return dump


def _document(data: bytes) -> tuple[Any, str | None]:
    """The decoded object, and why it is incomplete."""
    if data[:1] == b"\x80":
        try:
            return unpickle_safely(data), None
        except (RefusedError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - damaged pickles raise what they like
            return salvage_pickle(data), _reason(error)
    text = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return parse_text(text), None
    except (orjson.JSONDecodeError, RecursionError) as error:
        return salvage_text(text), _reason(error)


def _check_text(dump: Dump, size: int) -> None:
    """Raises MemoryError if the tables are longer than the file can hold, as with one long name in a million places."""
    ranks = sum(len(group.ranks or ()) for group in dump.config)
    rows = chain(dump.config, dump.calls, dump.shapes, dump.frames)
    characters = sum([len(value) for row in rows for value in row if type(value) is str])
    if ranks + characters > FREE_CHARACTERS + 16 * size:
        raise MemoryError


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError) or "truncated" in str(error) or "unexpected end of data" in str(error):
        return "cut off"
    return f"damaged ({type(error).__name__})"


def _fill(dump: Dump, entries: list[Any], size: int) -> int:
    """Fills the columns; returns the number of dropped entries."""
    try:
        dump_columns.fill_columns(dump, entries, size)
    except dump_columns.ERRORS:
        cleaned, dropped = clean_entries(entries)
        dump_columns.fill_columns(dump, cleaned, size)
        return dropped
    return 0


# JSON dumps: read by orjson; a torn file gives its whole entries.

MOST_CUTS = 16
"""Most places, counted from the end, at which a torn file is cut."""


def parse_text(data: bytes) -> Any:
    """The object in `data`, with a replacement for bytes that are no UTF-8. Raises ValueError for damaged text."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(data.decode("utf-8", "replace"))


def salvage_text(data: bytes) -> Any:
    """The whole part of a torn dump: its entries and the header before them; None without any."""
    text = data.decode("utf-8", "replace").encode()
    end = len(text)
    for _ in range(MOST_CUTS):
        end = text.rfind(b"}", 0, end)
        if end < 0:
            return None
        for closing in (b"}", b"]}", b"]", b"}}"):
            try:
                return orjson.loads(text[: end + 1] + closing)
            except orjson.JSONDecodeError:
                continue
    return None


# Conversion of entries one at a time, for damaged or odd dumps: all get the same keys and types.

TENSOR_LIMIT = 65536
"""Most sizes or dtypes of an operation; longer lists are dropped. An all_to_all has one for each rank."""
DIMENSION_LIMIT = 64


def clean_entries(entries: list[Any]) -> tuple[list[dict[str, Any]], int]:
    """The usable entries, with the same keys and checked values, and the number of dropped ones."""
    cleaned = [entry for entry in map(_entry, entries) if entry is not None]
    return cleaned, len(entries) - len(cleaned)


def _entry(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, dict):
        return None
    seq = safe_integer(entry.get("collective_seq_id", entry.get("seq_id")))
    name = safe_text(entry.get("profiling_name"))
    if seq is None or name is None:
        return None
    # a column of numbers has no None where 0 means the same
    numbers = {key: safe_integer(entry.get(key)) for key in ("record_id", "p2p_seq_id", "op_id")}
    return {
        "collective_seq_id": seq,
        "profiling_name": name,
        **{key: _MISSING_NUMBER if value is None else value for key, value in numbers.items()},
        **{key: safe_integer(entry.get(key)) for key in _INTEGERS},
        **{key: safe_text(entry.get(key)) for key in ("thread_name", "thread_id", "state")},
        **{key: safe_truth(entry.get(key)) for key in ("retired", "is_p2p")},
        "process_group": _group(entry.get("process_group")),
        "duration_ms": _millis(entry.get("duration_ms")),
        "input_sizes": _sizes(entry.get("input_sizes")),
        "output_sizes": _sizes(entry.get("output_sizes")),
        "input_dtypes": _dtypes(entry.get("input_dtypes")),
        "output_dtypes": _dtypes(entry.get("output_dtypes")),
        "frames": _frames(entry.get("frames")),
    }


_MISSING_NUMBER = -(2**63)
_INTEGERS = (
    "pg_id", "timeout_ms", "time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns",
)  # fmt: skip


def _group(value: Any) -> tuple[str, str] | None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        return None
    name, description = safe_text(value[0]), safe_text(value[1])
    return None if name is None else (name, description or "")


def _millis(value: Any) -> float | None:
    return float(value) if isinstance(value, float | int) and not isinstance(value, bool) and value < 1e12 else None


def _sizes(value: Any) -> list[list[int]] | None:
    if not isinstance(value, list) or len(value) > TENSOR_LIMIT:
        return None
    good = all(isinstance(dims, list) and len(dims) <= DIMENSION_LIMIT for dims in value)
    return (
        value if good and all(type(d) is int and safe_integer(d) is not None for dims in value for d in dims) else None
    )


def _dtypes(value: Any) -> list[str] | None:
    if not isinstance(value, list) or len(value) > TENSOR_LIMIT:
        return None
    names = [safe_text(item) for item in value]
    return None if None in names else [name for name in names if name is not None]


def _frames(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    frames = [f for f in value[:FRAME_LIMIT] if isinstance(f, dict)]
    return [
        f
        for f in frames
        if safe_text(f.get("name")) is not None
        and safe_text(f.get("filename")) is not None
        and safe_integer(f.get("line")) is not None
    ]
