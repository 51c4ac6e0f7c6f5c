"""A module in the place of torch, with as much as the capture looks at."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def torch_module(
    version: str, world: Any, initialized: Callable[[], bool], legacy: Callable[..., bytes], dump: Callable[..., bytes]
) -> Any:
    """Rank 1 of 2 in the groups of `world`; `legacy` gives what NCCL's own recorder has, `dump` the others'."""
    c10d = types.SimpleNamespace(_dump_nccl_trace=legacy, _dump_fr_trace=dump)
    distributed = types.SimpleNamespace(
        is_initialized=initialized,
        get_rank=lambda: 1,
        get_world_size=lambda: 2,
        distributed_c10d=types.SimpleNamespace(_world=world),
    )
    return types.SimpleNamespace(
        __version__=version, distributed=distributed, _C=types.SimpleNamespace(_distributed_c10d=c10d)
    )
