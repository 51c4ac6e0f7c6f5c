"""Slow links, and one verdict from dumps, logs and traces: hangs come first, then late ranks from any source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.late_ranks import FEWEST_UNITS
from rankscope.analysis.model import Analysis, Evidence, Finding, GroupRef, Status
from rankscope.analysis.places import Places
from rankscope.features.traces.rules.collective_costs import COLLECTIVE_RESULTS
from rankscope.features.traces.rules.host_bound import host_findings, host_shares, is_headline
from rankscope.features.traces.rules.lateness import MATCH_COLUMNS, communication_spans, most_frequent_last
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.features.traces.rules.trace_story import TraceStory, group_label
from rankscope.features.traces.rules.trace_stragglers import StragglerWriter, lost_text
from rankscope.schema import Dataset, Group
from rankscope.text.wording import digits, duration, plural, ranks_text

MOST_ROUTES = 8
"""Most quoted slow routes."""


def link_findings(story: TraceStory, places: Places) -> list[Finding]:
    """A finding for each kind of group, or of pairs, of which a few are slow whatever they run."""
    routes = pl.concat([_groups(story), _pairs(story)])
    found = find_slow(routes, story.dataset.group_list, places.hosts, on_host=story.spans.on_host)
    return [_finding(story, slow, places) for slow in found]


def _groups(story: TraceStory) -> pl.DataFrame:
    members = story.joined.group_by(MATCH_COLUMNS, maintain_order=True).agg(ranks=pl.col("rank").sort())
    timed = story.instances.filter((pl.col("bytes") > 0) & (pl.col("took_ns") > 0))
    return timed.join(members, on=MATCH_COLUMNS).select(
        "group", "ranks", "op", "bytes", "took_ns", pl.lit(False).alias("is_p2p")
    )


def _pairs(story: TraceStory) -> pl.DataFrame:
    """Matched sends and receives: from the arrival of both to the end of the receive."""
    rows = story.matches.filter("is_p2p").join(story.sizes, on="row", how="left")
    return rows.group_by(MATCH_COLUMNS, maintain_order=True).agg(
        pl.col("group").first(), ranks=pl.col("rank").sort(), op=pl.lit("send", dtype=pl.Categorical).first(),
        bytes=pl.col("bytes").max(), took_ns=pl.col("ended_ns").max() - pl.col("arrived_ns").max(),
        is_p2p=pl.lit(True).first(),
    ).filter(pl.col("ranks").list.len() == 2).select("group", "ranks", "op", "bytes", "took_ns", "is_p2p")  # fmt: skip


def _finding(story: TraceStory, slow: SlowLink, places: Places) -> Finding:
    first = slow.routes[0]
    found = story.dataset.group_list[first.group]
    label = group_label(story.dataset.group_list, first.group, story.dataset.world_size)
    times = digits(min(route.factor for route in slow.routes))
    ranks = tuple(sorted({rank for route in slow.routes for rank in route.ranks}))
    where = _where(slow)
    limit = FEW_LINKS_FACTOR if slow.alike <= FEWEST_LINKS else SLOW_FACTOR
    window = "one window; other traffic on the network is not known"
    few = slow.alike - len(slow.routes)
    reasons = (window, f"only {few} to compare with") if slow.alike <= FEWEST_LINKS else (window,)
    return Finding(
        kind="slow-link",
        severity="warning",
        title=f"{where}: {plural(len(slow.routes), slow.noun)} of {slow.alike} of {label} {times} times as slow",
        explanation=(
            f"These take at least {times} times as long as the other {slow.alike - len(slow.routes)} of their kind "
            f"for the same operation and size, counted from the last arrival. rankscope names a link from {limit:g} "
            "times on."
        ),
        culprit_ranks=slow.ranks,
        culprits=tuple(map(places.culprit, slow.ranks)),
        candidates=() if slow.ranks else ranks,
        waiting_ranks=tuple(r for r in ranks if r not in slow.ranks),
        confidence="low" if slow.alike <= FEWEST_LINKS else "medium",
        confidence_reasons=reasons,
        group=GroupRef(found.name, found.description, found.ranks, key=found.id),
        evidence=tuple(_evidence(route) for route in slow.routes[:MOST_ROUTES]),
        next_steps=(f"Test the network of {where} by itself (nccl-tests, ib_write_bw), and its error counters.",),
    )


def _where(slow: SlowLink) -> str:
    if slow.ranks:
        return ranks_text(slow.ranks)
    if slow.host:
        return f"host {slow.host}"
    return ranks_text(sorted({rank for route in slow.routes for rank in route.ranks}))


def _evidence(route: SlowRoute) -> Evidence:
    usual, took = duration(route.usual_ns), duration(route.took_ns)
    return Evidence(f"{ranks_text(route.ranks)}: {took} where {usual} is usual, in {plural(route.count, 'operation')}")


# Slow links: groups or pairs that take longer for the same operation than all others of their kind.

SLOW_FACTOR = 1.5
"""Smallest ratio to the usual time of a slow link."""
FEWEST_OPERATIONS = 8
"""Fewest timed operations of one kind and size on each link."""
FEWEST_LINKS = 3
"""Fewest links to compare with; with fewer, FEW_LINKS_FACTOR applies."""
FEW_LINKS_FACTOR = 2.0
FLOOR_NS, HOST_FLOOR_NS = 50_000, 2_000_000
"""Shorter times are latency, or scheduler time slices on hosts that communicate themselves (gloo)."""


@dataclass(frozen=True)
class SlowRoute:
    """A slow group, or a slow pair of ranks of a group."""

    ranks: tuple[int, ...]
    group: int
    factor: float
    """Ratio to the usual time: the smallest over all operations."""
    count: int
    """Number of operations that show it."""
    usual_ns: int
    took_ns: int


@dataclass(frozen=True)
class SlowLink:
    """Slow routes with a common cause."""

    routes: tuple[SlowRoute, ...]
    alike: int
    """Number of compared routes."""
    ranks: tuple[int, ...]
    """Ranks that are in all of them and in no other route; empty without any."""
    host: str | None

    @property
    def noun(self) -> str:
        """The noun for a route: a link between two ranks, or a group."""
        return "link" if all(len(route.ranks) == 2 for route in self.routes) else "group"


def find_slow(
    speeds: pl.DataFrame, groups: Sequence[Group], hosts: Mapping[int, str], *, on_host: bool = False
) -> list[SlowLink]:
    """Slow routes, by kind. `speeds`: group, ranks (of the route), op, bytes, took_ns of each operation.

    `on_host`: hosts communicate themselves.
    """
    described = pl.DataFrame(
        {"group": [g.id for g in groups], "description": [g.description for g in groups],
         "size": [len(g.ranks) for g in groups]},
        schema={"group": pl.UInt32, "description": pl.String, "size": pl.Int64},
    )  # fmt: skip
    kind = ["description", "size", "is_p2p"]
    what = [*kind, "op", "bytes"]
    took = pl.col("took_ns")
    is_long = pl.col("took").max().over(what) >= (HOST_FLOOR_NS if on_host else FLOOR_NS)
    table = (
        speeds.join(described, on="group").group_by(*what, "ranks", "group")
        .agg(n=pl.len(), took=took.median(), low=took.quantile(0.1), high=took.quantile(0.9))
        .filter((pl.col("n") >= FEWEST_OPERATIONS) & is_long)
        .with_columns(alike=pl.len().over(what), usual=_usual().over(what), rest=_next_high().over(what))
        .filter(pl.col("alike") > 1)
        .with_columns(factor=pl.col("took") / pl.col("usual"), clear=pl.col("low") > pl.col("rest"))
    )  # fmt: skip
    parts = table.group_by(kind, maintain_order=True)
    return [slow for _, part in parts if (slow := _of_kind(part, hosts)) is not None]


def _usual() -> pl.Expr:
    """The usual time of an operation: the median over routes, the faster of two."""
    return pl.col("took").sort().get((pl.len() - 1) // 2)


def _next_high() -> pl.Expr:
    """The time in which nearly all operations of all routes but the slowest finish."""
    return pl.col("high").sort_by("took").slice(0, pl.len() - 1).max()


def _of_kind(table: pl.DataFrame, hosts: Mapping[int, str]) -> SlowLink | None:
    routes = table.group_by("ranks", "group").agg(
        pl.col("factor").min(), pl.col("n").sum(), pl.col("usual").max(), pl.col("took").max(), pl.col("clear").all()
    )
    few = routes.height <= FEWEST_LINKS
    if few and not _are_sisters(routes["ranks"].to_list(), hosts):
        return None
    slow = (pl.col("factor") >= FEW_LINKS_FACTOR) & pl.col("clear") if few else pl.col("factor") >= SLOW_FACTOR
    odd = routes.filter(slow).sort("factor", descending=True)
    fine = routes.filter(~slow)
    # half of all links being slow is normal; one of two may be slow
    if odd.is_empty() or odd.height * 2 >= routes.height + few:
        return None
    found = [SlowRoute(tuple(r), g, f, n, int(u), int(t)) for r, g, f, n, u, t, _ in odd.iter_rows()]
    free = {rank for ranks in fine["ranks"] for rank in ranks.to_list()}
    shared = set(found[0].ranks).intersection(*(r.ranks for r in found)) - free
    of_hosts = [{hosts.get(rank, "") for rank in route.ranks} for route in found]
    common = set.intersection(*of_hosts) - {hosts.get(rank, "") for rank in free} - {""}
    lone = tuple(sorted(shared)) if len(shared) == 1 and len(found) > 1 else ()
    return SlowLink(tuple(found), routes.height, lone, min(common) if len(common) == 1 else None)


def _are_sisters(routes: Sequence[Sequence[int]], hosts: Mapping[int, str]) -> bool:
    """Whether the routes share no rank, and all span equally many hosts."""
    ranks = [rank for route in routes for rank in route]
    crossed = {len({hosts.get(rank, "") for rank in route}) for route in routes}
    return len(set(ranks)) == len(ranks) and len(crossed) == 1


def with_traces(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with the results of traces: findings, and the verdict if nothing worse is known."""
    story, dataset = TraceStory(facts.dataset), facts.dataset
    places = Places(dataset)
    writer, links = StragglerWriter(story, places), link_findings(story, places)
    shares = host_shares(story.spans, story.steps)
    bound = host_findings(shares, nameless=dataset.is_rankless)
    late, rest = writer.findings(), [*links, *writer.suspects(), *bound]
    worse = any(f.severity == "critical" for f in analysis.findings)
    if worse:
        late = [replace(f, root_cause=False) for f in late]
    findings = _joined(analysis.findings, late, rest, worse=worse)
    told = TRACE_RESULTS.put(replace(analysis, findings=findings), story.analysis())
    told = COLLECTIVE_RESULTS.put(told, story.collectives)
    if worse or analysis.status == "failed":
        return told
    slow = [f for f in findings if f.kind == "straggler" and f.culprit_ranks]
    if slow:
        shared = places.shared(slow)
        return replace(told, status="slow", verdict=slow[0].title + (f"; {shared.short}" if shared else ""))
    status, verdict = _quiet(story, links)
    if bound and not links and is_headline(shares):
        status, verdict = "slow", bound[0].title
    if dataset.from_traces:
        return replace(told, status=status, verdict=verdict)
    if analysis.status == "healthy" and story.lost is not None:
        return replace(told, status=status, verdict=f"{analysis.verdict}; but traces of {verdict}")
    if analysis.status not in ("healthy", "unknown") or status != "healthy":
        return told
    return replace(told, status=status, verdict=f"{analysis.verdict}; traces of {verdict}")


