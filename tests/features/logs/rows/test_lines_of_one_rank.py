"""Logs of one process each: a line that names the rank names it for the lines without one."""

from __future__ import annotations

from pathlib import Path

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.schema import Dataset

START = "[I1125 17:10:01.100004 x.cpp:271] [TC][rank={0}][name=0] Timeout thread starting for rank: {0}\n"
WAITED = "[E1125 17:20:33.100 WorkNCCL.cpp:372] [TC][rank={}][name={}] Operation timed out after 600331 ms\n"


def job(path: Path, size: int, more: str = "") -> Dataset:
    """Each rank but 2 gives up, rank 1 in a group in which it is the first; no line has a prefix."""
    for rank in range(size):
        (path / f"a{rank}").mkdir()
        waited = "" if rank == 2 else WAITED.format(*((0, "b3f1") if rank == 1 else (rank, 0)))
        (path / f"a{rank}" / "stderr.log").write_text(START.format(rank) + waited + more)
    return load([path])


def test_a_timeout_in_another_group_is_of_the_rank_of_its_log(tmp_path: Path) -> None:
    dataset = job(tmp_path, 5)
    assert sorted(dataset.messages.filter(dataset.messages["kind"] == "watchdog-timeout")["rank"]) == [0, 1, 3, 4]
    (found,) = (f for f in analyse(dataset).findings if f.kind == "missing-rank")
    assert found.candidates == (2,)


def test_two_logs_may_be_those_of_two_nodes(tmp_path: Path) -> None:
    told = job(tmp_path, 2).messages
    assert None in told.filter(told["text"].str.contains("b3f1"))["rank"].to_list()


def test_prefixes_of_a_launcher_show_that_several_wrote(tmp_path: Path) -> None:
    told = job(tmp_path, 5, "worker-7: [E1125 17:20:33.100 x.cpp:1] [Rank 1] Watchdog caught collective operation "
               "timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600011 milliseconds before "
               "timing out.\n").messages  # fmt: skip
    assert None in told.filter(told["text"].str.contains("b3f1"))["rank"].to_list()
