"""The life of communicators, in every shape the versions print it in."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.features.logs.read.model import Comm, LogContent
from tests.features.logs.read.lines import COMM, coll, info, life, log

BASE = f"comm {COMM} rank 1 nranks 4 cudaDev 3 "
INIT = {"rank": 1, "nranks": 4, "device": 3}
SPLIT = {"parent": "0xa0", "color": -7, "key": 1}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "2.4": (f"{BASE}nvmlDev 4 - Init COMPLETE", {"nvml_device": 4}),
    "2.10": (f"{BASE}busId 3a000 - Init COMPLETE", {"bus_id": "3a000"}),
    "2.16": (f"{BASE}busId 3a000 commId 0xfe12 - Init COMPLETE", {"comm_id": "0xfe12"}),
    "2.18.3": (f"{BASE}nvmlDev 4 busId 3a000 commId 0xfe12 - Init COMPLETE", {"nvml_device": 4, "comm_id": "0xfe12"}),
    "2.21": (f"ncclCommInitRank {BASE}nvmlDev 4 busId 3a000 commId 0xfe12 - Init COMPLETE", {"comm_id": "0xfe12"}),
    "2.21 split": (
        f"ncclCommSplit {BASE}nvmlDev 4 busId 3a000 parent 0xa0 color -7 key 1 commId 0xfe12 - Init COMPLETE",
        {**SPLIT, "comm_id": "0xfe12", "function": "ncclCommSplit"},
    ),
    "2.23 split": (f"ncclCommSplit {BASE}nvmlDev 4 busId 3a parent 0xa0 color -7 key 1- Init COMPLETE", SPLIT),
    "2.24 split": (
        f"ncclCommSplit {BASE}nvmlDev 4 busId 3a parent 0xa0 splitCount 2 color -7 key 1 - Init COMPLETE",
        {**SPLIT, "split": 2},
    ),
    "2.29": (
        f"[Rank 1] ncclCommInitRankConfig {BASE}nvmlDev 4 busId 3a commId 0xfe12 - Init COMPLETE",
        {"function": "ncclCommInitRankConfig"},
    ),
    "2.29 grow": (
        f"ncclCommGrow {BASE}nvmlDev 4 busId 3a parent 0xa0 childCount 2 color -7 key 1- Init COMPLETE",
        {**SPLIT, "split": 2, "function": "ncclCommGrow"},
    ),
    "2.31 split": (
        f"ncclCommSplit {BASE}nvmlDev 4 busId 3a commId 0xfe12 parent 0xa0 childCount 2 color -7 key 1 - Init COMPLETE",
        {**SPLIT, "split": 2, "comm_id": "0xfe12"},
    ),
    "RCCL": (
        f"{BASE}busId 3a commId 0xfe12 localSize 8 used 10 bytes on core 3 - Init COMPLETE",
        {"comm_id": "0xfe12", "bus_id": "3a"},
    ),
}  # fmt: skip


def only(content: LogContent) -> Comm:
    (comm,) = content.comms
    return comm


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_initialisation(name: str) -> None:
    message, told = SHAPES[name]
    comm = only(log(info(message)))
    assert comm.state == "complete"
    assert comm.init
    assert comm.complete_offset == 0
    assert {field: getattr(comm, field) for field in (*INIT, *told)} == {**INIT, **told}


@pytest.mark.parametrize("name", SHAPES)
def test_a_start_without_completion(name: str) -> None:
    comm = only(log(info(SHAPES[name][0].replace("COMPLETE", "START"))))
    assert (comm.state, comm.init, comm.completed) == ("start", True, None)


ENDS = {
    "Destroy COMPLETE": "destroyed", "Abort COMPLETE": "aborted", "Abort START": "aborting",
    "Finalize COMPLETE": "finalized", "Revoke START": "complete", "Revoke COMPLETE": "revoked",
}  # fmt: skip


@pytest.mark.parametrize("step", ENDS)
def test_ends(step: str) -> None:
    ranks = "nRanks" if step == "Abort START" else "nranks"
    end = f"comm {COMM} rank 0 {ranks} 4 cudaDev 0 busId 3a000 - {step}"
    comm = only(log(info(life("Init START")), info(life()), info(end)))
    assert comm.state == ENDS[step]
    assert (comm.end_offset is not None) == (ENDS[step] in ("destroyed", "aborted"))


def test_a_pointer_that_is_used_again() -> None:
    rounds = [info(life("Init START")), info(life()), info(coll()), info(life("Destroy COMPLETE"))]
    content = log(*rounds, *rounds, info(coll()))
    assert [(c.state, c.init, c.collectives) for c in content.comms] == [
        ("destroyed", True, 1), ("destroyed", True, 1), ("seen", False, 1),
    ]  # fmt: skip
    assert content.column("ordinal").tolist() == [0, 0, 0]


def test_one_pointer_in_several_processes() -> None:
    content = log(
        *(info(life(rank=r), pid=4100 + r) for r in range(4)), *(info(coll(), pid=4100 + r) for r in range(4))
    )
    told = sorted((content.processes[c.process].pid - 4100, c.rank, c.collectives) for c in content.comms)
    assert told == [(r, r, 1) for r in range(4)]


def test_several_ranks_in_one_process() -> None:
    pointers = [f"0xb{r}" for r in range(3)]
    content = log(*(info(life(comm=p, rank=r)) for r, p in enumerate(pointers)))
    assert [(c.process, c.pointer, c.rank) for c in content.comms] == [(0, p, r) for r, p in enumerate(pointers)]


def test_the_parent_of_a_split_is_the_one_that_was_there_then() -> None:
    split = f"ncclCommSplit {BASE}nvmlDev 4 busId 3a parent 0xa0 splitCount 1 color 5 key 1- Init START"
    again = [info(life("Destroy COMPLETE", comm="0xa0")), info(life(comm="0xa0"))]
    content = log(info(life(comm="0xa0")), info(split), *again)
    assert [(c.pointer, c.parent_comm) for c in content.comms] == [("0xa0", None), (COMM, 0), ("0xa0", None)]


def test_what_was_created_before_the_log_begins() -> None:
    content = log(info(coll(op_count=0x280)), info(life("Destroy COMPLETE")))
    assert [(c.init, c.state, c.collectives, c.first_op_count) for c in content.comms] == [
        (False, "destroyed", 1, 0x280)
    ]  # fmt: skip
