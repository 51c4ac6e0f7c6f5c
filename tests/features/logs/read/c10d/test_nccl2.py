"""What nccl2 and the hook that records it print: the rank in front of a line is the global one, the other is not."""

from __future__ import annotations

import pytest

from rankscope.features.logs.read.log_record import Event
from tests.features.logs.read.c10d.lines import events, everything, only, values

PLACE = ("pg_guid", "pg_desc", "pg_rank")
HASH = "b6589fc6ab0dc82cf12099d1c2d40ab994e8410c"
ABORT = "[TC][rank={0}][name={1}] Aborting process on rank {0} due to {2}"


def known(text: str) -> dict[str, str]:
    """Role by id of the known errors in a text."""
    return {e.values["id"]: e.values["role"] for e in everything(text) if e.kind == "known-error"}


def timeout(front: str) -> Event:
    return only(f"{front} Operation timed out after 1800210 ms")


def test_a_timeout_names_a_group_and_no_operation() -> None:
    event = timeout(f"[rank12]:[E1125 17:20:33.1 WorkNCCL.cpp:372] [TC][rank=3][name={HASH}]")
    assert (event.kind, event.rank, *values(event, *PLACE)) == ("watchdog-timeout", 12, HASH, None, 3)
    assert values(event, "ran_ms", "library") == (1800210, "nccl2")
    assert not {"seq", "op"} & event.values.keys()


@pytest.mark.parametrize("front", ["[TC][rank=6][name=0]", "[TC][name=0][rank=6]", "[TC] [rank=6][name=0]"])
def test_in_the_group_of_all_the_rank_is_the_global_one(front: str) -> None:
    assert (timeout(front).rank, timeout(front).values["pg_desc"]) == (6, "default_pg")


def test_without_a_prefix_the_rank_in_another_group_is_nobody() -> None:
    assert timeout(f"[TC][rank=1][name={HASH}]").rank is None


@pytest.mark.parametrize(
    "text", ["curl: (28) Operation timed out after 300000 milliseconds", "mount: Operation timed out after 5 ms"]
)
def test_operations_of_others_are_none(text: str) -> None:
    assert everything(text) == []


@pytest.mark.parametrize(
    "reason",
    [
        "timeout - timeout watchdog detected operation timeout", "timeout - collective operation timed out",
        "error - nccl hit async error: unhandled system error",
    ],
)  # fmt: skip
def test_a_process_that_aborts_is_a_victim(reason: str) -> None:
    text = f"[rank5]:[E1125 17:20:34.1 ProcessGroupNCCL.cpp:638] {ABORT.format(1, 4, reason)}"
    event = only(text)
    assert (event.kind, event.rank, event.values["reason"]) == ("watchdog-thread-terminated", 5, reason)
    assert known(text) == {"watchdog-ended": "victim"}


def test_an_error_of_nccl_tells_what_it_is() -> None:
    text = (
        "[rank7]:[E1125 17:20:33.1 x.cpp:1] [TC][rank=3][name=2] nccl hit async error on rank 3: remote process exited"
    )
    event = only(text)
    assert (event.kind, event.rank, event.values["reason"]) == ("async-error", 7, "remote process exited")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FlightRecorderHook: dumping trace on collective failure", {"hook-dump": "context"}),
        (
            "FlightRecorderHook: trace dump did not finish within 15000ms, retrying without stack traces",
            {"hook-dump-slow": "context"},
        ),
        ("FlightRecorderHook: no trace to dump.", {"hook-dump-failed": "context"}),
        (
            "[TC][rank=0][name=0] Waiting 15000ms for health check and flight recorder dump before aborting",
            {"abort-wait": "noise"},
        ),
        (
            "[TC][rank=0][name=0] ProcessGroupNCCL 0 was not finalized before destruction. This may indicate a leak.",
            {"not-destroyed": "context"},
        ),
        ("[TC][rank=0][name=0] Work timed out during finalize", {"finalize-timeout": "victim"}),
        (
            "RuntimeError: Watchdog caught collective operation timeout: NCCL operation timed out",
            {"watchdog-timeout": "victim"},
        ),
    ],
)
def test_what_else_it_prints_is_no_cause(text: str, expected: dict[str, str]) -> None:
    assert known(f"[rank2]:[E1125 17:20:33.1 FlightRecorderHook.cpp:600] {text}") == expected


def test_who_dumps_was_asked_by_nobody() -> None:
    event = only("[rank2]:[E1125 17:20:33.1 x.cpp:6] FlightRecorderHook: dumping trace on collective failure")
    assert (event.kind, event.rank, *values(event, "own", "from_rank")) == ("dump-signal", 2, True, None)


def test_threads_of_a_group_tell_that_a_rank_is_there() -> None:
    text = "[rank{0}]:[I1125 17:10:01.1 x.cpp:2] [TC][rank={0}][name=0] Timeout thread {1} for rank: {0}"
    found = events("\n".join(text.format(*told) for told in ((0, "starting"), (3, "starting"), (3, "exiting"))))
    assert [(e.kind, e.rank, e.values["state"]) for e in found] == [
        ("group-watched", 0, "begun"), ("group-watched", 3, "begun"), ("group-watched", 3, "ended"),
    ]  # fmt: skip
