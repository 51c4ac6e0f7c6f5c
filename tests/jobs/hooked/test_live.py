"""Jobs that torch's FlightRecorderHook records while the tests run: where torch 2.15 is.

Those whose ends are noticed need a compiler, too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.capture.ranks import card
from tests.jobs.hooked import relayed
from tests.jobs.scenarios import causes, report

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nccl2,
    pytest.mark.skipif(relayed.missing() is not None, reason=str(relayed.missing())),
]

LONGEST_S = 600.0
Report = dict[str, Any]


@pytest.fixture(scope="module")
def compiled() -> str | None:
    """Why the backend in C++ cannot be used; built, it lies among the extensions that torch keeps."""
    if (why := relayed.no_compiler()) is not None:
        return why
    command = [sys.executable, "-c", "from tests.jobs.hooked import relayed; relayed.build()"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"the backend cannot be built: {done.stderr.strip()[-300:]}" if done.returncode else None


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest, compiled: str | None) -> None:
    """A test of ends that are noticed needs the backend in C++."""
    completion = request.node.callspec.params["completion"] if hasattr(request.node, "callspec") else "late"
    if compiled is not None and completion != "without":
        pytest.skip(compiled)


@contextmanager
def running(job: str, completion: str, dumps: str, out: Path) -> Iterator[None]:
    """Four ranks, which are killed in the end."""
    command = [sys.executable, "-m", "tests.jobs.hooked.record", job, completion, dumps, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield
        assert process.stdin is not None
        process.stdin.close()


def reported(out: Path, is_done: Callable[[Report], bool]) -> Report:
    """The report on what a job leaves, once there is one that will do."""
    end = time.monotonic() + LONGEST_S
    said: Report = {}
    while time.monotonic() < end:
        said = report(out)[1] if out.exists() else {}
        if "status" in said and is_done(said):
            return said
        time.sleep(0.5)
    raise AssertionError(f"{said.get('verdict', said)}: {sorted(path.name for path in out.iterdir())}")


def hangs(said: Report) -> bool:
    return bool(said["status"] == "hang" and causes(said))


@pytest.mark.parametrize("completion", ["late", "without"])
def test_the_demos_hang_is_told_as_that_of_gloo(completion: str, tmp_path: Path) -> None:
    with running("two_groups", completion, "capture", tmp_path):
        said = reported(tmp_path, hangs)
    (cause,) = causes(said)
    assert (cause["kind"], cause["culprit_ranks"]) == ("missing-rank", [3]), said["verdict"]
    assert (cause["group"]["description"], cause["seq"]) == ("tensor_parallel", 10)


def test_where_no_end_is_ever_noticed_nobody_else_is_accused(tmp_path: Path) -> None:
    with running("two_groups", "never", "capture", tmp_path):
        said = reported(tmp_path, hangs)
    assert {rank for cause in causes(said) for rank in cause["culprit_ranks"]} <= {3}, said["verdict"]


@pytest.mark.parametrize("completion", relayed.NAMES)
def test_the_sidecar_says_whether_ends_are_noticed(completion: str, tmp_path: Path) -> None:
    with running("healthy", completion, "capture", tmp_path):
        reported(tmp_path, lambda _: all(card(tmp_path, rank).get("dumps") for rank in range(4)))
    told = card(tmp_path, 0)["backends"]
    assert [(row["name"], row["recorder"], row["completion"]) for row in told] == [
        (relayed.NAMES[completion], "hook", completion != "without")
    ]


def test_who_is_stuck_leaves_no_dump_at_a_timeout_and_is_named(tmp_path: Path) -> None:
    with running("host_stuck", "late", "timeout", tmp_path):
        said = reported(tmp_path, lambda said: said["ranks"]["seen"] == [0, 1, 3] and hangs(said))
    assert {path.name for path in tmp_path.iterdir()} == {f"comm_lib_trace_rank_{rank}" for rank in (0, 1, 3)}
    assert [cause["culprit_ranks"] for cause in causes(said)] == [[2]]


@pytest.mark.parametrize("completion", relayed.NAMES)
def test_nobody_is_accused_of_a_healthy_job_in_the_middle_of_a_step(completion: str, tmp_path: Path) -> None:
    with running("healthy", completion, "look", tmp_path):
        said = reported(tmp_path, lambda said: said["ranks"]["seen"] == [0, 1, 2, 3])
    assert [finding["title"] for finding in said["findings"] if finding["severity"] == "critical"] == []
