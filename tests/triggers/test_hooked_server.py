"""The debug server of a real job that torch's hook records, live where torch 2.15 and a compiler are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.hooked import relayed
from tests.triggers.served import entries, polled, serving_job

WHY_NOT = relayed.missing() or relayed.no_compiler()
pytestmark = [
    pytest.mark.torch,
    pytest.mark.nccl2,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]

SCRIPT = """
import sys, time
import torch
import torch.distributed as dist
from tests.jobs.hooked import relayed
from torch.distributed.debug import start_debug_server

relayed.register("late", 5.0)
dist.init_process_group("relay")
start_debug_server(port=int(sys.argv[1]), start_method="fork", dump_dir=sys.argv[2], dump_interval=2)
for _ in range(5):
    dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    time.sleep(3600)
dist.all_reduce(torch.ones(1))
time.sleep(3600)
"""


def test_the_ring_of_nccl2_is_told_by_the_server_of_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    ranks = [folder / f"nccl2_trace_rank_{rank}.json" for rank in range(2)]
    # until rank 1 waits, and the ends of all else have been noticed
    with serving_job(SCRIPT, tmp_path, str(tmp_path / "periodic")) as address:
        told = polled(address, folder, lambda: len(entries(ranks[1])) == 1 and not entries(ranks[0]))
    assert (told.ranks, told.problems) == (2, ())
    # NCCL has a recorder of its own, which this job does not use
    assert {path.name for path in folder.glob("nccl_*")} == set()
    assert [entry["profiling_name"] for entry in entries(ranks[1])] == ["nccl2:all_reduce"]
    # rank 0 waits for nothing: its status alone says how far it has come
    silent: dict[str, Any] = json.loads(ranks[0].read_bytes())
    assert silent.get("entries", []) == []
    assert silent["pg_status"]["0"]["last_enqueued_collective"] == "4"
