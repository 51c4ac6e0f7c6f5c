"""Several runs of a job in one log: the last one counts, another can be asked for."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.assembly import assemble
from rankscope.assemble.attempts import NoSuchAttemptError
from rankscope.schema import Dataset
from tests.features.logs.read.lines import coll, info, life
from tests.features.logs.rows.job import messages, source
from tests.features.logs.rows.test_reports import hang

AGENT = "I1120 19:14:48.187000 28532 torch/distributed/elastic/agent/server/api.py:905] [default] "
MEMORY = "[rank{}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
CHILD = (
    "E1120 19:14:47.187000 28532 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) "
    "local_rank: 1 (pid: 4002) of binary: /usr/bin/python3"
)


def restart(count: int, begun: bool = True) -> list[str]:
    lines = [CHILD, f"{AGENT}Worker group FAILED. {4 - count}/3 attempts left; will restart worker group"]
    told = [f"{AGENT}Rendezvous complete for workers. Result:", f"  restart_count={count}", "  master_addr=node-0"]
    return [*lines, *told] if begun else lines


def opened(lines: list[str], attempt: int | None = None) -> Dataset:
    return assemble([source("train.log", lines)], "job", None, None, attempt)


@pytest.mark.parametrize("begun", [True, False])
def test_a_failure_before_a_restart_is_not_the_cause_of_what_is_behind_it(begun: bool) -> None:
    lines = [MEMORY.format(1), *restart(1, begun), MEMORY.format(0), *restart(2, begun), *hang(2)]
    found = analyse(opened(lines))
    assert found.culprits == (2,)
    assert all(f.kind != "rank-failed" for f in found.findings)
    assert messages(opened(lines), "log-runs")[0].startswith("3 runs of the job follow each other in this log")


@pytest.mark.parametrize(("attempt", "culprit"), [(0, 1), (1, 0), (2, 2)])
def test_another_run_can_be_asked_for(attempt: int, culprit: int) -> None:
    lines = [MEMORY.format(1), *restart(1), MEMORY.format(0), *restart(2), *hang(2)]
    assert analyse(opened(lines, attempt)).culprits == (culprit,)


@pytest.mark.parametrize("attempt", [-1, 3])
def test_a_run_that_is_not_there_is_said(attempt: int) -> None:
    lines = [MEMORY.format(1), *restart(1), MEMORY.format(0), *restart(2), *hang(2)]
    with pytest.raises(NoSuchAttemptError, match="numbered from 0 to 2"):
        opened(lines, attempt)


def processes(first: int, ranks: int = 4, calls: int = 3, comm_id: str = "0xfe12") -> list[str]:
    ours = [info(life(rank=r).replace("0xfe12", comm_id), pid=first + r) for r in range(ranks)]
    return [*ours, *(info(coll(count=k), pid=first + r) for k in range(calls) for r in range(ranks))]


def test_new_processes_after_a_failure_are_a_run_of_their_own() -> None:
    # the communicator of the second run was not finished by all
    lines = [*processes(4000), CHILD, *processes(5000, ranks=3, calls=2, comm_id="0xfe13")]
    dataset = opened(lines)
    assert dataset.ops.height == 6
    assert dataset.comms["pid"].to_list() == [5000, 5001, 5002]
    assert opened(lines, 0).comms["pid"].to_list() == [4000, 4001, 4002, 4003]


def test_other_processes_without_a_failure_are_of_the_same_run() -> None:
    lines = [*processes(4000, ranks=2), *processes(5000, ranks=2, comm_id="0xfe13")]
    assert opened(lines).comms.height == 4


def test_processes_that_go_on_are_of_the_same_run() -> None:
    lines = [*processes(4000), CHILD, *processes(5000, comm_id="0xfe13"), info(coll(), pid=4001)]
    assert opened(lines).comms.height == 8


def test_the_first_start_is_no_restart() -> None:
    lines = [f"{AGENT}Rendezvous complete for workers. Result:", "  restart_count=0", *hang(2)]
    assert analyse(opened(lines)).culprits == (2,)
    assert opened(lines).messages.filter(kind="restart").is_empty()
