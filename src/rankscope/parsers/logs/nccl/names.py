"""Names of NCCL's operations and numbers."""

from __future__ import annotations

P2P = frozenset(("Send", "Recv", "PutSignal", "Signal", "WaitSignal"))
"""Operations between two ranks: others of the communicator issue none."""
UNEVEN = frozenset(("AllToAllv", "AlltoAllv"))
"""Collectives whose count may differ from rank to rank."""
