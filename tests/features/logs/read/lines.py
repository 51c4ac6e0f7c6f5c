"""Lines of NCCL's log, built from the grammar of its versions."""

from __future__ import annotations

import io

from rankscope.features.logs.read.decode import decode_log
from rankscope.features.logs.read.model import LogContent

COMM = "0x55bef0201370"


def info(message: str, host: str = "node-1", pid: int = 4100, tid: int | None = None, device: int = 0) -> str:
    """An INFO record, without the line end."""
    return f"{host}:{pid}:{tid or pid} [{device}] NCCL INFO {message}"


def coll(
    op: str = "AllReduce",
    op_count: int = 0,
    count: int = 1024,
    datatype: int = 7,
    root: int = 0,
    comm: str = COMM,
    nranks: int = 4,
    tail: str = "",
    acc: str = "",
    reduction: int = 0,
) -> str:
    """The message of a COLL line; `acc` and `tail` as RCCL has them."""
    return (
        f"{op}: opCount {op_count:x} sendbuff 0x7f5dd32b2100 recvbuff 0x7f5dd32b2100 {acc}count {count} datatype "
        f"{datatype} op {reduction} root {root} comm {comm} [nranks={nranks}] stream 0x55bef0208bd0{tail}"
    )


def life(step: str = "Init COMPLETE", comm: str = COMM, rank: int = 0, nranks: int = 4, more: str = "") -> str:
    """The message of a line of a communicator's life in the form of 2.29 on."""
    return (
        f"ncclCommInitRankConfig comm {comm} rank {rank} nranks {nranks} cudaDev 0 nvmlDev 0 busId 3a000 "
        f"commId 0xfe12 {more}- {step}"
    )


def read(text: str | bytes) -> LogContent:
    """What a log says."""
    return decode_log(io.BytesIO(text.encode() if isinstance(text, str) else text))


def log(*lines: str) -> LogContent:
    """What a log of whole lines says."""
    return read("".join(f"{line}\n" for line in lines))
