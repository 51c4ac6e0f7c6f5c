"""Pages of answers for agents: harmless text, bounded lists, and cursors that end when files change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope.report.json import Json, ReportPart, dump_json, keys_of
from rankscope.text.escaping import plain

MOST_ROWS = 200
"""Most rows of a page."""
MOST_BYTES = 48 << 10
"""Most bytes of the rows of a page as JSON; the first row is always there."""
LONGEST_TEXT = 500
"""Longest text of a value."""
MOST_ITEMS = 24
"""Most items of a list within a row."""


class CursorError(ValueError):
    """A cursor of other arguments, or of files that have changed; the message is for the user."""


@dataclass(frozen=True)
class PageRequest:
    """The part of a list that is asked for."""

    limit: int
    cursor: str | None
    """Of the page before or after; None for the first one."""
    about: tuple[object, ...]
    """What the list depends on: the files, and the arguments."""

    @property
    def _seal(self) -> str:
        return hashlib.blake2s(repr(self.about).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()

    def cursor_at(self, row: int) -> str:
        """The cursor of the page that begins with a row."""
        return f"{row}.{self._seal}"

    def first_row(self, default: int = 0) -> int:
        """The row with which the page begins. Raises CursorError."""
        if self.cursor is None:
            return default
        row, _, seal = self.cursor.partition(".")
        if not row.isdecimal() or len(row) > 12 or seal != self._seal:
            raise CursorError(
                "this cursor is not of these arguments, or files have changed since: ask again without a cursor"
            )
        return int(row)


def page_of(
    request: PageRequest, total: int, rows_at: Callable[[int, int], Sequence[Json | ReportPart]], first: int = 0
) -> Json:
    """Rows of a list of `total` rows: `rows`, `total`, the index `first`, and cursors of the pages before and after.

    `rows_at(begin, end)` makes rows; `first` is where the page begins without a cursor. Raises CursorError.
    """
    begin = min(request.first_row(first), total)
    limit = min(request.limit, MOST_ROWS)
    rows: list[Json] = []
    size = 0
    for row in map(bounded, rows_at(begin, min(begin + limit, total))):
        size += len(dump_json(row, indented=False))
        if rows and size > MOST_BYTES:
            break
        rows.append(row)
    end = begin + len(rows)
    return {
        "total": total,
        "first": begin,
        "rows": rows,
        "previous_cursor": request.cursor_at(max(0, begin - limit)) if begin else None,
        "next_cursor": request.cursor_at(end) if end < total else None,
    }


def bounded(value: Any) -> Any:
    """The value with harmless, short texts and short lists; a list that is cut has its length as `<key>_total`."""
    if isinstance(value, str):
        return plain(value, LONGEST_TEXT)
    if isinstance(value, ReportPart):
        value = keys_of(value)
    if isinstance(value, dict):
        return {name: part for key, one in value.items() for name, part in _bounded_item(str(key), one)}
    if isinstance(value, list | tuple):
        return [bounded(one) for one in value[:MOST_ITEMS]]
    return value


def _bounded_item(key: str, value: Any) -> list[tuple[str, Any]]:
    name = plain(key, LONGEST_TEXT)
    cut = isinstance(value, list | tuple) and len(value) > MOST_ITEMS
    return [(name, bounded(value)), *([(f"{name}_total", len(value))] if cut else [])]
