"""Prefixes of torchrun's --tee, which hold the rank within the node, and ranks of which nothing is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

WORK = "WorkNCCL(SeqNum=407, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600040 milliseconds"
STACK = ["Traceback (most recent call last):", '  File "/job/a.py", line 3, in step', "    work()", "ValueError: odd"]
PER_NODE = 4


def gave_up(rank: int, role: str = "rank") -> list[str]:
    """Lines of a rank behind the prefix of its place on the node."""
    front, head = f"[{role}{rank % PER_NODE}]:", f"[rank{rank}]:[E626 06:24:44.9{rank:02d} ProcessGroupNCCL.cpp:1785] "
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
    counters = "PG status: last enqueued work: 409, last completed work: 406"
    return [
        f"{front}{head}[Rank {rank}] Watchdog caught collective operation timeout: {WORK} before timing out.",
        f"{front}{head}{group}failure detected by watchdog at work sequence id: 407 {counters}",
        f"{front}  what():  {group}Process group watchdog thread terminated with exception: [Rank {rank}] Watchdog "
        f"caught collective operation timeout: {WORK} before timing out.",
    ]


def threw(rank: int, role: str) -> list[str]:
    """A traceback behind that prefix alone."""
    return [f"[{role}{rank % PER_NODE}]:{line}" for line in STACK]


def judged(tmp_path: Path, nodes: dict[int, list[str]]) -> Analysis:
    for node, lines in nodes.items():
        (tmp_path / f"node{node}.log").write_text("".join(f"{line}\n" for line in lines))
    return analyse(load([tmp_path]))


def by_node(lines: dict[int, list[str]]) -> dict[int, list[str]]:
    nodes: dict[int, list[str]] = {}
    for rank, own in lines.items():
        nodes.setdefault(rank // PER_NODE, []).extend(own)
    return nodes


def suspects(analysis: Analysis) -> set[int]:
    return {rank for f in analysis.findings for rank in (*f.culprit_ranks, *f.candidates)}


@pytest.mark.parametrize("role", ["rank", "default", "trainer", "my-role_"])
@pytest.mark.parametrize("absent", [0, 2, 5])
def test_the_prefix_of_another_rank_acquits_nobody(role: str, absent: int, tmp_path: Path) -> None:
    found = judged(tmp_path, by_node({rank: gave_up(rank, role) for rank in range(8) if rank != absent}))
    assert (suspects(found), found.culprits, found.status) == ({absent}, (), "hang")
    assert found.verdict.startswith(f"rank {absent} may not have come: all others gave up waiting in all_reduce #407")


@pytest.mark.parametrize("role", ["rank", "default", "trainer"])
def test_a_traceback_behind_the_prefix_alone_is_of_the_rank_that_other_lines_tell(role: str, tmp_path: Path) -> None:
    """Lines of the rank itself tell, or those of its neighbours on the node."""
    lines = {rank: gave_up(rank, role) for rank in range(8) if rank != 6}
    found = judged(tmp_path, by_node({6: threw(6, role), **lines}))
    assert found.culprits == (6,), found.verdict
    assert found.verdict.startswith("rank 6 failed: ValueError: odd")


def test_a_node_that_does_not_tell_its_ranks_accuses_none_of_them(tmp_path: Path) -> None:
    nodes = by_node({rank: gave_up(rank) for rank in range(8) if rank != 6})
    found = judged(tmp_path, {**nodes, 2: threw(10, "rank")})
    assert found.culprits == () and 2 not in suspects(found)
    assert "ValueError: odd" in found.verdict


def test_torchs_own_prefix_is_the_rank(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: {line}" for rank in (5,) for line in STACK]
    assert judged(tmp_path, {0: lines}).culprits == (5,)


def test_torchruns_summary_tells_the_first_rank_of_a_node(tmp_path: Path) -> None:
    summary = [
        "=" * 60, "train.py FAILED", "-" * 60, "Failures:", "  <NO_OTHER_FAILURES>", "-" * 60,
        "Root Cause (first observed failure):", "[0]:", "  time      : 2026-06-14_22:36:10", "  host      : n1",
        "  rank      : 5 (local_rank: 1)", "  exitcode  : 1 (pid: 51)", "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org", "=" * 60,
    ]  # fmt: skip
    found = judged(tmp_path, {0: gave_up(0), 1: [*threw(5, "rank"), *gave_up(6), *summary]})
    assert found.culprits == (5,)


def test_many_absent_ranks_are_no_suspects(tmp_path: Path) -> None:
    found = judged(tmp_path, by_node({rank: gave_up(rank) for rank in (0, 1, 3, 7)}))
    assert suspects(found) == set()
    assert found.verdict.startswith("ranks 0,1,3,7 gave up waiting in allreduce #407")
