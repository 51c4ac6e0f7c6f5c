"""A job of two hosts with two ranks each, as its logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.schema import Dataset
from tests.features.logs.read.lines import coll, info, read
from tests.parsers.dumps import Recorder

MTIME_NS = 1_780_000_000_000_000_000
"""28 May 2026."""
PARENT = "0xaa00"
SPLIT = "0xbb00"


def host(rank: int) -> str:
    return f"node-{rank // 2}"


def said(rank: int, message: str) -> str:
    """A line of the process that is to be `rank`; its device says nothing of that."""
    return info(message, host(rank), 4000 + rank, device=rank % 2)


def init(rank: int, step: str = "Init COMPLETE", comm: str = PARENT, comm_id: str = "0xfe12") -> str:
    """The communicator of all ranks, in the form of 2.24 on; the pointer is the same in all processes."""
    return said(
        rank, f"ncclCommInitRankConfig comm {comm} rank {rank} nranks 4 cudaDev 0 busId 3a000 commId {comm_id} - {step}"
    )


def split(rank: int, step: str = "Init COMPLETE", count: str = " splitCount 1", comm: str = SPLIT) -> str:
    """Ranks 0 and 2, and 1 and 3, get one each: the colour tells them apart."""
    return said(
        rank,
        f"ncclCommSplit comm {comm} rank {rank // 2} nranks 2 cudaDev 0 busId 3a000 parent {PARENT}{count} "
        f"color {100 + rank % 2} key {rank} - {step}",
    )


def step(rank: int, number: int, op: str = "AllReduce", comm: str = PARENT, nranks: int = 4) -> str:
    """One collective, with a count of its own."""
    return said(rank, coll(op, 0, 100 + number, comm=comm, nranks=nranks))


def log_of(rank: int, ours: Callable[[int], Iterable[str]] | None = None) -> list[str]:
    """Everything of one rank: initialisation, five collectives of all, three of its own pair."""
    steps = [step(rank, n) for n in range(5)] + [step(rank, 50 + n, "AllGather", SPLIT, 2) for n in range(3)]
    return [init(rank), split(rank), *(ours(rank) if ours else steps)]


def source(name: str, lines: Sequence[str]) -> SourceFile:
    text = "".join(f"{line}\n" for line in lines)
    return SourceFile(name, "log", len(text), MTIME_NS, None, read(text))


def dump(recorder: Recorder) -> SourceFile:
    data = recorder.pickle()
    return SourceFile(f"trace_{recorder.rank}", "flight-recorder", len(data), MTIME_NS, None, decode_dump(data))


def job(*sources: SourceFile, world: int | None = None) -> Dataset:
    return assemble(sources, "job", None, world, None)


def lane(dataset: Dataset, rank: int, group: int) -> list[tuple[int, str, str]]:
    """Sequence number, operation and state of a rank's collectives on a group."""
    rows = dataset.ops.filter(rank=rank, group=group, is_p2p=False).select("seq", "op", "state")
    return [(seq, op, state) for seq, op, state in rows.iter_rows()]


def groups(dataset: Dataset) -> dict[str, tuple[int, ...]]:
    return {group.name: group.ranks for group in dataset.group_list}


def messages(dataset: Dataset, kind: str) -> list[str]:
    return dataset.messages.filter(kind=kind)["text"].to_list()
