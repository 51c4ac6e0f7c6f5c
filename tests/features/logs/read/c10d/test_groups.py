"""What is printed when a group is made."""

from __future__ import annotations

from tests.features.logs.read.c10d.lines import events, only, values


def test_the_communicator_of_a_group() -> None:
    head = "[PG 0 (default_pg) Rank {}] ProcessGroupNCCL created ncclComm_ 0x55{} on CUDA device: "
    said = events("\n".join([head.format(3, "a") + "3", head.format(4, "b") + "\x04", head.format(5, "c")]))
    assert [(e.kind, e.rank, *values(e, "comm", "device")) for e in said] == [
        ("pg-created", 3, "0x55a", 3), ("pg-created", 4, "0x55b", 4), ("pg-created", 5, "0x55c", None),
    ]  # fmt: skip
    assert all(e.text.isprintable() for e in said)


def test_settings() -> None:
    event = only(
        "[I709 X.cpp:1] [PG ID 0 PG GUID 0 Rank 1] ProcessGroupNCCL environments: NCCL version: 2.21.5, "
        "TORCH_NCCL_ASYNC_ERROR_HANDLING: 3, TORCH_DISTRIBUTED_DEBUG: OFF, TORCH_NCCL_NAN_CHECK: 0"
    )
    assert event.values["settings"] == [
        ["NCCL version", "2.21.5"], ["TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"], ["TORCH_DISTRIBUTED_DEBUG", "OFF"],
        ["TORCH_NCCL_NAN_CHECK", "0"],
    ]  # fmt: skip
    assert (event.values["nccl_version"], event.rank) == ("2.21.5", None)


def test_the_line_that_tells_the_global_rank_of_a_member() -> None:
    event = only(
        "[PG ID 4 PG GUID 45(dp) Rank 1] ProcessGroupNCCL initialization options: size: 8, global rank: 9, "
        "TIMEOUT(ms): 600000, USE_HIGH_PRIORITY_STREAM: 0, SPLIT_FROM: 0x55f, SPLIT_COLOR: 17, PG Name: 45"
    )
    assert (event.kind, event.rank) == ("init-env", 9)
    assert values(event, "global_rank", "size", "timeout_ms", "pg_name", "pg_rank") == (9, 8, 600000, "45", 1)


def test_a_setting_that_explains_itself() -> None:
    event = only(
        "HeartbeatMonitor environments: TORCH_NCCL_ENABLE_MONITORING (Whether to kill program when no watchdog "
        "heartbeat detected): 1, TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC: 480"
    )
    assert event.values["settings"] == [
        ["TORCH_NCCL_ENABLE_MONITORING", "1"], ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "480"],
    ]  # fmt: skip


def test_a_group_that_was_never_destroyed_tells_of_a_rank_and_of_no_failure() -> None:
    old = "[rank5]:[W521 16:40:08.6 ProcessGroupNCCL.cpp:1117] WARNING: process group has NOT been destroyed before it "
    new = (
        "[rank2]:[W101 10:00:00.1 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not "
        "called before program exit, which can leak resources."
    )
    said = events(f"{old}is being destructed.\n{new}\n")
    assert [(e.kind, e.rank) for e in said] == [("group-left", 5), ("group-left", 2)]
