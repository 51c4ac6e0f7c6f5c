"""Lines of single operations: COLL and CALL. The fast way for whole blocks of COLL lines is in `blocks`.

    AllReduce: opCount 28c sendbuff 0x7f.. recvbuff 0x7f.. count 9984512 datatype 7 op 0 root 0 comm 0x55.. [nranks=4]
    stream 0x55..

Unchanged from NCCL 2.4 to 2.32; RCCL adds ` acc 0x..` before count and ` task 0 globalrank 0` at the end.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rankscope.parsers.columnar import NULL

_POINTER = r"(?:0x[0-9a-fA-F]{1,16}|\(nil\)|[0-9a-fA-F]{1,16})"
COLL = re.compile(
    rf"(?P<op>\w{{1,64}}): opCount (?P<op_count>[0-9a-f]{{1,16}}) sendbuff {_POINTER} recvbuff {_POINTER}"
    rf"(?: acc {_POINTER})? count (?P<count>\d{{1,19}}) datatype (?P<datatype>\d{{1,9}}) op (?P<reduction>\d{{1,18}}) "
    rf"root (?P<root>-?\d{{1,9}}) comm (?P<comm>{_POINTER}) \[nranks=(?P<nranks>\d{{1,9}})\] stream (?P<rest>.*)"
)
BEGUN = re.compile(r"(?P<op>\w{1,64}): opCount [0-9a-f]")
_GLOBAL_RANK = re.compile(r" globalrank (\d{1,9})\b")
_CALL = re.compile(r"(?P<op>(?:mscclpp_)?nccl\w{1,64})\((?P<values>[^()]{0,400})\)\s*$")
_RENAMED = {"Bcast": "Broadcast"}
_INT64 = 2**63


class Operation(NamedTuple):
    """One operation; NULL where the line is cut."""

    op: str
    pointer: str
    nranks: int | None
    elements: int
    datatype: int
    reduction: int
    root: int
    op_count: int
    rank: int | None = None
    """In the communicator, where RCCL prints it."""


def operation(message: str, torn: bool) -> Operation | None:
    """The operation of a COLL line; None if it is none, or its communicator is cut off."""
    found = COLL.match(message)
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


def cut(message: str, pointer: str) -> Operation | None:
    """The operation that a line begins to tell of, of which only the name is sure; None if it is none."""
    found = BEGUN.match(message)
    return Operation(found["op"], pointer, None, NULL, -1, NULL, NULL, NULL) if found else None


def call(message: str) -> Operation | None:
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
