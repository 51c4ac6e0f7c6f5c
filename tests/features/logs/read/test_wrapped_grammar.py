"""Messages that were cut anywhere: what must follow tells how their lines are joined."""

from __future__ import annotations

import textwrap

import pytest

from rankscope.features.logs.read.model import LogContent
from tests.features.logs.read.lines import log

IB = (
    "gpu-7:31:99 [2] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.4.4.17<41022> with "
    "status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.4.4.3 remoteGids::ffff:10.4.4.17"
)
OLD_IB = (
    "gpu-7:31:99 [2] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.4.4.17<41022> with "
    "error 12, "
    "opcode 32564, len 32564, vendor err 129 (Recv)"
)
RAY = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the "
    "problem, check the logs for the dead worker. RayTask ID: ffffffffffffffff11aa Worker ID: 77aa8899bbcc Node ID: "
    "3344556677ff Worker IP address: 10.4.4.17 Worker port: 10411 Worker PID: 318822 Worker exit type: SYSTEM_ERROR "
    "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some "
    "potential "
    "root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."
)
MISMATCH = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 3 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=41, OpType=ALLREDUCE, TensorShape=[16, 8], TensorDtypes=Float, "
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu)), but Rank 5 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=41, OpType=BROADCAST, TensorShape=[16, 8], TensorDtypes=Float, "
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu))."
)


def pieces(text: str, width: int, how: str) -> list[str]:
    """The lines of a text that was wrapped at words, or cut at a column."""
    if how == "words":
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [text[at : at + width] for at in range(0, len(text), width)]


def found(text: str, width: int, how: str) -> LogContent:
    return log("it says:", "", *pieces(text, width, how), "", "what can it be?")


WIDTHS = (61, 66, 72, 78, 80, 87, 90, 96, 100, 113, 120, 132)


@pytest.mark.parametrize("how", ["words", "column"])
@pytest.mark.parametrize("width", WIDTHS)
def test_infiniband(width: int, how: str) -> None:
    for text in (IB, OLD_IB):
        ids = [e.values.get("id") for e in found(text, width, how).events if e.kind == "known-error"]
        assert ids == ["ib-retry-exceeded"]


@pytest.mark.parametrize("how", ["words", "column"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_worker_of_ray(width: int, how: str) -> None:
    (death,) = [e for e in found(RAY, width, how).events if e.kind == "worker-died"]
    assert (death.values["pid"], death.values["host"]) == (318822, "10.4.4.17")


@pytest.mark.parametrize("how", ["words", "column"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_mismatch_of_collectives(width: int, how: str) -> None:
    (event,) = [e for e in found(MISMATCH, width, how).events if e.kind == "fingerprint-mismatch"]
    whole = next(e for e in log(MISMATCH).events if e.kind == "fingerprint-mismatch")
    assert {k: v for k, v in event.values.items() if k != "in_traceback"} == {
        k: v for k, v in whole.values.items() if k != "in_traceback"
    }


def test_blanks_that_do_not_break_are_blanks() -> None:
    lines = [line.replace(" ", "\N{NO-BREAK SPACE}") for line in (OLD_IB, RAY)]
    kinds = {event.kind for event in log(*lines, *["x"] * 80).events}
    assert kinds == {"known-error", "worker-died"}
