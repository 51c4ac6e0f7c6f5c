"""What a kind of file decodes to, and how it crosses from a worker process: a JSON header, then raw arrays."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class DecodedFile(Protocol):
    """The content of one file. A new kind has such a class and a row in `kinds.input_kinds`."""

    problem: str | None
    """What of the file could not be read; None if all could."""

    @property
    def rows(self) -> int:
        """How many of its kind are in it: operations, threads."""

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""

    def body(self) -> list[memoryview]:
        """The arrays as bytes."""


class LogStretch(NamedTuple):
    """Bytes of a growing log that were read by themselves."""

    start: int
    end: int
    """Where a line ends."""
    mark: str
    """What stands in the file up to `end`; see `tailing.mark`."""
    firm: bool
    """Nothing that is written behind it changes what it says; else it is read again with what follows."""


class NotThisKindError(Exception):
    """The file only began like one of this kind: the next kind is asked."""
