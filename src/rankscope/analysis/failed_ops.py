"""Operations of gloo that ended because they failed.

Gloo retires an operation when it ends, whether it went well or not, so a rank whose last operation failed looks like
one that has nothing to wait for. Where its members disagree, or one of them never came, it cannot have gone well, and
who stopped there is a victim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Edge, Node, WaitGraph
from rankscope.analysis.instances import CallKey
from rankscope.analysis.presence import Absence
from rankscope.analysis.root import Root
from rankscope.analysis.signatures import ROOTED


def follow_failures(facts: Facts, graph: WaitGraph, certain: Sequence[Root]) -> None:
    """Has hosts that stopped after such an operation wait for what made it fail, if others wait for that, too."""
    idle = {node.rank: node for node, edges in graph.edges.items() if node.kind == "host" and not edges}
    if not idle or not facts.gloo_groups:
        return
    wrong = {node.key: node for root in certain for node in root.nodes if node.key is not None}
    for rank, key, op in _last(facts, idle):
        if key in wrong:
            graph.edges.setdefault(wrong[key], [])
            graph.edges[idle[rank]] = [Edge(wrong[key], rank)]
        elif op not in ROOTED and not _went_on(facts, key):
            graph.edges[idle[rank]] = [Edge(node, rank) for node in _never_came(facts, graph, key)]


def _last(facts: Facts, ranks: dict[int, Node]) -> Iterator[tuple[int, CallKey, str]]:
    """(rank, collective, operation) of ranks that issued a collective of gloo last."""
    last = facts.dataset.ops.filter(pl.col("rank").is_in(list(ranks))).group_by("rank", maintain_order=True).last()
    found = last.filter(
        pl.col("group").is_in(list(facts.gloo_groups)) & ~pl.col("is_p2p") & pl.col("seq").is_not_null()
    )
    for rank, group, seq, op in found.select("rank", "group", "seq", "op").iter_rows():
        yield rank, (group, seq), op


def _went_on(facts: Facts, key: CallKey) -> bool:
    """Whether any member issued another collective in the group afterwards, or one of a device: it ended well then."""
    group, seq = key
    fronts = (facts.presence.frontiers.get((rank, group)) for rank in facts.groups[group].ranks)
    if any(f is not None and f.enqueued is not None and f.enqueued > seq for f in fronts):
        return True
    rows = facts.dataset.ops.select("rank", "group", "seq").filter(pl.col("rank").is_in(facts.groups[group].ranks))
    own = (pl.col("group") == group) & (pl.col("seq") == seq)
    behind = own.cum_max().over("rank").fill_null(value=False) & ~pl.col("group").is_in(list(facts.gloo_groups))
    return bool(rows.select(behind.any()).item())


def _never_came(facts: Facts, graph: WaitGraph, key: CallKey) -> Iterator[Node]:
    group, seq = key
    for rank in facts.groups[group].ranks:
        absence = facts.presence.absence(rank, group, seq)
        kind = {Absence.NEVER_ISSUED: "host", Absence.NO_DUMP: "no-dump"}.get(absence)
        if kind and Node(kind, rank) in graph.edges:
            yield Node(kind, rank)
