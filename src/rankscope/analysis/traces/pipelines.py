"""Groups whose members are stages of a pipeline: they wait for one another, and come late by design."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rankscope.schema import Group


def pipeline_groups(traced: pl.DataFrame, groups: Sequence[Group]) -> frozenset[int]:
    """Groups with two members that send to each other, activations one way and gradients the other, or one way only.

    A ring, in which everybody sends to the next and all do the same, is none; a ring of two cannot be told apart.
    """
    sends = traced.filter(pl.col("is_p2p") & (pl.col("op").cast(pl.String) == "send")).select("rank", "peer")
    pairs = set(sends.drop_nulls().unique().iter_rows())
    staged = {(a, b) for a, b in pairs if (b, a) in pairs} | _leading_on(pairs)
    return frozenset(g.id for g in groups if any(a in g.ranks and b in g.ranks for a, b in staged))


def _leading_on(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Sends from which nothing ever comes back to the sender: they are in no circle."""
    left = set(pairs)
    while True:
        senders, receivers = {a for a, _ in left}, {b for _, b in left}
        ends = {(a, b) for a, b in left if a not in receivers or b not in senders}
        if not ends:
            return pairs - left
        left -= ends
