"""Fingerprints of a job that has only the group of all ranks, as far as its lines tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rankscope.assemble.logs.grouping import DEFAULT, Groups
from rankscope.assemble.logs.log_processes import Scene
from rankscope.assemble.logs.numbers import whole
from rankscope.assemble.logs.prints.rows import Told, add, events_of, row
from rankscope.assemble.logs.reports import Claims, rank_of


def lanes_of_all(scene: Scene, cut: bool) -> dict[int, list[Told]] | None:
    """The lane of each rank; None if they are not of one group in which each rank has the place of its own number.

    `cut`: some in the middle are not kept; the last count on from one another.
    """
    lanes: defaultdict[tuple[int, int], list[Told]] = defaultdict(list)
    for number, event in events_of(scene, "fingerprint"):
        if whole(event.values["seq"]) is None:
            continue
        rank = rank_of(scene, number, event)
        if rank is None or event.values.get("rank_in_group") not in (None, rank):
            return None
        lanes[rank, number].append(Told(number, rank, event))
    found: dict[int, list[Told]] = {}
    for (rank, _), own in lanes.items():
        kept = _last_lane(own) if cut else own
        if not _one_lane(kept):
            return None
        found[rank] = max(found.get(rank, []), kept, key=len)
    return found


def place_all(scene: Scene, groups: Groups, claims: Claims, lanes: Mapping[int, Sequence[Told]]) -> None:
    """Puts them on lanes of the group of all."""
    for rank, own in lanes.items():
        at = groups.of_report("0", DEFAULT, rank, rank, scene.world)
        add(claims[rank, at], scene, [(told.log, told.event) for told in own])


def place_mismatches(scene: Scene, groups: Groups, claims: Claims) -> None:
    """Rows of the two ranks that a mismatch names; its ranks are those of the group, here that of all."""
    for number, event in events_of(scene, "fingerprint-mismatch"):
        prints, ranks = event.values["fingerprints"], event.values["ranks"]
        reporter = ranks[0] if ranks else None
        if rank_of(scene, number, event) not in (None, reporter) or not ranks or len(prints) != len(ranks):
            continue
        for one, printed in zip(ranks, prints, strict=True):
            if one < scene.world:
                at = groups.of_report("0", DEFAULT, one, one, scene.world)
                claims[one, at].add(row(scene.logs[number], event, printed, "scheduled"))


def _last_lane(own: Sequence[Told]) -> list[Told]:
    """The last whose sequence numbers go up one by one."""
    seqs = [told.event.values["seq"] for told in own]
    begins = [i for i in range(1, len(seqs)) if seqs[i] != seqs[i - 1] + 1]
    return list(own[begins[-1] if begins else 0 :])


def _one_lane(own: Sequence[Told]) -> bool:
    """Whether the sequence numbers go up one by one, as those of one group do."""
    seqs = [told.event.values["seq"] for told in own]
    return all(later == seq + 1 for seq, later in pairwise(seqs))
