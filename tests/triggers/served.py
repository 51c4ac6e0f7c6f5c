"""Two ranks of a real job with torch's debug server in them."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rankscope.triggers.debug_server import DebugServer, PollResult, ServerError
from tests import torch_forks

LONGEST_S = 600.0

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


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving_job(script: str, folder: Path, *arguments: str) -> Iterator[str]:
    """Runs a script, which gets a port for the server and the arguments, on two ranks; the address of the server."""
    (folder / "requests.py").write_text(REQUESTS)
    (folder / "train.py").write_text(script)
    port = free_port()
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "PYTHONPATH": paths}
    ranks = []
    for rank in range(2):
        environment = {**os.environ, **shared, "RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
        command = [str(folder / "train.py"), str(port), *arguments]
        ranks.append(torch_forks.started(command, environment, folder, folder / f"output_{rank}"))
    try:
        yield f"http://localhost:{port}"
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def polled(address: str, folder: Path, ready: Callable[[], bool]) -> PollResult:
    """What the server of a job says once its dumps in `folder` are `ready`; fails if that takes more than minutes."""
    server, end = DebugServer(address), time.monotonic() + LONGEST_S
    folder.mkdir()
    while time.monotonic() < end:
        time.sleep(0.5)
        with suppress(ServerError):
            told = server.poll(folder)
            if ready():
                return told
    raise AssertionError(printed(folder.parent))


def entries(path: Path) -> list[dict[str, Any]]:
    """The operations in a dump as JSON; none where it is not there."""
    told: list[dict[str, Any]] = json.loads(path.read_bytes()).get("entries", []) if path.exists() else []
    return told


def printed(folder: Path) -> str:
    """What the ranks print."""
    return "\n".join(path.read_text() for path in sorted(folder.glob("output_*")))
