"""Logs that were rotated: what a process printed into several files is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.rows.comm_lifetimes import FileSeries, series_of
from rankscope.schema import Dataset
from tests.features.logs.read.lines import coll
from tests.features.logs.rows.job import PARENT, SPLIT, groups, init, job, messages, said, source, split, step

TOLD = ["rank", "group", "seq", "p2p_seq", "op", "peer", "state", "in_sizes"]
LOST = "operations: lines are missing, and their place among those of other ranks is not known"


def counted(rank: int, number: int) -> str:
    """A collective in the form of NCCL up to 2.26, where opCount rises; the training loop repeats itself."""
    return said(rank, coll(count=100 + number % 5, op_count=number))


def lines(rank: int) -> list[str]:
    """All that a rank prints: collectives of all, of its pair, and sends; two operations less of rank 2."""
    everybody = [step(rank, n % 5) for n in range(18 if rank == 2 else 20)]
    pair = [step(rank, n, "AllGather", SPLIT, 2) for n in range(6)]
    sends = [said(rank, coll("Send", root=1 - rank // 2, comm=SPLIT, nranks=2)) for _ in range(4)]
    return [init(rank), split(rank), *everybody[:10], *pair[:3], *sends[:2], *everybody[10:], *sends[2:], *pair[3:]]


def rotated(rank: int, text: Sequence[str], *cuts: int, name: str = "nccl.{}.log") -> Iterator[SourceFile]:
    """A log in pieces: the newest without a number, the oldest with the highest."""
    bounds = [0, *cuts, len(text)]
    for place in range(len(cuts) + 1):
        age = len(cuts) - place
        yield source(name.format(rank) + (f".{age}" if age else ""), text[bounds[place] : bounds[place + 1]])


def whole() -> Dataset:
    return job(*(source(f"nccl.{rank}.log", lines(rank)) for rank in range(4)))


@pytest.mark.parametrize("cuts", [(5,), (12,), (30,), (1, 15), (2, 8, 25), (31, 32, 33)])
@pytest.mark.parametrize("name", ["nccl.{}.log", "out"])
def test_in_several_files_it_says_the_same_as_in_one(cuts: tuple[int, ...], name: str) -> None:
    if name == "out":
        mixed = [line for rank in range(4) for line in lines(rank)]
        dataset, expected = job(*rotated(0, mixed, *cuts, name=name)), job(source(name, mixed))
    else:
        dataset = job(*(piece for rank in range(4) for piece in rotated(rank, lines(rank), *cuts)))
        expected = whole()
    assert groups(dataset) == groups(expected)
    assert dataset.ops.select(TOLD).equals(expected.ops.select(TOLD))
    assert dataset.frontiers.drop("file", strict=False).equals(expected.frontiers.drop("file", strict=False))
    told = ["rank", "identity", "collectives", "state"]
    assert dataset.comms.select(told).sort(told).equals(expected.comms.select(told).sort(told))
    assert not messages(dataset, "log-unplaced") + messages(dataset, "log-unaligned")


def test_what_a_rank_did_last_stands_last() -> None:
    dataset = job(*(piece for rank in range(4) for piece in rotated(rank, lines(rank), 8, 20)))
    world = next(g.id for g in dataset.group_list if len(g.ranks) == 4)
    assert dataset.ops.filter(rank=1, group=world)["seq"].to_list() == list(range(1, 21))
    assert dataset.frontiers.filter(group=world)["last_enqueued"].to_list() == [20, 20, 18, 20]


def test_a_file_that_is_missing_between_two_is_not_counted_over() -> None:
    pieces = {rank: list(rotated(rank, lines(rank), 8, 20)) for rank in range(4)}
    dataset = job(*pieces[0], *pieces[1], pieces[2][0], pieces[2][2], *pieces[3])
    world = next(g.id for g in dataset.group_list if len(g.ranks) == 4)
    seqs = dataset.ops.filter(rank=2, group=world)["seq"].to_list()
    assert seqs == [*range(1, 7), *([None] * 5)]
    assert dataset.frontiers.filter(rank=2, group=world)["last_enqueued"].item() is None
    assert dataset.ops.filter(rank=2, is_p2p=True).is_empty()
    assert messages(dataset, "log-unaligned") == [f"8 {LOST}"]


@pytest.mark.parametrize(("lost", "numbered"), [(0, True), (1, False), (3, False)])
def test_lines_that_are_missing_between_two_files_show_in_what_nccl_counts(lost: int, numbered: bool) -> None:
    text = {rank: [init(rank), *(counted(rank, n) for n in range(20))] for rank in range(4)}
    short = list(rotated(2, [*text[2][:10], *text[2][10 + lost :]], 10))
    dataset = job(*(source(f"nccl.{rank}.log", text[rank]) for rank in (0, 1, 3)), *short)
    seqs = dataset.ops.filter(rank=2)["seq"].to_list()
    assert seqs == [*range(1, 10), *(range(10, 21) if numbered else [None] * (11 - lost))]
    assert messages(dataset, "log-unaligned") == ([] if numbered else [f"{11 - lost} {LOST}"])


def test_an_address_that_is_used_again_is_another_communicator() -> None:
    def text(rank: int) -> list[str]:
        first = [init(rank), step(rank, 1), step(rank, 2), init(rank, "Destroy COMPLETE")]
        return [*first, init(rank, comm_id="0xbeef"), step(rank, 3)]

    for cut in range(1, 6):
        dataset = job(*(piece for rank in range(4) for piece in rotated(rank, text(rank), cut)))
        found = dataset.comms.sort("rank", "line").group_by("identity", maintain_order=True).agg("collectives")
        assert dict(found.iter_rows()) == {"0xfe12": [2] * 4, "0xbeef": [1] * 4}, cut


def test_what_was_begun_in_one_file_and_done_in_the_next_is_one() -> None:
    texts = {rank: [init(rank, "Init START"), init(rank), step(rank, 1)] for rank in range(4)}
    dataset = job(*(piece for rank in range(4) for piece in rotated(rank, texts[rank], 1)))
    assert dataset.comms["state"].to_list() == ["complete"] * 4
    assert dataset.ops["seq"].to_list() == [1] * 4


def test_a_file_that_is_just_being_copied_counts_once() -> None:
    texts = {rank: [init(rank), *(step(rank, n) for n in range(9))] for rank in range(4)}
    live = [source(f"nccl.{rank}.log", texts[rank]) for rank in range(4)]
    copied = [source("nccl.0.log.1", texts[0]), source("nccl.1.log.1", texts[1][:6])]
    dataset = job(*sorted([*live, *copied], key=lambda s: s.shown))
    assert dataset.ops.filter(rank=1)["seq"].to_list() == dataset.ops.filter(rank=0)["seq"].to_list() == [*range(1, 10)]
    assert dataset.ops.height == 36


def test_another_process_or_directory_is_never_guessed_to_be_the_same() -> None:
    ranks = [source(f"nccl.{rank}.log", [init(rank), step(rank, 0)]) for rank in range(4)]
    other = said(1, coll(comm=PARENT, nranks=1)).replace(":4001:", ":5001:")
    elsewhere = source("old/nccl.1.log", [step(1, 1)])
    dataset = job(*ranks, source("nccl.1.log.1", [other]), elsewhere)
    assert dataset.ops["seq"].to_list() == [1] * 4
    assert messages(dataset, "log-unplaced") == ["1 operations: their rank or group is not known"]


def test_what_was_known_is_remembered_while_the_job_is_watched() -> None:
    recall: dict[str, Any] = {}

    def look(*sources: SourceFile) -> Dataset:
        return assemble(sources, "job", None, None, None, recall=recall)

    first = look(*(source(f"nccl.{rank}.log", lines(rank)) for rank in range(4)))
    emptied = [source(f"nccl.{rank}.log", lines(rank)[20:]) for rank in range(4)]
    dataset = look(*emptied)
    assert groups(dataset) == groups(first)
    assert dataset.comms["state"].to_list() == ["complete"] * 8
    assert {(rank, group) for rank, group in dataset.ops.select("rank", "group").iter_rows()} == {
        (rank, group) for rank, group in first.ops.select("rank", "group").iter_rows()
    }
    assert job(*emptied).ops.is_empty()


def test_what_was_known_of_a_process_is_nothing_to_one_that_begins_anew() -> None:
    recall: dict[str, Any] = {}
    text = [[init(rank), step(rank, 0), step(rank, 1)] for rank in range(4)]
    assemble([source(f"nccl.{r}.log", text[r]) for r in range(4)], "job", None, None, None, recall=recall)
    again = [[init(rank, comm_id="0xbeef"), step(rank, 5)] for rank in range(4)]
    dataset = assemble([source(f"nccl.{r}.log", again[r]) for r in range(4)], "job", None, None, None, recall=recall)
    assert dataset.comms["identity"].to_list() == ["0xbeef"] * 4
    ended = [[step(rank, 5), init(rank, "Destroy COMPLETE")] for rank in range(4)]
    assemble([source(f"nccl.{r}.log", ended[r]) for r in range(4)], "job", None, None, None, recall=recall)
    left = [source(f"nccl.{r}.log", [step(r, 6)]) for r in range(4)]
    assert assemble(left, "job", None, None, None, recall=recall).ops.is_empty()


@pytest.mark.parametrize(
    ("paths", "order", "gaps"),
    [
        (("x.log", "x.log.1", "x.log.2"), (2, 1, 0), ()),
        (("x.log", "x.log.2.gz", "x.log.3.gz"), (2, 1, 0), (0,)),
        (("x.log.1", "x.log.10", "x.log.9", "x.log.11"), (3, 1, 2, 0), (0,)),
        (("x.1.log", "x.2.log", "x.log"), (1, 0, 2), ()),
        (("d/x", "d/x.0", "d/x.1"), (2, 1, 0), ()),
        (("a.tar!d/x.log", "a.tar!d/x.log.1"), (1, 0), ()),
        (("0.log", "0.log.20240131-235959.gz", "0.log.20240131-225959"), (2, 1, 0), ()),
        (("x.log-20240201", "x.log-20240131", "x.log"), (1, 0, 2), ()),
        (("x.log.2024-01-31_10-00-00", "x.log.2024-01-31_09-00-00"), (1, 0), ()),
        (("x-2024-01-31T10-00-00.000.log", "x.log"), (0, 1), ()),
    ],
)
def test_names_tell_what_follows_what(paths: tuple[str, ...], order: tuple[int, ...], gaps: tuple[int, ...]) -> None:
    assert series_of(paths) == [FileSeries(order, frozenset(gaps))]


@pytest.mark.parametrize(
    "paths",
    [
        ("x.log", "y.log.1"), ("a/x.log", "b/x.log.1"), ("x.log", "x.log.1", "x.log-20240131"),
        ("x.log", "x.log.gz", "x.log.1"), ("slurm-4711.out", "slurm-4712.out"), ("x.log", "x.log.old"),
    ],
)  # fmt: skip
def test_names_that_tell_nothing(paths: tuple[str, ...]) -> None:
    assert series_of(paths) == []
