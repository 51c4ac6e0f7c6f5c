"""Findings on memory, and their verdict where nothing worse is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, Evidence, Finding
from rankscope.analysis.places import Places
from rankscope.analysis.verdict import with_records
from rankscope.features.memory.rules.failed_requests import EDGE, explained_failures, fragmented, rate_text
from rankscope.features.memory.rules.memory_growth import find_growths
from rankscope.features.memory.rules.memory_peers import find_full_ranks, held_by_rank
from rankscope.features.memory.rules.model import MEMORY_RESULTS, FullRank, MemoryAnalysis, MemoryGrowth
from rankscope.features.memory.rules.summary_findings import find_summaries, only_summaries
from rankscope.schema.tables import HOST
from rankscope.text.wording import byte_count, plural, ranks_text

MOST_EVIDENCE = 8


def with_memory(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with findings on memory; of a job that failed for want of it, with the reasons."""
    dataset = facts.dataset
    held = held_by_rank(dataset.memory)
    growths = find_growths(dataset.memory)
    # a leak explains why a rank is full
    grown = {growth.rank for growth in growths}
    full = [one for one in find_full_ranks(held, analysis.mesh) if one.rank not in grown]
    findings = explained_failures(dataset, analysis.findings, held, {growth.rank: growth for growth in growths})
    places, first = Places(dataset), len(findings) + 1
    told = fragmented(dataset, findings, first)
    summaries = find_summaries(dataset, first + len(told))
    told += summaries
    told += _leaks(growths, held, places, first + len(told))
    told += _uneven(full, places, first + len(told))
    results = MemoryAnalysis(held, tuple(growths), tuple(full))
    known = MEMORY_RESULTS.put(replace(analysis, findings=tuple(findings)), results)
    alone = "samples of memory" if dataset.from_memory else ""
    if summaries and only_summaries(dataset) and not any(f.severity == "critical" for f in findings):
        known = replace(known, verdict=summaries[0].title)
        return replace(known, findings=(*told, *known.findings))
    return with_records(facts, known, told, alone, "no rank leaks or holds far more than its peers")


def _leaks(growths: Sequence[MemoryGrowth], held: pl.DataFrame, places: Places, number: int) -> list[Finding]:
    """A finding on the ranks whose memory grows; if most do, nobody is named."""
    ranks = tuple(dict.fromkeys(growth.rank for growth in growths))
    if not ranks:
        return []
    watched = held["rank"].n_unique()
    few = 2 * len(ranks) <= watched or watched == 1
    worst = max(growths, key=lambda growth: growth.low)
    where = "on the host" if worst.device == HOST else f"on {worst.device}"
    who = ranks_text(ranks) if few else f"{len(ranks):,} of {watched:,} ranks"
    most = f", most on rank {worst.rank}" if len(ranks) > 1 else ""
    evidence = [
        Evidence(f"{g.device}: grows by {rate_text(g)}, from {byte_count(g.first)} to {byte_count(g.last)} in "
                 f"{plural(g.samples, 'sample')}", rank=g.rank)
        for g in sorted(growths, key=lambda g: -g.low)[:MOST_EVIDENCE]
    ]  # fmt: skip
    others = watched - len(ranks)
    rest = f" On the {plural(others, 'other rank')} it does not." if others and few else ""
    return [Finding(
        kind="memory-leak", severity="warning", id=f"f{number}",
        title=f"memory of {who} grows by {byte_count(round(worst.slope))} a {worst.unit} {where}{most}",
        explanation=f"Its least memory rises from each eighth of the run to the next, at a steady rate.{rest}",
        culprit_ranks=ranks if few else (), about=ranks,
        culprits=tuple(map(places.culprit, ranks)) if few else (),
        confidence="high" if few and watched > 1 else "medium",
        confidence_reasons=() if few else ("most ranks grow: it is the program, or a design that keeps data",),
        evidence=tuple(evidence), next_steps=(_next_step(worst.device),),
    )]  # fmt: skip


def _next_step(device: str) -> str:
    if device == HOST:
        return "Look for lists that keep tensors (losses without .item()), caches, and workers of data loaders."
    return (
        "Record torch.cuda.memory._record_memory_history() on this rank, and dump a snapshot early and late: "
        "torch.cuda.memory._dump_snapshot(FILE). rankscope report --only memory FILE shows who holds it."
    )


def _uneven(full: Sequence[FullRank], places: Places, number: int) -> list[Finding]:
    out = []
    for at, one in enumerate(full, number):
        peers = plural(one.peers, "peer")
        near = one.capacity is not None and one.held > EDGE * one.capacity
        where = "on the host" if one.device == HOST else f"on {one.device}"
        span = " to ".join(dict.fromkeys((byte_count(one.low), byte_count(one.high))))
        share = f" It is {one.held / one.capacity:.0%} of the device." if one.capacity else ""
        out.append(Finding(
            kind="memory-uneven", severity="warning" if near else "info", id=f"f{at}",
            title=f"rank {one.rank} holds {byte_count(one.held)} {where} at its peak, {peers} {span}",
            explanation=f"It holds {one.held / max(one.median, 1):.1f} times the median of its peers.{share}",
            culprit_ranks=(one.rank,), culprits=(places.culprit(one.rank),), confidence="medium",
            confidence_reasons=("a program may be made so that a rank holds more",),
            next_steps=("Compare batch, sequence lengths and shards of this rank with those of its peers.",),
        ))  # fmt: skip
    return out
