"""What a kind of file decodes to, and how it crosses from a worker process: a JSON header, then raw arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Decoded(Protocol):
    """The content of one file. A new kind has such a class and a row in `RESTORE`."""

    problem: str | None
    """What of the file could not be read; None if all could."""

    @property
    def rows(self) -> int:
        """How many of its kind are in it: operations, threads."""

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""

    def body(self) -> list[memoryview]:
        """The arrays as bytes."""


class Stretch(NamedTuple):
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


def _dump(header: dict[str, Any], body: memoryview, rows: int) -> Decoded:
    from rankscope.parsers.flight_recorder.model import dump_from

    return dump_from(header, body, rows)


def _snapshot(header: dict[str, Any], body: memoryview, rows: int) -> Decoded:
    from rankscope.parsers.py_spy.model import snapshot_from

    del body, rows
    return snapshot_from(header)


def _log(header: dict[str, Any], body: memoryview, rows: int) -> Decoded:
    from rankscope.parsers.logs.model import log_from

    del rows
    return log_from(header, body)


def _card(header: dict[str, Any], body: memoryview, rows: int) -> Decoded:
    from rankscope.parsers.sidecar.model import card_from

    del body, rows
    return card_from(header)


def _trace(header: dict[str, Any], body: memoryview, rows: int) -> Decoded:
    from rankscope.parsers.torch_profiler.model import trace_from

    del rows
    return trace_from(header, body)


def _environment(header: dict[str, Any], body: memoryview, rows: int) -> Decoded:
    from rankscope.parsers.environment.model import environment_from

    del body, rows
    return environment_from(header)


def _check(header: dict[str, Any], body: memoryview, rows: int) -> Decoded:
    from rankscope.parsers.health.checks import check_from

    del body, rows
    return check_from(header)


RESTORE: dict[str, Callable[[dict[str, Any], memoryview, int], Decoded]] = {
    "flight-recorder": _dump,
    "py-spy": _snapshot,
    "log": _log,
    "torch-profiler": _trace,
    "sidecar": _card,
    "environ": _environment,
    "health-check": _check,
}
"""By the name of a kind: its object again from `header()`, `body()` and `rows`. Imports wait until one is there."""
