"""Whose the stacks in logs are: as prefixes, sections, names of files or the only process of a log tell."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import LoadOptions, load
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from rankscope.schema.tables import THREADS
from tests.assemble.test_load import hung_job, write

C10D = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
REDUCE, READ = f'  File "{C10D}", line 2900 in all_reduce', '  File "/ws/data.py", line 44 in read_shard'
TOP = '  File "/ws/train.py", line 99 in <module>'


def stack(frame: str = REDUCE, thread: int = 0x7F70B9D0A740, front: str = "") -> str:
    """What a process prints whose main thread is in a frame."""
    lines = (f"Thread 0x{thread:016x} (most recent call first):", frame, TOP)
    return "".join(f"{front}{line}\n" for line in lines)


def read(tmp_path: Path, **files: str) -> Dataset:
    """Logs by their name, in which __ stands for a dot."""
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    return load([tmp_path])


def functions(dataset: Dataset) -> dict[int | None, str]:
    """Innermost function of the newest stack of each rank."""
    newest = dataset.threads.sort("written_ns", maintain_order=True)
    rows = newest.select("rank", "stack_id").iter_rows()
    return {rank: dataset.stack(stack_id)[0].function for rank, stack_id in rows}


def test_names_of_files(tmp_path: Path) -> None:
    found = read(tmp_path, rank_0__txt=stack(), rank_1__err=stack(READ), stack_2__txt=stack(READ, 0x7F0000000010))
    assert functions(found) == {0: "all_reduce", 1: "read_shard", 2: "read_shard"}
    assert dict(found.threads.schema) == THREADS
    assert found.threads["pid"].null_count() == found.threads.height
    assert set(found.threads["tool"]) == {"faulthandler"}
    assert found.files.select("kind", "rank").rows() == [("log", 0), ("log", 1), ("log", 2)]


@pytest.mark.parametrize("front", ["[rank{}]: ", "[rank{}]:"])
def test_prefixes_of_torch(tmp_path: Path, front: str) -> None:
    text = stack(front=front.format(3)) + stack(READ, front=front.format(1))
    assert functions(read(tmp_path, job__log=text)) == {3: "all_reduce", 1: "read_shard"}


def test_sections_of_a_debug_server(tmp_path: Path) -> None:
    head = "=== Rank {}: http://n:1/handler/dump_traceback? ===\n"
    text = "".join(f"{head.format(rank)}{stack(READ if rank == 1 else REDUCE)}\n" for rank in range(3))
    assert functions(read(tmp_path, stacks_20261125_194610__txt=text)) == {
        0: "all_reduce", 1: "read_shard", 2: "all_reduce",
    }  # fmt: skip


def test_of_files_that_are_written_again_and_again_the_names_tell_the_order(tmp_path: Path) -> None:
    head = "=== Rank 0: http://n:1/handler/dump_traceback? ===\n"
    names = [f"stacks_20261125_1946{second}.txt" for second in (10, 20, 30)]
    for at, (name, frame) in enumerate(zip(names, (REDUCE, REDUCE, READ), strict=True)):
        (tmp_path / name).write_text(head + stack(frame))
        # copied in another order
        os.utime(tmp_path / name, ns=(0, (1_760_000_000 - at) * 10**9))
    found = load([tmp_path])
    assert found.threads.n_unique("written_ns") == len(names)
    assert functions(found) == {0: "read_shard"}


def test_a_process_that_dumps_again_is_newest_last(tmp_path: Path) -> None:
    found = read(tmp_path, rank_4__log=stack() + stack(READ) + stack(READ))
    assert found.threads.n_unique("written_ns") == 3
    assert functions(found) == {4: "read_shard"}


def test_processes_that_nothing_tells_apart_have_no_rank(tmp_path: Path) -> None:
    found = read(tmp_path, dump_1__txt=stack() + stack(READ, 0x7F0000000010))
    assert found.threads["rank"].to_list() == [None, None]
    assert found.files["problem"].to_list() == [
        "no rank known: 2 processes in it may be ranks, and none says which",
    ]  # fmt: skip
    analysis = analyse(found)
    assert analysis.verdict.startswith("stacks of 2 processes without a known rank: ")
    assert not [f for f in analysis.findings if f.kind == "truncated-file"]


def test_old_stacks_are_not_missed(tmp_path: Path) -> None:
    found = read(tmp_path, rank_1__log=(stack() + "Timeout (0:00:10)!\n") * 40)
    assert found.messages.is_empty()
    assert found.threads.n_unique("written_ns") == 16


def test_the_only_process_of_a_log_of_nccl(tmp_path: Path) -> None:
    lines = [
        f"n{rank}:{rank + 10}:1 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 "
        "busId 3a000 commId 0xfe12 - Init COMPLETE\n"
        for rank in range(2)
    ]
    found = read(tmp_path, a__log=lines[0] + stack(), b__log=lines[1] + stack(READ))
    assert functions(found) == {0: "all_reduce", 1: "read_shard"}


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_within_a_node_are_ranks_only_of_a_job_of_one_node(tmp_path: Path, world: int) -> None:
    for rank in range(2):
        folder = tmp_path / "none_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(stack(READ if rank else REDUCE))
    found = load([tmp_path], LoadOptions(world_size=world))
    assert functions(found) == ({0: "all_reduce", 1: "read_shard"} if world == 2 else {None: "read_shard"})


def test_what_torchrun_puts_in_front_by_default(tmp_path: Path) -> None:
    text = "".join(stack(READ if rank else REDUCE, front=f"[trainer{rank}]:") for rank in range(2))
    (tmp_path / "job.log").write_text(text)
    for world, ranks in ((2, {0, 1}), (4, {None})):
        assert set(load([tmp_path], LoadOptions(world_size=world)).threads["rank"]) == ranks


def test_a_worker_of_a_data_loader_is_not_its_rank(tmp_path: Path) -> None:
    frame = '  File "/usr/lib/python3/site-packages/torch/utils/data/_utils/worker.py", line 300 in _worker_loop'
    assert functions(read(tmp_path, rank_2__log=stack() + stack(frame))) == {None: "_worker_loop", 2: "all_reduce"}


def test_stacks_beside_dumps_of_the_recorder(tmp_path: Path) -> None:
    write(tmp_path, hung_job())
    found = read(tmp_path, rank_2__log=stack(READ))
    assert functions(found) == {2: "read_shard"}
    analysis = analyse(found)
    assert [finding.culprit_ranks for finding in analysis.findings if finding.root_cause] == [(2,)]
    assert "by faulthandler" in render_text(found, analysis)


def test_stacks_are_no_messages(tmp_path: Path) -> None:
    assert read(tmp_path, rank_0__log=stack()).messages.filter(pl.col("kind") == "thread-dump").is_empty()