def _joined(
    known: Sequence[Finding], late: Sequence[Finding], others: Sequence[Finding], *, worse: bool
) -> tuple[Finding, ...]:
    """All findings with new ids. Late ranks from dumps become evidence if traces name them as well.

    Accusations from traces take precedence, because traces show the activity of ranks, and dumps only issue times.
    """
    dumped = {f.culprit_ranks: f for f in known if f.kind == "straggler"}
    late = [_supported(f, dumped[f.culprit_ranks]) if f.culprit_ranks in dumped else f for f in late]
    rest = [f for f in known if not (late and f.kind == "straggler")]
    ordered = [*rest, *late, *others] if worse else [*late, *rest, *others]
    ids = {f.id: f"f{i}" for i, f in enumerate(ordered, 1) if f.id}
    return tuple(
        replace(f, id=f"f{i}", caused_by=ids.get(f.caused_by or "", f.caused_by)) for i, f in enumerate(ordered, 1)
    )


def _supported(finding: Finding, dumped: Finding) -> Finding:
    """The finding with the evidence of dumps."""
    said = Evidence(f"the dumps say so too: {dumped.title}", rank=dumped.culprit_ranks[0])
    return replace(finding, evidence=(*finding.evidence, said), counter_evidence=finding.counter_evidence)


