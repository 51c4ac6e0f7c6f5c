"""The debug server of a real job that torch's hook records, live where torch 2.15 and a compiler are."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rankscope.triggers.debug_server import DebugServer, Polled, ServerError
from tests.jobs.hooked import relayed
from tests.triggers.served import printed, serving_job

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
LONGEST_S = 600.0


def test_the_ring_of_nccl2_is_told_by_the_server_of_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    with serving_job(SCRIPT, tmp_path, str(tmp_path / "periodic")) as address:
        polled = _poll(DebugServer(address), folder)
    assert (polled.ranks, polled.problems) == (2, ())
    # NCCL has a recorder of its own, which this job does not use
    assert {path.name for path in folder.glob("nccl_*")} == set()
    waiting, silent = (_dump(folder, rank) for rank in (1, 0))
    assert [entry["profiling_name"] for entry in waiting["entries"]] == ["nccl2:all_reduce"]
    # it waits for nothing: its status alone says how far it has come
    assert silent.get("entries", []) == []
    assert silent["pg_status"]["0"]["last_enqueued_collective"] == "4"


def _dump(folder: Path, rank: int) -> dict[str, Any]:
    path = folder / f"nccl2_trace_rank_{rank}.json"
    told: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    return told


def _poll(server: DebugServer, folder: Path) -> Polled:
    """What the server says once rank 1 waits and its ends, and those of rank 0, have been noticed."""
    folder.mkdir()
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        time.sleep(0.5)
        try:
            polled = server.poll(folder)
        except ServerError:
            continue
        if len(_dump(folder, 1).get("entries", [])) == 1 and not _dump(folder, 0).get("entries"):
            return polled
    raise AssertionError(printed(folder.parent))
