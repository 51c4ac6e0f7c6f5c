"""Who is who in logs of NCCL, and which communicators are one."""

from __future__ import annotations

from rankscope.analysis import analyse
from tests.features.logs.read.lines import coll
from tests.features.logs.rows.job import (
    PARENT,
    SPLIT,
    groups,
    init,
    job,
    lane,
    log_of,
    messages,
    said,
    source,
    split,
    step,
)


def test_world_and_splits_get_one_identity_over_all_ranks() -> None:
    dataset = job(*(source(f"nccl.{rank}", log_of(rank)) for rank in range(4)))
    assert groups(dataset) == {"0xfe12": (0, 1, 2, 3), "0xfe12/1:100": (0, 2), "0xfe12/1:101": (1, 3)}
    world = next(g.id for g in dataset.group_list if len(g.ranks) == 4)
    assert lane(dataset, 3, world) == [(n, "all_reduce", "unknown") for n in range(1, 6)]
    assert dataset.world_size == 4
    assert dataset.seen_ranks == (0, 1, 2, 3)
    assert dataset.missing_ranks == ()
    assert dataset.comms["rank"].to_list() == [0, 0, 1, 1, 2, 2, 3, 3]
    frontier = dataset.frontiers.filter(rank=2, group=world).row(0, named=True)
    assert (frontier["last_enqueued"], frontier["last_completed"], frontier["wrapped"]) == (5, None, False)


def test_one_file_of_all_processes_says_the_same() -> None:
    apart = job(*(source(f"nccl.{rank}", log_of(rank)) for rank in range(4)))
    mixed = [line for lines in zip(*(log_of(rank) for rank in (2, 0, 3, 1)), strict=True) for line in lines]
    together = job(source("slurm.out", mixed))
    assert groups(together) == groups(apart)
    same = ["rank", "group", "seq", "op", "state", "in_sizes", "in_dtypes"]
    assert together.ops.select(same).sort(same).equals(apart.ops.select(same).sort(same))


def test_a_split_without_its_number_counts_by_parent_and_colour() -> None:
    def lines(rank: int) -> list[str]:
        again = split(rank, count="", comm="0xcc00")
        return [init(rank), split(rank, count=""), again, step(rank, 1, comm="0xcc00", nranks=2)]

    dataset = job(*(source(f"nccl.{rank}", lines(rank)) for rank in range(4)))
    found = dict(dataset.comms.filter(rank=0).select("identity", "collectives").iter_rows())
    assert found == {"0xfe12": 0, "0xfe12/#0:100": 0, "0xfe12/#1:100": 1}


def test_the_commid_of_a_split_in_2_21_joins_nothing() -> None:
    def lines(rank: int) -> list[str]:
        return [init(rank), split(rank, count="").replace("key", "commId 0x1 key")]

    dataset = job(*(source(f"nccl.{rank}", lines(rank)) for rank in range(4)))
    assert (0, 2) in groups(dataset).values()
    assert "0x1" not in groups(dataset)


def test_a_pointer_used_again_is_another_communicator() -> None:
    def lines(rank: int) -> list[str]:
        first = [init(rank), step(rank, 1), init(rank, "Destroy COMPLETE")]
        return [*first, init(rank, comm_id="0xbeef"), step(rank, 2), step(rank, 3)]

    dataset = job(*(source(f"nccl.{rank}", lines(rank)) for rank in range(4)))
    sizes = {name: dataset.comms.filter(identity=name)["collectives"].to_list() for name in ("0xfe12", "0xbeef")}
    assert sizes == {"0xfe12": [1] * 4, "0xbeef": [2] * 4}


def test_without_an_id_only_what_is_certain_is_joined() -> None:
    def lines(rank: int) -> list[str]:
        world = init(rank).replace(" commId 0xfe12", "")
        pair = said(rank, f"comm {SPLIT} rank {rank // 2} nranks 2 cudaDev 0 busId 1 - Init COMPLETE")
        return [world, pair, step(rank, 0), step(rank, 1, comm=SPLIT, nranks=2)]

    dataset = job(*(source(f"nccl.{rank}", lines(rank)) for rank in range(4)))
    assert list(groups(dataset).values()) == [(0, 1, 2, 3)]
    assert dataset.ops.height == 4
    assert len(messages(dataset, "log-unplaced")) == 4


def test_a_group_whose_members_are_not_all_known_is_left_out() -> None:
    dataset = job(*(source(f"nccl.{rank}", log_of(rank)) for rank in (0, 1)))
    assert list(groups(dataset).values()) == [(0, 1, 2, 3)]
    assert dataset.comms.filter(identity="0xfe12/1:100")["group"].to_list() == [None]
    assert messages(dataset, "log-unplaced") == ["3 operations: their rank or group is not known"] * 2


