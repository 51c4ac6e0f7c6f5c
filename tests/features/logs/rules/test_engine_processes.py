"""Stacks of the processes of inference servers, which titles name: as ranks, or compared by process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.schema import Dataset
from tests.features.stacks.py_spy.dumps import process

REDUCE = ("all_reduce (torch/distributed/distributed_c10d.py:2900)", "step (model.py:8)")
PYNCCL = (
    "ncclReduceScatter (vllm/distributed/device_communicators/pynccl_wrapper.py:412)",
    "reduce_scatter (vllm/distributed/device_communicators/pynccl.py:220)", "step (model.py:8)",
)  # fmt: skip
IDLE = (
    "poll (zmq/sugar/poll.py:106)", "acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:698)",
    "dequeue (vllm/distributed/device_communicators/shm_broadcast.py:779)",
    "worker_busy_loop (multiproc_executor.py:9)",
)  # fmt: skip
TUNE = ("_prepare (jit.py:120)", "step (model.py:8)")
ENGINE = ("get_response (vllm/v1/executor/multiproc_executor.py:300)", "run_busy_loop (vllm/v1/engine/core.py:700)")


def read(tmp_path: Path, stacks: Mapping[str, Sequence[str]], name: str = "dump_{}.txt") -> tuple[Dataset, Analysis]:
    """The job of processes with titles and stacks, each in its own file named by its process id."""
    for pid, (title, frames) in enumerate(stacks.items(), 7100):
        (tmp_path / name.format(pid)).write_text(process(pid, frames, title))
    dataset = load([tmp_path])
    return dataset, analyse(dataset)


@pytest.mark.parametrize("title", ["VLLM::Worker_TP{}", "sglang::scheduler_TP{}"])
def test_the_title_of_a_worker_is_its_rank(tmp_path: Path, title: str) -> None:
    stacks = {title.format(rank): TUNE if rank == 1 else REDUCE for rank in range(4)}
    dataset, analysis = read(tmp_path, {**stacks, "VLLM::EngineCore": ENGINE, "sglang::detokenizer": IDLE})
    assert set(dataset.threads["rank"]) == {0, 1, 2, 3, None}
    assert analysis.culprits == (1,)
    assert analysis.verdict.startswith("rank 1 is running while all others are in all_reduce")


@pytest.mark.parametrize("title", ["VLLM::Worker_PP0_TP{}", "sglang::scheduler_DP1_TP{}_EP{}", "VLLM::Worker_DP0_TP{}"])
def test_a_title_with_more_than_tensor_parallelism_is_a_label(tmp_path: Path, title: str) -> None:
    stacks = {title.format(rank, rank): TUNE if rank == 2 else REDUCE for rank in range(4)}
    dataset, analysis = read(tmp_path, stacks)
    assert set(dataset.threads["rank"]) == {None}
    odd = title.format(2, 2)
    assert analysis.verdict.startswith(f"stacks of 4 processes without a known rank: {odd} (process 7102) running")
    assert f"{odd} (process 7102) stands at another place than the others" in analysis.findings[0].explanation
    assert analysis.culprits == () and analysis.status == "unknown"


def test_two_engines_whose_workers_have_one_title_have_no_ranks(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.txt").write_text(process(10 + ord(folder), REDUCE, "VLLM::Worker_TP0"))
    assert set(load([tmp_path]).threads["rank"]) == {None}


def test_a_name_that_calls_its_number_a_rank_outweighs_the_title(tmp_path: Path) -> None:
    (tmp_path / "rank_5.txt").write_text(process(100, REDUCE, "VLLM::Worker_TP1"))
    (tmp_path / "stack_7.txt").write_text(process(101, REDUCE, "VLLM::Worker_TP2"))
    assert sorted(load([tmp_path]).threads["rank"]) == [2, 5]


def test_the_wrapper_of_nccl_waits_for_other_ranks(tmp_path: Path) -> None:
    stacks = {f"VLLM::Worker_TP{rank}": IDLE if rank == 0 else PYNCCL for rank in range(4)}
    _, analysis = read(tmp_path, stacks)
    assert analysis.culprits == (0,)
    assert "waiting for the next message of its engine while all others are in ncclReduceScatter" in analysis.verdict


def test_an_idle_server_accuses_nobody(tmp_path: Path) -> None:
    _, analysis = read(tmp_path, {f"VLLM::Worker_TP{rank}": IDLE for rank in range(4)})
    assert not analysis.culprits and not any(f.candidates for f in analysis.findings)


def test_plain_command_lines_are_compared_by_process(tmp_path: Path) -> None:
    stacks = {f"python serve.py --port {port}": TUNE if port == 3 else REDUCE for port in range(4)}
    _, analysis = read(tmp_path, stacks)
    assert "process 7103 stands at another place than the others" in analysis.findings[0].explanation


def test_a_watchdog_that_prints_the_stacks_of_its_process(tmp_path: Path) -> None:
    lines = "".join(
        f"[2026-03-02 10:00:0{rank} TP{rank}] Scheduler watchdog timeout (self.watchdog_timeout=120, self.soft=False)\n"
        f"[2026-03-02 10:00:0{rank} TP{rank}] Pyspy dump for PID {900 + rank}:\n"
        + process(900 + rank, TUNE if rank == 1 else REDUCE, f"sglang::scheduler_TP{rank}")
        for rank in range(3)
    )
    (tmp_path / "server.log").write_text(lines)
    dataset = load([tmp_path])
    assert dataset.files["kind"].to_list() == ["log"]
    own = dataset.threads.select("rank", "pid", "active", "tool").sort("rank").rows()
    assert own == [(rank, 900 + rank, True, "py-spy") for rank in range(3)]
    assert dataset.messages["kind"].to_list().count("heartbeat") == 3
    # all watchdogs saw no progress: the stack tells who did not wait
    assert analyse(dataset).culprits == (1,)


FRONTS = [
    "node-1  | ", "> ", "[pod/srv-0/main] ", "2026-03-02 10:00:00,123 ", "2026-03-02T10:00:00.1234567Z ",
    "Mar 02 10:00:00 n7 serve[417]: ", "<13>1 2026-03-02T10:00:00.1Z n7 serve 417 - - ", "    ", "a/srv.log:",
]  # fmt: skip


@pytest.mark.parametrize("front", FRONTS)
def test_stacks_with_the_prefix_of_a_collector(tmp_path: Path, front: str) -> None:
    lines = ["Pyspy dump for PID 55:", *process(55, REDUCE, "sglang::scheduler_TP0").splitlines(), "done"]
    (tmp_path / "server.log").write_text("".join(f"{front}{line}\n" for line in lines))
    dataset = load([tmp_path])
    assert dataset.threads.select("rank", "pid").rows() == [(0, 55)]
    assert [frame.function for frame in dataset.stack(dataset.threads["stack_id"][0])] == ["all_reduce", "step"]


def test_dumps_of_py_spy_below_lines_of_a_server(tmp_path: Path) -> None:
    front = "(EngineCore pid=395) INFO 07-12 02:35:01 [shm_broadcast.py:705] waiting\n"
    dumps = [process(500 + rank, TUNE if rank == 1 else REDUCE, f"VLLM::Worker_TP{rank}") for rank in range(3)]
    (tmp_path / "serve.txt").write_text(front + "".join(dumps))
    dataset = load([tmp_path])
    assert dataset.files["kind"].to_list() == ["log"]
    assert analyse(dataset).culprits == (1,)
