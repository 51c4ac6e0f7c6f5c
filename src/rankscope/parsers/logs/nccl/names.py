"""Names of NCCL's operations and numbers."""

from __future__ import annotations

P2P = frozenset(("Send", "Recv", "PutSignal", "Signal", "WaitSignal"))
"""Operations between two ranks: others of the communicator issue none."""
UNEVEN = frozenset(("AllToAllv", "AlltoAllv"))
"""Collectives whose count may differ from rank to rank."""
OPS = (
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv", "AlltoAll", "Gather", "Scatter",
    "PutSignal", "Signal", "WaitSignal", "AllToAll", "AllToAllv",
)  # fmt: skip
"""Known to all versions together; logs may hold others."""
DATATYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "float8e4m3",
    "float8e5m2",
)  # fmt: skip
"""By number, from 2.10 on; older versions have the first nine."""
DATATYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
"""By number; higher ones are handles of operations a user made."""
