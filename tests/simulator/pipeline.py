"""The one-forward-one-backward schedule of a pipeline stage, with batched or single sends and receives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from tests.simulator import stacks
from tests.simulator.instructions import P2P, Batch, WaitAll
from tests.simulator.topology import Topology

if TYPE_CHECKING:
    from tests.simulator.programs import Style

Phase = Literal["forward", "backward"] | P2P | Batch | WaitAll
Want = tuple[str, int]
"""("send" or "recv", step along the pipeline: 1 the next stage, -1 the one before)."""


def schedule(style: Style, topology: Topology, rank: int) -> Iterator[Phase]:
    """What a rank computes and exchanges in one step."""
    stages = topology.layout.pp
    _, _, stage = topology.layout.coordinates(rank)
    warmup = min(stages - stage - 1, style.microbatches)
    steady = style.microbatches - warmup
    for _ in range(warmup):
        yield from _exchange(style, topology, rank, ("recv", -1))
        yield "forward"
        yield from _exchange(style, topology, rank, ("send", 1))
    if steady:
        yield from _exchange(style, topology, rank, ("recv", -1))
    for k in range(steady):
        yield "forward"
        yield from _exchange(style, topology, rank, ("send", 1), ("recv", 1))
        yield "backward"
        more: tuple[Want, ...] = (("recv", -1),) if k < steady - 1 else ()
        yield from _exchange(style, topology, rank, ("send", -1), *more)
    for _ in range(warmup):
        yield from _exchange(style, topology, rank, ("recv", 1))
        yield "backward"
        yield from _exchange(style, topology, rank, ("send", -1))


def _exchange(style: Style, topology: Topology, rank: int, *wants: Want) -> Iterator[P2P | Batch | WaitAll]:
    tp, dp, stage = topology.layout.coordinates(rank)
    wants = tuple(w for w in wants if 0 <= stage + w[1] < topology.layout.pp)
    if not wants:
        return
    group = topology.of[rank]["pp"]
    ordered = sorted(wants, key=lambda w: _turn(w, stage))
    ops = tuple(
        P2P(group, op, topology.layout.rank(tp, dp, stage + to), style.activation, "BFloat16",
            {"send": stacks.SEND, "recv": stacks.RECV}[op], wait=False)
        for op, to in ordered
    )  # fmt: skip
    if style.batched:
        yield Batch(group, ops, stacks.EXCHANGE)
    else:
        yield from ops
        yield WaitAll()


def _turn(want: Want, stage: int) -> int:
    # Even stages send before they receive, odd ones the other way round: single operations would block each other.
    op, _ = want
    return int((op == "send") == bool(stage % 2))
