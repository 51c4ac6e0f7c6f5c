"""The content of one file, and its form between processes: a JSON header, then raw arrays."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Protocol

from rankscope.kinds.functions import PackageError, RefusalError, function
from rankscope.kinds.input_kinds import INPUTS, InputKind

DETAIL_VARIABLE = "RANKSCOPE_TRACE_DETAIL"
"""Variable of worker processes: the wanted detail of a trace, one of schema.DETAILS."""
SAMPLES_VARIABLE = "RANKSCOPE_NUMBER_SAMPLES"
"""Variable of worker processes: "sums" for samples of reductions only, which are all that rules of one run compare."""

RINGS_VARIABLE = "RANKSCOPE_RINGS"
"""Variable of worker processes: the entries of each dump that the user wants, as JSON; see `ring_cut`."""


class DecodedFile(Protocol):
    """The content of one file. A new kind of file has such a class and a row in `kinds.input_kinds`."""

    problem: str | None
    """Why a part of the file could not be read; None if all of it could."""

    @property
    def rows(self) -> int:
        """The number of its units: operations, threads."""

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""

    def body(self) -> list[memoryview]:
        """The arrays as bytes."""


class LogStretch(NamedTuple):
    """A range of bytes of a growing log, read at one time."""

    start: int
    end: int
    """The end of a line."""
    mark: str
    """The mark of the file up to `end`; see `log_files.file_mark`."""
    firm: bool
    """Later bytes cannot change its content; else it is read again together with them."""


class Joiner(Protocol):
    """Takes the ranges of one large file in their order."""

    def add(self, part: Any) -> None:
        """Takes the content of the next range."""

    def lost(self, problem: str | None) -> None:
        """Notes a range, or a part of one, that could not be read."""

    def result(self) -> DecodedFile:
        """The content of the whole file. Raises NotThisKindError for a file of another program."""


class Growing(Protocol):
    """Takes the stretches of a file that a program goes on writing."""

    start: int
    """The place of the next read."""
    mark: str
    """The mark of the file up to there."""
    end: int
    """The end of the part that was read."""

    def add(self, content: Any, stretch: LogStretch) -> None:
        """Takes a stretch."""

    def content(self) -> DecodedFile:
        """The whole content so far."""


class NotThisKindError(RefusalError):
    """The file only begins like one of this kind; the reader asks the next kind."""


class StackFrame(NamedTuple):
    """One frame of a stack."""

    function: str
    file: str
    line: int


# Registry of the kinds of files, which are rows of `kinds.input_kinds`.

PICKLE = b"\x80"


@cache
def recognised_kinds() -> tuple[InputKind, ...]:
    """Kinds with a test of the first bytes, in the order of the tests."""
    return tuple(kind for kind in INPUTS.values() if kind.begins)


def kinds_of(head: bytes, size: int) -> list[InputKind]:
    """The possible kinds of a file of `size` bytes that begins with `head`, in the order of the tests."""
    possible = [kind for kind in recognised_kinds() if kind.pickled or not head.startswith(PICKLE)]
    return [kind for kind in possible if size <= kind.most_bytes and _begins(kind, head)]


def _begins(kind: InputKind, head: bytes) -> bool:
    try:
        return bool(function(kind.begins)(head))
    except PackageError:
        return False  # told of files that nothing else recognises


def failed_tests(head: bytes) -> str | None:
    """The reasons why tests of packages do not know whether a file that begins so is theirs; None without any."""
    reasons = []
    for kind in recognised_kinds():
        if kind.name in INPUTS.ours:
            continue
        try:
            function(kind.begins)(head)
        except PackageError as error:
            reasons.append(str(error))
    return "; ".join(reasons) or None


def restore_content(kind: str, header: dict[str, Any], body: memoryview, rows: int) -> DecodedFile:
    """The content of a file of that kind from a worker's message: `header()`, `body()` and `rows` of it."""
    content: DecodedFile = function(INPUTS[kind].restore)(header, body, rows)
    return content
