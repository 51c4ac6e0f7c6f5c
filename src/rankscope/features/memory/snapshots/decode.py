"""Decoder of memory snapshots: pickles of `torch.cuda.memory._dump_snapshot`, and JSON of the same.

The form is that of `torch/cuda/memory.py`; `torch/cuda/_memory_viz.py` reads its older forms: a list of segments alone,
blocks with a "history" instead of frames, blocks without an address.
"""

from __future__ import annotations

import io
import re
from typing import IO, Any

import msgspec

from rankscope.features.memory.snapshots.allocation_history import HistoryRows
from rankscope.features.memory.snapshots.category_timeline import decode_timeline, looks_like_timeline
from rankscope.features.memory.snapshots.entry_stream import EntryUnpickler, entry_stream
from rankscope.features.memory.snapshots.model import MemorySnapshot
from rankscope.features.memory.snapshots.snapshot_sizes import snapshot_of
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.safe_values import RefusedError
from rankscope.parsers.streams import CHUNK_BYTES, MEMORY_BYTES, TooLargeError, replayed
from rankscope.text.wording import byte_count

_PICKLED = re.compile(
    rb"\x80[\x02-\x05](?:(?s:.{0,40}?)(?:segments|device_traces)|(?s:.{0,40}?)\](?s:.{0,120}?)total_size)"
)
_TEXT = re.compile(rb'\s*(?:\{\s*"(?:segments|device_traces)"\s*:|\[\s*\{[^{}\[\]]{0,200}"total_size"\s*:)')
_DAMAGED = "a memory snapshot that is cut off or damaged"


class SnapshotEntry(msgspec.Struct):
    """An entry of a history in JSON; frames stay text."""

    action: str
    addr: int = 0
    size: int = 0
    time_us: int = 0
    device_free: int = 0
    frames: msgspec.Raw = msgspec.Raw(b"[]")
    forward_frames: list[str] | None = None

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a key, as of a dict."""
        return getattr(self, name, default)


class SnapshotText(msgspec.Struct):
    """A snapshot in JSON."""

    segments: list[dict[str, Any]] = []
    device_traces: list[list[SnapshotEntry]] = []
    allocator_settings: dict[str, Any] | None = None


def looks_like_snapshot(head: bytes) -> bool:
    """Whether a file with these first bytes holds a memory snapshot, or a memory timeline of torch.profiler."""
    return _PICKLED.match(head) is not None or _TEXT.match(head) is not None or looks_like_timeline(head)


def decode_bytes(data: bytes) -> MemorySnapshot:
    """The snapshot in `data`; errors are those of `read_snapshot`."""
    return read_snapshot(io.BytesIO(data), len(data), (0, 1))


def read_snapshot(stream: IO[bytes], size: int, part: tuple[int, int]) -> MemorySnapshot:
    """The snapshot of a stream; nothing for all parts but the first, which reads all of it.

    Raises NotThisKindError for damage, RefusedError for a pickle that asks for a global, TooLargeError for long JSON.
    """
    del size
    if part[0]:
        return MemorySnapshot()
    begin = stream.read(1)
    whole = replayed(begin, stream)
    return _pickled(whole) if begin == b"\x80" else _text(whole)


def _pickled(stream: IO[bytes]) -> MemorySnapshot:
    rows = HistoryRows()
    try:
        # the memo of the reader holds the stacks that rows refer to
        document = EntryUnpickler(entry_stream(stream), rows).load()
    except (NotThisKindError, RefusedError, MemoryError, TooLargeError):
        raise
    except Exception as error:  # damaged pickles raise what they like
        raise NotThisKindError(f"{_DAMAGED} ({type(error).__name__})") from error
    return snapshot_of(document if isinstance(document, dict) else {"segments": document}, rows)


def _text(stream: IO[bytes]) -> MemorySnapshot:
    data = bytearray()
    while chunk := stream.read(CHUNK_BYTES):
        data += chunk
        if len(data) > MEMORY_BYTES:
            raise TooLargeError(f"holds more than {byte_count(MEMORY_BYTES)}: refused")
    if looks_like_timeline(bytes(data[:256])):
        return decode_timeline(bytes(data))
    try:
        if data.lstrip()[:1] == b"[":
            return snapshot_of({"segments": msgspec.json.decode(data)}, HistoryRows())
        found = msgspec.json.decode(data, type=SnapshotText)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise NotThisKindError(f"{_DAMAGED} ({type(error).__name__})") from error
    document = {name: getattr(found, name) for name in ("segments", "device_traces", "allocator_settings")}
    return snapshot_of(document, HistoryRows())
