"""Lines of single operations: COLL and CALL. `coll_blocks` has the fast way for blocks of COLL lines.

    AllReduce: opCount 28c sendbuff 0x7f.. recvbuff 0x7f.. count 9984512 datatype 7 op 0 root 0 comm 0x55.. [nranks=4]
    stream 0x55..

Unchanged from NCCL 2.4 to 2.32; RCCL adds ` acc 0x..` before count and ` task 0 globalrank 0` at the end.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from rankscope.parsers.logs.model import CODES, IS_CALL, NUMBERS
from rankscope.parsers.matrices import NULL, Codes, Numbers

_POINTER = r"(?:0x[0-9a-fA-F]{1,16}|\(nil\)|[0-9a-fA-F]{1,16})"
COLL_LINE = re.compile(
    rf"(?P<op>\w{{1,64}}): opCount (?P<op_count>[0-9a-f]{{1,16}}) sendbuff {_POINTER} recvbuff {_POINTER}"
    rf"(?: acc {_POINTER})? count (?P<count>\d{{1,19}}) datatype (?P<datatype>\d{{1,9}}) op (?P<reduction>\d{{1,18}}) "
    rf"root (?P<root>-?\d{{1,9}}) comm (?P<comm>{_POINTER}) \[nranks=(?P<nranks>\d{{1,9}})\] stream (?P<rest>.*)"
)
COLL_BEGINNING = re.compile(r"(?P<op>\w{1,64}): opCount [0-9a-f]")
_GLOBAL_RANK = re.compile(r" globalrank (\d{1,9})\b")
_CALL = re.compile(r"(?P<op>(?:mscclpp_)?nccl\w{1,64})\((?P<values>[^()]{0,400})\)\s*$")
_RENAMED = {"Bcast": "Broadcast"}
_INT64 = 2**63


class Operation(NamedTuple):
    """One operation; NULL for values behind a cut."""

    op: str
    pointer: str
    nranks: int | None
    elements: int
    datatype: int
    reduction: int
    root: int
    op_count: int
    rank: int | None = None
    """Rank in the communicator, where RCCL prints it."""


def coll_operation(message: str, torn: bool) -> Operation | None:
    """The operation of a COLL line; None for another line, or without its communicator."""
    found = COLL_LINE.match(message)
    if found is None:
        return None
    rank = None if torn else _GLOBAL_RANK.search(found["rest"])
    numbers = [int(found[name]) for name in ("count", "datatype", "reduction", "root")]
    count, datatype, reduction, root = (n if n < _INT64 else NULL for n in numbers)
    op_count = int(found["op_count"], 16)
    return Operation(
        found["op"], found["comm"], int(found["nranks"]), count, datatype, reduction, root,
        op_count if op_count < _INT64 else NULL, int(rank[1]) if rank else None,
    )  # fmt: skip


def torn_operation(message: str, pointer: str) -> Operation | None:
    """The operation of a cut line, with only its name certain; None for another line."""
    found = COLL_BEGINNING.match(message)
    return Operation(found["op"], pointer, None, NULL, -1, NULL, NULL, NULL) if found else None


def call_operation(message: str) -> Operation | None:
    """The operation of a CALL line: `ncclAllReduce(send,recv,count,datatype,op,root,comm,stream)`."""
    found = _CALL.match(message)
    values = [value.strip() for value in found["values"].split(",")] if found else []
    if found is None or len(values) != 8 or not all(value.isdecimal() for value in values[2:6]):
        return None
    name = found["op"].removeprefix("nccl")
    count, datatype, reduction, root = (int(v) if len(v) < 19 else NULL for v in values[2:6])
    if datatype > 1 << 30 or root > 1 << 30:
        return None
    return Operation(_RENAMED.get(name, name), _pointer(values[6]), None, count, datatype, reduction, root, NULL)


def _pointer(text: str) -> str:
    return text if text.startswith("0x") else f"0x{text}"


# Operations of lines and blocks, as columns.

COLUMNS = (*NUMBERS, *CODES)


class OperationRows:
    """Operations of communicators in any order; in the end sorted by communicator and offset."""

    def __init__(self) -> None:
        self._parts: list[Numbers] = []
        self._single: list[tuple[int, ...]] = []

    def one(self, **values: int) -> None:
        """Adds a single operation, with a value for each column but the ordinal."""
        self._single.append(tuple(values.get(name, 0) for name in COLUMNS))

    def many(self, **columns: Numbers) -> None:
        """Adds several operations, as columns without the ordinal."""
        size = len(columns["offset"])
        part = np.zeros((len(COLUMNS), size), np.int64)
        for i, name in enumerate(COLUMNS):
            if name in columns:
                part[i] = columns[name]
        self._parts.append(part)

    @property
    def count(self) -> int:
        """The number of operations."""
        return len(self._single) + sum(int(part.shape[1]) for part in self._parts)

    def drain(self) -> tuple[Numbers, Codes]:
        """Returns and drops all operations; CALL lines only where no COLL line has the same."""
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
    """The order of rows by communicator, without rows of none, and without CALL lines beside COLL lines."""
    comm = whole[len(NUMBERS)]
    small = comm.size and int(comm.max()) < 1 << 15
    order = np.argsort(comm.astype(np.int16) if small else comm, kind="stable")
    keep = comm >= 0
    call = (whole[-1] & IS_CALL) > 0
    if call.any():
        keep &= ~(call & np.isin(comm, comm[~call]))
    return order if keep.all() else order[keep[order]]


# Names of NCCL's operations and numbers.

P2P_OPS = frozenset(("Send", "Recv", "PutSignal", "Signal", "WaitSignal"))
"""Operations between two ranks: the others of the communicator issue none."""
UNEVEN_OPS = frozenset(("AllToAllv", "AlltoAllv"))
"""Collectives whose count may differ from rank to rank."""
