"""The kinds of files that can be read. A new kind is a module with these two functions, and a row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from rankscope.parsers.decoded import Decoded
from rankscope.parsers.environment import decode as environment
from rankscope.parsers.flight_recorder import decode
from rankscope.parsers.py_spy import decode as py_spy
from rankscope.parsers.sidecar import decode as sidecar
from rankscope.parsers.torch_profiler import decode as torch_profiler
from rankscope.parsers.torch_profiler.recognise import looks_like_trace


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str
    """What stands in the column `kind` of the table of files."""
    begins: Callable[[bytes], bool]
    """Whether a file of this kind can begin with these bytes."""
    decode: Callable[[bytes], Decoded]
    """Reads one; raises NotThisKindError, or decode.NotADumpError, if it is something else after all."""
    read: Callable[[IO[bytes], int, tuple[int, int]], Decoded] | None = None
    """Reads one from a stream that stands at its beginning, for files too large to be held: size, and which of how
    many ranges. With more than one range the stream can be searched."""
    most: int | None = None
    """Larger files, in bytes, are none of this kind."""


KINDS = (
    # names itself in its first keys, and may have those of a recorder behind them
    Kind("torch-profiler", looks_like_trace, torch_profiler.decode_bytes, read=torch_profiler.read),
    Kind("sidecar", sidecar.looks_like_card, sidecar.decode),
    # the mark of the first is the plainer one: its threads as JSON begin like a recorder's entries
    Kind("py-spy", py_spy.looks_like_snapshot, py_spy.decode),
    Kind("flight-recorder", decode.looks_like_dump, decode.decode),
    Kind("environ", environment.looks_like_environment, environment.decode, most=environment.MOST_BYTES),
)
