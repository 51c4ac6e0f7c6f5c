"""How far each rank got, from rows of logs and what the watchdog says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.assemble.logs.log_processes import Scene
from rankscope.assemble.logs.reports import Claim, Claims
from rankscope.assemble.logs.seq_numbering import Numbering

Seen = tuple[int | None, int | None, int | None]
"""The first and the last collective that a rank printed of a group, and the last of them that was completed."""


def seen_in(ops: pl.DataFrame) -> dict[tuple[int, int], Seen]:
    """By rank and group what operations show."""
    alone = pl.col("seq").filter(~pl.col("is_p2p"))
    kept = ops.group_by("rank", "group").agg(
        first=alone.min(), last=alone.max(), done=pl.col("seq").filter(pl.col("state") == "completed").max()
    )
    return {(rank, group): (first, last, done) for rank, group, first, last, done in kept.iter_rows()}


def frontier_table(
    seen: Mapping[tuple[int, int], Seen], claims: Claims, counted: Mapping[tuple[int, int], int | None]
) -> pl.DataFrame:
    """The rows of all that any of these tells of."""
    rows: list[dict[str, Any]] = []
    for rank, group in sorted({*seen, *claims, *counted}):
        first, last, done = seen.get((rank, group), (None, None, None))
        claim = claims.get((rank, group), Claim())
        told = [n for n in (counted.get((rank, group)), claim.enqueued) if n is not None]
        whole = (first is not None and first <= 1) or claim.whole
        completed = [n for n in (claim.completed, done) if n is not None]
        rows.append(
            {
                "rank": rank, "group": group, "last_enqueued": max([*told, last or 0]) if told else None,
                "last_started": claim.started, "last_completed": max(completed, default=None),
                "status_enqueued": claim.enqueued, "status_started": None,
                "status_completed": claim.completed, "first_kept": first, "last_kept": last,
                "wrapped": not whole, "filtered": "none",
            }
        )  # fmt: skip
    return pl.DataFrame(rows, schema=dict(schema.FRONTIERS))


# How many collectives of a group each rank printed: how far it got, as far as its lines are all there.

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
