"""Records of models inside a job: wrappers of torch as they are, and what a report says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import rankscope.capture
from rankscope.capture.wrapper_record import rank_runs
from tests.capture.ranks import LONGEST_S, START, running, script
from tests.jobs.scenarios import report

DESCRIBED = """\
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial

mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
model = nn.ModuleDict({"embed": nn.Embedding(256, 64), "up": nn.Linear(64, 128), "down": nn.Linear(128, 64)})
model.norm = nn.LayerNorm(64)
model.norm.weight = nn.Parameter(DTensor.from_local(torch.ones(64), mesh, [Partial()]))
model.norm.bias.requires_grad_(rank == 0)
fully_shard(model["up"], mesh=mesh)
fully_shard(model["down"], mesh=mesh)
whole = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
assert not rankscope.capture.describe(None)
assert rankscope.capture.describe([model, whole], torch.optim.AdamW(whole.parameters()), wait=300.0)
"""


@pytest.mark.torch
def test_a_real_model_is_described_and_judged(tmp_path: Path) -> None:
    """FSDP2 without its root, DDP, a Partial parameter, and a bias that is frozen on rank 1; `None` is no model."""
    dumps = tmp_path / "dumps"
    job = script(tmp_path / "train.py", DESCRIBED, START.format(directory=str(dumps), interval=100_000.0))
    with running([str(job)], tmp_path) as ranks:
        assert [process.wait(LONGEST_S) for process in ranks] == [0, 0], (tmp_path / "output_0").read_text()
    _, said = report(dumps)
    found = {finding["kind"]: finding["title"] for finding in said["findings"]}
    assert "0.embed.weight is not sharded: each of ranks 0,1 holds all 64 KiB" in found["unsharded-parameter"]
    assert "the parameter 0.norm.weight is Partial on ranks 0,1" in found["partial-tensor"]
    assert "0.norm.bias: frozen on rank 1, trained on rank 0" in found["model-mismatch"]
    (first, second) = said["model"]["ranks"]
    assert (first["parameters"], first["sharded"], first["total"]) == (9, 33152, 132640)
    assert second["state_bytes"] == 0 and second["differs"]


def test_a_model_is_only_described_in_a_capture() -> None:
    with pytest.raises(RuntimeError, match="start"):
        rankscope.capture.describe(None)


def test_ranks_are_written_as_runs() -> None:
    assert rank_runs([6, 0, 2, 4, 9]) == [[0, 2, 4], [9, 1, 1]] and rank_runs([5]) == [[5, 1, 1]]
    assert rank_runs(range(16384)) == [[0, 1, 16384]]
