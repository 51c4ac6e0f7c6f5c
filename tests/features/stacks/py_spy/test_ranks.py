"""Whose stacks they are: a wrong stack at a rank is worse than none."""

from __future__ import annotations

import pytest

from tests.features.stacks.py_spy.dumps import (
    LAUNCHER,
    MTIME_NS,
    TRAIN,
    dataset_of,
    document,
    family,
    problem_of,
    process,
    ranks_of,
)
from tests.parsers.dumps import START_NS, Recorder, job

WORKER = ("read (data.py:3)", "_worker_loop (torch/utils/data/_utils/worker.py:374)", *TRAIN)
AGENT = ("SimpleElasticAgent._invoke_run (torch/distributed/elastic/agent/server/api.py:923)",)
SPAWNS = (
    "ProcessContext.join (torch/multiprocessing/spawn.py:144)",
    "start_processes (torch/multiprocessing/spawn.py:300)",
)
SPAWNED = (*TRAIN, "_wrap (torch/multiprocessing/spawn.py:90)", *SPAWNS[1:])
HOUR_NS = 3600 * 1_000_000_000


def recorded(world: int = 8, start_ns: int = START_NS) -> list[Recorder]:
    made = job(world, start_ns=start_ns)
    for recorder in made:
        recorder.clock += recorder.rank
        recorder.collective(state="scheduled")
    return made


def dumps(world: int = 8, folder: str = "") -> dict[str, str | bytes]:
    return {f"{folder}nccl_trace_rank_{r.rank}": r.pickle() for r in recorded(world)}


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("pyspy_rank_3.txt", 3), ("rank3/stack.txt", 3), ("stacks-5.json", 5), ("node7/py-spy.rank5.out", 5),
        ("7.txt", 7), ("py-spy-dump-2.log", 2), ("stack.r4", 4), ("dumps.tar.gz!rank_6/pyspy.txt", 6),
        # numbers of something else
        ("stacks-100.json", None), ("node3.txt", None), ("pyspy_pid_5.txt", None), ("gpu2.txt", None),
        ("stack.txt", None),
        ("worker-3.txt", None), ("sample_2.txt", None), ("pyspy_local_rank_3.txt", None), ("rank_12.txt", None),
    ],
)  # fmt: skip
def test_a_name(name: str, rank: int | None) -> None:
    dataset = dataset_of({**dumps(), name: process(100)})
    assert ranks_of(dataset) == {name: rank}
    assert dataset.threads["rank"].to_list() == [rank]
    assert (problem_of(dataset, name) == "None") is (rank is not None)
    assert dataset.seen_ranks == tuple(range(8))
    assert dataset.files["used"].all()


@pytest.mark.parametrize(
    ("command", "rank"),
    [
        ("python train.py --rank=3", 3), ("python train.py --rank 3 --lr 2", 3), ("python train.py --global_rank=3", 3),
        ("env RANK=3 python train.py", 3),
        ("python train.py --lora-rank=3", None), ("python train.py --node_rank=3", None),
        ("python train.py --rank=3 --rank=4", None), ("python train.py --rank=8", None), ("python train.py", None),
        ("python train.py --rank=3x", None), ("python train.py --local-rank=3", None),
    ],
)  # fmt: skip
def test_a_command_line(command: str, rank: int | None) -> None:
    dataset = dataset_of({**dumps(), "spied.txt": process(100, command=command)})
    assert ranks_of(dataset) == {"spied.txt": rank}
    if rank is not None:
        assert dataset.files.row(-1, named=True)["rank_source"] == "content"


def test_the_name_goes_before_the_command_line() -> None:
    assert ranks_of(dataset_of({"rank_5.txt": process(command="python lora.py --rank=4")})) == {"rank_5.txt": 5}


def test_an_option_that_all_processes_have_is_no_rank() -> None:
    files: dict[str, str | bytes] = {f"{n}.out": process(100 + i, command="x --rank=4") for i, n in enumerate("ab")}
    dataset = dataset_of(files)
    assert ranks_of(dataset) == {"a.out": None, "b.out": None}
    assert problem_of(dataset, "a.out") == "no rank known: another process also claims to be rank 4: b.out"


def test_an_option_of_a_script_that_a_launcher_started_is_no_rank() -> None:
    text = family(process(1, command=LAUNCHER), process(2, command="python t.py --rank 16", parent=(1, LAUNCHER)))
    assert ranks_of(dataset_of({"spied.txt": text})) == {"spied.txt": None}


def test_local_ranks_count_only_where_there_is_one_node() -> None:
    commands = {f"{i}.out": process(100 + i, command=f"python train.py --local-rank={i}") for i in range(8)}
    one_node = dataset_of({**dumps(8), **commands})
    assert list(ranks_of(one_node).values()) == list(range(8))
    two_nodes = dataset_of({**dumps(16), **commands})
    assert set(ranks_of(two_nodes).values()) == {None}
    assert problem_of(two_nodes, "3.out") == "no rank known: it names only the rank within its node"
    alone = "torchrun --standalone --nproc-per-node=2 train.py"
    text = process(2, command="python train.py --local_rank=1", parent=(1, alone))
    assert ranks_of(dataset_of({"spied.txt": text})) == {"spied.txt": 1}