def test_a_device_is_no_rank_on_two_hosts() -> None:
    lines = {rank: [said(rank, coll(count=7, op_count=n)) for n in range(2)] for rank in range(4)}
    dataset = job(*(source(f"log.{rank}", lines[rank]) for rank in range(4)))
    assert dataset.ops.is_empty()
    assert dataset.seen_ranks == ()


def test_peers_of_sends_are_global_ranks() -> None:
    def lines(rank: int) -> list[str]:
        other = 1 - rank // 2
        return [init(rank), split(rank), said(rank, coll("Send", root=other, comm=SPLIT, nranks=2))]

    dataset = job(*(source(f"nccl.{rank}", lines(rank)) for rank in range(4)))
    assert dataset.ops.select("rank", "op", "peer", "seq").rows() == [
        (0, "send", 2, None), (1, "send", 3, None), (2, "send", 0, None), (3, "send", 1, None),
    ]  # fmt: skip


def test_prefixes_that_contradict_the_largest_communicator_win() -> None:
    lines = [f"[rank{rank + 8}]: {line}" for rank in range(4) for line in log_of(rank)]
    dataset = job(source("slurm.out", lines))
    assert sorted(dataset.ops["rank"].unique()) == [8, 9, 10, 11]
    assert groups(dataset)["0xfe12"] == (8, 9, 10, 11)


def test_a_different_operation_is_found_and_nothing_is_said_to_be_finished() -> None:
    def lines(rank: int) -> list[str]:
        odd = "Broadcast" if rank == 2 else "AllReduce"
        return [init(rank), step(rank, 0), step(rank, 1, odd), step(rank, 2)]

    found = analyse(job(*(source(f"nccl.{rank}", lines(rank)) for rank in range(4)))).findings[0]
    assert (found.kind, found.culprit_ranks, found.seq) == ("collective-mismatch", (2,), 2)
    assert found.confidence != "high"


def test_equal_logs_are_neither_healthy_nor_hung() -> None:
    analysis = analyse(job(*(source(f"nccl.{rank}", log_of(rank)) for rank in range(4))))
    assert analysis.status == "unknown"
    assert not [f for f in analysis.findings if f.kind in ("missing-dump", "missing-rank")]


def test_the_pointer_that_c10d_names_gives_the_group_its_name() -> None:
    lines = [
        f"[rank{rank}]:[I1120 19:13:12.067015644 ProcessGroupNCCL.cpp:2074] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
        f" ProcessGroupNCCL created ncclComm_ {PARENT} on CUDA device: {rank}"
        for rank in range(4)
    ]
    dataset = job(*(source(f"nccl.{rank}", log_of(rank)) for rank in range(4)), source("err", lines))
    assert groups(dataset)["0"] == (0, 1, 2, 3)


def test_of_two_runs_in_one_log_the_last_counts() -> None:
    first = [line for rank in range(4) for line in [init(rank), step(rank, 1)]]
    again = [init(rank, comm_id="0xbeef").replace(f":{4000 + rank}:", f":{5000 + rank}:") for rank in range(4)]
    steps = [step(rank, n).replace(f":{4000 + rank}:", f":{5000 + rank}:") for n in (1, 2) for rank in range(4)]
    dataset = job(source("slurm.out", [*first, *again, *steps]))
    assert groups(dataset) == {"0xbeef": (0, 1, 2, 3)}
    assert dataset.ops.filter(rank=0)["seq"].to_list() == [1, 2]
    assert dataset.comms.filter(identity="0xfe12")["rank"].null_count() == 4


def test_the_same_log_twice_counts_once() -> None:
    logs = [source(f"{place}/nccl.{rank}", log_of(rank)) for rank in range(4) for place in ("a", "b")]
    assert job(*logs).ops.height == job(*logs[::2]).ops.height == 4 * 8


def test_replicas_without_a_communicator_of_all_have_no_ranks() -> None:
    def line(rank: int) -> str:
        message = f"ncclCommInitRank comm 0xaa rank {rank % 2} nranks 2 cudaDev 0 busId 1 commId 0x{rank // 2} - "
        return said(rank, message + "Init COMPLETE")

    dataset = job(*(source(f"nccl.{rank}", [line(rank)]) for rank in range(4)))
    assert dataset.comms["rank"].null_count() == 4


def test_tasks_of_srun_are_ranks_where_two_of_a_part_agree() -> None:
    lines = [f"{rank}: {init(rank)}" for rank in (0, 1)]
    lines += [f"3: {said(3, 'Using network IB')}", f"3: {said(3, 'NCCL_ALGO set by environment to Ring')}"]
    assert job(source("job.out", lines)).settings.filter(name="NCCL_ALGO")["rank"].to_list() == [3]


def test_tasks_that_are_numbered_in_another_way_tell_nothing() -> None:
    lines = [f"{rank + 1}: {init(rank)}" for rank in (0, 1)]
    lines += [f"3: {said(3, 'NCCL_ALGO set by environment to Ring')}"]
    assert job(source("job.out", lines)).settings.filter(name="NCCL_ALGO")["rank"].to_list() == [None]
