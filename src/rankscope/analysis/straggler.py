"""Ranks that arrive last again and again, or start last on their devices, with a confidence interval of their lateness.

In a healthy run some rank is always last by a little. A rank is accused only if it is last in most collectives of a
group, and the lower end of a 95 % bootstrap interval of its median margin over the second last is above a floor. A
clock that is off looks like a late rank. So if completions were recorded, the wait on the rank's own clock decides: a
late rank waits less than the others. One group is enough for that, because a rank has one clock; if operations queue up
on the device, the first of them has all the waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.arrays import Ints, filled_array, median_interval, true_mask
from rankscope.analysis.counter_evidence import not_always_last
from rankscope.analysis.facts import Facts
from rankscope.analysis.late_ranks import LateRank, lateness_test
from rankscope.analysis.model import Culprit, Evidence, Finding, GroupRef
from rankscope.analysis.places import known_hosts
from rankscope.schema import Group
from rankscope.text.wording import duration, plural

FLOOR_NS = 1_000_000
FLOOR_SHARE = 0.05
"""Margins below this share of the time between two collectives are not told."""
FEWEST_COLLECTIVES = 8
"""Fewest collectives for "again and again"."""
LAST_SHARE = 0.6
"""Share of collectives from which on a rank is last in most; on a device it is else late at the first of a step."""
_BEFORE, _AFTER = (int(end) for end in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
"""The beginning and the end of time, in nanoseconds."""
SIGMAS = 2.5
"""Standard errors by which a wait must be shorter."""


class LastArrival(NamedTuple):
    """The rank that comes last most often in one group, whatever the reason."""

    group: int
    rank: int
    times: int
    of: int
    margin_ns: int
    """Median margin over the second last; 0 where another rank was last."""
    worth_ns: int
    """Smallest margin that is told."""
    margins: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Straggler:
    """One rank that is late in one group."""

    rank: int
    group: int
    times: int
    of: int
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
    last = _last(_met(facts))
    design = DesignLateness(facts)
    odd = [
        arrival for arrival in last if arrival.margin_ns >= arrival.worth_ns
        and not design.explains(facts.groups[arrival.group], arrival.rank, arrival.margin_ns, arrival.worth_ns)
    ]  # fmt: skip
    stragglers = [_late(facts, arrival, last, design) for arrival in odd]
    late = [straggler for straggler in stragglers if straggler is not None and straggler.own_clock is not False]
    best: dict[int, Straggler] = {}
    for straggler in late:
        known = best.get(straggler.rank)
        if known is None or straggler.margin_ns * straggler.times > known.margin_ns * known.times:
            best[straggler.rank] = straggler
    blamed = {rank for rank in best if not _because_of(facts, rank, late)}
    return [_finding(facts, best[rank]) for rank in sorted(blamed, key=lambda r: -best[r].margin_ns)] or _devices(facts)


def _devices(facts: Facts) -> list[Finding]:
    """Ranks that issue on time and start late on their devices, at no cost without durations."""
    ops = facts.dataset.ops
    if ops["duration_ns"].null_count() == ops["started_ns"].null_count() == ops.height:
        return []
    return find_late_devices(facts)


def _met(facts: Facts) -> pl.DataFrame:
    """Finished collectives that every member issued: group, seq, last rank, margin, first arrival; in their order."""
    calls, found = facts.calls, facts.instances
    done = true_mask((calls["state"] == "completed") & calls["created_ns"].is_not_null() & ~calls["rooted"])
    code, rank, created = found.code, calls["rank"].to_numpy(), filled_array(calls["created_ns"], 0)
    count = len(found.group)
    top, first, second = np.full(count, _BEFORE), np.full(count, _AFTER), np.full(count, _BEFORE)
    early = np.where(done, created, _BEFORE)
    np.maximum.at(top, code, early)
    np.minimum.at(first, code, np.where(done, created, _AFTER))
    came_last = np.zeros(count, np.int64)
    at_top = np.flatnonzero(done & (created == top[code]))
    came_last[code[at_top]] = at_top
    met_by = np.bincount(code[at_top], minlength=count) > 0
    early[came_last[met_by]] = _BEFORE
    np.maximum.at(second, code, early)
    size = np.zeros(int(found.group.max(initial=-1)) + 1, np.int64)
    for group in facts.groups[: len(size)]:
        size[group.id] = len(group.ranks)
    met = (np.bincount(code[done], minlength=count) == size[found.group]) & (size[found.group] > 1)
    return pl.DataFrame({
        "group": found.group[met], "seq": found.seq[met], "last": rank[came_last[met]],
        "first_ns": first[met], "margin_ns": top[met] - second[met],
    })  # fmt: skip


def _last(met: pl.DataFrame) -> list[LastArrival]:
    """For every group the rank that is last in most of its collectives; the first collective (warm-up) is excluded."""
    warm = met["group"].to_numpy()
    kept = np.flatnonzero(warm[1:] == warm[:-1]) + 1
    group, last, margin, first = (met[name].to_numpy()[kept] for name in ("group", "last", "margin_ns", "first_ns"))
    starts = np.flatnonzero(np.diff(group.astype(np.int64), prepend=-1))
    bounds = np.append(starts, len(group))
    part = np.repeat(np.arange(len(starts)), np.diff(bounds))
    rank, times = _most_frequent(last, part, len(starts))
    margins = np.where(last == rank[part], margin, 0)
    apart = np.flatnonzero(part[1:] == part[:-1])
    usual = FLOOR_SHARE * _medians(first[apart + 1] - first[apart], part[apart], len(starts))
    middle, length = _medians(margins, part, len(starts)), np.diff(bounds)
    return [
        LastArrival(
            int(group[starts[one]]), int(rank[one]), int(times[one]), int(length[one]), int(middle[one]),
            int(max(FLOOR_NS, usual[one])), margins[bounds[one] : bounds[one + 1]],
        )
        for one in np.flatnonzero((length >= FEWEST_COLLECTIVES) & (times >= LAST_SHARE * length))
    ]  # fmt: skip


def _most_frequent(values: npt.NDArray[np.int32], part: Ints, parts: int) -> tuple[Ints, Ints]:
    """For each part its most frequent value, and how often it occurs."""
    size = int(values.max(initial=0)) + 1
    keys = np.sort(part * size + values)
    runs = np.flatnonzero(np.diff(keys, prepend=-1))
    of, counts = keys[runs] // size, np.diff(runs, append=len(keys))
    most, value = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    np.maximum.at(most, of, counts)
    top = counts == most[of]
    value[of[top]] = keys[runs[top]] % size
    return value, most


def _medians(values: Ints, part: Ints, parts: int) -> npt.NDArray[np.float64]:
    """The median of each part, 0 for an empty one; the rows of a part are contiguous and in order."""
    values = values[np.lexsort((values, part))]
    counts = np.bincount(part, minlength=parts)
    firsts = np.cumsum(counts) - counts
    padded = np.append(values, 0).astype(np.float64)
    middle = np.maximum(counts - 1, 0) // 2, counts // 2
    low, high = (padded[np.minimum(firsts + place, len(values))] for place in middle)
    return np.where(counts > 0, (low + high) / 2, 0)


def _late(facts: Facts, last: LastArrival, everywhere: list[LastArrival], design: DesignLateness) -> Straggler | None:
    low, high = median_interval(last.margins)
    if low < last.worth_ns:
        return None
    groups = [one.group for one in everywhere if one.rank == last.rank]
    answers = [_own_clock(facts, group, last.rank, last.margin_ns, design) for group in groups]
    own_clock = any(answers) if any(answer is not None for answer in answers) else None
    return Straggler(last.rank, last.group, last.times, last.of, last.margin_ns, low, high, own_clock)


def _own_clock(facts: Facts, group: int, rank: int, margin: int, design: DesignLateness) -> bool | None:
    """Whether a rank waits significantly less than its peers, and than its place in the replicas of the group does.

    Each wait is measured on one clock only.
    Measured by the device's own durations, or by the time until a completion was noticed, every 100 ms. A hook notices
    only once a second; but a peer that finishes before the last one comes shows another clock.
    """
    rows = facts.calls.filter((pl.col("group") == group) & (pl.col("state") == "completed"))
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


def _finding(facts: Facts, late: Straggler) -> Finding:
    group, label = facts.groups[late.group], facts.label(late.group)
    waiting, times = len(group.ranks) - 1, f"{late.times:,} of {late.of:,}"
    one_clock = late.own_clock or _on_one_host(facts, group)
    interval = f"{duration(late.low_ns)} to {duration(late.high_ns)}"
    return _straggler(
        group,
        late.rank,
        title=f"rank {late.rank} arrives last in {times} collectives of {label}, by {duration(late.margin_ns)}",
        explanation=(
            f"No hang, but {plural(waiting, 'rank')} {'wait' if waiting > 1 else 'waits'} for rank "
            f"{late.rank} again and again: it comes {duration(late.margin_ns)} after the second to last (median; 95 "
            f"% interval {interval})."
        ),
        doubt="" if one_clock else "no completion times: a clock that is off would look the same",
        evidence=f"last in {times}, median margin {duration(late.margin_ns)}",
        against=not_always_last(late.times, late.of, label),
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
            ran.group_by("group", "seq").agg(less=length.filter(~own).mean() - length.filter(own).first())
            .group_by("group").agg(pl.col("less").median()).drop_nulls()
        )  # fmt: skip
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
            self._facts.calls.join(ends, on="group").filter(pl.col("state") == "completed")
            .group_by("group", "seq").agg(late=created.filter(own).max() - created.filter(~own).max())
            .group_by("group").agg(pl.col("late").median()).sort("group").drop_nulls()
        )  # fmt: skip
        return dict(table.iter_rows())


# Ranks whose devices start collectives last, by the durations that the devices themselves measure.
#
# A collective ends everywhere at the same time, so on the device that starts it last it is the shortest: no clock of a
# host is compared. A rank is late by itself only as far as it also worked longer than the others since the collective
# before: between two collectives of a group all members have the same time, and who communicates less in it worked
# more. So a rank that waited for another in a second group is not accused. Intervals and floors are those of traces.


PARTS = 8
"""Equal parts of the recorded time in which lateness is counted."""
POLL_NS = 100_000_000
"""The time between two looks of a watchdog."""
TOGETHER_NS, MOST_TOGETHER = 20_000, 0.1
"""Ends of a rank that are closer were noted in one look; a share of them above the second shows a watchdog."""
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
    return [_device_finding(facts, rows, rank) for rank in late]


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
    return rows.with_columns(
        late_ns=others_median("duration_ns") - ran,
        more_ns=others_median("busy_ns") - pl.col("busy_ns"),
        margin_ns=pl.when(ran == least).then(second - ran).otherwise(0),
    ).with_columns(
        own_ns=pl.min_horizontal("late_ns", "more_ns").clip(0),
        cost_ns=pl.min_horizontal("margin_ns", "more_ns").clip(0),
        ended_ns=pl.col("created_ns").max().over(_MATCH),
    )


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


def _device_finding(facts: Facts, rows: pl.DataFrame, late: LateRank) -> Finding:
    """The finding on a rank that is late on its device, by the group that shows it best."""
    rank, group = late.rank, facts.groups[late.channel]
    label, waiting = facts.label(group.id), len(group.ranks) - 1
    here = rows.filter(pl.col("channel") == late.channel).with_columns(
        behind=pl.col("created_ns") - others_median("created_ns")
    )
    own = here.filter(pl.col("rank") == rank)
    # collectives to which it is late by more than half of the most
    late_rows = own.filter(pl.col("own_ns") > own["own_ns"].max() / 2)  # type: ignore[operator]
    each_ns = int(late_rows["own_ns"].median() or 0)  # type: ignore[arg-type]
    # the clocks of hosts tell whether the host issues these no later than the others
    behind_ns = int(own.filter(pl.col("own_ns") > 0)["behind"].median() or 0)  # type: ignore[arg-type]
    on_time = behind_ns < ON_TIME_SHARE * each_ns
    times = int((own["margin_ns"] > 0).sum())
    often = times >= LAST_SHARE * own.height
    how, count = ("last", times) if often else ("late", late_rows.height)
    share = f"{100 * late.cost_ns / late.unit_ns:.1f} %" if late.unit_ns else "some"
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
            f"No hang, but {plural(waiting, 'rank')} {'wait' if waiting > 1 else 'waits'} for rank {rank} "
            "again and again. The durations that devices measure show that its own work makes it late; this costs "
            f"{share} of the time. {where}"
        ),
        doubt="" if on_time else "host and device are late, and one may follow from the other",
        evidence=f"late by {duration(late.median_ns)} in each {PARTS}th of the recording (95 % interval {interval})",
        against=not_always_last(times, own.height, label) if often else (),
        step=(
            f"Compare the GPU of rank {rank} with the others: clocks, temperature, throttling (nvidia-smi -q -d "
            "CLOCK,PERFORMANCE), and what it is given to compute."
        ),
    )
