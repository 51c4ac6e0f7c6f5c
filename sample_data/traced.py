"""A job of which torch's profiler leaves a trace for each rank, and the recorder no dump: it is slow, nothing hangs."""

from __future__ import annotations

import gzip
import os
import re
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

STEPS = 8
UNWATCHED = 2
"""Steps before the window of the profiler."""
SLOW_RANK, SLOW_S = 2, 0.03
_NAMES = re.compile(rb'("(?:traceName|host_name)": ")[^"]*"')
HOST = "node0"


def trace_path(out: Path, rank: int) -> Path:
    """Where the trace of a rank is written."""
    return out / f"rank{rank}.pt.trace.json.gz"


def slow_loader(rank: int, world_size: int, scratch: Path, out: Path) -> None:
    """Rank 2 waits 30 ms for each batch, and so all do: data-parallel training under the profiler."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=rank, world_size=world_size)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = schedule(wait=0, warmup=UNWATCHED, active=STEPS - UNWATCHED, repeat=1)
    keep = partial(_write, path=trace_path(out, rank))
    with profile(activities=[ProfilerActivity.CPU], schedule=watch, on_trace_ready=keep) as profiler:
        for _ in range(STEPS):
            batch = load_batch(rank)
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            dist.all_gather([torch.zeros(1) for _ in range(world_size)], torch.zeros(1))
            profiler.step()
    dist.barrier()


def load_batch(rank: int) -> torch.Tensor:
    """The next batch; one rank's is late."""
    with record_function("load_batch"):
        if rank == SLOW_RANK:
            time.sleep(SLOW_S)
        return torch.ones(8, 64)


def _write(profiler: profile, path: Path) -> None:
    """The trace without the names of the machine that made it."""
    raw = path.with_suffix(".tmp")
    profiler.export_chrome_trace(str(raw))
    text = _NAMES.sub(rb"\1" + HOST.encode() + b'"', raw.read_bytes())
    path.write_bytes(gzip.compress(text, 9, mtime=0))
    raw.unlink()
