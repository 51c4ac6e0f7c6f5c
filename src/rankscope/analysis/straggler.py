"""Ranks that arrive last again and again, or start last on their devices, with a confidence interval of their lateness.

In a healthy run some rank is always last by a little. The null hypothesis is that chance draws anew in each burst of
collectives which member comes last, each with the same probability. A burst are collectives that follow each other in
less than half of the lateness, because one delay makes a rank late at all of them. A rank is accused only if

- it is last in so many bursts that chance would do this to any rank of any group in at most one of a hundred jobs
  (`FALSE_ALARMS`, divided by all ranks of all tested groups: those in which anybody is late often enough), and
- the lower end of a 95 % bootstrap interval of its median lateness over the bursts is at least 1 ms, and 5 % of the
  time from one burst to the next.

Groups of the same members are one group for this, because one rank is late in all of them.

A clock that is off looks like a late rank. So if completions were recorded, the wait on the rank's own clock decides: a
late rank waits less than the others. One group is enough for that, because a rank has one clock; if operations queue up
on the device, the first of them has all the waiting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.arrays import Ints, filled_array, median_interval, true_mask
from rankscope.analysis.counter_evidence import not_always_last
from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Culprit, Evidence, Finding, GroupRef
from rankscope.analysis.places import known_hosts
from rankscope.schema import Group
from rankscope.text.wording import duration, plural

FLOOR_NS = 1_000_000
FLOOR_SHARE = 0.05
"""Lateness below this share of the time from one burst to the next is not told."""
FALSE_ALARMS = 0.01
"""Largest probability that chance alone accuses somebody in a job."""
LAST_SHARE = 0.6
"""Share of collectives from which on a rank is last in most; on a device it is else late at the first of a step."""
_BEFORE, _AFTER = (int(end) for end in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
"""The beginning and the end of time, in nanoseconds."""
MOST_OPERATIONS = 1 << 21
"""Most operations in which lateness is looked for, the newest of each rank: enough steps, and a fraction of the memory
of the largest jobs."""
SIGMAS = 2.5
"""Standard errors by which a wait must be shorter."""


class LastArrival(NamedTuple):
    """The rank that is late most often in the groups of the same members, whatever the reason."""

    group: int
    """The first of these groups."""
    rank: int
    times: int
    """Collectives in which it is last."""
    of: int
    bursts: npt.NDArray[np.int64]
    """For each burst its largest margin over the second last; 0 where another rank is later."""
    worth_ns: int
    """Smallest lateness that is told."""
    shown: pl.DataFrame
    """group, seq of the latest collective of each burst."""

    @property
    def often(self) -> bool:
        """Whether it is last in most collectives, and not only in most bursts."""
        return self.times >= LAST_SHARE * self.of

    @property
    def margin_ns(self) -> int:
        """Median over the bursts."""
        return int(np.median(self.bursts))


@dataclass(frozen=True)
class Straggler:
    """One rank that is late in groups of the same members."""

    rank: int
    group: int
    times: int
    of: int
    """Collectives, or bursts of them if it is last in few collectives of each."""
    often: bool
    margin_ns: int
    low_ns: int
    high_ns: int
    own_clock: bool | None
    """Whether the waits on the ranks' own clocks agree; None without recorded completions."""


def find_stragglers(facts: Facts) -> list[Finding]:
    """A finding for each rank that is late by itself, and not because it waits for another late rank.

    None from logs alone: clocks of hosts differ, and no line tells how long a rank waited.
    """
    if facts.dataset.from_logs:
        return []
    facts = _newest(facts)
    pools = MemberPools(facts)
    last = _last(facts, _met(facts, pools))
    design = DesignLateness(facts)
    odd = [
        arrival
        for arrival in last
        if arrival.margin_ns >= arrival.worth_ns
        and not design.explains(facts.groups[arrival.group], arrival.rank, arrival.margin_ns, arrival.worth_ns)
    ]
    stragglers = [_late(facts, arrival, last, design, pools) for arrival in odd]
    late = [straggler for straggler in stragglers if straggler is not None and straggler.own_clock is not False]
    best: dict[int, Straggler] = {}
    for straggler in late:
        known = best.get(straggler.rank)
        if known is None or straggler.margin_ns * straggler.times > known.margin_ns * known.times:
            best[straggler.rank] = straggler
    blamed = {rank for rank in best if not _because_of(facts, rank, late)}
    findings = [_finding(facts, best[rank], pools) for rank in sorted(blamed, key=lambda r: -best[r].margin_ns)]
    return findings or _devices(facts, pools)