def _quiet(story: TraceStory, links: Sequence[Finding]) -> tuple[Status, str]:
    """The verdict of traces without a rank that is late again and again."""
    ranks = sorted(story.dataset.traces["rank"].drop_nulls().unique().to_list())
    return _judged(story, links, len(ranks)) if len(ranks) > 1 else ("unknown", _alone(story.dataset, ranks))


def _alone(dataset: Dataset, ranks: Sequence[int]) -> str:
    """The verdict of traces of one rank, which can be compared with nothing."""
    who = f"only {ranks_text(ranks)}" if dataset.seen_ranks else "only one process without a rank"
    unseen = "no wait can be seen; record all ranks in the same steps"
    if dataset.world_size > 1:
        return f"{who} of {dataset.world_size:,} was traced: {unseen}"
    sole = {g.id for g in dataset.group_list if g.membership == "config" and len(g.ranks) == 1}
    with_others = dataset.traced.filter(~pl.col("group").is_in(list(sole))).height
    if with_others or not communication_spans(dataset).is_empty():
        return f"{who} was traced, and it communicates with ranks that have no trace, whose number is unknown: {unseen}"
    return f"{who} was traced, and it communicates with nobody: there is nothing to compare"


def _judged(story: TraceStory, links: Sequence[Finding], ranks: int) -> tuple[Status, str]:
    """The verdict of traces of several ranks."""
    matched = story.matches.select(MATCH_COLUMNS).unique().height
    if not matched:
        why = next(iter(story.refused()), "the traces hold none in common")
        return "unknown", f"{plural(ranks, 'rank')} traced, but no collective could be matched: {why}"
    untraced = sorted(set(range(story.dataset.world_size)) - story.traced_ranks)
    of_all = f" of {story.dataset.world_size:,} traced" if untraced else ""
    text = f"{ranks:,}{of_all or ' ranks'}, {plural(matched, 'operation')} matched"
    if story.joined.is_empty():
        return "unknown", f"{text}, but none that all traced ranks of a group joined: the last to come is not known"
    units = story.joined.select("window", "unit").drop_nulls().unique().height
    if units < FEWEST_UNITS:
        return (
            "unknown",
            f"{text}: {most_frequent_last(story.last)}in {plural(units, 'step')}: too few to call a rank late",
        )
    if links:
        return "slow", f"{text}; {links[0].title}"
    return _not_late(story, text, untraced)


