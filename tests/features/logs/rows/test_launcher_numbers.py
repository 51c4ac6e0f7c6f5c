"""Numbers that launchers give to processes: a task of srun or a local rank is a rank only where the log proves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from tests.features.logs.rows.test_hardware_ranks import one_host, told


def test_a_task_of_srun_is_a_rank_where_nothing_speaks_against_it(tmp_path: Path) -> None:
    text = "srun: error: n31: task 11: Out Of Memory\nsrun: Terminating StepId=9.0\n"
    found = told(tmp_path, {"slurm-9.out": text})
    assert found.culprits == (11,) and found.findings[0].confidence == "medium"
    assert any("one task per rank" in reason for reason in found.findings[0].confidence_reasons)


def test_tasks_that_srun_kills_after_the_first_are_not_accused(tmp_path: Path) -> None:
    text = "srun: error: n31: task 5: Killed\nsrun: error: n31: tasks 0-4,6-7: Killed\n"
    found = told(tmp_path, {"slurm-9.out": text})
    assert found.culprits == (5,) and found.verdict.startswith("rank 5 failed: killed by SIGKILL")


def test_several_tasks_are_several_ranks(tmp_path: Path) -> None:
    text = "srun: error: n31: tasks 9,12-13: Out Of Memory\n"
    assert told(tmp_path, {"slurm-9.out": text}).culprits == (9, 12, 13)


NODES = {
    "one task of each host": (
        "srun: error: n31: task 1: Out Of Memory\nsrun: error: n32: task 2: Exited with exit code 1\n"
    ),
    "the first task": "srun: error: n31: task 0: Out Of Memory\n",
    "torchrun below it": (
        "E1120 19:13:47.2 28532 torch/x/api.py:1002] failed (exitcode: -9) local_rank: 2 (pid: 9) of binary: python\n"
        "srun: error: n31: task 3: Out Of Memory\n"
    ),
    "another host of the rank": "srun: error: gpu-c: task 3: Out Of Memory\n" + one_host(3),
}


@pytest.mark.parametrize("name", NODES)
def test_a_task_that_may_be_a_node_is_no_rank(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, {"slurm-9.out": NODES[name]}).culprits in ((), (3,) if "gpu-c" in NODES[name] else ())
    lines = [f for f in analyse(load([tmp_path])).findings if f.root_cause and "memory" in f.title]
    assert all(not finding.culprit_ranks for finding in lines)


def test_recorded_environments_tell_whose_a_task_is(tmp_path: Path) -> None:
    files = {
        f"env/environ.{100 + rank}": f"RANK={rank}\0WORLD_SIZE=4\0SLURM_PROCID={3 - rank}\0HOSTNAME=n31\0"
        for rank in range(4)
    }
    found = told(tmp_path, {**files, "slurm-9.out": "srun: error: n31: task 3: Out Of Memory\n"})
    assert found.culprits == (0,)


def test_as_many_tasks_as_ranks_are_the_ranks(tmp_path: Path) -> None:
    text = "".join(f"srun: error: n{n}: task {n}: {how}\n" for n, how in ((2, "Out Of Memory"), (3, "Killed")))
    found = told(tmp_path, {"slurm-9.out": f"{SIZE}{text}"})
    assert (found.culprits, found.findings[0].confidence) == ((2,), "high")


SIZE = "[rank0]:[I1126 06:50:17.9 ProcessGroupNCCL.cpp:979] [PG ID 0 PG GUID 0 Rank 0] ProcessGroupNCCL initialization "
SIZE += "options: size: 4, global rank: 0, TIMEOUT(ms): 600000\n"
TORCHRUN = "W1126 06:50:17.0 12 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each "
TORCHRUN += "process to be 1 in default\n"


def test_a_task_with_torchrun_in_it_is_a_node_and_the_reason_is_told(tmp_path: Path) -> None:
    found = told(tmp_path, {"slurm-9.out": f"{TORCHRUN}srun: error: n31: task 3: Out Of Memory\n"})
    assert found.culprits == () and found.verdict.startswith("task 3 on n31 failed")
    assert "task 3 of srun is a launcher of ranks, not a rank" in found.findings[0].confidence_reasons


CHILD = "E1120 19:13:47.2 28532 torch/x/api.py:1002] failed (exitcode: -9) local_rank: 2 (pid: 9) of binary: python\n"
LAUNCHES = {
    "+ torchrun --nnodes=1 --nproc-per-node 4 a.py\n": 2, "+ torchrun --standalone --nproc-per-node 4 a.py\n": 2,
    "[INFO] torch.distributed.launcher.api:   max_nodes        : 1\n": 2, "  group_world_size=1\n": 2,
    "  group_world_size=2\n  global_ranks=[4, 5, 6, 7]\n": 6, f"{SIZE}  nproc_per_node   : 4\n": 2,
    "[launch.py:162:main] nnodes=1, num_local_procs=4, node_rank=0\n": 2,
}  # fmt: skip


@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_local_rank_is_a_rank_where_the_log_tells_its_host(tmp_path: Path, launch: str) -> None:
    found = told(tmp_path, {"job.log": f"{launch}{CHILD}"})
    assert found.culprits == (LAUNCHES[launch],), found.verdict


@pytest.mark.parametrize(("launch", "reason"), [
    ("", "the number of hosts of the job is not known"), ("  group_world_size=2\n", "the job has 2 hosts"),
    (f"{SIZE}  nproc_per_node   : 2\n", "the job has 2 hosts"),
    ("  global_ranks=[0, 1, 2]\n  global_ranks=[3, 4, 5]\n", "the number of hosts of the job is not known"),
])  # fmt: skip
def test_a_local_rank_of_one_of_several_hosts_is_none(tmp_path: Path, launch: str, reason: str) -> None:
    found = told(tmp_path, {"job.log": f"{launch}{CHILD}"})
    assert found.culprits == () and found.verdict.startswith("process 9 (local rank 2) failed")
    assert f"a local rank counts on its host only, and {reason}" in found.findings[0].confidence_reasons