def test_a_data_loaders_worker_belongs_to_the_rank_above_it() -> None:
    text = family(
        process(100), process(101, WORKER, parent=(100, "x")), process(102, ("f (a.py:3)",), parent=(101, "x"))
    )
    dataset = dataset_of({"rank_3.txt": text})
    assert dataset.threads.select("rank", "pid", "parent_pid", "is_main").rows() == [
        (3, 100, None, True), (3, 101, 100, True), (3, 102, 101, True),
    ]  # fmt: skip


@pytest.mark.parametrize("frames", [WORKER, AGENT, SPAWNS])
def test_a_process_that_is_no_rank_gets_none(frames: tuple[str, ...]) -> None:
    dataset = dataset_of({"rank_3.txt": process(100, frames)})
    assert ranks_of(dataset) == {"rank_3.txt": None}
    assert problem_of(dataset, "rank_3.txt") == "no rank known: a process that starts ranks, or one that serves one"


@pytest.mark.parametrize(("command", "above"), [(LAUNCHER, TRAIN), ("python x.py", AGENT), ("python x.py", SPAWNS)])
def test_one_rank_below_its_launcher(command: str, above: tuple[str, ...]) -> None:
    text = family(
        process(1, above, command), process(2, SPAWNED, parent=(1, command)), process(3, WORKER, parent=(2, "x"))
    )
    dataset = dataset_of({"rank_3.txt": text})
    assert dataset.threads.select("rank", "pid", "parent_pid").rows(named=False) == [
        (3, 2, None), (3, 3, 2), (None, 1, None),
    ]  # fmt: skip


def test_several_ranks_below_one_launcher() -> None:
    plain = family(process(1, command=LAUNCHER), *(process(i, parent=(1, LAUNCHER)) for i in (2, 3)))
    dataset = dataset_of({"rank_3.txt": plain})
    assert set(dataset.threads["rank"]) == {None}
    assert problem_of(dataset, "rank_3.txt") == "no rank known: 2 processes in it may be ranks, and none says which"
    told = family(*(process(i, command=f"python t.py --rank={i}", parent=(1, "sh")) for i in (2, 3)))
    assert dataset_of({"node0.txt": told}).threads.select("rank", "pid").rows() == [(2, 2), (3, 3)]


def test_a_script_whose_children_say_their_rank_is_none_itself() -> None:
    children = (process(i, command=f"python t.py --rank={i}", parent=(9, "python go.py")) for i in (2, 3))
    dataset = dataset_of({"node0.txt": family(process(9, command="python go.py"), *children)})
    assert dataset.threads.select("rank", "pid", "parent_pid").rows() == [(2, 2, None), (3, 3, None), (None, 9, None)]


def test_a_node_that_counts_its_own_ranks_is_matched_by_the_dump_beside_it() -> None:
    files: dict[str, str | bytes] = {}
    for recorder in recorded(4):
        node, local = divmod(recorder.rank, 2)
        files[f"node{node}/rank_{local}"] = recorder.pickle()
        files[f"node{node}/pyspy_rank_{local}.txt"] = process(100 + local)
    dataset = dataset_of(files)
    beside = {
        row["path"]: row["rank"] for row in dataset.files.iter_rows(named=True) if row["kind"] == "flight-recorder"
    }
    assert sorted(beside.values()) == [0, 1, 2, 3]
    assert ranks_of(dataset) == {path.replace("/", "/pyspy_") + ".txt": rank for path, rank in beside.items()}
    lost = dataset_of({**files, "elsewhere/pyspy_rank_0.txt": process(100)})
    assert ranks_of(lost)["elsewhere/pyspy_rank_0.txt"] is None


def test_two_processes_at_one_rank_contradict_each_other() -> None:
    nodes: dict[str, str | bytes] = {f"node{n}/rank_0.txt": process(100, threads=9) for n in range(2)}
    assert set(ranks_of(dataset_of(nodes)).values()) == {None}
    beside: dict[str, str | bytes] = {f"rank_0.{n}.txt": process(100 + n) for n in range(2)}
    assert set(ranks_of(dataset_of(beside)).values()) == {None}
    folders: dict[str, str | bytes] = {f"{n}/rank_0.txt": process(100) for n in ("a", "b")}
    assert set(ranks_of(dataset_of(folders)).values()) == {None}


def test_all_dumps_of_one_process_are_kept() -> None:
    files: dict[str, str | bytes] = {f"{n}/rank_0.txt": process(100, threads=9) for n in ("first", "second")}
    dataset = dataset_of(files, {"second/rank_0.txt": MTIME_NS + 5})
    assert ranks_of(dataset) == dict.fromkeys(files, 0)
    assert dataset.threads["written_ns"].to_list() == [MTIME_NS] * 9 + [MTIME_NS + 5] * 9


