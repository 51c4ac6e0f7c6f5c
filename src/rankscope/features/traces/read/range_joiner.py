"""Join of the ranges of one trace, which were decoded separately, in their order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.features.traces.read.decode import finished
from rankscope.features.traces.read.model import CALL_NUMBERS, TraceContent, TraceHeader
from rankscope.features.traces.read.recognition import TraceOrigin


class TraceJoiner:
    """Takes the ranges of a trace one after the other."""

    def __init__(self) -> None:
        self._parts: list[TraceContent] = []
        self._problems: list[str] = []

    def add(self, part: TraceContent) -> None:
        """Takes the next range."""
        self._parts.append(part)

    def lost(self, problem: str | None) -> None:
        """Notes a range that could not be read."""
        self._problems += [problem] if problem else []

    def result(self) -> TraceContent:
        """The whole trace. Raises NotThisKindError for a trace of another program."""
        return join_ranges(self._parts, self._problems)


def join_ranges(parts: Sequence[TraceContent], problems: Sequence[str]) -> TraceContent:
    """The whole trace; `problems` come from ranges that could not be read.

    Raises NotThisKindError for a trace of another program.
    """
    names, name_of = _merged([part.names for part in parts])
    lanes, lane_of = _merged([part.lanes for part in parts])
    calls, call_of = _merged([part.calls for part in parts])
    measures, measure_of = _merged([part.value_names for part in parts])
    before = np.cumsum([0, *(part.rows for part in parts)])
    last = [part for part in parts if part.ended] or parts[-1:]
    notes = [*problems, *(part.problem for part in parts if part.problem)]
    whole = TraceContent(
        about=_about([part.about for part in parts]),
        names=names, lanes=lanes, calls=calls,
        labels=list(dict.fromkeys(label for part in parts for label in part.labels)),
        detail=parts[0].detail,
        resolution_ns=min((part.resolution_ns for part in parts if part.rows), default=1000, key=_fineness),
        events=sum(part.events for part in parts), lost=sum(part.lost for part in parts),
        origin=reduce(TraceOrigin.joined, (part.origin for part in parts)),
        ended=True, whole=any(part.whole for part in last), problem="; ".join(dict.fromkeys(notes)) or None,
        numbers=_joined_arrays([part.numbers for part in parts]),
        codes=_joined_arrays([_recoded(p.codes, tables) for p, *tables in zip(parts, name_of, lane_of, strict=True)]),
        call_numbers=_joined_arrays([_shifted(p.call_numbers, int(b)) for p, b in zip(parts, before, strict=False)]),
        value_names=measures,
        value_numbers=_joined_arrays([
            np.stack([p.value_numbers[0] + b, table[p.value_numbers[1]]]) if p.values.size else p.value_numbers
            for p, b, table in zip(parts, before.tolist(), measure_of, strict=False)
        ]),
        values=_joined_arrays([part.values for part in parts]),
        memory=_joined_arrays([part.memory for part in parts]),
        call_codes=_joined_arrays([_recoded(p.call_codes, [table]) for p, table in zip(parts, call_of, strict=True)]),
    )  # fmt: skip
    return finished(whole)


def _fineness(resolution: int) -> int:
    return {1: 0, 250: 1}.get(resolution, 2)


def _merged(tables: Iterable[Sequence[Hashable]]) -> tuple[list[Any], list[npt.NDArray[np.int32]]]:
    """One table with the rows of all, and for each table the new indices of its rows."""
    index: dict[Hashable, int] = {}
    places = [np.array([index.setdefault(row, len(index)) for row in table], np.int32) for table in tables]
    return list(index), places


def _joined_arrays(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(arrays, axis=1)


def _recoded(codes: npt.NDArray[np.int32], tables: Sequence[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32]:
    if not codes.shape[1]:
        return codes
    return np.stack([table[row] for table, row in zip(tables, codes, strict=True)])


def _shifted(numbers: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
    shifted = numbers.copy()
    shifted[CALL_NUMBERS.index("span")] += rows
    return shifted


def _about(parts: Sequence[TraceHeader]) -> TraceHeader:
    """The header: each value from the first range that has it, as they stand before the first event or behind the
    last."""
    empty = TraceHeader()
    values = {
        name: next((getattr(p, name) for p in parts if getattr(p, name) != getattr(empty, name)), getattr(empty, name))
        for name in TraceHeader._fields
    }
    return TraceHeader(**values)
