"""Search for known errors in lines."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from rankscope.parsers.logs.c10d import survival_signs
from rankscope.parsers.logs.c10d.error_table import ROLES, KnownError
from rankscope.parsers.logs.c10d.event_builder import message_event
from rankscope.parsers.logs.log_record import Event, Record

OWN_RANK = "rank"
"""Name of the group in a pattern that matches the global rank of the printing process."""
_SKIPPABLE = "cuda-out-of-memory"
"""An error that programs catch to skip a batch; one that is only a warning did not end its process."""
_PID = re.compile(r"^E[A-Z]\d{4}: \[PID: (\d{1,10})\]|NVRM: Xid \([^)]{0,40}\): \d{1,4}, pid='?(\d{1,10})\b")
"""The process id in lines of HCCL and of the driver."""


class KnownErrors:
    """Matcher of a table of known errors."""

    def __init__(self, table: Sequence[KnownError]) -> None:
        self._table = sorted(table, key=lambda error: ROLES.index(error.role))
        self._errors: defaultdict[str, list[int]] = defaultdict(list)
        for i, error in enumerate(self._table):
            for word in error.words:
                self._errors[word].append(i)
        self.literals = tuple(self._errors)
        self._accusing = {w for e in self._table if e.role == "root" and e.accuses == "self" for w in e.words}

    def events(self, records: Sequence[Record]) -> list[Event]:
        """An event for each matching line: of its strongest role, and in the order of the table.

        Values: `id`, `role`, `accuses`, `named` (ranks of the printing rank's group, where `accuses` is "named"),
        `also`, the ids of other matching errors, and of a root `meaning` and `next`, as in the table, and `survived`,
        if the line says that its program goes on.
        """
        texts = [record.text for record in records]
        found: list[list[tuple[KnownError, str | None]]] = [[] for _ in texts]
        for i, rows in sorted(self._candidates(texts).items()):
            error = self._table[i]
            for row, named in zip(rows, _matches(error, [texts[row] for row in rows]), strict=True):
                found[row] += [(error, named)] if named is not None else []
        return [_event(record, errors) for record, errors in zip(records, found, strict=True) if errors]

    def may_accuse(self, text: str) -> bool:
        """Whether a line may hold an error that accuses the rank that prints it."""
        return any(word in text for word in self._accusing)

    def _candidates(self, texts: Sequence[str]) -> dict[int, list[int]]:
        """For the index of each error, the texts with one of its words."""
        rows: defaultdict[int, list[int]] = defaultdict(list)
        if not texts or not self.literals:
            return rows
        column = pl.Series(texts, dtype=pl.String)
        if len(texts) < FEW_TEXTS:
            words = [[word for word in self.literals if word in text] for text in texts]
        else:
            words = column.str.extract_many(list(self.literals), overlapping=True).to_list()
        for row, held in enumerate(words):
            for i in {i for word in held for i in self._errors[word]}:
                rows[i].append(row)
        return rows


def _matches(error: KnownError, texts: list[str]) -> list[str | None]:
    """For each text None, or if it matches, the ranks that it names."""
    column = pl.Series(texts, dtype=pl.String)
    group = "ranks" if error.accuses == "named" else OWN_RANK if f"(?P<{OWN_RANK}>" in error.pattern else None
    if group is not None:
        groups: list[dict[str, str | None]] = column.str.extract_groups(error.pattern).to_list()
        return [row[group] for row in groups]
    return [None if not matched else "" for matched in column.str.contains(error.pattern)]


def _event(record: Record, errors: list[tuple[KnownError, str | None]]) -> Event:
    first, named = errors[0]
    ranks = [int(n) for n in re.findall(r"[0-9]{1,9}", named or "")]
    also = [error.id for error, _ in errors[1:]]
    whom: dict[str, Any] = {"accuses": first.accuses, "named": ranks}
    said = {"layer": first.layer, "meaning": first.meaning, "next": first.next}
    if first.accuses == "self" and len(ranks) == 1 and record.rank is None:
        record = record._replace(rank=ranks[0])
    process = _PID.search(record.text)
    pid = int(process[1] or process[2]) if process else None
    caught = (
        first.id == _SKIPPABLE and "NCCL" not in record.text and survival_signs.is_warning(record.text, record.level)
    )
    if first.role == "root" and (caught or survival_signs.goes_on(record.text)):
        said["survived"] = survival_signs.LOGGED
    return message_event("known-error", record, id=first.id, role=first.role, **whom, also=also, pid=pid, **said)


# A fast test for any of many words in a line, before slower tests.

FEW_TEXTS = 32
"""Fewest texts that justify an automaton over all words."""


class WordScreen:
    """Search for any of its literals in texts."""

    def __init__(self, literals: Iterable[str]) -> None:
        words = sorted(set(literals), key=lambda word: (len(word), word))
        self.literals: list[str] = []
        for word in words:
            # a text with a longer word contains the shorter one
            if not any(shorter in word for shorter in self.literals):
                self.literals.append(word)

    def many(self, texts: Sequence[str]) -> list[bool]:
        """For each text whether it holds a literal."""
        if not self.literals:
            return [False] * len(texts)
        if len(texts) < FEW_TEXTS:
            return [any(literal in text for literal in self.literals) for text in texts]
        # an automaton over all words: expensive to build, fast to run
        return pl.Series(texts, dtype=pl.String).str.contains_any(self.literals).to_list()
