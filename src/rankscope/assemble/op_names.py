"""Parts of an operation's name: "nccl:send 0->1" is a send of library nccl to the member at place 1."""

from __future__ import annotations

import re
from functools import lru_cache

_P2P = re.compile(r"^[^:]*:?(?:send|recv) (\d{1,9})(?:->|<-)(\d{1,9}|\?)")
STATELESS_LIBRARIES = frozenset({"gloo"})
"""Libraries whose recorder never observes a state: retired then means completed."""
DEVICE_LIBRARIES = frozenset({"nccl", "nccl2", "nccl-lazy", "ncclx", "rccl", "rcclx", "xccl", "mccl", "hccl", "bccl"})
"""Libraries whose recorder observes states: retired without completed means timed out."""
P2P_OPS = frozenset({"send", "recv"})
COALESCED_OP = "coalesced"
"""Operations of a batch of unknown kind: not all members need to take part."""


_few = lru_cache(1 << 12)
"""A job has few distinct names, and each stands in the tables of thousands of dumps."""


@_few
def library_of(profiling_name: str) -> str:
    """The text before the first ':'; empty without one."""
    library, colon, _ = profiling_name.partition(":")
    return library if colon else ""


@_few
def op_of(profiling_name: str) -> str:
    """The operation, without the library and the text behind it."""
    rest = profiling_name.partition(":")[2] or profiling_name
    return rest.partition(" ")[0] or rest


@_few
def p2p_ranks(profiling_name: str) -> tuple[int, int | None] | None:
    """Own place in the group and the peer's, None for a receive from any source; None for a name without places.

    The hook of torch 2.15 writes a receive from any source as "recv 0<-?".
    """
    match = _P2P.match(profiling_name)
    return None if match is None else (int(match[1]), None if match[2] == "?" else int(match[2]))


def is_closer_name(op: str) -> bool:
    """Whether an operation of this name, without sizes, launched a coalesced group."""
    return op == "coalesced" or op.endswith("_coalesced")
