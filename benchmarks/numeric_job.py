"""Training of a small transformer on gloo, with one planted fault in its numbers; once per rank.

Run by `benchmarks.numeric_faults`. The same seed gives the same data in every layout. Faults begin in step `BEGIN`.
"""

from __future__ import annotations

import argparse
import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from benchmarks.numeric_model import (
    BATCH,
    BEGIN,
    FAULTY_RANK,
    LAYOUTS,
    LENGTH,
    VOCABULARY,
    WIDTH,
    Mesh,
    Model,
    Planted,
    mesh,
)

# Faults below the recording: on the wire.


def corrupt_wire() -> None:
    """Wraps the wait of every work, so that results of one all_reduce are those of a wrong contribution."""
    from torch._C._distributed_c10d import Work

    wait: Callable[..., bool] = Work.wait

    def corrupted(self: Any, *args: Any, **options: Any) -> bool:
        done = wait(self, *args, **options)
        for change in _changes:
            change()
        _changes.clear()
        return done

    Work.wait = corrupted  # type: ignore[method-assign]


_changes: list[Callable[[], object]] = []


def on_the_wire(planted: Planted, grad: Tensor, at: Mesh, name: str) -> None:
    """Notes what the next wait does to the sum of these gradients."""
    if name != "blocks.1.mlp.first.weight" or at.tensor_rank != FAULTY_RANK % at.layout.tensor:
        return
    step = planted.step
    if planted.everywhere("dropped-contribution") or (planted.everywhere("wire-bit-flip") and step == BEGIN):
        share = _shared(grad, at, step)
        change = -share
        if planted.name == "wire-bit-flip":
            change = torch.zeros_like(grad)
            change.view(-1)[5] = flipped(float(share.view(-1)[5]), 26) - share.view(-1)[5]
        _changes.append(partial(grad.add_, change))
    if planted.once("output-bit-flip"):
        _changes.append(partial(_flip, grad))


def _flip(grad: Tensor) -> None:
    grad.view(-1)[7] = flipped(float(grad.view(-1)[7]), 22)


def _shared(grad: Tensor, at: Mesh, step: int) -> Tensor:
    """The contribution of the faulty member, told through the store and not through an operation."""
    store = dist.distributed_c10d._get_default_store()
    members = dist.get_process_group_ranks(at.data)
    key = f"share {step} {members}"
    if at.rank == members[-1]:
        store.set(key, grad.to(torch.float32).numpy().tobytes())
    raw = store.get(key)
    return torch.frombuffer(bytearray(raw), dtype=torch.float32).view_as(grad).to(grad.dtype)


def flipped(value: float, bit: int) -> float:
    """The float32 number with one bit flipped."""
    word = struct.unpack("I", struct.pack("f", value))[0] ^ (1 << bit)
    return float(struct.unpack("f", struct.pack("I", word))[0])


# Training.


def batches(seed: int, steps: int, planted: Planted, at: Mesh) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and targets of this rank, [batch, LENGTH] each."""
    for step in range(steps):
        number = step
        if planted.name == "data-order" and step >= BEGIN:
            number = step ^ 1
        source = torch.Generator().manual_seed(seed * 10_007 + number)
        whole = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=source)
        place = at.data_rank
        if planted.name == "same-data" and step >= BEGIN:
            place = 0
        own = whole.chunk(at.layout.data)[place]
        yield own[:, :-1], own[:, 1:]


def loss_of(logits: Tensor, targets: Tensor, planted: Planted) -> Tensor:
    """Mean over the tokens of this rank."""
    total = functional.cross_entropy(
        logits.transpose(0, 1).reshape(-1, VOCABULARY), targets.reshape(-1), reduction="sum"
    )
    return total / (targets.numel() - (LENGTH if planted.everywhere("loss-denominator") else 0))


_last: dict[str, Tensor] = {}


def average_gradients(model: nn.Module, at: Mesh, planted: Planted) -> None:
    """One all_reduce for each parameter over the data group; LayerNorms also over the tensor group with parts of a
    sequence."""
    for name, one in model.named_parameters():
        grad = one.grad
        assert grad is not None
        if at.layout.sequence and (".norm." in f".{name}" or name.endswith(("second.bias", "embedding"))):
            dist.all_reduce(grad, group=at.tensor)
        if planted.here("norm-scale") and name == "blocks.0.mlp.norm.weight":
            grad.mul_(1.001)
        if at.data is None or (name == "blocks.0.mlp.second.weight" and planted.everywhere("unsynced-parameter")):
            continue
        group = at.data
        if name == "blocks.1.attention.first.weight" and planted.everywhere("wrong-group"):
            group = at.tensor
        sent = grad
        if planted.here("stale-buffer") and name in _last:
            sent = grad.copy_(_last[name])
        _last[name] = sent.clone()
        on_the_wire(planted, sent, at, name)
        dist.all_reduce(sent, group=group)
        if not planted.everywhere("no-averaging"):
            sent.div_(at.layout.data)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW; LayerNorms and biases are not decayed."""
    plain = [p for name, p in model.named_parameters() if "norm" in name or name.endswith("bias")]
    decayed = [p for name, p in model.named_parameters() if not ("norm" in name or name.endswith("bias"))]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3)


