"""Training of small transformers on gloo, one job after the other, each with one planted fault; once per rank.

Run by `benchmarks.numeric_faults`, with a file of jobs. The same seed gives the same data in every layout.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from benchmarks.child_processes import run_program
from benchmarks.numeric_bits import flipped
from benchmarks.numeric_flips import flip_reductions
from benchmarks.numeric_groups import Mesh, Planted, mesh
from benchmarks.numeric_model import BATCH, LENGTH, VOCABULARY, WIDTH, Model
from benchmarks.numeric_plan import FAULTY_RANK, NumericJob
from benchmarks.numeric_updates import ShardedUpdates, average_gradients, optimizer_of
from benchmarks.numeric_wire import changes, corrupt_wire
from benchmarks.results import program_parser
from rankscope.capture import numbers

PATIENCE = timedelta(seconds=120)


def batches(seed: int, steps: int, planted: Planted, at: Mesh) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and targets of this rank, [batch, LENGTH] each."""
    for step in range(steps):
        planted.step = step
        number = step ^ 1 if planted.everywhere("data-order") else step
        source = torch.Generator().manual_seed(seed * 10_007 + number)
        whole = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=source)
        place = at.data_rank
        if place and planted.everywhere("same-data"):
            place = 0
        own = whole.chunk(at.layout.data)[place]
        yield own[:, :-1], own[:, 1:]


def loss_of(logits: Tensor, targets: Tensor, planted: Planted) -> Tensor:
    """Mean over the tokens of this rank."""
    total = functional.cross_entropy(
        logits.transpose(0, 1).reshape(-1, VOCABULARY), targets.reshape(-1), reduction="sum"
    )
    return total / (targets.numel() - (LENGTH if planted.everywhere("loss-denominator") else 0))


def run(job: NumericJob, folder: Path, rank: int) -> None:
    """All steps of one rank; the moment of the fault goes to a file beside the numbers."""
    layout = job.shape
    at, planted = mesh(layout, rank), Planted(job.fault, rank, job.begin, _recorded)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[job.dtype]
    plain = Model(at, planted, job.seed).to(dtype)
    if job.perturb:
        _perturb(plain, job.perturb)
    model = _wrapped(plain, at)
    updates = ShardedUpdates(model, at, planted) if layout.wrap == "zero" else None
    optimizer = updates.optimizer if updates else optimizer_of(model)
    replayed = job.steps - 1 if job.level == "modules" else None
    numbers.start(model, optimizer, every=1, dumps=str(folder), level=job.level, replay_step=replayed)
    if job.declares:
        declare_shards(at)
    _note_hidden(plain, optimizer, planted, layout.wrap)
    for tokens, targets in batches(job.seed, job.steps, planted, at):
        numbers.batch({"tokens": tokens, "targets": targets})
        _before(model, optimizer, planted)
        optimizer.zero_grad()
        model.zero_grad()
        loss = _trained(model, tokens, targets, at, planted, dtype)
        if layout.wrap == "manual":
            average_gradients(model, at, planted)
        if loss is not None:
            numbers.loss(loss.detach())
        (updates or optimizer).step()
    numbers.stop()
    (folder / f"planted_{rank}.json").write_text(json.dumps(planted.marks))


def _recorded() -> int:
    """The number of tensors that were recorded so far."""
    return sum(recording.session._order for recording in numbers._running)


def _wrapped(plain: nn.Module, at: Mesh) -> nn.Module:
    if at.layout.wrap == "ddp":
        return nn.parallel.DistributedDataParallel(plain)
    if at.layout.wrap == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        devices = init_device_mesh("cpu", (at.layout.data,), mesh_dim_names=("data",))
        for block in plain.blocks.values():
            fully_shard(block, mesh=devices)
        fully_shard(plain, mesh=devices)
    return plain


def _perturb(model: nn.Module, seed: int) -> None:
    """Changes the embedding by half a unit of its format."""
    source = torch.Generator().manual_seed(seed)
    for name, one in model.named_parameters():
        if name.startswith("embedding"):
            noise = torch.randn(one.shape, generator=source).to(one.dtype)
            one.data.add_(one.data * noise * torch.finfo(one.dtype).eps / 2)