def test_numbers_that_count_dumps_of_one_process_are_no_ranks() -> None:
    files: dict[str, str | bytes] = {f"stack_{i}.txt": process(100) for i in range(3)}
    dataset = dataset_of(files)
    assert set(ranks_of(dataset).values()) == {None}
    assert problem_of(dataset, "stack_0.txt").endswith("counts dumps of one process")


def test_dumps_in_one_file_are_told_apart() -> None:
    dataset = dataset_of({"rank_0.txt": process(100) + "\n" + process(100, ("g (b.py:1)",))})
    assert dataset.threads["written_ns"].to_list() == [MTIME_NS - 1, MTIME_NS]
    assert dataset.stack(dataset.threads["stack_id"][1])[0].function == "g"


def test_an_earlier_process_of_a_rank_is_set_aside() -> None:
    files: dict[str, str | bytes] = {"rank_0.old.txt": process(100), "rank_0.txt": process(200)}
    dataset = dataset_of(files, {"rank_0.txt": MTIME_NS + HOUR_NS})
    assert dataset.threads.select("rank", "pid").rows() == [(0, 200)]
    assert dataset.files.select("kind", "used", "problem").rows() == [
        ("duplicate", False, "an earlier process of rank 0"), ("py-spy", True, None),
    ]  # fmt: skip


def test_attempts_by_directory_and_by_time() -> None:
    runs = {n: recorded(2, START_NS + n * HOUR_NS) for n in range(2)}
    files: dict[str, str | bytes] = {}
    for n, made in runs.items():
        files |= {f"attempt_{n}/rank_{r.rank}": r.pickle() for r in made}
        files[f"attempt_{n}/pyspy_rank_1.txt"] = process(100 + n)
    files["stacks/rank_0.txt"], files["stacks/rank_1.txt"] = process(98), process(99)
    times = {"stacks/rank_0.txt": START_NS + HOUR_NS // 2, "stacks/rank_1.txt": START_NS + 99 * HOUR_NS}
    newest, oldest = dataset_of(files, times), dataset_of(files, times, attempt=0)
    assert newest.threads.select("rank", "pid").rows() == [(1, 101)]
    assert oldest.threads.select("rank", "pid").rows() == [(0, 98), (1, 100)]
    assert problem_of(newest, "stacks/rank_1.txt") == "its attempt is not known"


def test_a_dump_from_before_the_job_is_not_of_it() -> None:
    dataset = dataset_of({**dumps(2), "pyspy_rank_0.txt": process()}, {"pyspy_rank_0.txt": START_NS - HOUR_NS})
    assert dataset.threads.is_empty()
    assert problem_of(dataset, "pyspy_rank_0.txt") == "written before any operation in the dumps was issued"


def test_only_py_spy() -> None:
    files: dict[str, str | bytes] = {f"rank_{i}.txt": process(100 + i) for i in range(3)}
    files["rank_3.json"] = document(103)
    dataset = dataset_of({**files, "attempt_0/rank_4.txt": process()}, {"attempt_0/rank_4.txt": 5})
    assert (dataset.world_size, dataset.seen_ranks, dataset.missing_ranks) == (4, (), (0, 1, 2, 3))
    assert dataset.threads["rank"].to_list() == [0, 1, 2, 3]
    assert (dataset.ops.height, dataset.attempts.height) == (0, 0)
    assert problem_of(dataset, "attempt_0/rank_4.txt") == "of an earlier attempt"


def test_a_rank_that_left_no_dump_of_its_own_is_still_missing() -> None:
    files = dumps(4)
    del files["nccl_trace_rank_2"]
    dataset = dataset_of({**files, "pyspy_rank_2.txt": process()})
    assert (dataset.missing_ranks, dataset.threads["rank"].to_list()) == ((2,), [2])


def test_stacks_stand_behind_those_of_the_recorders() -> None:
    files = dumps(2)
    alone = dataset_of(files)
    both = dataset_of({**files, "pyspy_rank_0.txt": process(threads=2)})
    assert both.stacks.head(alone.stacks.height).equals(alone.stacks)
    assert both.ops["stack_id"].equals(alone.ops["stack_id"])
    assert both.threads["stack_id"].min() > both.ops["stack_id"].max()  # type: ignore[operator]
    assert [f.function for f in both.stack(both.threads["stack_id"][0])] == ["forward", "<module>"]


def test_a_process_that_another_file_knows_is_recognised() -> None:
    everyone = family(
        process(1, command=LAUNCHER), *(process(i, parent=(1, LAUNCHER), threads=3) for i in (20, 30, 40))
    )
    files: dict[str, str | bytes] = {f"rank_{i}.txt": process(i * 10, threads=3) for i in (2, 3)}
    dataset = dataset_of({**files, "all.txt": everyone})
    mine = dataset.threads.filter((dataset.threads["file"] == 0) & dataset.threads["is_main"])
    assert mine.select("rank", "pid").rows() == [(2, 20), (3, 30), (None, 1), (None, 40)]
    assert problem_of(dataset, "all.txt") == "no rank known of 1 of its 3 processes"
    elsewhere = dataset_of({**files, "other/all.txt": everyone})
    assert elsewhere.threads.filter(elsewhere.threads["file"] == 0)["rank"].null_count() == 10