def train(arguments: argparse.Namespace, rank: int) -> None:
    """All steps of one rank; its losses are printed."""
    layout = LAYOUTS[arguments.layout]
    at, planted = mesh(layout, rank), Planted(arguments.fault, rank)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.dtype]
    model: nn.Module = Model(at, planted, arguments.seed).to(dtype)
    if arguments.perturb:
        _perturb(model, arguments.perturb)
    if layout.wrap == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif layout.wrap == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        devices = init_device_mesh("cpu", (layout.data,), mesh_dim_names=("data",))
        for block in model.blocks.values():
            fully_shard(block, mesh=devices)
        fully_shard(model, mesh=devices)
    optimizer = optimizer_of(model)
    corrupt_wire()
    from rankscope.capture import numbers

    numbers.start(model, optimizer, every=1, dumps=arguments.output, level=arguments.level)
    declare_shards(at)
    for step, (tokens, targets) in enumerate(batches(arguments.seed, arguments.steps, planted, at)):
        planted.step = step
        numbers.batch({"tokens": tokens, "targets": targets})
        _before(model, optimizer, planted)
        optimizer.zero_grad()
        loss = _pipelined(model, tokens, targets, at, planted, dtype) if layout.pipeline > 1 else None
        if loss is None and layout.pipeline == 1:
            loss = loss_of(model(tokens).float(), targets, planted)
            loss.backward()
        if layout.wrap == "manual":
            average_gradients(model, at, planted)
        if loss is not None:
            numbers.loss(loss.detach())
            print(f"step {step} loss {loss.item():.9f}", flush=True)
        optimizer.step()
    numbers.stop()


def declare_shards(at: Mesh) -> None:
    """Says which tensors of this rank are parts of larger ones, along which dimension."""
    from rankscope.capture import numbers

    if at.data is not None:
        for name in ("blocks.*", "norm"):
            numbers.shard("activations", name, 1, at.data)
    if at.tensor is not None:
        numbers.shard("parameters", "*", None, at.tensor)
        numbers.shard("outputs", "*.first", -1, at.tensor)
        numbers.shard("inputs", "*.second", -1, at.tensor)
    if at.layout.sequence:
        for name in ("blocks.?", "attention", "mlp", "norm"):
            numbers.shard("activations", name, 0, at.tensor)


def _perturb(model: nn.Module, seed: int) -> None:
    """Changes the embedding by half a unit of its format."""
    source = torch.Generator().manual_seed(seed)
    for name, one in model.named_parameters():
        if name == "embedding":
            noise = torch.randn(one.shape, generator=source).to(one.dtype)
            one.data.add_(one.data * noise * torch.finfo(one.dtype).eps / 2)


def _before(model: nn.Module, optimizer: torch.optim.Optimizer, planted: Planted) -> None:
    """Faults in weights and in the optimizer, before a step."""
    if planted.once("weight-bit-flip"):
        one = next(one for name, one in model.named_parameters() if name.endswith("blocks.0.mlp.first.weight"))
        flat = (one.to_local() if isinstance(one, DTensor) else one).detach().view(-1)
        flat[3] = flipped(float(flat[3]), 21)
    if planted.everywhere("optimizer-lost") and planted.step == BEGIN:
        optimizer.state.clear()
    if planted.everywhere("decay-on-norm"):
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.1


def _pipelined(
    model: nn.Module, tokens: Tensor, targets: Tensor, at: Mesh, planted: Planted, dtype: torch.dtype
) -> Tensor | None:
    """Two stages, one micro batch: activations one way, gradients the other; the loss on the last stage."""
    other = at.rank + at.layout.data * (1 if at.stage == 0 else -1)
    shape = (LENGTH, tokens.shape[0], WIDTH)
    if at.stage == 0:
        out = model(tokens)
        sent = out.detach().contiguous()
        _exchange(dist.isend, sent, other)
        grad = torch.empty(shape, dtype=dtype)
        _exchange(dist.irecv, grad, other)
        out.backward(grad)
        return None
    got = torch.empty(shape, dtype=dtype)
    if planted.everywhere("received-wrong") and at.rank == at.layout.ranks - 1:
        _changes.append(got.view(-1)[:WIDTH].zero_)
    _exchange(dist.irecv, got, other)
    got.requires_grad_()
    loss = loss_of(model(got).float(), targets, planted)
    loss.backward()
    assert got.grad is not None
    _exchange(dist.isend, got.grad.contiguous(), other)
    return loss


def _exchange(way: Any, tensor: Tensor, peer: int) -> None:
    for work in dist.batch_isend_irecv([dist.P2POp(way, tensor, peer)]):
        work.wait()


def main() -> None:
    """Trains as the rank that the environment tells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", choices=LAYOUTS, default="tp")
    parser.add_argument("--fault", default="")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--level", choices=("collectives", "modules"), default="collectives")
    parser.add_argument("--perturb", type=int, default=0)
    parser.add_argument("--output", required=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(parser.parse_args(), int(os.environ["RANK"]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
