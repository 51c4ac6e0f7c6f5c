"""The kinds of files that can be read. A new kind is a module with these two functions, and a row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rankscope.parsers.decoded import Decoded
from rankscope.parsers.flight_recorder import decode
from rankscope.parsers.py_spy import decode as py_spy
from rankscope.parsers.sidecar import decode as sidecar


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str
    """What stands in the column `kind` of the table of files."""
    begins: Callable[[bytes], bool]
    """Whether a file of this kind can begin with these bytes."""
    decode: Callable[[bytes], Decoded]
    """Reads one; raises NotThisKindError, or decode.NotADumpError, if it is something else after all."""


KINDS = (
    Kind("sidecar", sidecar.looks_like_card, sidecar.decode),
    # the mark of the first is the plainer one: its threads as JSON begin like a recorder's entries
    Kind("py-spy", py_spy.looks_like_snapshot, py_spy.decode),
    Kind("flight-recorder", decode.looks_like_dump, decode.decode),
)
