"""Workers, children and ranks of whose end or absence others tell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.logs.read.c10d.lines import events, only, values

RAYLET = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: 0c651462 "
    "Worker IP address: 10.1.16.69 Worker port: 41811 Worker PID: 23943 Worker exit type: {} Worker exit detail: End."
)
DIED: dict[str, tuple[Any, ...]] = {
    RAYLET.format("SYSTEM_ERROR"): (23943, "10.1.16.69", None),
    "Worker proc VllmWorker-3 died unexpectedly, shutting down executor.": (None, None, "VllmWorker-3"),
}
ENDS: dict[str, tuple[Any, ...]] = {
    "[launch.py:321:sigkill_handler] ['python', 'x.py', '--local_rank=4'] exits with return code = -9": (
        -9,
        None,
        None,
    ),
    "Exception: process 3 terminated with signal SIGKILL": (-9, 3, None),
    "ProcessExitedException: process 2 terminated with exit code 17": (17, 2, None),
    "Worker VllmWorkerProcess pid 4711 died, exit code: -15": (-15, None, 4711),
}
BARRIER = "in store based barrier on rank: {}, for key: store_based_barrier_key:1 (world_size=4, {}=3, timeout=0:30:00)"


@pytest.mark.parametrize("line", DIED)
def test_a_worker_died(line: str) -> None:
    event = only(line)
    assert (event.kind, values(event, "pid", "host", "name")) == ("worker-died", DIED[line])


def test_a_worker_of_a_server_has_the_rank_of_its_number() -> None:
    assert only("Worker proc VllmWorker-3 died unexpectedly, bye.").rank == 3
    assert only("Worker proc EngineCore died unexpectedly, bye.").rank is None


def test_a_worker_that_was_to_end_did_not_die() -> None:
    assert events(RAYLET.format("INTENDED_SYSTEM_EXIT")) == []


def test_what_ray_lists_of_an_actor() -> None:
    event = only(
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: create.<locals>.WorkerDict\n\tpid: 87687\n\tname: 07GxnAWorkerDict_0:3\n\tip: 10.29.2.5\n"
        "The actor is dead because its worker process has died."
    )
    assert values(event, "pid", "host", "name") == (87687, "10.29.2.5", "07GxnAWorkerDict_0:3")


@pytest.mark.parametrize("line", ENDS)
def test_a_child_ended(line: str) -> None:
    event = only(line)
    assert (event.kind, values(event, "exitcode", "local_rank", "pid")) == ("child-exit", ENDS[line])


@pytest.mark.parametrize("counter", ["worker_count", "num_workers_joined"])
def test_ranks_wait_for_each_other_to_start(counter: str) -> None:
    event = only("RuntimeError: Timed out initializing process group " + BARRIER.format(2, counter))
    assert (event.kind, event.rank) == ("store-barrier", 2)
    assert values(event, "timed_out", "key", "world_size", "came") == (True, "1", 4, 3)
    assert only("Waiting " + BARRIER.format(2, counter)).values["timed_out"] is False


def test_who_asks_for_the_id_of_a_communicator() -> None:
    event = only(
        "RuntimeError: [5] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value "
        "store by key '0', but store->get('0') got error: Socket Timeout"
    )
    assert values(event, "rank_in_group", "waits_for") == (5, 0)


def test_the_watchdog_of_a_scheduler() -> None:
    event = only("Watchdog timeout (self.watchdog_timeout=300)")
    assert (event.kind, values(event, "problem", "seconds")) == ("heartbeat", ("scheduler-stuck", 300))
