"""A gloo job of four ranks that leaves dumps of the flight recorder and traces of the profiler of the same steps.

Run as `python -m tests.jobs.recorded OUT`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

WORLD_SIZE, STEPS, UNWATCHED = 4, 10, 3
COLLECTIVES = 4
"""Of each rank and step."""


def run_rank(rank: int, out: Path) -> None:
    """Steps of a job with pairs, under the profiler."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/.store", rank=rank, world_size=WORLD_SIZE)
    pairs = [dist.new_group([a, a + 1], group_desc="TP") for a in (0, 2)]

    def write(profiler: profile) -> None:
        profiler.export_chrome_trace(f"{out}/rank{rank}.pt.trace.json.gz")

    watch = schedule(wait=UNWATCHED - 1, warmup=1, active=STEPS - UNWATCHED, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=watch, on_trace_ready=write) as profiler:
        for _ in range(STEPS):
            for _ in range(2):
                dist.all_reduce(torch.ones(64), group=pairs[rank // 2])
            dist.all_gather([torch.zeros(4) for _ in range(WORLD_SIZE)], torch.ones(4))
            dist.broadcast(torch.ones(8), 0)
            profiler.step()
    dist.barrier()
    (out / f"trace_{rank}").write_bytes(_dump_fr_trace())
    dist.barrier()
    dist.destroy_process_group()


def main(out: Path) -> int:
    """Runs all ranks; the exit code of the first that fails."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", TORCH_FR_BUFFER_SIZE="2000")
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=run_rank, args=(rank, out)) for rank in range(WORLD_SIZE)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return next((process.exitcode or 0 for process in ranks if process.exitcode), 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
