"""Several communicators of the same ranks, and the process groups that they are of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.sources import SourceFile
from tests.features.logs.read.lines import coll, info
from tests.features.logs.rows.job import dump, groups, init, job, lane, messages, said, source, step
from tests.features.logs.rows.test_reports import status, timeout
from tests.parsers.dumps import Groups, Recorder

WORLD = range(4)
COMMS = {"0": ("0xaa00", "0xfe12"), "1": ("0xbb00", "0xfe13"), "2": ("0xcc00", "0xfe14")}
"""Pointer and commId by group; the log has no other name for them."""
GROUPS: Groups = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("A", [0, 1, 2, 3]), "2": ("B", [0, 1, 2, 3])}
Plan = list[tuple[str, int]]
"""Groups and elements of all_reduces, in the order of a rank."""
PLAN: Plan = [("0", 7), ("0", 8), ("1", 512), ("2", 512), ("0", 9), ("1", 512), ("2", 512)]


def log_of(rank: int, plan: Plan) -> list[str]:
    """A communicator is made with the first collective of its group."""
    lines: list[str] = []
    made: set[str] = set()
    for group, elements in plan:
        pointer, comm_id = COMMS[group]
        if group not in made:
            made.add(group)
            lines.append(init(rank, comm=pointer, comm_id=comm_id))
        lines.append(said(rank, coll("AllReduce", 0, elements, comm=pointer)))
    return lines


def dump_of(rank: int, plan: Plan) -> SourceFile:
    recorder = Recorder(rank, groups=GROUPS)
    for group, elements in plan:
        recorder.collective(group, input_sizes=[[elements]], output_sizes=[[elements]])
    return dump(recorder)


def logs(plans: Mapping[int, Plan]) -> list[SourceFile]:
    return [source(f"nccl.{rank}", log_of(rank, plan)) for rank, plan in plans.items()]


def test_two_communicators_of_the_same_ranks_stay_two() -> None:
    dataset = job(*logs(dict.fromkeys(WORLD, PLAN)))
    assert groups(dataset) == {comm_id: (0, 1, 2, 3) for _, comm_id in COMMS.values()}
    assert not [f for f in analyse(dataset).findings if f.severity == "critical"]


def test_what_was_done_on_them_tells_their_groups() -> None:
    plan: Plan = [("0", 7), ("1", 5), ("1", 6), ("2", 9)]
    dataset = job(*logs(dict.fromkeys(WORLD, plan)), *(dump_of(rank, plan) for rank in range(3)))
    assert set(groups(dataset)) == {"0", "1", "2"}
    named = {g.name: [seq for seq, _, _ in lane(dataset, 3, g.id)] for g in dataset.group_list}
    assert named == {"0": [1], "1": [1, 2], "2": [1]}


@pytest.mark.parametrize("turned", [False, True])
def test_groups_that_did_the_same_are_told_apart_by_their_first_use(turned: bool) -> None:
    plan = [(({"1": "2", "2": "1"} if turned else {}).get(group, group), n) for group, n in PLAN]
    # rank 3 has no dump, and stops before the last on whatever was used second
    short = plan[:-2] + plan[-1:]
    dataset = job(*logs({**dict.fromkeys(range(3), plan), 3: short}), *(dump_of(rank, plan) for rank in range(3)))
    seconds = {g.description: len(lane(dataset, 3, g.id)) for g in dataset.group_list}
    assert seconds == ({"default_pg": 3, "A": 2, "B": 1} if turned else {"default_pg": 3, "A": 1, "B": 2})


def test_one_that_could_be_of_either_of_two_groups_is_left_out() -> None:
    plan: Plan = [("1", 512), ("1", 512), ("2", 512), ("2", 512)]
    only: Plan = [("1", 512), ("1", 512)]
    dataset = job(*logs({3: only, 2: only, 1: only, 0: only}), *(dump_of(rank, plan) for rank in range(3)))
    assert set(groups(dataset)) == {"0", "1", "2"}
    assert all(not lane(dataset, 3, g.id) for g in dataset.group_list)
    assert messages(dataset, "log-unplaced") == ["2 operations: their rank or group is not known"] * 4


def test_lines_of_the_watchdog_name_the_communicator_they_fit() -> None:
    plan: Plan = [("0", 7), ("0", 8), ("1", 512)]
    told = [line for r in WORLD for line in (timeout(r, 2, sizes="NumelIn=8, NumelOut=8"), status(r, 2, 2, 1))]
    other = [line for r in WORLD for line in (timeout(r, 1, sizes="NumelIn=512, NumelOut=512"),
                                              status(r, 1, 1, 0, "1 PG GUID 1(A)"))]  # fmt: skip
    mixed = [line for rank in WORLD for line in log_of(rank, plan)]
    dataset = job(source("train.log", [*mixed, *told, *other]))
    assert {g.description: [s for _, _, s in lane(dataset, 0, g.id)] for g in dataset.group_list} == {
        "default_pg": ["completed", "scheduled"], "A": ["scheduled"],
    }  # fmt: skip


def test_two_timeouts_of_one_number_are_of_the_two_groups_that_have_it() -> None:
    """Watchdogs of two groups print at the same moment; which came first says nothing of the order of the two."""
    lines = []
    for rank in WORLD:
        first, second = ("1", "2") if rank % 2 else ("2", "1")
        lines += [timeout(rank, 6), timeout(rank, 6)]
        lines += [status(rank, 6, 6, 5, f"{g} PG GUID {g}({GROUPS[g][0]})") for g in (first, second)]
    dataset = job(source("train.log", lines), world=4)
    assert {g.description for g in dataset.group_list} == {"A", "B"}
    assert all(len(lane(dataset, rank, g.id)) == 1 for g in dataset.group_list for rank in WORLD)
    found = analyse(dataset)
    assert not found.culprits
    assert "order-deadlock" not in {f.kind for f in found.findings}


def test_a_timeout_that_fits_two_groups_is_of_neither() -> None:
    lines = [timeout(0, 6)]
    lines += [status(0, 6, 6, 5, f"{g} PG GUID {g}({GROUPS[g][0]})") for g in ("1", "2")]
    dataset = job(source("train.log", lines), world=4)
    assert {g.description for g in dataset.group_list} == {"A", "B"}
    assert all(not lane(dataset, 0, g.id) for g in dataset.group_list)


def test_a_timeout_that_is_printed_again_began_only_once() -> None:
    late = timeout(0, 8).replace("18:44:12", "18:44:31").replace("[Rank 0]", "[PG ID 0 PG GUID 0(default_pg) Rank 0]")
    dataset = job(source("train.log", [timeout(0, 8), status(0, 8, 8, 7), late]), world=4)
    assert len(dataset.ops) == 1
    again = job(source("train.log", [status(0, 8, 8, 7), timeout(0, 8).replace("18:44:12", "18:44:31"), timeout(0, 8)]))
    assert again.ops["created_ns"].to_list() == dataset.ops["created_ns"].to_list()


def test_an_operation_with_a_piece_of_a_print_in_front_is_its_process_s() -> None:
    lines = log_of(0, [("0", 7)] * 12)
    lines[6] = f"step{lines[6]}"
    dataset = job(source("train.log", lines), *logs(dict.fromkeys(range(1, 4), [("0", 7)] * 12)))
    assert [seq for seq, _, _ in lane(dataset, 0, 0)] == list(range(1, 13))
    assert dataset.comms["identity"].unique().to_list() == ["0xfe12"]


def test_the_same_where_the_pids_are_equal_and_the_hosts_differ() -> None:
    lines = [
        info(coll("AllReduce", 0, 7), "node-1", 5),
        *(info(coll("AllReduce", 0, 7), "xnode-1", 5) for _ in range(20)),
    ]
    assert len(job(source("train.log", [*lines, step(0, 1)])).comms) >= 2