def _not_late(story: TraceStory, text: str, untraced: Sequence[int]) -> tuple[Status, str]:
    """The verdict if no rank is late by itself: healthy, if all ranks were traced and none loses much."""
    was = f"; {ranks_text(untraced)} {'was' if len(untraced) == 1 else 'were'} not traced" if untraced else ""
    lost = story.unsteady
    if lost is not None and lost.late_in > 1:
        unit = "parts of the window" if story.steps.is_empty() else "steps"
        times, by = f"{lost.late_in} of {lost.units} {unit}", duration(lost.lost_ns)
        share = f"{100 * lost.lost_ns / max(lost.unit_ns, 1):.0f} %"
        return "unknown", (
            f"{text}: rank {lost.rank} comes late in {times}, by {by} ({share} of one), but unevenly, which may be "
            "chance: record more steps"
        )
    if story.lost is not None:
        return "unknown", f"{text}: {lost_text(story, story.lost)}{was}"
    if untraced:
        return "unknown", f"{text}: none of these ranks comes late again and again{was}"
    once = f", rank {lost.rank} once, by {duration(lost.most_ns)}" if lost is not None else ""
    stages = "; stages of a pipeline wait for one another by design and are not compared" if story.staged else ""
    return "healthy", f"{text}: nobody comes late again and again{once}{stages}"
