"""The kinds of files that can be read. A new kind is a module with these two functions, and a row here.

Most directories hold one kind: what the others need is imported when a file comes that may be of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

from rankscope.parsers import environment, health
from rankscope.parsers.decoded import Decoded
from rankscope.parsers.flight_recorder import decode
from rankscope.parsers.torch_profiler.recognise import looks_like_trace

PICKLE = b"\x80"


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
    pickled: bool = False
    """Whether it may be a pickle, and not only text."""


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported with the first call."""

    def call(*args: Any) -> Any:
        return getattr(import_module(f"rankscope.parsers.{module}"), name)(*args)

    return call


KINDS = (
    # names itself in its first keys, and may have those of a recorder behind them
    Kind(
        "torch-profiler",
        looks_like_trace,
        _later("torch_profiler.decode", "decode_bytes"),
        read=_later("torch_profiler.decode", "read"),
    ),
    Kind("sidecar", _later("sidecar.decode", "looks_like_card"), _later("sidecar.decode", "decode")),
    # the mark of the first is the plainer one: its threads as JSON begin like a recorder's entries
    Kind("py-spy", _later("py_spy.decode", "looks_like_snapshot"), _later("py_spy.decode", "decode")),
    Kind(
        "health-check",
        _later("health.sections", "looks_like_check"),
        _later("health.sections", "decode"),
        most=health.MOST_BYTES,
    ),
    Kind("flight-recorder", decode.looks_like_dump, decode.decode, pickled=True),
    Kind(
        "environ",
        _later("environment.decode", "looks_like_environment"),
        _later("environment.decode", "decode"),
        most=environment.MOST_BYTES,
    ),
)


def kinds_of(head: bytes, size: int) -> list[Kind]:
    """The kinds that a file of `size` bytes can be of that begins with `head`, those first that are asked first."""
    possible = [k for k in KINDS if k.pickled] if head.startswith(PICKLE) else KINDS
    return [kind for kind in possible if (kind.most is None or size <= kind.most) and kind.begins(head)]
