"""Logs without their beginning, torn ones, and logs beside the dumps of the same ranks."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.sources import SourceFile
from rankscope.schema import Dataset
from tests.features.logs.read.lines import coll
from tests.features.logs.rows.job import PARENT, dump, init, job, lane, messages, said, source, step
from tests.parsers.dumps import Groups, Recorder

WORLD: Groups = {"0": ("default_pg", [0, 1, 2, 3])}


def whole(rank: int, count: int = 12) -> SourceFile:
    return source(f"nccl.{rank}", [init(rank), *(step(rank, n) for n in range(count))])


def beheaded(rank: int, numbers: list[int]) -> SourceFile:
    """A log that begins somewhere; prefixes say whose it is."""
    return source(f"tail.{rank}", [f"[rank{rank}]: {step(rank, n)}" for n in numbers])


def seqs(dataset: Dataset, rank: int) -> list[int | None]:
    return dataset.ops.filter(rank=rank)["seq"].to_list()


def test_a_lost_head_is_laid_beside_a_log_that_has_it() -> None:
    tail = source("nccl.3", [init(3), step(3, 0)])
    dataset = job(*map(whole, range(3)), tail)
    assert seqs(dataset, 3) == [1]
    assert seqs(dataset, 1) == list(range(1, 13))
    without = [step(3, n) for n in range(5, 12)]
    lost = job(*map(whole, range(3)), source("nccl.3", without))
    # nothing says that the comm of the rest is that of all: no line of its initialisation is left
    assert seqs(lost, 3) == []


@pytest.mark.parametrize("first", [0, 5, 9])
def test_tails_are_numbered_by_what_they_share(first: int) -> None:
    tails = [beheaded(rank, list(range(20))) for rank in range(3)]
    dataset = job(*tails, beheaded(3, list(range(first, 20))))
    assert seqs(dataset, 3) == list(range(first + 1, 21))
    assert dataset.frontiers.filter(rank=3)["wrapped"].item() is (first > 0)


def test_a_tail_that_fits_several_places_is_joined_to_none() -> None:
    def loop(rank: int, steps: int) -> list[int]:
        return [1, 2, 3] * steps

    dataset = job(*(beheaded(rank, loop(rank, 6)) for rank in range(3)), beheaded(3, loop(3, 2)))
    assert seqs(dataset, 3) == [None] * 6
    assert messages(dataset, "log-unaligned") == [
        "6 operations: lines are missing, and their place among those of other ranks is not known"
    ]
    assert not analyse(dataset).culprits


def test_a_torn_line_keeps_its_log_from_accusing() -> None:
    lines = [init(2), *(step(2, n) for n in range(12))]
    lines[5] = lines[5][:60] + said(3, "Connected all rings")
    del lines[6]
    dataset = job(whole(0), whole(1), whole(3), source("nccl.2", lines))
    assert not analyse(dataset).culprits


def recorders(count: int, ranks: range = range(4), op: str = "all_reduce", size: int = 100) -> list[SourceFile]:
    found = []
    for rank in ranks:
        made = Recorder(rank, WORLD)
        for n in range(count):
            made.collective("0", op, input_sizes=[[size + n]], input_dtypes=["Float"])
        found.append(dump(made))
    return found


def test_what_a_rank_with_a_dump_logged_is_only_compared() -> None:
    plain = job(*recorders(5))
    both = job(*recorders(5), *(whole(rank, 5) for rank in range(4)))
    assert both.ops.drop("file").equals(plain.ops.drop("file"))
    assert both.groups.equals(plain.groups)
    assert messages(both, "log-disagrees") == []
    assert both.comms["group"].to_list() == [0] * 4
    assert both.seen_ranks == (0, 1, 2, 3)
    assert both.missing_ranks == ()


def test_a_rank_without_a_dump_has_the_lane_of_its_log() -> None:
    dataset = job(*recorders(5, range(3)), *(whole(rank, 5) for rank in range(4)))
    assert lane(dataset, 3, 0) == [(n, "all_reduce", "unknown") for n in range(1, 6)]
    assert dataset.seen_ranks == (0, 1, 2)
    assert dataset.missing_ranks == (3,)
    assert not [f for f in analyse(dataset).findings if f.kind.endswith("mismatch")]


def test_where_the_log_counts_otherwise_nothing_of_it_is_joined() -> None:
    logs = [source(f"nccl.{r}", [init(r), *(step(r, n) for n in (7, 8, 0, 1, 2, 3, 4))]) for r in range(4)]
    dataset = job(*recorders(5, range(3)), *logs)
    assert seqs(dataset, 3) == []
    assert messages(dataset, "log-disagrees")[0].startswith("the log has all_reduce 107 Float at #1, the dump all_red")
    assert messages(dataset, "log-unaligned")


def test_a_barrier_and_a_bool_are_what_nccl_makes_of_them() -> None:
    sources = []
    for rank in range(4):
        made = Recorder(rank, WORLD)
        made.collective("0", "barrier", input_sizes=[], input_dtypes=[])
        made.collective("0", "all_reduce", input_sizes=[[3, 4]], input_dtypes=["Bool"])
        sources.append(dump(made))
        lines = [coll(count=1, comm=PARENT), coll(count=12, datatype=1, comm=PARENT)]
        sources.append(source(f"nccl.{rank}", [init(rank), *(said(rank, line) for line in lines)]))
    assert messages(job(*sources), "log-disagrees") == []


def counted(rank: int, op: str, counts: list[int]) -> SourceFile:
    """A log that begins somewhere, of one operation, with what NCCL calls opCount."""
    return source(f"tail.{rank}", [f"[rank{rank}]: {said(rank, coll(op, n, 7, comm=PARENT))}" for n in counts])


def test_ranks_that_share_no_operation_are_compared_by_their_counts() -> None:
    lanes = [counted(rank, "AllGather" if rank == 2 else "AllReduce", [652, 653, 654]) for rank in range(4)]
    dataset = job(*lanes)
    (text,) = messages(dataset, "log-counts")
    assert text == "rank 2 called AllGather and rank 0 AllReduce at opCount 28c"
    found = analyse(dataset)
    (hint,) = [f for f in found.findings if f.kind == "collective-mismatch"]
    assert (hint.severity, hint.root_cause, hint.candidates, hint.confidence) == ("warning", False, (0, 2), "low")
    assert not found.culprits


@pytest.mark.parametrize("counts", [[0, 0, 0], [900, 901, 902]])
def test_counts_that_stand_still_or_are_others_prove_nothing(counts: list[int]) -> None:
    lanes = [counted(rank, "AllReduce", [652, 653, 654]) for rank in range(3)]
    assert messages(job(*lanes, counted(3, "AllGather", counts)), "log-counts") == []
