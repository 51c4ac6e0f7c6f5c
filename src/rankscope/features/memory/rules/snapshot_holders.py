"""Holders of memory in snapshots: of each device by lines of the job's own code, and what one rank holds alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import PurePath
from statistics import median
from typing import Any, NamedTuple

import polars as pl

from rankscope.analysis.host_stacks import own_frames
from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain

LONE_FACTOR = 2.0
"""A rank holds alone what is so many times as much as any other rank holds by the same lines."""
LONE_BYTES, LONE_SHARE = 16 << 20, 0.01
"""Least difference to the others: bytes, and share of what the rank holds."""
GAP_BYTES, GAP_SHARE = 256 << 20, 0.05
"""Least free bytes in a device, and their share of what is reserved, that are worth a word."""
Lines = tuple[Frame, ...]


class Holder(NamedTuple):
    """Memory that one place of the program allocated."""

    lines: Lines
    """Frames of the job's own code, innermost first; without any, all frames; () if no stack was recorded."""
    at_peak: int
    at_failure: int
    """When the last failed request found no memory; 0 without one."""
    at_dump: int
    blocks: int

    @property
    def most(self) -> int:
        """Bytes at the moment at which it held most."""
        return max(self.at_peak, self.at_failure, self.at_dump)


class DeviceMemory(NamedTuple):
    """One device in one snapshot."""

    facts: Mapping[str, Any]
    """The row of `snapshots`."""
    path: str
    holders: tuple[Holder, ...]
    """The largest first; where a request failed, by what they held then."""
    asked_by: Lines
    """The lines of the last failed request; () without one."""

    @property
    def most(self) -> int:
        """Bytes at the peak, or at the dump if that is more."""
        return max(int(self.facts["peak"] or 0), int(self.facts["allocated"]))

    @property
    def advice(self) -> tuple[str, ...]:
        """Settings and calls that help, in words."""
        return tuple(advice(self.facts))


class LoneHolder(NamedTuple):
    """Memory that one rank holds, and the others do not."""

    rank: int
    lines: Lines
    held: int
    others: int
    """The most that any other rank holds by these lines."""
    usual: int
    """The median of the other ranks."""


class PlaceOverRanks(NamedTuple):
    """One place of the program over the compared ranks."""

    lines: Lines
    """() for memory whose stack was not recorded."""
    held: Mapping[int, int]
    """Bytes by rank; a rank that holds none is not in it."""

    def ordered(self, ranks: Sequence[int]) -> list[tuple[int, int]]:
        """(rank, bytes) of each of the ranks, those that hold most first."""
        return sorted(((rank, self.held.get(rank, 0)) for rank in ranks), key=lambda one: (-one[1], one[0]))


class SnapshotMemory(NamedTuple):
    """All snapshots of a job."""

    devices: tuple[DeviceMemory, ...]
    compared: tuple[int, ...]
    """Ranks that are held against each other."""
    moment: str
    """When: "at_peak", or "at_dump" where a history is missing."""
    lone: tuple[LoneHolder, ...]
    """Those that differ most first."""
    places: tuple[PlaceOverRanks, ...]
    """All places of the compared ranks: where one rank holds most first."""


def snapshot_memory(dataset: Dataset) -> SnapshotMemory:
    """The holders of all devices of all snapshots."""
    paths = dataset.files["path"].to_list()
    stacks = _own_lines(dataset)
    rows: defaultdict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in dataset.allocations.iter_rows(named=True):
        rows[row["file"], row["device"]].append(row)
    devices = tuple(
        DeviceMemory(
            facts,
            paths[facts["file"]] or "",
            _holders(rows[facts["file"], facts["device"]], stacks),
            stacks.get(facts["asked_by"], ()),
        )
        for facts in dataset.snapshots.iter_rows(named=True)
    )
    newest = newest_files(devices)
    compared = [one for one in devices if newest.get(one.facts["rank"]) == one.facts["file"]]
    moment = "at_peak" if all(one.facts["peak"] is not None for one in compared) else "at_dump"
    places = _shared(compared, moment)
    return SnapshotMemory(devices, tuple(sorted(newest)), moment, tuple(_lone(places, tuple(newest))), tuple(places))


def newest_files(devices: Sequence[DeviceMemory]) -> dict[int, int]:
    """The file of each rank: of several snapshots the last one."""
    return {one.facts["rank"]: one.facts["file"] for one in in_order(devices) if one.facts["rank"] is not None}


def in_order(devices: Iterable[DeviceMemory]) -> list[DeviceMemory]:
    """The devices by the time of their snapshots; without it by names, in which numbers count as such."""
    rows = list(devices)
    if all(device.facts["end_ns"] is not None for device in rows):
        return sorted(rows, key=lambda device: device.facts["end_ns"])
    return sorted(rows, key=lambda device: _natural(device.path))


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d{1,18})", path)]


def _own_lines(dataset: Dataset) -> dict[int, Lines]:
    """The frames of each stack of an allocation that belong to the job."""
    asked = dataset.snapshots.select(stack_id="asked_by")
    wanted = pl.concat([dataset.allocations.select("stack_id"), asked]).drop_nulls().unique()
    frames: defaultdict[int, list[Frame]] = defaultdict(list)
    told = dataset.stacks.join(wanted, on="stack_id", how="semi").sort("stack_id", "depth")
    for number, function, file, line in told.select("stack_id", "function", "file", "line").iter_rows():
        frames[number].append(Frame(function, file, line))
    return {number: _own(stack) for number, stack in frames.items()}


