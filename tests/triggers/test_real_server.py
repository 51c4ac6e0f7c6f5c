"""The debug server of a real job: what it says is what its ranks did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.scenarios import causes, report
from tests.triggers.served import entries, polled, serving_job

pytestmark = pytest.mark.torch

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.distributed.debug import start_debug_server

dist.init_process_group("gloo")
start_debug_server(port=int(sys.argv[1]), start_method="fork")
for _ in range(5):
    dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    time.sleep(3600)
dist.all_reduce(torch.ones(1))
"""


def test_a_hang_is_told_by_the_server_of_the_job(tmp_path: Path) -> None:
    with serving_job(SCRIPT, tmp_path) as address:
        folder = tmp_path / "dumps"
        told = polled(address, folder, lambda: _stands(folder))
        said = report(tmp_path / "dumps")[1]
    assert (told.ranks, told.dumps, told.stacks, told.problems) == (2, 2, 2, ())
    assert next(f["culprit_ranks"] for f in causes(said) or said["findings"]) == [0]
    # from its own page of stacks, or where py-spy is on the path from that
    assert sorted(row["rank"] for row in said["inputs"] if row["kind"] == "py-spy") == [0, 1]


def _stands(folder: Path) -> bool:
    """Whether both ranks have come to their last collective, and have been there for a while."""
    return len(entries(folder / "fr_trace_rank_1.json")) == 6 and report(folder)[1].get("status") == "hang"
