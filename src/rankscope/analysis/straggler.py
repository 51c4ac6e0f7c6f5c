"""Who arrives last again and again, with an interval that says how sure that is.

In a healthy run some rank is always last by a little: a rank is accused only if it is last in most collectives of a
group, and the lower end of a 95 % bootstrap interval of its median margin over the second last is above a floor.
A clock that is off looks like a late rank. Where completions were recorded the wait on the rank's own clock decides:
who is late waits less than the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.doubts import not_always_last
from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Confidence, Culprit, Evidence, Finding, GroupRef
from rankscope.analysis.wording import duration, plural

FLOOR_NS = 1_000_000
FLOOR_SHARE = 0.05
"""A margin below this share of the time between two collectives is not worth a word."""
LEAST = 8
"""Collectives needed to speak of "again and again"."""
MOSTLY = 0.6
ROUNDS = 500
SIGMAS = 2.5
"""Standard errors by which a wait must be shorter."""


@dataclass(frozen=True)
class Late:
    """One rank that is late in one group."""

    rank: int
    group: int
    times: int
    of: int
    margin_ns: int
    low_ns: int
    high_ns: int
    own_clock: bool | None
    """Whether the waits on the ranks' own clocks agree; None where no completion was recorded."""


def find_stragglers(facts: Facts) -> list[Finding]:
    """A finding for each rank that is late by itself, and not because it waits for another late rank."""
    met = _met(facts)
    late = [found for group in sorted(met["group"].unique().to_list()) if (found := _late(facts, met, group))]
    late = [found for found in late if found.own_clock is not False and not _by_design(facts, found, late)]
    best: dict[int, Late] = {}
    for found in late:
        if (
            found.rank not in best
            or found.margin_ns * found.times > best[found.rank].margin_ns * best[found.rank].times
        ):
            best[found.rank] = found
    blamed = {rank for rank in best if not _because_of(facts, rank, late)}
    return [_finding(facts, best[rank]) for rank in sorted(blamed, key=lambda r: -best[r].margin_ns)]


def _met(facts: Facts) -> pl.DataFrame:
    """Finished collectives that every member issued: group, seq, last rank, margin, first arrival."""
    sizes = pl.DataFrame(
        {"group": [g.id for g in facts.groups], "size": [len(g.ranks) for g in facts.groups]},
        schema={"group": pl.UInt32, "size": pl.UInt32},
    )
    finished = (pl.col("state") == "completed") & pl.col("created_ns").is_not_null()
    return (
        facts.calls.filter(finished & ~pl.col("rooted"))
        .group_by("group", "seq")
        .agg(
            pl.len().alias("members"), pl.col("rank").sort_by("created_ns").last().alias("last"),
            pl.col("created_ns").min().alias("first_ns"),
            (pl.col("created_ns").max() - pl.col("created_ns").bottom_k(pl.len() - 1).max()).alias("margin_ns"),
        )
        .join(sizes, on="group")
        .filter((pl.col("members") == pl.col("size")) & (pl.col("size") > 1))
        .sort("group", "seq")
    )  # fmt: skip


def _late(facts: Facts, met: pl.DataFrame, group: int) -> Late | None:
    rows = met.filter(pl.col("group") == group)[1:]
    if rows.height < LEAST:
        return None
    rank, times = rows["last"].value_counts(sort=True).sort(["count", "last"], descending=[True, False]).row(0)
    if times < MOSTLY * rows.height:
        return None
    margins = np.where(rows["last"].to_numpy() == rank, rows["margin_ns"].to_numpy(), 0)
    low, middle, high = _interval(margins)
    usual = int(np.median(np.diff(rows["first_ns"].to_numpy())))
    if low < max(FLOOR_NS, FLOOR_SHARE * usual):
        return None
    return Late(rank, group, times, rows.height, middle, low, high, _own_clock(facts, group, rank, middle))


def _interval(margins: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    """2.5 %, median and 97.5 % of the bootstrapped median."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(margins, size=(ROUNDS, len(margins))), axis=1)
    return int(np.quantile(medians, 0.025)), int(np.median(margins)), int(np.quantile(medians, 0.975))


def _own_clock(facts: Facts, group: int, rank: int, margin: int) -> bool | None:
    """Whether a rank waits less than its peers, by more than chance: each wait is measured on one clock only.

    Either the device's own durations say so, or the time until a completion was noticed, which is only every 100 ms.
    """
    rows = facts.calls.filter((pl.col("group") == group) & (pl.col("state") == "completed"))
    waits = rows.select("rank", "duration_ns", (pl.col("completed_ns") - pl.col("created_ns")).alias("noticed_ns"))
    answers = [_waits_less(waits.select("rank", name).drop_nulls(), rank, margin) for name in waits.columns[1:]]
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def _waits_less(waits: pl.DataFrame, rank: int, margin: int) -> bool | None:
    own = waits.filter(pl.col("rank") == rank).to_series(1).to_numpy()
    others = waits.filter(pl.col("rank") != rank).to_series(1).to_numpy()
    if len(own) < 2 or len(others) < 2:
        return None
    error = float(np.sqrt(own.var() / len(own) + others.var() / len(others)))
    return float(others.mean() - own.mean()) - SIGMAS * error > margin / 4


def _by_design(facts: Facts, found: Late, late: list[Late]) -> bool:
    """Whether the rank at this place is about as late in most replicas of the group: the shape of the program."""
    group = facts.groups[found.group]
    replicas = [g for g in facts.groups if g.description == group.description and len(g.ranks) == len(group.ranks)]
    place = group.ranks.index(found.rank)
    margins = sorted(
        other.margin_ns for other in late
        if facts.groups[other.group] in replicas and facts.groups[other.group].ranks.index(other.rank) == place
    )  # fmt: skip
    usual = margins[len(margins) // 2] if margins else 0
    return len(replicas) > 2 and 2 * len(margins) > len(replicas) and found.margin_ns < 3 * usual


def _because_of(facts: Facts, rank: int, late: list[Late]) -> bool:
    """Whether a rank shares a group with another rank that is late in it: then it arrives late elsewhere as well."""
    return any(other.rank != rank and rank in facts.groups[other.group].ranks for other in late)


def _finding(facts: Facts, late: Late) -> Finding:
    label = facts.label(late.group)
    confidence: Confidence = "high" if late.own_clock else "medium"
    reasons = () if late.own_clock else ("no completion times: a clock that is off would look the same",)
    group = facts.groups[late.group]
    waiting = tuple(r for r in group.ranks if r != late.rank)
    interval = f"{duration(late.low_ns)} to {duration(late.high_ns)}"
    return Finding(
        kind="straggler",
        severity="warning",
        title=(
            f"rank {late.rank} arrives last in {late.times} of {late.of} collectives of {label}, "
            f"by {duration(late.margin_ns)}"
        ),
        explanation=(
            f"No hang, but {plural(len(waiting), 'rank')} wait for rank {late.rank} again and again: it comes "
            f"{duration(late.margin_ns)} after the second last (median; 95 % interval {interval})."
        ),
        root_cause=True,
        culprit_ranks=(late.rank,),
        culprits=(Culprit(late.rank),),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence=confidence,
        confidence_reasons=reasons,
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=(
            Evidence(f"last in {late.times} of {late.of}, median margin {duration(late.margin_ns)}", rank=late.rank),
        ),
        counter_evidence=not_always_last(late.times, late.of, label),
        next_steps=(f"Profile rank {late.rank} between two collectives: data loading, Python, clocks of its GPU.",),
    )
