"""Writes slow links out as findings."""

from __future__ import annotations

import polars as pl

from rankscope.analysis.model import Evidence, Finding, GroupRef
from rankscope.analysis.places import Places
from rankscope.analysis.traces.join import Story, group_label
from rankscope.analysis.traces.lateness import MATCH
from rankscope.analysis.traces.links import ALIKE, SLOW, SLOW_OF_FEW, Route, Slow, find_slow
from rankscope.analysis.wording import plural, ranks_text, short_duration

SHOWN = 8
"""Slow routes that are quoted."""


def link_findings(story: Story, places: Places) -> list[Finding]:
    """One for each kind of group, or of pairs, of which a few are slow whatever they run."""
    routes = pl.concat([_groups(story), _pairs(story)])
    found = find_slow(routes, story.dataset.group_list, places.hosts, on_host=story.spans.on_host)
    return [_finding(story, slow, places) for slow in found]


def _groups(story: Story) -> pl.DataFrame:
    members = story.joined.group_by(MATCH, maintain_order=True).agg(ranks=pl.col("rank").sort())
    return story.speeds.join(members, on=MATCH).select(
        "group", "ranks", "op", "bytes", "took_ns", pl.lit(False).alias("is_p2p")
    )


def _pairs(story: Story) -> pl.DataFrame:
    """Matched sends and receives: from when both were there to the end of the receive."""
    rows = story.matches.filter("is_p2p").join(story.sizes, on="row", how="left")
    return rows.group_by(MATCH, maintain_order=True).agg(
        pl.col("group").first(), ranks=pl.col("rank").sort(), op=pl.lit("send", dtype=pl.Categorical).first(),
        bytes=pl.col("bytes").max(), took_ns=pl.col("ended_ns").max() - pl.col("arrived_ns").max(),
        is_p2p=pl.lit(True).first(),
    ).filter(pl.col("ranks").list.len() == 2).select("group", "ranks", "op", "bytes", "took_ns", "is_p2p")  # fmt: skip


def _finding(story: Story, slow: Slow, places: Places) -> Finding:
    first = slow.routes[0]
    found = story.dataset.group_list[first.group]
    label = group_label(story.dataset.group_list, first.group, story.dataset.world_size)
    least = min(route.factor for route in slow.routes)
    ranks = tuple(sorted({rank for route in slow.routes for rank in route.ranks}))
    where = _where(slow)
    return Finding(
        kind="slow-link",
        severity="warning",
        title=f"{where}: {plural(len(slow.routes), slow.noun)} of {slow.alike} of {label} {least:.2g} times as slow",
        explanation=(
            f"Whatever they run, these take at least {least:.2g} times as long as the other "
            f"{slow.alike - len(slow.routes)} of their kind for the same operation and size, from when all members "
            f"had come. {SLOW_OF_FEW if slow.alike <= ALIKE else SLOW:g} times is what it takes to be named here."
        ),
        culprit_ranks=slow.ranks,
        culprits=tuple(map(places.culprit, slow.ranks)),
        candidates=() if slow.ranks else ranks,
        waiting_ranks=tuple(r for r in ranks if r not in slow.ranks),
        confidence="low" if slow.alike <= ALIKE else "medium",
        confidence_reasons=_reasons(slow),
        group=GroupRef(found.name, found.description, found.ranks, key=found.id),
        evidence=tuple(_evidence(route) for route in slow.routes[:SHOWN]),
        next_steps=(f"Test the network of {where} by itself (nccl-tests, ib_write_bw), and its error counters.",),
    )


def _reasons(slow: Slow) -> tuple[str, ...]:
    window = "one window; what else used the network then is not known"
    few = slow.alike - len(slow.routes)
    return (window, f"only {few} to compare with") if slow.alike <= ALIKE else (window,)


def _where(slow: Slow) -> str:
    if slow.ranks:
        return ranks_text(slow.ranks)
    if slow.host:
        return f"host {slow.host}"
    return ranks_text(sorted({rank for route in slow.routes for rank in route.ranks}))


def _evidence(route: Route) -> Evidence:
    usual, took = short_duration(route.usual_ns), short_duration(route.took_ns)
    return Evidence(f"{ranks_text(route.ranks)}: {took} where {usual} is usual, in {plural(route.count, 'operation')}")
