"""Signs that a rank makes progress, which cost next to nothing to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import identity


def issued_operations(group: Any) -> int | None:
    """The number of operations that a group counts; None where its backend counts none.

    Gloo counts sends and receives, which its recorder does not hold; NCCL counts collectives.
    """
    try:
        return int(group._get_sequence_number_for_group())
    except (AttributeError, RuntimeError):
        return None


def issued() -> Mapping[str, int]:
    """By the name of each process group of this rank the number of operations that it has issued, where it counts."""
    if not identity.initialized():
        return {}
    groups = list(identity.distributed().distributed_c10d._world.pg_names.items())
    counts = {str(name): issued_operations(group) for group, name in groups}
    return {name: count for name, count in counts.items() if count is not None}
