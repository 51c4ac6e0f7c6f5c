"""A gloo job of which one rank compiles again in each step, while the other gets inputs of one shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import LoadOptions, load
from tests.capture.ranks import ended, running

pytestmark = pytest.mark.torch
JOB = """
import os, rankscope.capture
folder, rank = os.getcwd(), int(os.environ["RANK"])
rankscope.capture.start(folder + "/dumps", interval=600)
import torch, torch.distributed as dist
os.environ |= {"TORCH_TRACE": folder + "/traces", "TORCH_LOGS": "recompiles"}
# torch reads them when it is imported, which it is already
torch._logging._internal.LOG_TRACE_HANDLER = None
torch._logging._internal._init_logs()
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
    (tmp_path / "train.py").write_text(JOB)
    with running([str(tmp_path / "train.py")], tmp_path) as ranks:
        assert ended(ranks) == [0, 0], (tmp_path / "output_0").read_text()
    (tmp_path / "output_1").rename(tmp_path / "rank_1.log")
    for others in (["traces"], ["rank_1.log"]):
        dataset = load([tmp_path / "dumps", *(tmp_path / name for name in others)], LoadOptions(jobs=1))
        analysis = analyse(dataset)
        (found,) = (f for f in analysis.findings if f.kind == "lone-compilation")
        assert found.title.startswith("rank 1 alone recompiles block (train.py:11) again and again (at least 4 times")
        assert found.title.endswith(": tensor 'x' size mismatch at index 0. expected 7, actual 8")
        assert (analysis.culprits, found.waiting_ranks, found.op) == ((1,), (0,), "all_reduce")
