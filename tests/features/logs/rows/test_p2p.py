"""Counters of a group with sends and receives, as the watchdog prints them: two sequences mixed."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.schema import Dataset
from tests.features.logs.read.lines import coll
from tests.features.logs.rows.job import init, job, lane, said, source, step
from tests.features.logs.rows.test_reports import frontiers, status, timeout

BATCH = "NumelIn=0, NumelOut=0"


def report(rank: int, batch: str) -> list[str]:
    """Rank 3 waits in the sixth batch, the others in #11; ranks 0 and 1 finished the sixth batch last of all."""
    if rank == 3:
        sizes = BATCH if batch == "COALESCED" else "NumelIn=6, NumelOut=6"
        return [timeout(3, 6, batch, sizes), status(3, 6, 12, 10)]
    return [timeout(rank, 11), status(rank, 11, 12, 6 if rank < 2 else 10)]


@pytest.mark.parametrize("batch", ["COALESCED", "SEND"])
def test_counters_that_mix_two_sequences_accuse_nobody(batch: str) -> None:
    dataset = job(source("train.log", [line for rank in range(4) for line in report(rank, batch)]))
    assert dataset.groups["has_p2p"].to_list() == [True]
    assert {rank: done for rank, (_, done) in frontiers(dataset).items()} == dict.fromkeys(range(4))
    assert lane(dataset, 3, 0) == []
    (waiting,) = dataset.ops.filter(rank=3, is_p2p=True).select("p2p_seq", "seq", "state").rows()
    assert waiting == (6, None, "scheduled")
    found = analyse(dataset)
    assert (found.status, found.culprits) == ("hang", ())
    # the number of a batch says nothing of how far behind a rank is
    assert not any("furthest behind" in f.explanation for f in found.findings)


def test_lines_of_nccl_tell_of_the_sends_too() -> None:
    def own(rank: int) -> list[str]:
        send = coll("Send", 0, 8, root=(rank + 1) % 4)
        return [init(rank), said(rank, send.replace("0x55bef0201370", "0xaa00")), step(rank, 0), *report(rank, "SEND")]

    dataset = job(*(source(f"rank_{rank}.log", own(rank)) for rank in range(4)))
    # one send for each of NCCL's lines: the watchdog's is the same
    assert dataset.ops.filter(is_p2p=True).height == 4
    assert {done for _, done in frontiers(dataset).values()} == {None}


def pipeline(stop: int, steps: int = 8) -> Dataset:
    """Four stages that send one way; rank 2 stops before its send of the step `stop`, the others give up waiting."""

    def moved(rank: int, op: str, peer: int) -> str:
        return said(rank, coll(op, 0, 64, root=peer, comm="0xaa00"))

    def own(rank: int) -> list[str]:
        lines = [init(rank)]
        for number in range(steps):
            lines += [moved(rank, "Recv", rank - 1)] if rank else []
            if (rank, number) == (2, stop):
                return lines
            lines += [moved(rank, "Send", rank + 1)] if rank < 3 else []
        return lines

    waited = [line for r in (0, 1, 3) for line in (timeout(r, 6, "RECV" if r == 3 else "SEND"), status(r, 6, 8, 5))]
    return job(*(source(f"rank_{rank}.log", own(rank)) for rank in range(4)), source("train.log", waited))


def test_sends_that_nobody_receives_are_counted_and_accuse_nobody() -> None:
    found = analyse(pipeline(5))
    assert (found.status, found.culprits) == ("hang", ())
    said_ = found.findings[0].explanation
    assert "Sends do not fit receives: rank 1 issued 8 to rank 2, which issued 6 to receive them" in said_
    assert "; rank 2 issued 5 to rank 3" in said_


def test_sends_that_agree_are_not_spoken_of() -> None:
    assert not any("Sends do not fit" in finding.explanation for finding in analyse(pipeline(99)).findings)


SIZES = (64, 128, 64, 256, 32, 64)
"""Of the transfers of one step."""


def moves(left_out: tuple[int, str, int] | None, steps: int = 3, other: int = 0, cut: int = 0) -> Dataset:
    """Rank 0 sends to 1, and 1 to 2; `left_out`: rank, operation and number of one that is not issued.

    `other`: the number of a receive of rank 1 that is of another size; `cut`: so many last lines of rank 1 are lost.
    """
    logs: dict[int, list[str]] = {rank: [init(rank)] for rank in range(4)}
    issued: dict[tuple[int, str], int] = {}
    for size in SIZES * steps:
        for rank, op, peer in ((0, "Send", 1), (1, "Recv", 0), (1, "Send", 2), (2, "Recv", 1)):
            number = issued[rank, op] = issued.get((rank, op), 0) + 1
            is_other = (rank, op, number) == (1, "Recv", other)
            if (rank, op, number) != left_out:
                logs[rank].append(said(rank, coll(op, 0, size + is_other, root=peer, comm="0xaa00")))
    logs[1] = logs[1][: len(logs[1]) - cut]
    return job(*(source(f"rank_{rank}.log", lines) for rank, lines in logs.items()))


def unmatched(dataset: Dataset) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    found = [f for f in analyse(dataset).findings if f.kind == "p2p-unmatched"]
    return [(f.title, f.candidates, f.culprit_ranks) for f in found]


@pytest.mark.parametrize(
    ("left_out", "title"),
    [
        ((1, "Recv", 4), "send #4 of rank 0 to rank 1 (256 elements Float) has no receive"),
        ((0, "Send", 11), "receive #11 of rank 1 from rank 0 (32 elements Float) has no send"),
    ],
)
def test_one_that_was_left_out_is_told_by_what_stands_behind(left_out: tuple[int, str, int], title: str) -> None:
    assert unmatched(moves(left_out)) == [(title, (0, 1), ())]


def test_another_size_is_told() -> None:
    ((title, candidates, culprits),) = unmatched(moves(None, other=9))
    assert title == "send #9 of rank 0 to rank 1 is of 64 elements Float, and its receive of 65 elements Float"
    assert (candidates, culprits) == ((0, 1), ())


@pytest.mark.parametrize("cut", [0, 1, 2, 9])
def test_lines_that_are_lost_at_the_end_leave_none_out(cut: int) -> None:
    assert unmatched(moves(None, cut=cut)) == []
