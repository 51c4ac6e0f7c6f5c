"""The debug server of a real job: what it says is what its ranks did."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.triggers.debug_server import DebugServer, Polled, ServerError
from tests.jobs.scenarios import causes, report

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
REQUESTS = """
import types, urllib.error, urllib.request

exceptions = types.SimpleNamespace(Timeout=TimeoutError, ConnectionError=ConnectionError)

def post(url, timeout):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=b"", method="POST"), timeout=timeout) as answer:
            return types.SimpleNamespace(status_code=answer.status, text=answer.read().decode())
    except urllib.error.HTTPError as error:
        return types.SimpleNamespace(status_code=error.code, text=error.read().decode())
"""
"""As much of `requests` as the server needs; neither it nor aiohttp comes with torch."""
LONGEST_S = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_hang_is_told_by_the_server_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "requests.py").write_text(REQUESTS)
    (tmp_path / "train.py").write_text(SCRIPT)
    port = free_port()
    shared = {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "PYTHONPATH": str(tmp_path),
    }
    ranks = []
    for rank in range(2):
        environment = {**os.environ, **shared, "RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, str(tmp_path / "train.py"), str(port)]
        with (tmp_path / f"output_{rank}").open("wb") as output:
            ranks.append(
                subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
            )
    try:
        polled = _poll(DebugServer(f"http://localhost:{port}"), tmp_path / "dumps")
        said = report(tmp_path / "dumps")[1]
    finally:
        for process in ranks:
            os.killpg(process.pid, 9)
            process.wait()
    assert (polled.ranks, polled.dumps, polled.stacks, polled.problems) == (2, 2, 2, ())
    assert next(f["culprit_ranks"] for f in causes(said) or said["findings"]) == [0]
    # from its own page of stacks, or where py-spy is on the path from that
    assert sorted(row["rank"] for row in said["inputs"] if row["kind"] == "py-spy") == [0, 1]


def _poll(server: DebugServer, folder: Path) -> Polled:
    """What the server says once both ranks have come to their last collective, and have been there for a while."""
    folder.mkdir()
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        time.sleep(0.5)
        try:
            polled = server.poll(folder)
        except ServerError:
            continue
        path = folder / "fr_trace_rank_1.json"
        entries = json.loads(path.read_bytes()).get("entries", []) if path.exists() else []
        if len(entries) == 6 and report(folder)[1].get("status") == "hang":
            return polled
    raise AssertionError("\n".join(path.read_text() for path in sorted(folder.parent.glob("output_*"))))
