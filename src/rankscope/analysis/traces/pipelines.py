"""Groups whose members are stages of a pipeline: they send to one another both ways, and come late by design."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rankscope.schema import Group


def pipeline_groups(traced: pl.DataFrame, groups: Sequence[Group]) -> frozenset[int]:
    """Groups with two members that send to each other: activations one way, gradients the other.

    A ring, in which everybody sends to the next and all do the same, is none; a ring of two cannot be told apart.
    """
    sends = traced.filter(pl.col("is_p2p") & (pl.col("op").cast(pl.String) == "send")).select("rank", "peer")
    pairs = set(sends.drop_nulls().unique().iter_rows())
    both = [(a, b) for a, b in pairs if a < b and (b, a) in pairs]
    return frozenset(g.id for g in groups if any(a in g.ranks and b in g.ranks for a, b in both))
