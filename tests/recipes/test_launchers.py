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
from tests.capture.ranks import card, ended, running
from tests.recipes.scripts import LONGEST_S, RECIPES, SAMPLES, run_script, stand_in
from tests.triggers.served import free_port

pytestmark = pytest.mark.torch
WORKER = """
import os, sys, torch.distributed as dist
sys.path.insert(0, {folder!r})
from train import train_loop
dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=int(os.environ["RANK"]), world_size=2)
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


def test_the_job_of_torchrun_without_a_fault_ends_and_leaves_dumps(tmp_path: Path) -> None:
    dumps, address = tmp_path / "dumps", {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    script = str(RECIPES / "torchrun" / "train.py")
    with running(["-m", "rankscope.capture", "-o", str(dumps), script, "--steps", "5"], tmp_path, address) as ranks:
        assert ended(ranks) == [0, 0], (tmp_path / "output_0").read_text()
    assert [card(dumps, rank)["ended"]["reason"] for rank in range(2)] == ["exit", "exit"]
    assert (dumps / "fr_trace_rank_1").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_the_script_ends_with_the_exit_code_of_torchrun(code: int, tmp_path: Path) -> None:
    sample = SAMPLES / "early_return"
    launched = f'[ "$2" = torch.distributed.run ] && {{ cp {sample}/*rank* dumps; echo "$@" > launched; exit {code}; }}'
    stand_in(tmp_path, "python", f'{launched}\nexec {sys.executable} "$@"')
    variables = {"PYTHON": str(tmp_path / "python"), "DUMPS": str(tmp_path / "dumps")}
    done = run_script(RECIPES / "torchrun" / "run.sh", variables, tmp_path, "train.py", "--steps", "5")
    assert done.returncode == code, done.stderr
    command = "-m torch.distributed.run --standalone --nproc-per-node 2 -m rankscope.capture"
    assert (tmp_path / "launched").read_text().startswith(command)
    assert (tmp_path / "launched").read_text().endswith("train.py --steps 5\n")
    assert (tmp_path / "dumps.md").exists() == (code != 0)


def test_the_loop_of_rays_workers_is_captured(tmp_path: Path) -> None:
    """Without Ray: it calls the loop with a process group, as the workers do here."""
    dumps, worker = tmp_path / "dumps", tmp_path / "worker.py"
    worker.write_text(WORKER.format(folder=str(RECIPES / "ray"), dumps=str(dumps)))
    with running([str(worker)], tmp_path) as ranks:
        assert ended(ranks) == [0, 0], (tmp_path / "output_0").read_text()
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
