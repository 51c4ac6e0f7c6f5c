"""Numbers for the collectives of a communicator, where lines at the beginning or in the middle are missing.

A log that was kept from the start of a process counts by itself. Any other is laid beside one that does, at the only
place where its operations are the same; a training loop repeats itself, and where several places fit equally well
nothing is joined. Without any that counts, the longest of them numbers the others: then only differences are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.parsers.assemble.logs.collectives import FIRST_SEQ
from rankscope.parsers.assemble.logs.scene import Life, Scene
from rankscope.parsers.logs.model import IS_P2P

Numbers = npt.NDArray[np.int64]

SHORTEST = 3
"""Fewer operations in a row prove nothing, unless they are all there are on both sides."""
MOST_PLACES = 64
"""So many occurrences of the rarest operation are tried."""


class Numbering(NamedTuple):
    """How ordinals of a life become sequence numbers."""

    shift: int
    last: int | None
    """Sequence number of the last collective; None where lines behind it may be missing."""
    relative: bool
    """No log of the communicator has its beginning: numbers start anywhere."""


@dataclass
class _Lane:
    life: Life
    ordinals: Numbers
    codes: Numbers
    """One number for operation, count, type and root of each collective that is kept."""
    whole: bool
    torn: bool


def number(scene: Scene) -> dict[tuple[int, int], Numbering]:
    """By log and communicator; those whose place cannot be told are not in it."""
    lanes = _lanes(scene)
    found: dict[tuple[int, int], Numbering] = {}
    for lives in scene.identities().values():
        own = [lanes[id(life)] for life in lives if id(life) in lanes]
        for lane, shift, relative in _settle(own):
            last = int(lane.ordinals[-1]) + shift if not lane.torn else None
            found[lane.life.log, lane.life.at] = Numbering(shift, last, relative)
    return found


def _lanes(scene: Scene) -> dict[int, _Lane]:
    meanings: dict[tuple[str, int, int, int], int] = {}
    lanes: dict[int, _Lane] = {}
    for number_, log in enumerate(scene.logs):
        content = log.content
        comm = content.code("comm")
        alone = np.flatnonzero((content.code("flags") & IS_P2P) == 0)
        if not alone.size:
            continue
        columns = content.code("op"), content.column("count"), content.code("datatype"), content.column("root")
        table = np.stack([column[alone].astype(np.int64) for column in columns])
        distinct, place = np.unique(table, axis=1, return_inverse=True)
        codes = np.array(
            [meanings.setdefault((content.ops[op], *rest), len(meanings)) for op, *rest in distinct.T.tolist()],
            np.int64,
        )[place.reshape(-1)]
        bounds = np.searchsorted(comm[alone], np.arange(len(content.comms) + 1))
        for at in range(len(content.comms)):
            part = slice(int(bounds[at]), int(bounds[at + 1]))
            life = scene.by_place[number_, at]
            if part.start == part.stop or life.twin:
                continue
            torn = content.processes[life.comm.process].torn_at is not None
            ordinals = content.column("ordinal")[alone[part]]
            counted = content.column("op_count")[alone[part]]
            whole = life.comm.init or _from_zero(life, counted)
            lanes[id(life)] = _Lane(life, ordinals, codes[part], whole, torn)
    return lanes


def _from_zero(life: Life, op_counts: Numbers) -> bool:
    """Whether the first line kept is the first of all, without one of the initialisation: opCount begins there at 0.

    In NCCL 2.27 and later it may stay 0 for ever, which proves nothing.
    """
    return life.comm.first_op_count == 0 and (len(op_counts) == 1 or int(op_counts.max()) > 0)


def _settle(lanes: Sequence[_Lane]) -> list[tuple[_Lane, int, bool]]:
    """Each lane with its shift and whether that is only relative."""
    sound = [lane for lane in lanes if lane.whole and not lane.torn]
    if sound:
        out = [(lane, FIRST_SEQ, False) for lane in sound]
        longest = max(sound, key=lambda lane: len(lane.codes))
        for lane in lanes:
            if not (lane.whole and not lane.torn):
                shift = FIRST_SEQ if lane.whole and _same_there(lane, longest) else _beside(lane, longest, FIRST_SEQ)
                out += [(lane, shift, False)] if shift is not None else []
        return out
    begun = [lane for lane in lanes if lane.whole]
    if len(begun) == len(lanes):
        return [(lane, FIRST_SEQ, False) for lane in lanes if _same_there(lane, max(lanes, key=_length))]
    if not lanes:
        return []
    longest = max(lanes, key=_length)
    out = [(longest, FIRST_SEQ, True)]
    for lane in lanes:
        shift = _beside(lane, longest, FIRST_SEQ) if lane is not longest else None
        out += [(lane, shift, True)] if shift is not None else []
    return out


def _length(lane: _Lane) -> int:
    return len(lane.codes)


def _same_there(lane: _Lane, other: _Lane) -> bool:
    """Whether both have the same collectives under the same ordinals; one of them may end earlier."""
    low = max(int(lane.ordinals[0]), int(other.ordinals[0]))
    high = min(int(lane.ordinals[-1]), int(other.ordinals[-1]))
    a = lane.codes[(lane.ordinals >= low) & (lane.ordinals <= high)]
    b = other.codes[(other.ordinals >= low) & (other.ordinals <= high)]
    return lane is other or (len(a) == len(b) > 0 and bool((a == b).mean() >= 0.9))


def _beside(lane: _Lane, other: _Lane, shift: int) -> int | None:
    """What makes the ordinals of `lane` those of `other` (with its `shift`): the one place where the run is longest."""
    values, counts = np.unique(other.codes, return_counts=True)
    rarity = dict(zip(values.tolist(), counts.tolist(), strict=True))
    shared = [(rarity[code], i) for i, code in enumerate(lane.codes.tolist()) if code in rarity]
    if not shared:
        return None
    _, anchor = min(shared)
    places = np.flatnonzero(other.codes == lane.codes[anchor])
    if len(places) > MOST_PLACES:
        return None
    runs = sorted(((_run(lane.codes, other.codes, int(p) - anchor), int(p) - anchor) for p in places), reverse=True)
    best, offset = runs[0]
    alike = len(runs) > 1 and runs[1][0] == best
    whole = best == len(lane.codes) == len(other.codes)
    if alike or (best < SHORTEST and not whole):
        return None
    return int(other.ordinals[0]) + offset - int(lane.ordinals[0]) + shift


def _run(a: Numbers, b: Numbers, offset: int) -> int:
    """The longest run of equal operations with `a` laid `offset` operations behind the beginning of `b`."""
    low, high = max(0, -offset), min(len(a), len(b) - offset)
    if low >= high:
        return 0
    differ = np.flatnonzero(a[low:high] != b[low + offset : high + offset])
    edges = np.concatenate([[-1], differ, [high - low]])
    return int(np.diff(edges).max()) - 1
