"""How many collectives of a group each rank printed: how far it got, as far as its lines are all there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from rankscope.assemble.logs.log_processes import Scene
from rankscope.assemble.logs.seq_numbering import Numbering

BUFFERED = 64
"""Lines of operations that may be lost in the buffer of a standard output (4 KiB) whose process was killed."""


def counted(scene: Scene, numbering: Mapping[tuple[int, int], Numbering]) -> dict[tuple[int, int], int | None]:
    """The last collective by the lines of each rank on each group; None where lines may be missing."""
    reached: dict[tuple[int, int], int | None] = {}
    weak: set[tuple[int, int]] = set()
    furthest: dict[int, int] = defaultdict(int)
    for key, life in scene.by_place.items():
        if not life.stands or life.group is None or life.rank is None:
            continue
        if not any(piece.comm.collectives for piece in life.pieces):
            continue
        last = numbering[key].last if key in numbering and not life.pieces[-1].adrift else None
        reached[life.rank, life.group] = last
        furthest[life.group] = max(furthest[life.group], last or 0)
        if not all(scene.logs[piece.log].own for piece in life.pieces):
            weak.add((life.rank, life.group))
    for rank, group in weak:
        behind = furthest[group] - (reached[rank, group] or 0)
        if 0 < behind <= BUFFERED:
            reached[rank, group] = None
    return reached
