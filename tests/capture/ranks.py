"""Real gloo ranks, each a process that runs a script with the capture in it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import torch_forks
from tests.torch_forks import RankProcess

SCRIPT = """
import os, sys, time
{start}
import torch
import torch.distributed as dist

def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=rank, world_size=2)
    pair = dist.new_group([0, 1], group_desc="pair")
    loss = torch.ones(8)
    for _ in range(5):
        dist.all_reduce(loss)
        dist.all_reduce(loss, group=pair)
{then}
    dist.all_reduce(loss)
    dist.destroy_process_group()

main()
"""
START = "import rankscope.capture; rankscope.capture.start({directory!r}, interval={interval})"
LONGEST_S = 600.0


def script(path: Path, then: str = "", start: str = "") -> Path:
    """A job in which the ranks do five steps, then what `then` says, and one more all_reduce."""
    lines = "\n".join(f"    {line}" for line in then.splitlines())
    path.write_text(SCRIPT.format(start=start, then=lines))
    return path


@contextmanager
def running(
    arguments: list[str], folder: Path, variables: Mapping[str, str] | None = None, *, anew: bool = False
) -> Iterator[list[RankProcess]]:
    """Two ranks that run `python ARGUMENTS` with more environment variables; they are killed in the end.

    Started `anew`, each imports torch itself; by default it is loaded.
    """
    ranks = [_rank(arguments, folder, rank, variables or {}, anew) for rank in range(2)]
    try:
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def _rank(arguments: list[str], folder: Path, rank: int, variables: Mapping[str, str], anew: bool) -> RankProcess:
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "STORE": str(folder / "store")}
    environment |= {"GLOO_SOCKET_IFNAME": "lo", "SLURM_JOB_ID": "4711", **variables}
    path = folder / f"output_{rank}"
    if not anew:
        return torch_forks.started(arguments, environment, folder, path)
    with path.open("wb") as output:
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=output)


def wait_for(what: Callable[[], Any], folder: Path) -> Any:
    """What a function returns once it returns something; fails with what the ranks print if it never does."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("\n".join(path.read_text() for path in sorted(folder.glob("output_*"))))


def ended(ranks: list[RankProcess]) -> list[int]:
    """How the ranks end."""
    return [process.wait(LONGEST_S) for process in ranks]


def card(dumps: Path, rank: int) -> dict[str, Any]:
    """What a rank says of itself; empty before it does."""
    path = dumps / f"capture_rank_{rank}.json"
    told: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
    return told


def entries(dumps: Path, rank: int) -> list[dict[str, Any]]:
    """The operations in the newest dump of a rank."""
    path = dumps / f"fr_trace_rank_{rank}"
    told: list[dict[str, Any]] = pickle.loads(path.read_bytes())["entries"] if path.exists() else []
    return told
