"""What the table of known errors says of the exception that ended a process; not for a worker, which has no room."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from rankscope.parsers.logs.c10d.known_errors import KnownErrors
from rankscope.parsers.logs.c10d.table import current
from rankscope.parsers.logs.record import Record

_TOLD = ("id", "role", "accuses", "meaning", "next")


@lru_cache(4096)
def known_error(error: str, cause: str, users: str | None = None) -> dict[str, Any]:
    """The entry that an exception matches, else the one of what it came of if that is harm from elsewhere; or empty.

    `users` is the path of the user's own table. Only harm: what a program got over before it raised something else is
    no cause of that.
    """
    own = _look_up(error, users)
    if own.get("role") in ("root", "victim") or not cause:
        return own
    first = _look_up(cause, users)
    return first if first.get("role") == "victim" else own


def _look_up(text: str, users: str | None) -> dict[str, Any]:
    # a table knows lines
    lines = [Record(0, i, line) for i, line in enumerate(text.splitlines(), 1)]
    found = [event.values for event in _table(users).events(lines)]
    strongest = next((values for role in ("root", "victim") for values in found if values["role"] == role), None)
    return {key: strongest[key] for key in _TOLD if key in strongest} if strongest is not None else {}


@cache
def _table(users: str | None) -> KnownErrors:
    return KnownErrors(current(users)[0])