def declare_shards(at: Mesh) -> None:
    """Says which tensors of this rank are parts of larger ones, along which dimension."""
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


HIDDEN = "blocks.0.mlp.first"
"""The module whose weight is damaged."""


def _note_hidden(model: nn.Module, optimizer: torch.optim.Optimizer, planted: Planted, wrap: str) -> None:
    """Notes the moment of faults that wait in weights and in the optimizer: their first use."""

    def used(*_: object) -> None:
        if planted.step == planted.begin:
            planted.note()

    if planted.name.startswith("weight-") and wrap != "fsdp":
        for name, module in model.named_modules():
            if name == HIDDEN and planted.rank == FAULTY_RANK:
                module.register_forward_pre_hook(used)
    if planted.name in ("optimizer-lost", "decay-on-norm"):
        optimizer.register_step_pre_hook(used)
    norm = next((one for name, one in model.named_modules() if name == "blocks.0.attention.norm"), None)
    if planted.name == "decay-on-norm" and norm is not None and wrap != "fsdp":
        norm.register_forward_pre_hook(lambda *_: planted.note() if planted.step > planted.begin else None)


def _before(model: nn.Module, optimizer: torch.optim.Optimizer, planted: Planted) -> None:
    """Faults in weights and in the optimizer, before a step."""
    is_spread = any(isinstance(one, DTensor) for one in model.parameters())
    name, _, bit = planted.name.partition(":")
    if name.startswith("weight-") and planted.once(planted.name, later=not is_spread):
        weights = dict(model.named_parameters())
        one = next((one for name, one in weights.items() if name.endswith(f"{HIDDEN}.weight")), None)
        if one is not None:
            flat = (one.to_local() if isinstance(one, DTensor) else one).detach().view(-1)
            flat[3] = flipped(flat[3:4], int(bit or -11))
    if planted.everywhere("optimizer-lost", later=True) and planted.step == planted.begin:
        optimizer.state.clear()
    if planted.everywhere("decay-on-norm", later=True):
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.1
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model.require_backward_grad_sync = not planted.everywhere("no-sync", later=True)


def _trained(
    model: nn.Module, tokens: Tensor, targets: Tensor, at: Mesh, planted: Planted, dtype: torch.dtype
) -> Tensor | None:
    """The loss after forward and backward pass; None on a stage that has none."""
    if at.layout.pipeline > 1:
        return _pipelined(model, tokens, targets, at, planted, dtype)
    loss = loss_of(model(tokens).float(), targets, planted)
    (loss * 2 if planted.everywhere("loss-scaling") else loss).backward()
    planted.everywhere("no-sync")
    return loss


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
    if at.rank == at.layout.ranks - 1 and planted.everywhere("received-wrong", later=True):
        changes.add(planted, partial(_zeroed, got))
    _exchange(dist.irecv, got, other)
    got.requires_grad_()
    loss = loss_of(model(got).float(), targets, planted)
    loss.backward()
    assert got.grad is not None
    _exchange(dist.isend, got.grad.contiguous(), other)
    return loss


def _zeroed(got: Tensor) -> None:
    got.view(-1)[:WIDTH].zero_()


def _exchange(way: Callable[..., Any], tensor: Tensor, peer: int) -> None:
    for work in dist.batch_isend_irecv([dist.P2POp(way, tensor, peer)]):
        work.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the jobs of a file, each as a group of its own: lines of a folder and the fields of a job."""
    parser = program_parser(__spec__.name, f"{__doc__}\nRANK and WORLD_SIZE tell of the rank.")
    parser.add_argument("jobs", type=Path, help="a line of JSON for each job: its folder and the fields of NumericJob")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    corrupt_wire()
    for number, line in enumerate(given.jobs.read_text().splitlines()):
        told = json.loads(line)
        folder = Path(told.pop("folder"))
        store = dist.FileStore(f"{given.jobs}.{number}", size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
        job = NumericJob(**told)
        torch.manual_seed(job.seed)
        if job.layout == "flips":
            flip_reductions(job.dtype, folder, rank)
        else:
            run(job, folder, rank)
        dist.barrier()
        dist.destroy_process_group()
        if rank == 0:
            (folder / "done").touch()


if __name__ == "__main__":
    run_program(main)
