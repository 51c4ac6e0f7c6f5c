"""A gloo job of which one rank compiles again in each step, while the other gets inputs of one shape."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import LoadOptions, load

pytestmark = pytest.mark.torch
JOB = """
import sys, rankscope.capture
folder, rank = sys.argv[1], int(sys.argv[2])
rankscope.capture.start(folder + "/dumps", interval=600)
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
def block(x):
    return torch.relu(x).sum()
compiled = torch.compile(block, backend="eager", dynamic=False)
for step in range(5):
    compiled(torch.ones(4 + rank * step))
    dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""


def test_a_rank_that_compiles_in_each_step_is_named_with_its_guard(tmp_path: Path) -> None:
    ranks = []
    for rank in range(2):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "TORCH_TRACE": str(tmp_path / "traces")}
        command = [sys.executable, "-c", JOB, str(tmp_path), str(rank)]
        with (tmp_path / f"rank_{rank}.log").open("wb") as log:
            ranks.append(subprocess.Popen(command, env={**env, "TORCH_LOGS": "recompiles"}, stderr=log))
    assert [process.wait(600) for process in ranks] == [0, 0]
    for others in (["traces"], ["rank_1.log"]):
        dataset = load([tmp_path / "dumps", *(tmp_path / name for name in others)], LoadOptions(jobs=1))
        analysis = analyse(dataset)
        (found,) = (f for f in analysis.findings if f.kind == "lone-compilation")
        assert found.title.startswith("rank 1 alone recompiles block (<string>:7) again and again (at least 4 times")
        assert found.title.endswith(": tensor 'x' size mismatch at index 0. expected 7, actual 8")
        assert (analysis.culprits, found.waiting_ranks, found.op) == ((1,), (0,), "all_reduce")
