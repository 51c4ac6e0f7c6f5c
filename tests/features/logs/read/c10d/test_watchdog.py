"""What the watchdog prints, in the words of every version of torch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.logs.read.c10d.lines import events, only, values

FIELDS = ("seq", "op", "numel_in", "numel_out", "timeout_ms", "ran_ms")
TIMEOUTS = {
    "1.12": (
        "[E ProcessGroupNCCL.cpp:587] [Rank 2] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800047 milliseconds before timing out.",
        (None, "BROADCAST", None, None, 1800000, 1800047), None, 2,
    ),
    "1.13": (
        "[E ProcessGroupNCCL.cpp:821] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
        "OpType=ALLREDUCE, TensorShape=[3, 4], Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
        (7, "ALLREDUCE", None, None, 600000, 600012), None, 1,
    ),
    "2.0": (
        "[E ProcessGroupNCCL.cpp:458] [Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=64088, "
        "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25625251 milliseconds before timing out.",
        (64088, "ALLREDUCE", None, None, 1800000, 25625251), None, 7,
    ),
    "2.3": (
        "[rank9]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL("
        "SeqNum=1, OpType=ALLGATHER, NumelIn=1, NumelOut=8, Timeout(ms)=120000) ran for 120008 milliseconds before "
        "timing out.",
        (1, "ALLGATHER", 1, 8, 120000, 120008), 9, 1,
    ),
    "2.7": (
        "[rank118]:[E603 17:48:01.005271823 ProcessGroupNCCL.cpp:632] [Rank 118] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=2398459, OpType=_REDUCE_SCATTER_BASE, NumelIn=16, NumelOut=2, Timeout(ms)=1800000) "
        "ran for 1800068 milliseconds before timing out.",
        (2398459, "_REDUCE_SCATTER_BASE", 16, 2, 1800000, 1800068), 118, 118,
    ),
    "2.15": (
        "[rank5]:[E1120 12:34:56.789012345 ProcessGroupNCCL.cpp:700] [PG GUID 3(tp) Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=3, OpType=SEND, NumelIn=4, NumelOut=4, Timeout(ms)=1000) ran for 1001 "
        "milliseconds before timing out.",
        (3, "SEND", 4, 4, 1000, 1001), 5, 1,
    ),
    "nccl2": (
        "[rank5]:[E1120 12:34:56.789012345 WorkNCCL.cpp:70] Watchdog caught collective operation timeout: NCCL "
        "operation timed out",
        (None, None, None, None, None, None), 5, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("version", TIMEOUTS)
def test_a_timeout_of_every_version(version: str) -> None:
    line, fields, rank, inner = TIMEOUTS[version]
    event = only(line)
    assert (event.kind, event.rank) == ("watchdog-timeout", rank)
    assert values(event, *FIELDS) == fields
    assert event.values["rank_in_group"] == inner


def test_the_group_of_every_version() -> None:
    status = "last enqueued work: 5, last completed work: 4"
    groups: dict[str, tuple[Any, ...]] = {
        "[PG 1 Rank 0]": (1, None, None, 0),
        "[PG 0 (default_pg) Rank 6]": (0, None, "default_pg", 6),
        "[PG ID 2 PG GUID 3 Rank 2]": (2, "3", None, 2),
        "[PG ID 12 PG GUID 99(EXPERT_MODEL_PARALLEL_GROUP) Rank 4]": (12, "99", "EXPERT_MODEL_PARALLEL_GROUP", 4),
        "[PG GUID mesh_dp(mesh_dp) Rank 4]": (None, "mesh_dp", "mesh_dp", 4),
    }
    for prefix, expected in groups.items():
        assert values(only(f"{prefix} {status}"), "pg_id", "pg_guid", "pg_desc", "pg_rank") == expected


def test_only_the_default_group_tells_a_global_rank() -> None:
    """`[Rank r]` belongs to the group that logged first; without a prefix it is a guess, and no rank."""
    assert only("[PG 0 (default_pg) Rank 5] last enqueued work: 5, last completed work: 4").rank == 5
    assert only("[PG ID 4 PG GUID 45(dp) Rank 5] last enqueued work: 5, last completed work: 4").rank is None
    assert only("[rank9]:[PG ID 4 PG GUID 45 Rank 1] last enqueued work: 5, last completed work: 4").rank == 9


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[PG 0 Rank 1] Timeout at NCCL work: 7, last enqueued NCCL work: 8, last completed NCCL work: 6.", (8, 6, 7)),
        (
            "[PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 7753, last "
            "enqueued NCCL work: 7755, last completed NCCL work: 7752.",
            (7755, 7752, 7753),
        ),
        (
            "[PG ID 1 PG GUID 1 Rank 1]  failure detected by watchdog at work sequence id: 1 PG status: last enqueued "
            "work: 547, last completed work: -1",
            (547, -1, 1),
        ),
        ("last enqueued NCCL work: 1, last completed NCCL work: 3904955349522264369.", (1, None, None)),
        ("Timeout at NCCL work: 1, last enqueued NCCL work: 1, last completed NCCL work: 94850624.", (None, None, 1)),
        ("last enqueued work: 12345678901234567890123456789, last completed work: 1", (None, 1, None)),
    ],
)  # fmt: skip
def test_counters(line: str, expected: tuple[int | None, ...]) -> None:
    assert values(only(line), "last_enqueued", "last_completed", "at_work") == expected


def test_a_last_number_that_may_be_cut_is_unknown() -> None:
    old = "[PG 1 Rank 1] Timeout at NCCL work: 777, last enqueued NCCL work: 780, last completed NCCL work: 77"
    new = "[PG ID 1 PG GUID 1 Rank 1] failure detected by watchdog at work sequence id: 777 PG status: "
    new += "last enqueued work: 780, last completed work: 77"
    for line in (old, new, f"{new}\r"):
        assert values(only(line), "last_enqueued", "last_completed", "at_work") == (780, None, 777)
    for line in (f"{old}6.", f"{new}6"):
        assert values(only(line), "last_enqueued", "last_completed") == (780, 776)
    assert only(new.replace("completed work: 77", "completed work: 41")).values["last_completed"] == 41


def test_a_number_next_to_a_cut_is_unknown() -> None:
    line = "[PG ID 1 PG GUID 1 Rank 1] PG status: last enqueued work: 547, last completed work: 54"
    assert values(only(line), "last_enqueued", "last_completed") == (547, 54)
    assert values(only(line, torn=[1]), "last_enqueued", "last_completed") == (547, None)
    assert only(line, torn=[1]).torn


WHOLE = "WorkNCCL(SeqNum=4821, OpType=_ALLGATHER_BASE, NumelIn=160, NumelOut=1280, Timeout(ms)=900000)"
CUTS = {
    "within the number": ("WorkNCCL(SeqNum=48", (None, None, None, None, None)),
    "behind the number": ("WorkNCCL(SeqNum=4821", (None, None, None, None, None)),
    "within the operation": ("WorkNCCL(SeqNum=4821, OpType=_ALLGA", (4821, None, None, None, None)),
    "behind the operation": ("WorkNCCL(SeqNum=4821, OpType=_ALLGATHER_BASE", (4821, None, None, None, None)),
    "within the elements": (WHOLE[: WHOLE.index("60, NumelOut")], (4821, "_ALLGATHER_BASE", None, None, None)),
    "behind the elements": (WHOLE[: WHOLE.index(", Timeout")], (4821, "_ALLGATHER_BASE", 160, None, None)),
    "before the end": (WHOLE[:-1], (4821, "_ALLGATHER_BASE", 160, 1280, None)),
    "by a counter of the terminal": (WHOLE.replace("1280", "12[1/9]80"), (4821, "_ALLGATHER_BASE", 160, None, 900000)),
    "by a counter over the operation": (WHOLE.replace("GATHER", "GA[17/904]"), (4821, None, 160, 1280, 900000)),
    "by another line": (WHOLE.replace("OpType", "OpT(other line)ype"), (4821, None, None, None, None)),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_what_is_cut_within_a_work_is_unknown(name: str) -> None:
    work, expected = CUTS[name]
    event = only(f"[Rank 2] Watchdog caught collective operation timeout: {work}")
    assert values(event, *FIELDS[:5]) == expected
    assert event.torn == (not work.endswith(")") or "other" in work)


def test_dump_signals() -> None:
    said = events(
        "[rank0]:[E709 X.cpp:2106] [PG ID 0 PG GUID 0(default_pg) Rank 0] First PG on this rank to signal dumping.\n"
        "[rank0]:[E709 X.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to a "
        "collective timeout from this local rank and we will try our best to dump. Last enqueued NCCL work: "
        "9, last completed NCCL work: 4.This is most likely\n"
        "[rank6]:[E703 X.cpp:1987] Received a dump signal due to a collective timeout from  rank 7 and we will "
        "try. Last enqueued NCCL work: 6, last completed NCCL work: 6.This\n"
        "[rank5]:[E703 21:51:54.1 X.cpp:1987] Received a dump signal due to a collective timeout from  rank -1 and we\n"
        "[rank1]:[E703 21:51:54.1 X.cpp:1922] Observed flight recorder dump signal from another rank via TCPStore."
    )
    signals = [(e.rank, *values(e, "own", "from_rank")) for e in said if e.kind == "dump-signal"]
    assert signals == [(0, True, None), (0, True, None), (6, False, 7), (5, False, None), (1, False, None)]
    states = [(e.rank, *values(e, "last_enqueued", "last_completed")) for e in said if e.kind == "pg-status"]
    assert states == [(0, 9, 4), (6, 6, 6)]


def test_dumps_written() -> None:
    said = events(
        "[rank0]:[I709 X.cpp:1] ProcessGroupNCCL dumping nccl trace to /tmp/nccl_trace_rank_0\n"
        "[rank0]:[I709 X.cpp:1] Finished writing NCCLPG debug info to /tmp/nccl_trace_rank_0\n"
        "[rank1]:[E709 X.cpp:1] Error opening file for writing Flight Recorder debug info: /full/nccl_trace_rank_1"
    )
    assert [(e.rank, *values(e, "state", "path")) for e in said] == [
        (0, "started", "/tmp/nccl_trace_rank_0"), (0, "done", "/tmp/nccl_trace_rank_0"),
        (1, "failed", "/full/nccl_trace_rank_1"),
    ]  # fmt: skip


def test_heartbeats() -> None:
    said = events(
        "[rank4]:[F X.cpp:1] [PG 5 Rank 0] ProcessGroupNCCL's watchdog got stuck for 600 seconds without\n"
        "[rank4]:[E X.cpp:1] [PG 5 Rank 0] Heartbeat monitor timed out! Process will. workMetaList_.size()=121\n"
        "[rank4]:[E X.cpp:1] Could not acquire GIL within 300 ms on exit, possible GIL induced hang"
    )
    assert [values(e, "problem", "seconds", "pending") for e in said] == [
        ("watchdog-stuck", 600, None), ("monitor-timed-out", None, 121), ("gil", None, None),
    ]  # fmt: skip


def test_an_error_of_nccl_and_what_ends_the_process() -> None:
    said = events(
        "[rank2]:[E X.cpp:1] [Rank 2] Collective WorkNCCL(SeqNum=9, OpType=BROADCAST, NumelIn=1, Timeout(ms)=60) "
        "raised the following async exception: NCCL error: remote process exited\n"
        "[rank2]:[E X.cpp:1] [PG ID 2 PG GUID 3 Rank 2] Process group watchdog thread terminated with exception: "
        "CUDA error: an illegal memory access was encountered\n"
        "  what():  [PG ID 2 PG GUID 3 Rank 2] Process group watchdog thread terminated with exception: CUDA error"
    )
    kinds = ["async-error", "watchdog-thread-terminated", "watchdog-thread-terminated", "abort"]
    assert [e.kind for e in said] == kinds
    assert values(said[0], "seq", "op", "reason") == (9, "BROADCAST", "NCCL error: remote process exited")
    assert said[1].values["reason"] == "CUDA error: an illegal memory access was encountered"
    assert [e.values["repeats"] for e in said[1:3]] == [False, True]


def test_the_stack_of_the_collective_that_failed() -> None:
    said = events(
        "[rank0]:[E X.cpp:681] Stack trace of the failed collective: \n"
        "#0 all_reduce from /venv/distributed_c10d.py:2806\n"
        "[rank1]:[E X.cpp:681] something else\n"
        "#1 forward from /job/a file.py:12\n"
        "#3 not_next from /job/train.py:1"
    )
    assert [(e.kind, e.rank, e.line) for e in said] == [("failed-collective-stack", 0, 1)]
    assert said[0].values["frames"] == [
        ["all_reduce", "/venv/distributed_c10d.py", 2806],
        ["forward", "/job/a file.py", 12],
    ]


def test_stacks_of_two_ranks_one_after_the_other() -> None:
    head = "[rank{}]:[E X.cpp:681] Stack trace of the failed collective: \n#0 f{} from /a.py:1\n#1 main from /a.py:2\n"
    said = events(head.format(0, 0) + head.format(1, 1))
    assert [(e.rank, e.values["frames"][0][0], len(e.values["frames"])) for e in said] == [(0, "f0", 2), (1, "f1", 2)]
