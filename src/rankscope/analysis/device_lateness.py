"""Ranks whose devices start collectives last again and again, by the durations that the devices themselves measure.

A collective ends everywhere at the same time, so on the device that starts it last it is the shortest: no clock of a
host is compared. A rank is late by itself only as far as it also worked longer than the others since the collective
before: between two collectives of a group all members have the same time, and who communicates less in it worked more.
So a rank that waited for another in a second group is not accused. Intervals and floors are those of traces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.analysis.arrays import filled_array
from rankscope.analysis.counter_evidence import not_always_last
from rankscope.analysis.facts import Facts
from rankscope.analysis.late_ranks import LateRank, lateness_test
from rankscope.analysis.model import Culprit, Evidence, Finding, GroupRef
from rankscope.text.wording import duration, plural

PARTS = 8
"""Equal parts of the recorded time in which lateness is counted."""
FEWEST_COLLECTIVES = 8
"""Fewest measured collectives of a group."""
POLL_NS = 100_000_000
"""The time between two looks of a watchdog."""
TOGETHER_NS, MOST_TOGETHER = 20_000, 0.1
"""Ends of a rank that are closer were noted in one look; a share of them above the second shows a watchdog."""
LAST_SHARE = 0.6
"""Share of collectives from which on a rank is said to be last in them; else it is late at the first of a step."""
ON_TIME_SHARE = 0.5
"""A host that issues later than the others by less than this share of the lateness is on time."""
_MATCH = ["channel", "place"]


def find_late_devices(facts: Facts) -> list[Finding]:
    """A finding for each rank that is late by itself; none without durations of every member."""
    rows = _measured(facts)
    if rows.is_empty():
        return []
    test = lateness_test(rows, False, pl.DataFrame())
    late = _first_causes(facts, rows, test.late_ranks() if test is not None else [])
    return [_finding(facts, _late_device(rows, one)) for one in late]


def _first_causes(facts: Facts, rows: pl.DataFrame, late: list[LateRank]) -> list[LateRank]:
    """Late ranks without those that share a group with one that is later and worked longer: they may have waited for it
    in a way that no duration shows."""
    more = {
        (rank, channel): ns
        for rank, channel, ns in rows.group_by("rank", "channel").agg(pl.col("more_ns").sum()).iter_rows()
    }
    kept: list[LateRank] = []
    for one in sorted(late, key=lambda late: -late.median_ns * more[late.rank, late.channel]):
        if not any({one.rank, other.rank} <= set(group.ranks) for other in kept for group in facts.groups):
            kept.append(one)
    return kept


def _measured(facts: Facts) -> pl.DataFrame:
    """A row for each member of each collective that all members measured, as `lateness_test` wants them."""
    calls, ran = facts.calls, run_times(facts.dataset.ops)
    if ran.null_count() == ran.len():
        return calls.clear()
    busy, row = np.cumsum(filled_array(ran, 0)), calls["row"]
    own = calls.select(
        "row", "rank", "created_ns", "rooted", "state", channel="group", place="seq", whole_ns="duration_ns",
        first_ns=ran.gather(row), before_ns=pl.Series(busy[row.to_numpy()], dtype=pl.Int64),
    )  # fmt: skip
    # the row of a coalesced call is the first inside, and its closer has the duration
    later = pl.when(pl.col("first_ns").is_null()).then(pl.col("whole_ns").fill_null(0)).otherwise(0)
    own = own.with_columns(duration_ns=pl.coalesce("first_ns", "whole_ns"), busy_ns=pl.col("before_ns") + later)
    own = own.with_columns(busy_ns=pl.col("busy_ns").diff().over("rank", "channel"))
    kept = own.filter(
        (pl.col("state") == "completed") & ~pl.col("rooted") & pl.col("created_ns").is_not_null()
        & pl.col("duration_ns").is_not_null() & pl.col("busy_ns").is_not_null()
        & ~pl.col("channel").is_in(list(_unmeasured(facts)))
    )  # fmt: skip
    sizes = pl.DataFrame(
        {"channel": [g.id for g in facts.groups], "size": [len(g.ranks) for g in facts.groups]},
        schema={"channel": pl.UInt32, "size": pl.UInt32},
    )
    kept = kept.join(sizes, on="channel").filter((pl.len().over(_MATCH) == pl.col("size")) & (pl.col("size") > 1))
    kept = kept.filter(pl.col("place").n_unique().over("channel") >= FEWEST_COLLECTIVES)
    return _with_units(_with_lateness(kept)) if kept.height else kept


def run_times(ops: pl.DataFrame) -> pl.Series:
    """For each operation the time that it ran: as the device measured it, else from its start to its end.

    A watchdog notes starts and ends when it looks, ten times a second: such times are left out.
    """
    if ops["duration_ns"].null_count() < ops.height:
        return ops["duration_ns"]
    spans = ops.select("rank", ran=pl.col("completed_ns") - pl.col("started_ns"), ended="completed_ns")
    ended = spans.drop_nulls().sort("rank", "ended")
    apart = ended.select(pl.col("ended").diff().over("rank").drop_nulls()).to_series()
    looked = apart.is_empty() or (apart < TOGETHER_NS).mean() > MOST_TOGETHER or apart.median() > POLL_NS / 2  # type: ignore[operator]
    return pl.Series([None], dtype=pl.Int64).new_from_index(0, ops.height) if looked else spans["ran"]


def _unmeasured(facts: Facts) -> set[int]:
    """Groups whose members cannot be compared: of hosts, with sends or receives without a duration, or with members
    that send to each other, which are stages of one pipeline and have other work by design."""
    ops = facts.dataset.ops
    bare = ops.filter(
        pl.col("is_p2p") & run_times(ops).is_null() & (pl.col("coalesced") != "inner")
        & (pl.col("state") == "completed")
    )  # fmt: skip
    ranks = set(bare["rank"].unique().to_list())
    pipeline = _pipelines(facts)
    return {
        g.id
        for g in facts.groups
        if g.id in facts.gloo_groups
        or not ranks.isdisjoint(g.ranks)
        or len({pipeline.get(rank, -1 - rank) for rank in g.ranks}) < len(g.ranks)
    }


def _pipelines(facts: Facts) -> dict[int, int]:
    """For each rank that sends or receives, the lowest rank that it is joined with by sends and receives."""
    ops = facts.dataset.ops
    ends = ops.filter(pl.col("is_p2p") & pl.col("peer").is_not_null()).select("rank", "peer").unique()
    lowest: dict[int, int] = {rank: rank for pair in ends.iter_rows() for rank in pair}

    def root(rank: int) -> int:
        while lowest[rank] != rank:
            lowest[rank] = rank = lowest[lowest[rank]]
        return rank

    for rank, peer in ends.iter_rows():
        one, other = root(rank), root(peer)
        lowest[max(one, other)] = min(one, other)
    return {rank: root(rank) for rank in lowest}


def _with_lateness(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with `own_ns`, the lateness that longer work explains, and `cost_ns`, the part of it after the others."""
    ran = pl.col("duration_ns")
    least = ran.min().over(_MATCH)
    second = ran.bottom_k(2).max().over(_MATCH)
    return (
        rows.with_columns(
            late_ns=others_median("duration_ns") - ran, more_ns=others_median("busy_ns") - pl.col("busy_ns"),
            margin_ns=pl.when(ran == least).then(second - ran).otherwise(0),
        )
        .with_columns(
            own_ns=pl.min_horizontal("late_ns", "more_ns").clip(0),
            cost_ns=pl.min_horizontal("margin_ns", "more_ns").clip(0),
            ended_ns=pl.col("created_ns").max().over(_MATCH),
        )
    )  # fmt: skip


