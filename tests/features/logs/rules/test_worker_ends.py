"""Ends that Kubernetes, Ray and servers tell: each is joined to its rank by host, process and time."""

from __future__ import annotations

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.assembly import assemble
from rankscope.features.logs.rows.hardware_ranks import Lead, PodJudge
from rankscope.features.logs.rules.end_timeline import read_ends
from rankscope.features.logs.rules.log_lines import read_lines
from tests.features.logs.rows.job import source
from tests.features.logs.rules.pods import described

COMM = (
    "2025-06-03T09:06:55.100Z {host}:17{rank}:17{rank} [0] NCCL INFO comm 0x55d{rank} rank {rank} nranks 4 "
    "cudaDev 0 nvmlDev 0 busId 1000 commId 0xaa1 - Init COMPLETE"
)
HARM = (
    "2025-06-03T09:19:0{second}.000Z [rank{rank}]: torch.distributed.DistBackendError: NCCL error in: "
    "ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.21.5"
)
LINE = Lead(-1, 0, 17)
PODS = ("llama-master-0", "llama-worker-0", "llama-worker-1", "llama-worker-2")
RAY = (
    "(RayTrainWorker pid={pid}, ip=10.0.0.{node}) [2025-06-03 09:06:50] Setting up process group for: env:// "
    "[rank={rank}, world_size=4]"
)
RAYLET = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: 0c651462 "
    "Worker IP address: 10.0.0.{node} Worker port: 41811 Worker PID: {pid} "
    "Worker exit type: {kind} Worker exit detail: {detail}"
)


def report(*lines: str, **files: str) -> Analysis:
    more = [source(f"{name}.txt", text.split("\n")) for name, text in files.items()]
    return analyse(
        assemble(sorted([source("job.log", lines), *more], key=lambda one: one.shown), "job", None, None, None)
    )


def job(hosts: tuple[str, ...] = PODS, second: int = 3) -> list[str]:
    """The start of four ranks, of which two are harmed."""
    starts = [COMM.format(host=host, rank=rank) for rank, host in enumerate(hosts)]
    return [*starts, *(HARM.format(second=second, rank=rank) for rank in (0, 1))]


def test_a_pod_that_ran_out_of_memory_is_the_rank_on_it() -> None:
    got = report(*job(), pod=described("llama-worker-2", 137, "OOMKilled"))
    assert got.culprits == (3,)
    assert got.cause is not None and "memory ran out" in got.cause.title
    assert any("rank 3 ran on llama-worker-2" in evidence.text for evidence in got.cause.evidence)


def test_a_list_of_pods_names_the_rank_too() -> None:
    got = report(*job(), pods="llama-worker-0   0/1   Error       0   14m\nllama-worker-2   0/1   OOMKilled   0   14m")
    assert got.culprits == (3,)


def test_of_a_pod_with_several_ranks_nobody_is_named() -> None:
    got = report(*job(("pod-a", "pod-a", "pod-b", "pod-b")), pod=described("pod-b", 137, "OOMKilled"))
    assert got.culprits == ()
    assert got.cause is not None and "pod-b" in got.cause.title


def test_a_container_that_kubelet_kills_after_the_failure_is_no_cause() -> None:
    late = described("llama-worker-2", 137, "Error", "Tue, 03 Jun 2025 09:21:40 +0000")
    assert report(*job(), pod=late).culprits == ()
    crashed = described("llama-worker-2", 139, "Error")
    assert report(*job(), pod=crashed).culprits == (3,)


def test_an_evicted_pod_is_named_with_the_reason() -> None:
    got = report(*job(), events="3m   Warning   Evicted   pod/llama-worker-1   The node was low on resource: memory.")
    assert got.culprits == (2,)
    assert got.cause is not None and "ended by Kubernetes (Evicted)" in got.cause.title


def test_the_variables_of_a_pod_give_the_rank_where_no_host_is_known() -> None:
    variables = {"RANK": 3, "WORLD_SIZE": 4}
    assert PodJudge(4, {}).rank(ended(variables), LINE).rank == 3
    assert PodJudge(32, {}).rank(ended(variables), LINE).rank is None
    assert PodJudge(4, {0: {"node7"}}).rank(ended(variables), LINE).rank is None


def ended(variables: dict[str, int]) -> dict[str, object]:
    return {"pod": "llama-worker-2", "node": None, "env_rank": variables["RANK"], "env_world": variables["WORLD_SIZE"]}


def test_the_worker_of_ray_that_died_is_the_rank_of_its_process() -> None:
    seats = [RAY.format(pid=2000 + rank, node=rank // 2, rank=rank) for rank in range(4)]
    died = RAYLET.format(node=1, pid=2003, kind="SYSTEM_ERROR", detail="Worker exits with an exit code -11.")
    got = report(*seats, died, HARM.format(second=3, rank=0))
    assert got.culprits == (3,)
    assert got.cause is not None and "SIGSEGV" in got.cause.title


def test_ray_kills_a_worker_for_memory() -> None:
    rows = [
        f"- (node_id=ab12, ip=10.0.0.{rank // 2}, pid={2000 + rank}) world_rank={rank}, local_rank={rank % 2}"
        for rank in range(4)
    ]
    killed = (
        "Memory on the node (IP: 10.0.0.1, ID: ab13) where the task (actor ID: 99, name=RayTrainWorker.run, pid=2002, "
        "memory used=120.50GB) was running was 480.11GB / 503.00GB (0.954507), which exceeds the memory usage "
        "threshold of 0.95. Ray killed this worker (ID: 77) because it was the most recently scheduled task"
    )
    got = report(*rows, killed, HARM.format(second=3, rank=0))
    assert got.culprits == (2,)
    assert got.cause is not None and "memory ran out" in got.cause.title


def test_an_exit_code_of_a_worker_of_ray_is_an_end_of_its_rank() -> None:
    seats = [RAY.format(pid=2000 + rank, node=0, rank=rank) for rank in range(4)]
    died = RAYLET.format(node=0, pid=2001, kind="USER_ERROR", detail="Worker exits with an exit code 3.")
    dataset = assemble([source("job.log", [*seats, died])], "job", None, None, None)
    ends = read_ends(read_lines(dataset))
    assert (ends[1].reason, ends[1].code) == ("code", 3)


def test_an_engine_of_vllm_that_was_killed_tells_its_signal() -> None:
    got = report(
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
        "{'EngineCore_DP1': -9}"
    )
    assert got.cause is not None and "SIGKILL" in got.cause.title
    assert "EngineCore_DP1" in got.cause.title