def _newest(facts: Facts) -> Facts:
    """The facts with the newest operations of each rank, if there are more than `MOST_OPERATIONS`."""
    ops, first = facts.dataset.ops, facts.first_rows
    if ops.height <= MOST_OPERATIONS:
        return facts
    counts = np.diff(np.append(first, ops.height))
    left = np.repeat(first + counts, counts) - np.arange(ops.height)
    kept = ops.filter(pl.Series(left <= MOST_OPERATIONS // len(first)))
    return Facts(replace(facts.dataset, ops=kept))


class MemberPools:
    """Groups of the same members: each is known by the first of them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        first: dict[tuple[int, ...], int] = {}
        self.of = np.array([first.setdefault(tuple(sorted(group.ranks)), group.id) for group in facts.groups], np.int64)
        """By group the first group of the same members."""

    def groups(self, pool: int) -> list[int]:
        """The groups of a pool in which a collective was issued."""
        return [group for group in np.flatnonzero(self.of == pool).tolist() if group in self._issued]

    @cached_property
    def _issued(self) -> frozenset[int]:
        return frozenset(np.unique(self._facts.instances.group).tolist())

    def label(self, pool: int) -> str:
        """The name of a pool: that of its group, or of its groups."""
        names = [self._facts.label(group) for group in self.groups(pool)]
        return " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more groups of its ranks"


@dataclass(frozen=True)
class Chance:
    """The test whether chance makes a rank the last so often; `tested` is the number of ranks of all tested groups."""

    tested: int

    @classmethod
    def over(cls, facts: Facts, late: pl.DataFrame) -> Chance:
        """The test for the ranks of all pools of `late` (pool, times) in which anybody is late often enough.

        Who it is plays no part in the choice, so the choice favours nobody.
        """
        sizes = {pool: len(facts.groups[pool].ranks) for pool in late["pool"]}
        return cls(
            sum(
                sizes[pool]
                for pool, times in late.iter_rows()
                if not cls(sizes[pool]).explains(times, times, sizes[pool])
            )
        )

    def explains(self, times: int, of: int, members: int) -> bool:
        """Whether chance makes any tested rank the last of `members` in `times` of `of` independent draws.

        By Chernoff's bound on the tail of a binomial distribution, which is exact if the rank is last in all of them.
        """
        if not of or not self.tested:
            return True
        share, usual = times / of, 1 / members
        if share <= usual:
            return True
        apart = share * np.log(share / usual)
        if share < 1:
            apart += (1 - share) * np.log((1 - share) / (1 - usual))
        return bool(np.log(self.tested) - of * apart > np.log(FALSE_ALARMS))


def _devices(facts: Facts, pools: MemberPools) -> list[Finding]:
    """Ranks that issue on time and start late on their devices, at no cost without durations."""
    ops = facts.dataset.ops
    if ops["duration_ns"].null_count() == ops["started_ns"].null_count() == ops.height:
        return []
    return find_late_devices(facts, pools)


def _met(facts: Facts, pools: MemberPools) -> pl.DataFrame:
    """Collectives that every member issued and one saw finished: pool, group, seq, last rank, margin, first arrival.

    `pool` is the first group of the same members; rows are in the order of pools, then of first arrivals.
    """
    calls, found = facts.calls, facts.instances
    issued = true_mask(calls["created_ns"].is_not_null() & ~calls["rooted"])
    code, rank, created = found.code, calls["rank"].to_numpy(), filled_array(calls["created_ns"], 0)
    count = len(found.group)
    top, first, second = np.full(count, _BEFORE), np.full(count, _AFTER), np.full(count, _BEFORE)
    early = np.where(issued, created, _BEFORE)
    np.maximum.at(top, code, early)
    np.minimum.at(first, code, np.where(issued, created, _AFTER))
    came_last = np.zeros(count, np.int64)
    at_top = np.flatnonzero(issued & (created == top[code]))
    came_last[code[at_top]] = at_top
    met_by = np.bincount(code[at_top], minlength=count) > 0
    early[came_last[met_by]] = _BEFORE
    np.maximum.at(second, code, early)
    size = np.zeros(int(found.group.max(initial=-1)) + 1, np.int64)
    for group in facts.groups[: len(size)]:
        size[group.id] = len(group.ranks)
    # what ended for one member had been joined by all; others may not have noticed it yet
    ended = np.bincount(code[true_mask(calls["state"] == "completed")], minlength=count) > 0
    met = ended & (np.bincount(code[issued], minlength=count) == size[found.group]) & (size[found.group] > 1)
    return pl.DataFrame(
        {
            "pool": pools.of[found.group[met]],
            "group": found.group[met],
            "seq": found.seq[met],
            "last": rank[came_last[met]],
            "first_ns": first[met],
            "margin_ns": top[met] - second[met],
        }
    ).sort("pool", "first_ns", maintain_order=True)


def _last(facts: Facts, met: pl.DataFrame) -> list[LastArrival]:
    """For each pool the rank that is late most often, unless chance makes a rank late so often."""
    late = met.filter(pl.col("margin_ns") >= FLOOR_NS).group_by("pool", "last").agg(times=pl.len())
    chance = Chance.over(facts, late.group_by("pool").agg(pl.col("times").sum()))
    most = late.sort("pool", "times", "last", descending=[False, True, False]).unique("pool", keep="first").sort("pool")
    candidates = {
        pool: rank
        for pool, rank, times in most.iter_rows()
        # else they are chance even if each of them is a burst
        if not chance.explains(times, times, len(facts.groups[pool].ranks))
    }
    parts = met.filter(pl.col("pool").is_in(list(candidates))).partition_by("pool", as_dict=True)
    arrivals = [
        _arrival(parts[pool,], pool, rank, len(facts.groups[pool].ranks), chance) for pool, rank in candidates.items()
    ]
    return [arrival for arrival in arrivals if arrival is not None]


def _arrival(met: pl.DataFrame, pool: int, rank: int, members: int, chance: Chance) -> LastArrival | None:
    """The lateness of a rank in its pool by bursts; None if chance makes a rank late so often.

    The first burst (warm-up) is excluded.
    """
    last, margin, first = (met[name].to_numpy() for name in ("last", "margin_ns", "first_ns"))
    own = last == rank
    begins = np.flatnonzero(np.diff(first, prepend=_BEFORE // 2) >= half_amount(margin[own]) / 2)
    warm = begins[1] if len(begins) > 1 else len(first)
    met, own, margin, first, begins = met[warm:], own[warm:], margin[warm:], first[warm:], begins[1:] - warm
    if not len(begins):
        return None
    burst = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(first)))
    latest = np.lexsort((margin, burst))[np.append(begins[1:], len(first)) - 1]
    bursts = np.where(own[latest], margin[latest], 0)
    if chance.explains(int((bursts > 0).sum()), len(bursts), members):
        return None
    apart = np.diff(first[begins])
    worth = max(FLOOR_NS, FLOOR_SHARE * float(np.median(apart)) if len(apart) else 0)
    shown = met[latest].select(pl.col("group").cast(pl.UInt32), "seq")
    return LastArrival(pool, rank, int(own.sum()), len(first), bursts, int(worth), shown)


def half_amount(amounts: npt.NDArray[np.int64]) -> int:
    """The amount such that as large ones and larger ones make half of the sum: one that is usual, whatever the largest
    and however many small ones."""
    down = np.sort(amounts)[::-1]
    return int(down[np.searchsorted(np.cumsum(down), down.sum() / 2)]) if len(down) else 0


def _late(
    facts: Facts, last: LastArrival, everywhere: list[LastArrival], design: DesignLateness, pools: MemberPools
) -> Straggler | None:
    low, high = median_interval(last.bursts)
    if low < last.worth_ns:
        return None
    answers = [
        _own_clock(facts, facts.calls_at(arrival.shown) if not arrival.often else facts.calls, group, last, design)
        for arrival in everywhere
        if arrival.rank == last.rank
        for group in pools.groups(arrival.group)
    ]
    own_clock = any(answers) if any(answer is not None for answer in answers) else None
    times, of = (last.times, last.of) if last.often else (int((last.bursts > 0).sum()), len(last.bursts))
    return Straggler(last.rank, last.group, times, of, last.often, last.margin_ns, low, high, own_clock)


def _own_clock(facts: Facts, calls: pl.DataFrame, group: int, last: LastArrival, design: DesignLateness) -> bool | None:
    """Whether a rank waits significantly less than its peers, and than its place in the replicas of the group does.

    Each wait is measured on one clock only, in `calls`.
    Measured by the device's own durations, or by the time until a completion was noticed, every 100 ms. A hook notices
    only once a second; but a peer that finishes before the last one comes shows another clock.
    """
    rank, margin = last.rank, last.margin_ns
    rows = calls.filter((pl.col("group") == group) & (pl.col("state") == "completed"))
    noticed = rows.select("rank", (pl.col("completed_ns") - pl.col("created_ns")).alias("wait_ns")).drop_nulls()
    ran = rows.select("rank", "seq", "duration_ns").drop_nulls()
    if group in facts.hook_groups:
        answers = _runs_shorter(ran, rank, margin), False if _came_after_the_end(rows, rank, margin) else None
    else:
        answers = _runs_shorter(ran, rank, margin), _waits_less(noticed, rank, margin)
    known = [answer for answer in answers if answer is not None]
    if any(known) and design.waits_as_usual(facts.groups[group], rank, margin):
        return False
    return any(known) if known else None


def _came_after_the_end(rows: pl.DataFrame, rank: int, margin: int) -> bool:
    """Whether a rank issues an operation after a peer finished it, by both clocks, which therefore disagree."""
    own = pl.col("rank") == rank
    spans = rows.group_by("seq").agg(
        came=pl.col("created_ns").filter(own).first(), ended=pl.col("completed_ns").filter(~own).min()
    )
    return bool(spans.select((pl.col("came") - pl.col("ended") > margin / 4).any()).item())


def _runs_shorter(ran: pl.DataFrame, rank: int, margin: int) -> bool | None:
    """Whether most collectives run shorter on a rank than on its peers: a last rank hardly waits on the device."""
    own = pl.col("rank") == rank
    length = pl.col("duration_ns")
    pairs = ran.group_by("seq").agg(shorter=length.filter(~own).mean() - length.filter(own).first()).drop_nulls()
    if pairs.height < 2:
        return None
    shorter = pairs.sort("seq")["shorter"].cast(pl.Int64).to_numpy()
    return median_interval(shorter)[0] > margin / 4


def _waits_less(waits: pl.DataFrame, rank: int, margin: int) -> bool | None:
    own = waits.filter(pl.col("rank") == rank).to_series(1).to_numpy()
    others = waits.filter(pl.col("rank") != rank).to_series(1).to_numpy()
    if len(own) < 2 or len(others) < 2:
        return None
    error = float(np.sqrt(own.var() / len(own) + others.var() / len(others)))
    return float(others.mean() - own.mean()) - SIGMAS * error > margin / 4


def _because_of(facts: Facts, rank: int, late: list[Straggler]) -> bool:
    """Whether a rank shares a group with another late rank: then it arrives late elsewhere as well."""
    return any(other.rank != rank and rank in facts.groups[other.group].ranks for other in late)


def _on_one_host(facts: Facts, group: Group) -> bool:
    """Whether all members are known to be on one host: then they share its clock."""
    hosts = known_hosts(facts.dataset)
    return len({hosts.get(rank, "") for rank in group.ranks}) == 1 and hosts.get(group.ranks[0], "") != ""


def _finding(facts: Facts, late: Straggler, pools: MemberPools) -> Finding:
    group, label = facts.groups[late.group], pools.label(late.group)
    waiting, times = len(group.ranks) - 1, f"{late.times:,} of {late.of:,}"
    what = "collectives" if late.often else "bursts of collectives"
    one_clock = late.own_clock or _on_one_host(facts, group)
    interval = f"{duration(late.low_ns)} to {duration(late.high_ns)}"
    return _straggler(
        group,
        late.rank,
        title=f"rank {late.rank} arrives last in {times} {what} of {label}, by {duration(late.margin_ns)}",
        explanation=(
            f"{plural(waiting, 'rank')} {'wait' if waiting > 1 else 'waits'} for rank "
            f"{late.rank} again and again: it comes {duration(late.margin_ns)} after the second to last (median; 95 "
            f"% interval {interval})."
        ),
        doubt="" if one_clock else "no completion times: a clock that is off would look the same",
        evidence=f"last in {times}, median margin {duration(late.margin_ns)}",
        against=not_always_last(late.times, late.of, label) if late.often else (),
        step=f"Profile rank {late.rank} between two collectives: data loading, Python, clocks of its GPU.",
    )


def _straggler(
    group: Group,
    rank: int,
    *,
    title: str,
    explanation: str,
    doubt: str,
    evidence: str,
    against: tuple[Evidence, ...],
    step: str,
) -> Finding:
    """The finding on a rank that holds up its group again and again; without a `doubt` its confidence is high."""
    waiting = tuple(other for other in group.ranks if other != rank)
    return Finding(
        kind="straggler",
        severity="warning",
        title=title,
        explanation=explanation,
        root_cause=True,
        culprit_ranks=(rank,),
        culprits=(Culprit(rank),),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="medium" if doubt else "high",
        confidence_reasons=(doubt,) if doubt else (),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=(Evidence(evidence, rank=rank),),
        counter_evidence=against,
        next_steps=(step,),
    )


# Lateness by design: a place of the program that comes last in the replicas of its group as well.

LATENESS_FACTOR = 3
"""Smallest ratio to the usual lateness of a place at which a rank is late by itself."""
DEVIATIONS = 8
"""Median deviations among the replicas (from host clocks) beyond which a rank is out of line."""
FEWEST_REPLICAS = 3
"""Fewest replicas that define the usual lateness."""
Lateness = dict[int, float]
"""By group: nanoseconds that the rank at one place comes after the last of the others."""


class DesignLateness:
    """Lateness of each place of the program over all replicas."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[tuple[str, int, int], Lateness] = {}

    def explains(self, group: Group, rank: int, margin_ns: int, worth_ns: int) -> bool:
        """Whether a rank is no later than its place is in the replicas, as far as these and their clocks agree."""
        replicas = self._replicas(group)
        if len(replicas) < FEWEST_REPLICAS:
            return False
        place = group.ranks.index(rank)
        key = (group.description, len(group.ranks), place)
        if key not in self._known:
            self._known[key] = self._lateness(replicas, place)
        late = np.array(list(self._known[key].values()))
        if len(late) < FEWEST_REPLICAS:
            return False
        usual = float(np.median(late))
        spread = float(np.median(np.abs(late - usual)))
        apart = min(max(worth_ns, DEVIATIONS * spread), LATENESS_FACTOR * worth_ns)
        return margin_ns < max(LATENESS_FACTOR * usual, usual + apart)

    def waits_as_usual(self, group: Group, rank: int, margin_ns: int) -> bool:
        """Whether a rank waits on its device no less, against its peers, than its place does in the replicas.

        The first stage of a pipeline is the last to be ready, and hardly waits, in every replica.
        """
        replicas = self._replicas(group)
        ends, length = self._ends(replicas, group.ranks.index(rank)), pl.col("duration_ns")
        own = pl.col("rank") == pl.col("own")
        ran = self._facts.calls.join(ends, on="group").filter((pl.col("state") == "completed") & length.is_not_null())
        less = (
            ran.group_by("group", "seq")
            .agg(less=length.filter(~own).mean() - length.filter(own).first())
            .group_by("group")
            .agg(pl.col("less").median())
            .drop_nulls()
        )
        told: dict[int, float] = dict(less.iter_rows())
        if len(told) < FEWEST_REPLICAS or group.id not in told:
            return False
        return told[group.id] - float(np.median(list(told.values()))) < margin_ns / 4

    def _replicas(self, group: Group) -> list[Group]:
        size = len(group.ranks)
        return [g for g in self._facts.groups if g.description == group.description and len(g.ranks) == size]

    @staticmethod
    def _ends(replicas: list[Group], place: int) -> pl.DataFrame:
        """The rank at a place of each replica."""
        return pl.DataFrame(
            {"group": [g.id for g in replicas], "own": [g.ranks[place] for g in replicas]},
            schema={"group": pl.UInt32, "own": pl.Int32},
        )

    def _lateness(self, replicas: list[Group], place: int) -> Lateness:
        ends = self._ends(replicas, place)
        own, created = pl.col("rank") == pl.col("own"), pl.col("created_ns")
        table = (
            self._facts.calls.join(ends, on="group")
            .filter(pl.col("state") == "completed")
            .group_by("group", "seq")
            .agg(late=created.filter(own).max() - created.filter(~own).max())
            .group_by("group")
            .agg(pl.col("late").median())
            .sort("group")
            .drop_nulls()
        )
        return dict(table.iter_rows())


# Ranks whose devices start collectives last, by the durations that the devices themselves measure.
#
# A collective ends everywhere at the same time, so on the device that starts it last it is the shortest: no clock of a
# host is compared. A rank is late by itself only as far as it also worked longer than the others since the collective
# before: between two collectives of a group all members have the same time, and who communicates less in it worked
# more. So a rank that waited for another in a second group is not accused. The null hypothesis is that above, drawn
# anew for each collective for which any member is late.


DEVICE_FLOOR_NS, DEVICE_FLOOR_SHARE = 500_000, 0.02
"""Smaller lateness on a device is not told, nor a smaller share of the time from one late collective to the next."""
FEWEST_SEEN = 3
"""Fewest collectives in which a late device is seen at all."""
POLL_NS = 100_000_000
"""The time between two looks of a watchdog."""
TOGETHER_NS, MOST_TOGETHER = 20_000, 0.1
"""Ends of a rank that are closer were noted in one look; a share of them above the second shows a watchdog."""
ON_TIME_SHARE = 0.5
"""A host that issues later than the others by less than this share of the lateness is on time."""


@dataclass(frozen=True)
class LateDevice:
    """A rank that starts late on its device by itself, in a pool of groups."""

    rank: int
    pool: int
    times: int
    """Collectives in which it is the latest, of those for which any member is that late."""
    of: int
    median_ns: int
    low_ns: int
    high_ns: int
    cost_ns: int
    """Median time that the others wait for it."""
    more_ns: int
    """Median time that it works longer than the others."""
    apart_ns: int
    """Median time from one of these collectives to the next; 0 if there is no next."""
    by_chance: bool
    """Whether chance may make a rank the latest so often."""


def find_late_devices(facts: Facts, pools: MemberPools) -> list[Finding]:
    """A finding for each rank that is late by itself; none without durations of every member."""
    rows = _measured(facts, pools)
    if rows.is_empty():
        return []
    rows = _with_lateness(rows)
    latest = rows.filter((pl.col("own_ns") == pl.col("most_ns")) & (pl.col("own_ns") >= DEVICE_FLOOR_NS))
    counts = latest.group_by("pool", "rank").agg(times=pl.len())
    chance = Chance.over(facts, latest.group_by("pool").agg(times=pl.col("place").n_unique()))
    most = counts.sort("pool", "times", "rank", descending=[False, True, False]).unique("pool", keep="first")
    late = [
        _late_device(rows, pool, rank, chance) for pool, rank in most.sort("pool").select("pool", "rank").iter_rows()
    ]
    first = _first_causes(facts, [device for device in late if device is not None])
    return [_device_finding(facts, rows, device, pools) for device in first if not device.by_chance]


def _late_device(rows: pl.DataFrame, pool: int, rank: int, chance: Chance) -> LateDevice | None:
    """The lateness of a rank in a pool, among the collectives for which any member is that late; None if it is too
    small, or if these are fewer than `FEWEST_SEEN`.

    It may be late at one collective of each step only; in the others chance says who starts last.
    """
    here = rows.filter(pl.col("pool") == pool)
    usual = half_amount(here.filter(pl.col("rank") == rank)["own_ns"].to_numpy())
    noticed = here.filter(pl.col("most_ns") >= max(DEVICE_FLOOR_NS, usual / 2))
    is_latest = pl.col("own_ns") == pl.col("most_ns")
    own = noticed.with_columns(latest=is_latest).filter(pl.col("rank") == rank).sort("ended_ns", "place")
    if own.height < FEWEST_SEEN:
        return None
    amounts = own.select(pl.when("latest").then(pl.col("own_ns", "cost_ns", "more_ns")).otherwise(0))
    low, high = median_interval(amounts["own_ns"].to_numpy())
    apart_ns = own["ended_ns"].diff().median()
    apart = int(apart_ns) if isinstance(apart_ns, float) else 0
    if low < max(DEVICE_FLOOR_NS, DEVICE_FLOOR_SHARE * apart):
        return None
    times = int(own["latest"].sum())
    by_chance = chance.explains(times, own.height, here["rank"].n_unique())
    middle, cost, more = (int(amounts[name].median()) for name in amounts.columns)  # type: ignore[arg-type]
    return LateDevice(rank, pool, times, own.height, middle, low, high, cost, more, apart, by_chance)


def _first_causes(facts: Facts, late: list[LateDevice]) -> list[LateDevice]:
    """Late ranks without those that share a group with one that is later and worked longer: they may have waited for it
    in a way that no duration shows, even if chance may have made that one late."""
    kept: list[LateDevice] = []
    for device in sorted(late, key=lambda late: -late.median_ns * late.more_ns):
        ranks = [{device.rank, other.rank} for other in kept]
        if not any(pair <= set(group.ranks) for pair in ranks for group in facts.groups):
            kept.append(device)
    return kept


def _measured(facts: Facts, pools: MemberPools) -> pl.DataFrame:
    """A row for each member of each collective that all members measured.

    `pool` is the first group of the same members, `place` numbers the collectives of all groups.
    """
    calls, ran = facts.calls, run_times(facts.dataset.ops)
    busy, row = np.cumsum(filled_array(ran, 0)), calls["row"]
    own = calls.select(
        "row", "rank", "created_ns", "rooted", "state", "group", whole_ns="duration_ns",
        pool=pl.Series(pools.of[calls["group"].to_numpy()]), place=pl.Series(facts.instances.code),
        first_ns=ran.gather(row), before_ns=pl.Series(busy[row.to_numpy()], dtype=pl.Int64),
    )  # fmt: skip
    # the row of a coalesced call is the first inside, and its closer has the duration
    later = pl.when(pl.col("first_ns").is_null()).then(pl.col("whole_ns").fill_null(0)).otherwise(0)
    own = own.with_columns(duration_ns=pl.coalesce("first_ns", "whole_ns"), busy_ns=pl.col("before_ns") + later)
    # from the first send or receive without a duration on, nobody knows how long a rank communicated
    own = own.join(_bare(facts, ran), on="rank", how="left", maintain_order="left")
    own = own.with_columns(unknown=(pl.col("row") > pl.col("bare")).fill_null(False))
    own = own.with_columns(busy_ns=_since_last(own))
    kept = own.filter(
        (pl.col("state") == "completed")
        & ~pl.col("rooted")
        & pl.col("created_ns").is_not_null()
        & pl.col("duration_ns").is_not_null()
        & pl.col("busy_ns").is_not_null()
        & ~pl.col("group").is_in(list(_unmeasured(facts)))
        & ~pl.col("unknown")
        & (pl.col("created_ns") < _measured_until(facts, ran))
    )
    size = np.array([len(group.ranks) for group in facts.groups], np.int64)[kept["pool"].to_numpy()]
    place = kept["place"].to_numpy()
    return kept.filter((size > 1) & (np.bincount(place)[place] == size)) if kept.height else kept


def _since_last(rows: pl.DataFrame) -> pl.Series:
    """For each row the time that its rank communicated since its last collective of the pool; null at the first."""
    busy, rank, pool = (rows[name].to_numpy() for name in ("busy_ns", "rank", "pool"))
    order = np.lexsort((pool, rank))
    first = np.diff(rank[order], prepend=-1).astype(bool) | np.diff(pool[order], prepend=-1).astype(bool)
    since, known = np.empty_like(busy), np.empty(len(busy), np.bool_)
    since[order], known[order] = np.diff(busy[order], prepend=0), ~first
    return pl.Series(since).set(pl.Series(~known), None)


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


def _bare(facts: Facts, ran: pl.Series) -> pl.DataFrame:
    """By rank the first row of a finished send or receive without a duration: `bare`.

    A recorder that has durations lacks those of the last moments before its dump: its watchdog did not look again.
    """
    rows = facts.dataset.ops.with_row_index("row").filter(
        pl.col("is_p2p") & ran.is_null() & (pl.col("coalesced") != "inner") & (pl.col("state") == "completed")
    )
    return rows.group_by("rank").agg(bare=pl.col("row").min())


def _measured_until(facts: Facts, ran: pl.Series) -> int:
    """The time until which all ranks have durations in all groups in which they have any.

    Behind it a rank may seem late of itself because the group in which it waited is not measured.
    """
    rows = facts.dataset.ops.select("rank", "group", "created_ns", "coalesced").with_row_index("row")
    rows = rows.with_columns(measured=ran.is_not_null()).filter(pl.col("coalesced") != "inner")
    behind = pl.col("row") > pl.col("row").filter("measured").max()
    until = rows.group_by("rank", "group").agg(pl.col("created_ns").filter(behind).min())["created_ns"].min()
    return until if isinstance(until, int) else _AFTER


def _unmeasured(facts: Facts) -> set[int]:
    """Groups whose members cannot be compared: of hosts, or with members that send to each other, which are stages of
    one pipeline and have other work by design."""
    pipeline = _pipelines(facts)
    return {
        g.id
        for g in facts.groups
        if g.id in facts.gloo_groups or len({pipeline.get(rank, -1 - rank) for rank in g.ranks}) < len(g.ranks)
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
    """`rows` with their lateness, in the order of their matches.

    `own_ns` is the lateness that longer work explains, `most_ns` the largest of the match, `cost_ns` the part of it
    after the others, and `behind_ns` how much later its host issued it than those of the others, by their clocks.
    """
    rows = rows.sort("place", maintain_order=True)
    ran, busy, created, place = (rows[name].to_numpy() for name in ("duration_ns", "busy_ns", "created_ns", "place"))
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    sizes = np.diff(starts, append=len(place))
    match = np.repeat(np.arange(len(starts)), sizes)
    shortest = ran[np.lexsort((ran, match))]
    margin = np.where(ran == shortest[starts][match], shortest[starts + 1][match] - ran, 0)
    late, more = _others_median(ran, match, starts, sizes) - ran, _others_median(busy, match, starts, sizes) - busy
    own = np.minimum(late, more).clip(0)
    return rows.with_columns(
        late_ns=late,
        more_ns=more,
        margin_ns=margin,
        own_ns=own,
        cost_ns=np.minimum(margin, more).clip(0),
        behind_ns=created - _others_median(created, match, starts, sizes),
        most_ns=np.maximum.reduceat(own, starts)[match],
        ended_ns=np.maximum.reduceat(created, starts)[match],
    )


def _others_median(values: Ints, match: Ints, starts: Ints, sizes: Ints) -> Ints:
    """For each member of each match the lower median of the others; the rows of a match are contiguous."""
    order = np.lexsort((values, match))
    middle = (sizes[match] - 2) // 2
    # without the row itself, every row after it moves one place forward
    place = starts[match] + np.where(np.arange(len(values)) - starts[match] <= middle, middle + 1, middle)
    others = np.empty_like(values)
    others[order] = values[order][place]
    return others


def _device_finding(facts: Facts, rows: pl.DataFrame, late: LateDevice, pools: MemberPools) -> Finding:
    """The finding on a rank that is late on its device, by the group that shows it best."""
    rank, group = late.rank, facts.groups[late.pool]
    label, waiting = pools.label(group.id), len(group.ranks) - 1
    own = rows.filter((pl.col("pool") == late.pool) & (pl.col("rank") == rank))
    # collectives to which it is late by more than half of the most
    late_rows = own.filter(pl.col("own_ns") > own["own_ns"].max() / 2)  # type: ignore[operator]
    each_ns = int(late_rows["own_ns"].median() or 0)  # type: ignore[arg-type]
    # the clocks of hosts tell whether the host issues these no later than the others
    behind_ns = int(own.filter(pl.col("own_ns") > 0)["behind_ns"].median() or 0)  # type: ignore[arg-type]
    on_time = behind_ns < ON_TIME_SHARE * each_ns
    times = int((own["margin_ns"] > 0).sum())
    often = times >= LAST_SHARE * own.height
    how, count = ("last", times) if often else ("late", late_rows.height)
    share = f"{100 * late.cost_ns / late.apart_ns:.1f} %" if late.apart_ns else "some"
    where = (
        "Its host issues them no later than the others, so its device is late: the kernels before them take longer."
        if on_time
        else "Its host also issues them later, if the clocks of the hosts agree: its launches may be late."
    )
    interval = f"{duration(late.low_ns)} to {duration(late.high_ns)}"
    return _straggler(
        group,
        rank,
        title=(
            f"rank {rank} starts {how} on its device in {count:,} of {own.height:,} collectives of {label}, "
            f"by {duration(each_ns)}{'' if on_time else ', and issues them late'}"
        ),
        explanation=(
            f"{plural(waiting, 'rank')} {'wait' if waiting > 1 else 'waits'} for rank {rank} "
            "again and again. The durations that devices measure show that its own work makes it late; this costs "
            f"{share} of the time. {where}"
        ),
        doubt="" if on_time else "host and device are late, and one may follow from the other",
        evidence=(
            f"the latest in {late.times:,} of {late.of:,} collectives for which any member is that late: by "
            f"{duration(late.median_ns)} (95 % interval {interval})"
        ),
        against=not_always_last(times, own.height, label) if often else (),
        step=(
            f"Compare the GPU of rank {rank} with the others: clocks, temperature, throttling (nvidia-smi -q -d "
            "CLOCK,PERFORMANCE), and what it is given to compute."
        ),
    )