def _own(stack: Sequence[Frame]) -> Lines:
    """The frames of the job's own code, behind the operator and the function of autograd, which have no file."""
    place = tuple(takewhile(lambda frame: not frame.file, stack))
    rest = stack[len(place) :]
    return (*place, *(own_frames(rest) or rest))


def _holders(rows: Sequence[Mapping[str, Any]], stacks: Mapping[int, Lines]) -> tuple[Holder, ...]:
    sums: defaultdict[Lines, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in rows:
        own = sums[stacks.get(row["stack_id"], ())]
        for at, name in enumerate(("at_peak", "at_failure", "at_dump", "blocks")):
            own[at] += row[name]
    found = [Holder(lines, *values) for lines, values in sums.items()]
    has_failure = any(one.at_failure for one in found)
    return tuple(sorted(found, key=lambda one: (-one.at_failure if has_failure else 0, -one.most)))


def _shared(devices: Sequence[DeviceMemory], moment: str) -> list[PlaceOverRanks]:
    """The places of the devices, each with the bytes of every rank."""
    held: defaultdict[Lines, dict[int, int]] = defaultdict(dict)
    for device in devices:
        rank = device.facts["rank"]
        for one in device.holders:
            if size := getattr(one, moment):
                held[one.lines][rank] = held[one.lines].get(rank, 0) + size
    found = (PlaceOverRanks(lines, own) for lines, own in held.items())
    return sorted(found, key=lambda one: -max(one.held.values()))


def _lone(places: Sequence[PlaceOverRanks], ranks: Sequence[int]) -> list[LoneHolder]:
    """Memory that only one rank holds, of at least two ranks."""
    if len(ranks) < 2:
        return []
    whole = {rank: sum(one.held.get(rank, 0) for one in places) for rank in ranks}
    told = (_alone(one.lines, one.held, whole) for one in places if one.lines)
    found = [one for one in told if one is not None]
    return sorted(found, key=lambda one: one.others - one.held)


def _alone(lines: Lines, own: Mapping[int, int], whole: Mapping[int, int]) -> LoneHolder | None:
    rank = max(own, key=lambda one: own[one])
    others = [own.get(other, 0) for other in whole if other != rank]
    most, size = max(others), own[rank]
    enough = size - most >= max(LONE_BYTES, LONE_SHARE * whole[rank])
    if not enough or size < LONE_FACTOR * most:
        return None
    return LoneHolder(rank, lines, size, most, round(median(others)))


def went_on(facts: Mapping[str, Any]) -> bool:
    """Whether a program got as much memory behind its last failed request: it caught the error."""
    return facts["asked"] is not None and facts["later_bytes"] >= facts["asked"]


def advice(facts: Mapping[str, Any]) -> Iterator[str]:
    """Settings and calls that help, by what was held when a request failed, else at the peak, else at the dump.

    What lies in gaps at the dump says nothing of an earlier moment: an exception frees most of what it finds.
    """
    failed = facts["asked"] is not None and not went_on(facts)
    gaps, cached, reserved = (facts[name] for name in ("gaps", "cached", "reserved"))
    if failed:
        gaps, cached, reserved = (facts[name] for name in ("gaps_then", "cached_then", "reserved_then"))
    elif facts["peak_reserved"] is not None:
        gaps, cached, reserved = (facts[f"peak_{name}"] for name in ("gaps", "cached", "reserved"))
    elif facts["peak"] is not None:
        gaps = None
    if failed and (reserved is None or gaps + cached < facts["asked"]):
        if facts["free"] >= facts["asked"]:
            yield "Look for torch.cuda.set_per_process_memory_fraction, which limits this process."
        else:
            yield (
                "Hold less at that moment: free what the largest places hold, recompute activations "
                "(torch.utils.checkpoint), or take smaller batches or more shards."
            )
    elif failed or (gaps is not None and gaps >= max(GAP_BYTES, GAP_SHARE * reserved)):
        if facts["expandable"] is None:
            yield (
                "From torch 2.1 on PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets segments grow, and gaps "
                "become few; before, PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 keeps large blocks whole."
            )
        elif facts["expandable"]:
            yield "Segments can grow already: keep the sizes of batches the same, so that freed blocks fit again."
        else:
            yield "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: segments grow, and gaps become few."
    if not failed and cached >= max(GAP_BYTES, GAP_SHARE * reserved):
        yield "torch.cuda.empty_cache() gives whole free segments back, for other processes and sizes."
    if facts["peak"] is None:
        yield "Call torch.cuda.memory._record_memory_history() at the start: then a snapshot shows its peak."


def holder_text(lines: Lines) -> str:
    """The innermost lines of the job: "forward model.py:7 < step train.py:12"."""
    if not lines:
        return "no stack was recorded"
    return " < ".join(plain(f"{f.function}{_place(f)}", 200) for f in lines[:3])


def _place(frame: Frame) -> str:
    """The file and the line of a frame; "" for an operator and a category of tensors, which have none."""
    return f" {PurePath(frame.file).name}:{frame.line}" if frame.file else ""
