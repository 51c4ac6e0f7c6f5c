"""Recipes that run real ranks: torchrun on two of them with a planted hang, and the loop of Ray's workers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.assemble.load import load
from tests.recipes.scripts import LONGEST_S, RECIPES, run_script

pytestmark = pytest.mark.torch
WORKER = """
import os, sys, torch.distributed as dist
sys.path.insert(0, {folder!r})
from train import train_loop
dist.init_process_group("gloo")
train_loop({{"dumps": {dumps!r}, "interval": 0.5, "steps": 12, "hang_at": 8, "hang_s": 12}})
dist.destroy_process_group()
"""


def test_torchrun_ends_a_hang_with_a_report(tmp_path: Path) -> None:
    variables = {"PYTHON": sys.executable, "DUMPS": str(tmp_path / "dumps"), "INTERVAL": "1", "FREEZE_AFTER": "45"}
    recipe = RECIPES / "torchrun"
    done = run_script(recipe / "run.sh", variables, tmp_path, str(recipe / "train.py"), "--hang-at", "10")
    assert done.returncode == 1, done.stderr
    report = (tmp_path / "dumps.md").read_text()
    assert report.splitlines()[0].startswith("# Hang: rank 1 never issued"), report
    assert "rank 1 never issued" in done.stdout


def test_torchrun_without_a_fault_ends_with_its_exit_code(tmp_path: Path) -> None:
    variables = {"PYTHON": sys.executable, "DUMPS": str(tmp_path / "dumps")}
    recipe = RECIPES / "torchrun"
    done = run_script(recipe / "run.sh", variables, tmp_path, str(recipe / "train.py"), "--steps", "5")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dumps" / "fr_trace_rank_1").exists() and not (tmp_path / "dumps.md").exists()


def test_the_loop_of_rays_workers_is_captured(tmp_path: Path) -> None:
    """Without Ray: it calls the loop with a process group, as torchrun does here."""
    dumps, worker = tmp_path / "dumps", tmp_path / "worker.py"
    worker.write_text(WORKER.format(folder=str(RECIPES / "ray"), dumps=str(dumps)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(worker)]
    subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_S)
    sidecars = [json.loads(path.read_text()) for path in dumps.glob("capture_rank_*.json")]
    assert sorted(one["rank"] for one in sidecars) == [0, 1]
    earlier = sorted((dumps / "history").glob("*_fr_trace_rank_*"))
    assert earlier and load([dumps]).world_size == 2


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_names_the_worker_that_left(tmp_path: Path) -> None:
    command = [sys.executable, str(RECIPES / "ray" / "train.py"), str(tmp_path / "dumps"), "--steps", "20",
               "--hang-at", "10", "--hang-s", "90"]  # fmt: skip
    job = subprocess.Popen(command, env={**os.environ, "RAY_DEDUP_LOGS": "0"}, stdout=subprocess.DEVNULL)
    watch = [sys.executable, "-m", "rankscope", "watch", str(tmp_path / "dumps"), "-f", "json", "--until-frozen",
             "--freeze-after", "15"]  # fmt: skip
    watched = subprocess.run(watch, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    last = json.loads(watched.stdout.splitlines()[-1])
    assert watched.returncode == 1 and last["culprit_ranks"] == [1], watched.stdout
    job.wait(LONGEST_S)
