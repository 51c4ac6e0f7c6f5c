"""What is still the same of lanes that have become longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rankscope.analysis.arrays import places_of, stretches_of

if TYPE_CHECKING:
    from rankscope.parsers.assemble.more import Longer


def rows_kept(before: Longer | None, now: Longer) -> dict[int, int]:
    """By rank how many of its first operations are as they were `before`, in the same dataset or one made longer."""
    ranks = now.ranks
    starts, ends = stretches_of(now.before.ops["rank"], ranks)
    kept = ends - starts
    if before is not None and before.before is now.before:
        was, was_end = stretches_of(before.ops["rank"], ranks)
        own, own_end = stretches_of(now.ops["rank"], ranks)
        again = np.minimum(own + was_end - was, own_end)
        same = before.ops[places_of(was, was_end)].equals(now.ops[places_of(own, again)])
        kept = kept + (again - own if same and int((was_end - was).sum()) == before.ops.height else 0)
    return dict(zip(ranks, kept.tolist(), strict=True))
