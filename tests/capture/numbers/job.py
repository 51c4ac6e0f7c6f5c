"""A job of four gloo ranks that does all that the recording hooks: `python job.py FOLDER [SECONDS]`.

Each training runs twice in the same processes, first without the recording; each rank writes the hashes of its weights
and losses to `told_R.json`. With SECONDS, each part is repeated for so long.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce, reduce_scatter_tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

from rankscope.capture import numbers

RANKS = 4
STEPS = 3
Model = Any


def bits(tensors: Iterator[Any]) -> str:
    """A hash of the bytes of tensors, of the local ones of DTensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        local = getattr(tensor, "_local_tensor", tensor).detach()
        found.update(bytes(local.contiguous().clone().untyped_storage()))
    return found.hexdigest()


def layers(inplace: bool = True) -> Model:
    """A small model, by default with a module that works in place on the output of another."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(inplace), torch.nn.Linear(32, 8))


def ddp() -> Model:
    return torch.nn.parallel.DistributedDataParallel(layers(), bucket_cap_mb=0.001, gradient_as_bucket_view=True)


def ddp_futures() -> Model:
    """A model whose gradients are reduced by a hook that only asks for the future of each work."""
    model = ddp()
    model.register_comm_hook(None, allreduce_hook)
    return model


def fsdp() -> Model:
    model = layers()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    return fully_shard(model)


def tensor_parallel() -> Model:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return parallelize_module(layers(False), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})


def train(make: Callable[[], Model], record: dict[str, Any] | None) -> str:
    """Trains for some steps; a hash of all losses and weights."""
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if record is not None:
        numbers.start(model, optimizer, every=1, **record)
    torch.manual_seed(2 + dist.get_rank() // 2)
    losses = []
    for _ in range(STEPS):
        batch = {"x": torch.randn(4, 16)}
        numbers.batch(batch)
        loss = checkpoint(model, batch["x"], use_reentrant=False).square().mean()
        numbers.loss(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    numbers.stop()
    return bits(iter([*losses, *model.parameters()]))


def collectives() -> None:
    """One step of collectives of all kinds, also asynchronous ones."""
    rank, world = dist.get_rank(), dist.get_world_size()
    value = torch.full((6, 8), float(rank + 1))
    dist.all_reduce(value)
    work = dist.all_reduce(value.bfloat16(), op=dist.ReduceOp.MAX, async_op=True)
    dist.all_gather_into_tensor(torch.empty(world * 6, 8), value)
    work.wait()
    dist.all_gather([torch.empty(6, 8) for _ in range(world)], value)
    dist.reduce_scatter_tensor(torch.empty(8), torch.randn(world * 8))
    dist.reduce_scatter(torch.empty(3), [torch.randn(3) for _ in range(world)])
    dist.all_to_all_single(torch.empty(world), torch.arange(world) + 1.0 * rank)
    dist.broadcast(value, 1)
    dist.reduce(value, 2)
    dist.gather(value, [torch.empty(6, 8) for _ in range(world)] if rank == 0 else None)
    dist.scatter(value, [torch.randn(6, 8) for _ in range(world)] if rank == 0 else None)
    dist.all_gather_object([None] * world, {"rank": rank})
    dist.barrier()
    with dist._coalescing_manager():
        dist.all_reduce(torch.ones(5))
        dist.all_reduce(torch.ones(()))
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    future.wait()
    assert float(all_reduce(torch.ones(3), "sum", dist.group.WORLD).sum()) == 3 * world
    assert reduce_scatter_tensor(torch.ones(8), "avg", 0, dist.group.WORLD).sum() == 2


def crossed(groups: list[Any]) -> None:
    """Two asynchronous operations that half of the ranks issue in the other order: who waited at once would hang."""
    mine = groups if dist.get_rank() % 2 else groups[::-1]
    works = [dist.all_reduce(torch.ones(64), group=group, async_op=True) for group in mine]
    for work in works:
        work.wait()


def exchange() -> None:
    """Sends and receives around a ring, in one batch and alone."""
    rank, world = dist.get_rank(), dist.get_world_size()
    around = [(rank + 1) % world, (rank - 1) % world]
    out, back = torch.full((33,), float(rank)), torch.empty(33)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, out, around[0]), dist.P2POp(dist.irecv, back, around[1])]
    ):
        work.wait()
    assert back[0] == around[1]
    if rank % 2:
        dist.send(out, rank - 1)
    else:
        dist.recv(back, rank + 1)
        assert back[0] == rank + 1


def repeat(part: Callable[[], None], dumps: str, times: int, seconds: float) -> int:
    """Repeats a part with every step recorded; the number of times. Rank 0 decides when the time is over."""
    numbers.start(every=1, dumps=dumps)
    begin, count, going = time.monotonic(), 0, torch.ones(1)
    while going.item():
        part()
        count += 1
        going.fill_(count < times or time.monotonic() - begin < seconds)
        dist.broadcast(going, 0)
        numbers.step()
    numbers.stop()
    return count


def patches() -> list[bool]:
    """Whether each method and operation that the recording changes is as torch made it."""
    methods = [dist.Work.wait, dist.ProcessGroup.send, dist.ProcessGroup.recv, dist.ProcessGroup._start_coalescing]
    kernels = [("c10d::allreduce_", "AutogradCPU"), ("_c10d_functional::wait_tensor", "CPU")]
    return [
        *(not hasattr(method, "__wrapped__") for method in methods),
        *(not torch._C._dispatch_has_kernel_for_dispatch_key(*kernel) for kernel in kernels),
    ]


def run(rank: int, folder: Path, seconds: float) -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    groups = [dist.new_group(list(range(RANKS)), group_desc=name) for name in ("one", "other")]
    told: dict[str, Any] = {"as made": [patches()]}
    for name, part in {"collectives": collectives, "crossed": lambda: crossed(groups), "exchange": exchange}.items():
        told[name] = repeat(part, f"{folder}/{name}", 3, seconds)
    for make in (ddp, ddp_futures, fsdp, tensor_parallel):
        record = {"dumps": f"{folder}/{make.__name__}", "level": "modules", "replay_step": STEPS - 1}
        end = time.monotonic() + seconds
        told[make.__name__] = [train(make, None), train(make, record)]
        going = torch.ones(1)
        while seconds and going.item():
            train(make, record)
            going.fill_(time.monotonic() < end)
            dist.broadcast(going, 0)
    told["as made"].append(patches())
    told["entries"] = torch._C._distributed_c10d._dump_fr_trace_json().decode()
    dist.barrier()
    dist.destroy_process_group()
    (folder / f"told_{rank}.json").write_text(json.dumps(told))


def main(folder: Path, seconds: float) -> int:
    """Runs all ranks; the number of those that failed."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=run, args=(rank, folder, seconds)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return sum(process.exitcode != 0 for process in ranks)


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
