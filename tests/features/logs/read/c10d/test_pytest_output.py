"""Exceptions as pytest shows them, with code around them."""

from __future__ import annotations

import pytest

from rankscope.features.logs.read.log_files import looks_like_log
from tests.features.logs.read.c10d.lines import events, everything, values
from tests.features.logs.read.lines import log

RULE = "_ " * 40
RAISED = """\
torch.distributed.DistBackendError: NCCL error in: /p/NCCLUtils.hpp:268, unhandled system error
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
Last error:
socketStartConnect: Connect to 10.0.0.1<4000> failed : Connection refused"""
SPAWNED = """\
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "/v/torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
  File "/job/test_dist.py", line 6, in work
    raise ValueError("bad sample index 17")
ValueError: bad sample index 17"""
WATCHDOG = (
    "[rank1]:[E1120 12:34:56.789012345 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600060 ms."
)


def failure(raised: str, indent: str = "    ", captured: str = "") -> str:
    """A test that failed, in pytest's long form."""
    marked = "\n".join(f"E   {indent}{line}" for line in raised.split("\n"))
    return f"""\
=================================== FAILURES ===================================
__________________________________ test_join ___________________________________

    def test_join():
        # CUDA out of memory is what this is about
        if not ready:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
>       dist.barrier()

test_dist.py:9:
{RULE}

    def wrapper(*args):
        raise RuntimeError("NCCL error: unhandled system error")
{marked}

/v/torch/distributed/c10d_logger.py:79: DistBackendError
----------------------------- Captured stderr call -----------------------------
{captured}
=========================== short test summary info ============================
"""


@pytest.mark.parametrize("indent", ["", "    "])
def test_the_exception_is_told_with_its_message(indent: str) -> None:
    (event,) = events(failure(RAISED, indent))
    assert values(event, "exception", "frames", "launcher") == ("torch.distributed.DistBackendError", [], False)
    assert event.values["message"].endswith(
        "Last error:\nsocketStartConnect: Connect to 10.0.0.1<4000> failed : Connection refused"
    )
    assert "label" not in event.values


@pytest.mark.parametrize("indent", ["", "    "])
def test_the_traceback_of_a_child_is_read(indent: str) -> None:
    parent, child = events(failure(SPAWNED, indent))
    assert parent.values["exception"].endswith("ProcessRaisedException")
    assert values(child, "exception", "message") == ("ValueError", "bad sample index 17")
    assert child.values["frames"][0] == ["work", "/job/test_dist.py", 6]


def test_code_is_no_message() -> None:
    told = [event.values["id"] for event in everything(failure("AssertionError: no")) if event.kind == "known-error"]
    assert told == []


def test_what_was_captured_is_read() -> None:
    event = events(failure("AssertionError: no", captured=WATCHDOG))[1]
    assert (event.kind, event.rank, event.values["seq"]) == ("watchdog-timeout", 1, 5)


def test_such_output_is_a_log() -> None:
    text = failure(RAISED)
    assert looks_like_log(text.encode())
    assert [event.values["exception"] for event in log(*text.split("\n")).events if event.kind == "traceback"] == [
        "torch.distributed.DistBackendError"
    ]


def test_a_line_that_begins_with_the_letter_is_itself() -> None:
    (event,) = events(WATCHDOG)
    assert event.kind == "watchdog-timeout"
    assert events("Epoch 1\nE\nE   \n") == []
