"""Finds known errors in lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from rankscope.parsers.logs.c10d.say import tell
from rankscope.parsers.logs.c10d.table import ROLES, KnownError
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record


class KnownErrors:
    """Matches a table."""

    def __init__(self, table: Sequence[KnownError]) -> None:
        self._table = sorted(table, key=lambda error: ROLES.index(error.role))
        self.literals = tuple(dict.fromkeys(word for error in self._table for word in error.words))

    def events(self, records: Sequence[Record], texts: Sequence[str]) -> list[Event]:
        """One for each line that matches: of its strongest role, and in the table's order.

        Values: `id`, `role`, `accuses`, `named` (ranks of the group that speaks, where `accuses` is "named"), and
        `also`, the ids of the others that match it.
        """
        found: list[list[tuple[KnownError, str | None]]] = [[] for _ in texts]
        for error in self._table:
            rows = [i for i, text in enumerate(texts) if any(word in text for word in error.words)]
            for i, named in zip(rows, _matches(error, [texts[i] for i in rows]), strict=True):
                found[i] += [(error, named)] if named is not None else []
        return [_event(record, errors) for record, errors in zip(records, found, strict=True) if errors]


def _matches(error: KnownError, texts: list[str]) -> list[str | None]:
    """For each text None, or if it matches the ranks it names."""
    if not texts:
        return []
    column = pl.Series(texts, dtype=pl.String)
    if error.accuses == "named":
        groups: list[dict[str, str | None]] = column.str.extract_groups(error.pattern).to_list()
        return [row["ranks"] for row in groups]
    return [None if not matched else "" for matched in column.str.contains(error.pattern)]


def _event(record: Record, errors: list[tuple[KnownError, str | None]]) -> Event:
    first, named = errors[0]
    ranks = [int(n) for n in re.findall(r"[0-9]{1,9}", named or "")]
    also = [error.id for error, _ in errors[1:]]
    values: dict[str, Any] = {
        "id": first.id,
        "role": first.role,
        "accuses": first.accuses,
        "named": ranks,
        "also": also,
    }
    return tell("known-error", record, **values)
