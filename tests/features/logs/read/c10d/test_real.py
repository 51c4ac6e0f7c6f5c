"""What torch prints now, of jobs that break while the tests run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.logs.read.log_record import Event
from tests.features.logs.read.c10d.lines import everything, values
from tests.features.logs.rows.job import groups

pytestmark = pytest.mark.torch
Said = Callable[[str], list[Event]]
LAUNCHED = ("killed", "raises")
"""Faults of which torchrun prints a summary; ranks with another one need no launcher."""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The output of a job with a fault; each job runs once."""
    folder = tmp_path_factory.mktemp("jobs")

    def run(fault: str) -> Path:
        path = folder / f"{fault}.log"
        if not path.exists():
            path.write_bytes(output(fault, folder))
        return path

    return run


@pytest.fixture(scope="module")
def said(printed: Callable[[str], Path]) -> Said:
    """The events of a job with a fault."""
    return lambda fault: everything(printed(fault).read_text("utf-8", "replace"))


def output(fault: str, folder: Path) -> bytes:
    """All that the ranks and torchrun print."""
    job = [str(Path(__file__).parent / "job.py"), fault]
    command = [sys.executable, *job, str(folder / f"{fault}.store")]
    if fault in LAUNCHED:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "4", "--rdzv-backend", "c10d"]
        command = [sys.executable, *launcher, "--rdzv-endpoint", "localhost:0", *job]
    settings = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=600,
    )
    assert done.returncode != 0
    return done.stdout


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.kind == kind]


def test_each_rank_tells_its_collectives_in_order(said: Said) -> None:
    lanes: dict[int | None, list[tuple[object, ...]]] = {}
    for event in of_kind(said("mismatch"), "fingerprint"):
        lanes.setdefault(event.rank, []).append(values(event, "seq", "op", "shape", "dtype", "device"))
    common = [(0, "ALLREDUCE", [2, 3], "Float", "cpu"), (1, "BARRIER", None, None, None)]
    for rank in (0, 1, 2, 3):
        last = "BROADCAST" if rank == 2 else "ALLREDUCE"
        assert lanes[rank] == [*common, (2, last, [2, 3], "Float", "cpu")]


def test_a_mismatch_is_told_by_those_who_met_it(said: Said) -> None:
    found = of_kind(said("mismatch"), "fingerprint-mismatch")
    assert found
    for event in found:
        assert event.rank == event.values["ranks"][0]
        assert 2 in event.values["ranks"]
        assert {f[1] for f in event.values["fingerprints"]} == {"ALLREDUCE", "BROADCAST"}
        assert [aspect[0] for aspect in event.values["aspects"]] == ["op type"]


def test_its_lanes_are_those_of_one_group_and_the_odd_rank_is_accused(printed: Callable[[str], Path]) -> None:
    dataset = load([printed("mismatch")])
    assert groups(dataset) == {"0": (0, 1, 2, 3)}
    rows = dataset.ops.filter(source="c10d-log")
    last = rows.group_by("rank").last().sort("rank")
    assert last["op"].to_list() == ["all_reduce", "all_reduce", "broadcast", "all_reduce"]
    assert set(last["in_sizes"]) == {"[[2, 3]]"}
    assert rows["created_ns"].null_count() == 0
    assert dataset.seen_ranks == (0, 1, 2, 3)
    analysis = analyse(dataset)
    assert (analysis.status, analysis.culprits) == ("mismatch", (2,))


def test_a_monitored_barrier_names_who_is_late(said: Said) -> None:
    found = of_kind(said("late"), "monitored-barrier")
    failed = [e for e in found if e.values["outcome"] == "failed"]
    assert failed
    assert {(e.rank, *e.values["failed_ranks"], e.values["reporter"]) for e in failed} == {(0, 2, 0)}
    accused = [e.values["named"] for e in of_kind(said("late"), "known-error") if e.values["role"] == "root"]
    assert accused
    assert set(map(tuple, accused)) == {(2,)}


def test_a_killed_rank_is_in_the_summary_and_has_no_traceback(said: Said) -> None:
    failures = {event.rank: event for event in of_kind(said("killed"), "torchrun-failure")}
    assert set(failures) == {0, 1, 2, 3}
    assert values(failures[2], "exitcode", "signal", "local_rank") == (-9, "SIGKILL", 2)
    assert [rank for rank, event in failures.items() if event.values["first"]] == [2]
    assert 2 not in {event.rank for event in of_kind(said("killed"), "traceback")}


def test_an_exception_with_its_cause(said: Said) -> None:
    (event,) = (e for e in of_kind(said("raises"), "traceback") if e.rank == 2)
    assert values(event, "exception", "message") == ("ValueError", "no learning rate in the configuration")
    assert event.values["frames"][0][0] == "broken"
    assert [cause[:3] for cause in event.values["causes"]] == [["cause", "KeyError", "'rate'"]]
    assert [e.values["launcher"] for e in of_kind(said("raises"), "traceback") if e.rank is None] == [True]
