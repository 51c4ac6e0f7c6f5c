"""Operations gathered from lines and blocks, as columns."""

from __future__ import annotations

import numpy as np

from rankscope.parsers.columnar import Codes, Numbers
from rankscope.parsers.logs.model import CODES, IS_CALL, NUMBERS

COLUMNS = (*NUMBERS, *CODES)


class Rows:
    """Operations of communicators in any order; sorted by communicator and offset in the end."""

    def __init__(self) -> None:
        self._parts: list[Numbers] = []
        self._single: list[tuple[int, ...]] = []

    def one(self, **values: int) -> None:
        """A single operation, with a value for each column but the ordinal."""
        self._single.append(tuple(values.get(name, 0) for name in COLUMNS))

    def many(self, **columns: Numbers) -> None:
        """Several, as columns but for the ordinal."""
        size = len(columns["offset"])
        part = np.zeros((len(COLUMNS), size), np.int64)
        for i, name in enumerate(COLUMNS):
            if name in columns:
                part[i] = columns[name]
        self._parts.append(part)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._single) + sum(int(part.shape[1]) for part in self._parts)

    def take(self) -> tuple[Numbers, Codes]:
        """All of them, which are let go; what CALL lines say only where no COLL line says the same."""
        single = np.array(self._single, np.int64).reshape(len(self._single), len(COLUMNS)).T
        whole = np.concatenate([*self._parts, single], axis=1)
        if self._single:
            # blocks come in order
            whole = whole[:, np.argsort(whole[NUMBERS.index("offset")], kind="stable")]
        self._parts, self._single = [], []
        order = _by_comm(whole)
        numbers = np.take(whole[: len(NUMBERS)], order, axis=1)
        return numbers, whole[len(NUMBERS) :].astype(np.int32).take(order, axis=1)


def _by_comm(whole: Numbers) -> Numbers:
    """The order of rows by communicator, without those of none, and without CALL lines beside COLL lines."""
    comm = whole[len(NUMBERS)]
    small = comm.size and int(comm.max()) < 1 << 15
    order = np.argsort(comm.astype(np.int16) if small else comm, kind="stable")
    keep = comm >= 0
    call = (whole[-1] & IS_CALL) > 0
    if call.any():
        keep &= ~(call & np.isin(comm, comm[~call]))
    return order if keep.all() else order[keep[order]]


# Names of NCCL's operations and numbers.

P2P = frozenset(("Send", "Recv", "PutSignal", "Signal", "WaitSignal"))
"""Operations between two ranks: others of the communicator issue none."""
UNEVEN = frozenset(("AllToAllv", "AlltoAllv"))
"""Collectives whose count may differ from rank to rank."""
