"""The kinds of files that can be read. A new kind is a module with these two functions and one row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rankscope.parsers.flight_recorder import decode
from rankscope.parsers.flight_recorder.model import Dump


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str
    """What stands in the column `kind` of the table of files."""
    begins: Callable[[bytes], bool]
    """Whether a file of this kind can begin with these bytes."""
    decode: Callable[[bytes], Dump]
    """Reads one; raises decode.NotADumpError if it is something else after all."""


KINDS = (Kind("flight-recorder", decode.looks_like_dump, decode.decode),)
