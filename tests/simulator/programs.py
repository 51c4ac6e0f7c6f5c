"""What the ranks of a job do in one training step, for four ways to train."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulator import stacks
from tests.simulator.instructions import (
    ANY_SOURCE,
    MS,
    P2P,
    US,
    Batch,
    Collective,
    Compute,
    Host,
    Instruction,
    Sync,
    WaitAll,
)
from tests.simulator.pipeline import schedule
from tests.simulator.topology import WORLD, Topology


@dataclass(frozen=True)
class Style:
    """How a job trains."""

    name: str = "megatron"
    """"ddp", "ring", "fsdp" or "megatron"."""
    layers: int = 2
    microbatches: int = 4
    batched: bool = True
    """Sends and receives go out in batches."""
    hidden: int = 512
    activation: tuple[int, ...] = (256, 1, 512)
    coalesced: bool = False
    """Sharded training launches collectives coalesced."""
    kernel_ns: int = MS // 2
    collects: bool = False
    """Rank 0 receives from whoever comes, once a step from everybody."""
    lists: bool = False
    """Experts exchange lists of tensors, one for each member: the recorder then has the splits."""


def step(style: Style, topology: Topology, rank: int) -> list[Instruction]:
    """The instructions of one step of a rank."""
    makers = {"ddp": _ddp, "ring": _ring, "fsdp": _fsdp, "megatron": _megatron}
    collected = _collect(topology, rank) if style.collects else ()
    return [Host(200 * US), *makers[style.name](style, topology, rank), *collected, Host(100 * US)]


def _collect(topology: Topology, rank: int) -> Iterator[Instruction]:
    if rank:
        yield P2P(WORLD, "send", 0, (64,), "Float", stacks.SEND)
        return
    for _ in range(topology.layout.world - 1):
        yield P2P(WORLD, "recv", ANY_SOURCE, (64,), "Float", stacks.RECV)


def _ddp(style: Style, topology: Topology, rank: int) -> Iterator[Instruction]:
    yield Compute(style.layers * style.kernel_ns)
    for layer in reversed(range(style.layers)):
        yield Compute(style.kernel_ns)
        shape = ((style.hidden * (layer + 2),),)
        yield Collective(WORLD, "all_reduce", shape, shape, "Float", stacks.GRADS, wait=False)
    yield WaitAll()
    yield Compute(style.kernel_ns)
    yield from _world_tail(topology)


def _ring(style: Style, topology: Topology, rank: int) -> Iterator[Instruction]:
    world, shape = topology.layout.world, style.activation
    ends = (("send", (rank + 1) % world, stacks.SEND), ("recv", (rank - 1) % world, stacks.RECV))
    yield Compute(style.kernel_ns)
    for _ in range(style.layers):
        exchange = tuple(P2P(WORLD, op, peer, shape, "BFloat16", stack, wait=False) for op, peer, stack in ends)
        yield Batch(WORLD, exchange, stacks.EXCHANGE)
        yield Compute(style.kernel_ns)
    whole = (shape[0] * world, *shape[1:])
    yield Collective(WORLD, "_all_gather_base", (shape,), (whole,), "BFloat16", stacks.UNSHARD, wait=False)
    yield Collective(WORLD, "_reduce_scatter_base", (whole,), (shape,), "BFloat16", stacks.SHARD_GRADS, wait=False)
    yield WaitAll()
    yield from _world_tail(topology)


def _fsdp(style: Style, topology: Topology, rank: int) -> Iterator[Instruction]:
    kinds = topology.of[rank]
    shards = kinds.get("tp", WORLD)
    count = len(topology.groups[shards])
    for layer in range(style.layers):
        yield from _unshard(style, shards, count, layer)
    for layer in reversed(range(style.layers)):
        yield from _unshard(style, shards, count, layer)
        yield Compute(style.kernel_ns)
        yield from _reduce_grads(style, shards, count, layer, kinds.get("dp"))
    yield WaitAll()
    yield Compute(style.kernel_ns)
    yield from _world_tail(topology)


def _unshard(style: Style, group: str, count: int, layer: int) -> Iterator[Instruction]:
    part = style.hidden * (layer + 1)
    gather = Collective(group, "_all_gather_base", ((part,),), ((part * count,),), "BFloat16", stacks.UNSHARD)
    yield _coalesce(gather) if style.coalesced else gather
    yield Compute(style.kernel_ns)


def _reduce_grads(style: Style, group: str, count: int, layer: int, replicas: str | None) -> Iterator[Instruction]:
    part = style.hidden * (layer + 1)
    scatter = Collective(
        group, "_reduce_scatter_base", ((part * count,),), ((part,),), "BFloat16", stacks.SHARD_GRADS, wait=False
    )
    yield _coalesce(scatter) if style.coalesced else scatter
    if replicas is not None and replicas != group:
        yield WaitAll()
        yield Collective(replicas, "all_reduce", ((part,),), ((part,),), "BFloat16", stacks.GRADS, wait=False)


def _coalesce(one: Collective) -> Collective:
    return Collective(one.group, "coalesced", (), (), one.dtype, one.stack, one.wait, inner=(one, one))


def _world_tail(topology: Topology) -> Iterator[Instruction]:
    if topology.layout.world > 1:
        yield Collective(WORLD, "all_reduce", ((1,),), ((1,),), "Float", stacks.NORM)
    yield Sync()


def _megatron(style: Style, topology: Topology, rank: int) -> Iterator[Instruction]:
    for phase in schedule(style, topology, rank):
        if isinstance(phase, P2P | Batch | WaitAll):
            yield phase
        else:
            yield from _layers(style, topology, rank, backward=phase == "backward")
    yield from _gradients(style, topology, rank)
    yield from _world_tail(topology)


def _layers(style: Style, topology: Topology, rank: int, backward: bool) -> Iterator[Instruction]:
    kinds = topology.of[rank]
    for _ in range(style.layers):
        if "tp" in kinds:
            yield from _tensor_parallel(style, kinds["tp"], len(topology.groups[kinds["tp"]]), backward)
        yield Compute(style.kernel_ns * (2 if backward else 1))
        if "ep" in kinds:
            yield from (_split_experts if style.lists else _experts)(style, kinds["ep"], topology, rank)
        elif "tp" in kinds:
            whole = (style.activation,)
            yield Collective(kinds["tp"], "all_reduce", whole, whole, "BFloat16", stacks.TP_REDUCE)


def _tensor_parallel(style: Style, group: str, count: int, backward: bool) -> Iterator[Instruction]:
    part, whole = style.activation, (style.activation[0] * count, *style.activation[1:])
    if backward:
        yield Collective(group, "_reduce_scatter_base", (whole,), (part,), "BFloat16", stacks.TP_SCATTER)
    else:
        yield Collective(group, "_all_gather_base", (part,), (whole,), "BFloat16", stacks.TP_GATHER)


def _split_experts(style: Style, group: str, topology: Topology, rank: int) -> Iterator[Instruction]:
    members = topology.groups[group]
    there = tuple((16 + (7 * rank + 3 * peer) % 13, style.hidden) for peer in members)
    back = tuple((16 + (7 * peer + 3 * rank) % 13, style.hidden) for peer in members)
    yield Collective(group, "all_to_all", there, back, "BFloat16", stacks.EXPERTS)
    yield Compute(style.kernel_ns)
    yield Collective(group, "all_to_all", back, there, "BFloat16", stacks.EXPERTS)


def _experts(style: Style, group: str, topology: Topology, rank: int) -> Iterator[Instruction]:
    tokens = style.activation[0]
    there = ((tokens, style.hidden),)
    back = ((tokens + 3 * rank % 11, style.hidden),)
    yield Collective(group, "all_to_all", there, back, "BFloat16", stacks.EXPERTS)
    yield Compute(style.kernel_ns)
    yield Collective(group, "all_to_all", back, there, "BFloat16", stacks.EXPERTS)


def _gradients(style: Style, topology: Topology, rank: int) -> Iterator[Instruction]:
    kinds = topology.of[rank]
    _, _, stage = topology.layout.coordinates(rank)
    if "dp" in kinds:
        shape = ((style.hidden * style.hidden // (stage + 1),),)
        yield Collective(kinds["dp"], "all_reduce", shape, shape, "Float", stacks.GRADS, wait=False)
    if "emb" in kinds:
        shape = ((style.hidden * 64,),)
        yield Collective(kinds["emb"], "all_reduce", shape, shape, "Float", stacks.GRADS, wait=False)
    yield WaitAll()
    if "mp" in kinds:
        yield Collective(kinds["mp"], "all_reduce", ((1,),), ((1,),), "Float", stacks.NORM)
        yield Sync()
    yield Compute(style.kernel_ns)