def others_median(column: str) -> pl.Expr:
    """For each member the lower median of the others."""
    rank = (pl.col(column).rank("ordinal") - 1).cast(pl.Int64)
    middle = (pl.len().cast(pl.Int64) - 2) // 2
    # without the row itself, every row after it moves one place forward
    place = pl.when(rank <= middle).then(middle + 1).otherwise(middle)
    return pl.col(column).sort().gather(place).over(_MATCH)


def _with_units(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with `window`, `unit` and `spot`: parts with equally many collectives, in the order of issue."""
    matches = rows.select(*_MATCH, "ended_ns").unique().sort("ended_ns", *_MATCH).with_row_index("order")
    size = max(1, -(-matches.height // PARTS))
    matches = matches.with_columns(
        unit=(pl.col("order") // size).cast(pl.Int64), window=pl.lit(0), spot=pl.lit(0, pl.Int64)
    )
    return rows.join(matches.select(*_MATCH, "unit", "window", "spot"), on=_MATCH)


def _last_in(rows: pl.DataFrame, late: LateRank) -> tuple[int, int]:
    """The number of collectives of the group that the rank starts last, and of all."""
    here = rows.filter((pl.col("channel") == late.channel) & (pl.col("rank") == late.rank))
    return int((here["margin_ns"] > 0).sum()), here.height


def _issued_late(rows: pl.DataFrame, late: LateRank) -> int:
    """Nanoseconds that the host issues after the median of the others, by the clocks of hosts: the median."""
    here = rows.filter(pl.col("channel") == late.channel)
    own = here.with_columns(behind=pl.col("created_ns") - others_median("created_ns"))
    late_rows = own.filter((pl.col("rank") == late.rank) & (pl.col("own_ns") > 0))
    return int(late_rows["behind"].median() or 0)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _LateDevice:
    """A late rank in the collectives of the group that shows it best."""

    rank: int
    late: LateRank
    times: int
    """Collectives that it starts last."""
    of: int
    late_in: int
    """Collectives to which it is late by more than half of the most."""
    each_ns: int
    """Median lateness in these."""
    on_time: bool
    """Whether its host issues them no later than the others."""

    @property
    def often(self) -> bool:
        """Whether it starts last in most collectives, not only at one place of a step."""
        return self.times >= LAST_SHARE * self.of

    def title(self, label: str) -> str:
        """The lateness in one sentence."""
        how, count = ("last", self.times) if self.often else ("late", self.late_in)
        return (
            f"rank {self.rank} starts {how} on its device in {count:,} of {self.of:,} collectives of {label}, "
            f"by {duration(self.each_ns)}{'' if self.on_time else ', and issues them late'}"
        )

    def explanation(self, waiting: int) -> str:
        """The cost for `waiting` ranks, and whether host or device is late."""
        share = f"{100 * self.late.cost_ns / self.late.unit_ns:.1f} %" if self.late.unit_ns else "some"
        where = (
            "Its host issues them no later than the others, so its device is late: the kernels before them take longer."
            if self.on_time
            else "Its host also issues them later, if the clocks of the hosts agree: its launches may be late."
        )
        return (
            f"No hang, but {plural(waiting, 'rank')} {'wait' if waiting > 1 else 'waits'} for rank {self.rank} "
            "again and again. The durations that devices measure show that its own work makes it late; this costs "
            f"{share} of the time. {where}"
        )


def _late_device(rows: pl.DataFrame, late: LateRank) -> _LateDevice:
    own = rows.filter((pl.col("channel") == late.channel) & (pl.col("rank") == late.rank))
    late_rows = own.filter(pl.col("own_ns") > own["own_ns"].max() / 2)  # type: ignore[operator]
    each = int(late_rows["own_ns"].median() or 0)  # type: ignore[arg-type]
    on_time = _issued_late(rows, late) < ON_TIME_SHARE * each
    return _LateDevice(late.rank, late, *_last_in(rows, late), late_rows.height, each, on_time)


def _finding(facts: Facts, found: _LateDevice) -> Finding:
    group, rank, late = facts.groups[found.late.channel], found.rank, found.late
    label = facts.label(group.id)
    waiting = tuple(r for r in group.ranks if r != rank)
    interval = f"{duration(late.low_ns)} to {duration(late.high_ns)}"
    told = f"late by {duration(late.median_ns)} in each {PARTS}th of the recording (95 % interval {interval})"
    return Finding(
        kind="straggler",
        severity="warning",
        title=found.title(label),
        explanation=found.explanation(len(waiting)),
        root_cause=True,
        culprit_ranks=(rank,),
        culprits=(Culprit(rank),),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="high" if found.on_time else "medium",
        confidence_reasons=() if found.on_time else ("host and device are late, and one may follow from the other",),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=(Evidence(told, rank=rank),),
        counter_evidence=not_always_last(found.times, found.of, label) if found.often else (),
        next_steps=(
            f"Compare the GPU of rank {rank} with the others: clocks, temperature, throttling (nvidia-smi -q -d "
            "CLOCK,PERFORMANCE), and what it is given to compute.",
        ),
    )
