"""Durations of two runs: the ratio of medians with an interval that holds within these two runs.

Two runs of one setting differ by themselves: with an offset of 1 % such an interval excludes equality in 17 to 87 % of
pairs. So one run a side shows a ratio and never calls it significant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import Ints, filled_array
from rankscope.analysis.signatures import ROOTED_OPS, wire_name
from rankscope.features.comparison.rules.schedule_comparison import ScheduleComparison, ScheduleRows, stretch_hashes
from rankscope.features.comparison.rules.series_comparison import STEP_SECONDS
from rankscope.schema import Dataset
from rankscope.text.tensors import tensors

Floats = NDArray[np.float64]
LEAST_STEPS = 50
"""Fewer values of a side give no interval."""
WARM_UP = 10
"""First steps of a run that are left out."""
LEAST_CHANGE = 0.03
"""A smaller change of the median is no difference."""
LEAST_RANKED, LEAST_ABOVE, LEAST_FEW_CHANGE = 10, 0.9, 0.05
"""From so many steps on, and below `LEAST_STEPS`, steps stand apart if this share of all pairs of a step of each run
lies the same way, and the medians are so far apart, and by `APART` times the changes between quarters of either run."""
LEAST_APART_CHANGE = 0.1
"""The same distance of the medians for fewer than `LEAST_RANKED` steps that are all apart: at noise of 3 % and a rank
correlation of 0.6 fewer than 1 % of equal pairs are."""
LEAST_APART, APART = 5, 1.5
"""Fewest steps of a trace that may stand apart from those of the other run, and the distance of the medians for that,
in ranges of the steps of one run. Of 3,000 pairs of equal runs of 5 steps with noise of 3 %, 0 to 2 % do up to a rank
correlation of 0.6 (21 % at 0.9), and 4 % if runs differ by themselves by 1 %."""
_RESAMPLINGS = 400
_SEED = 0
_LARGEST = 0.125
"""Longest block as a part of the series."""
_UNCORRELATED = 0.1
_QUARTERS = 4
MOST_SITES = 20
"""Most call sites of collectives that are compared."""
LEAST_MATCHED = 20
"""Fewer collectives that both runs have tell nothing of a rank's times."""
MOST_MATCHED = 250_000
"""About the most rows of a run whose times are matched; of more, one of several blocks of collectives counts."""
_BLOCK = 8
"""Collectives of a block: more than one, so that all kinds of a regular loop count."""
_SITE = ["label", "op", "in_sizes", "in_dtypes"]
_PERIOD_STRETCH = 8
_REGULAR = 0.9
"""Part of the operations that must repeat after one period."""


class TimeRatio(NamedTuple):
    """Times of one thing in both runs."""

    name: str
    median_a: float
    """Seconds."""
    median_b: float
    count_a: int
    count_b: int
    low: float | None
    """Ends of the 95 % interval of the ratio within these two runs; None with fewer than `LEAST_STEPS` values."""
    high: float | None
    cost_a: float | None = None
    """Mean seconds of a step, 0 in a run that does not have it; None where steps are not known."""
    cost_b: float | None = None
    apart: bool = False
    """Whether too few steps for an interval stand apart; see `stand_apart`."""
    above: float = 1.0
    """Of all pairs of a step of each run the share in which the one of the slower run takes longer."""
    drift: float = 0.0
    """How much the steadier of the two runs differs from itself: see `own_drift`."""

    @property
    def ratio(self) -> float:
        """Median of B by that of A."""
        return self.median_b / self.median_a if self.median_a else float("nan")

    @property
    def stands_out(self) -> bool:
        """Whether the change is at least `LEAST_CHANGE`, and its interval excludes equality or the steps are apart.

        A change that is smaller than those that each run shows within itself is none: other work came and went.
        """
        if abs(self.ratio - 1) <= self.drift:
            return False
        if self.low is None or self.high is None:
            return self.apart and abs(self.ratio - 1) >= LEAST_CHANGE
        return abs(self.ratio - 1) >= LEAST_CHANGE and not self.low <= 1 <= self.high

    @property
    def change(self) -> float:
        """Seconds a step that B takes longer on average; 0 where steps are not known."""
        return (self.cost_b or 0) - (self.cost_a or 0)


class OwnStraggler(NamedTuple):
    """A rank, or all traced ranks of a host, that is slow in one of the runs only."""

    run: str
    """"A" or "B"."""
    ranks: tuple[int, ...]
    title: str
    details: tuple[str, ...] = ()


class TimeComparison(NamedTuple):
    """Times of steps and of collectives, and of what else traces show in steps."""

    steps: tuple[TimeRatio, ...]
    collectives: tuple[TimeRatio, ...]
    """By their cost in A, the largest first."""
    phases: tuple[TimeRatio, ...] = ()
    kernels: tuple[TimeRatio, ...] = ()
    stragglers: tuple[OwnStraggler, ...] = ()
    notes: tuple[str, ...] = ()
    """Limits of what traces tell, for the user."""

    @property
    def parts(self) -> tuple[TimeRatio, ...]:
        """All but steps: those that changed most a step come first."""
        return tuple(sorted((*self.phases, *self.kernels, *self.collectives), key=lambda one: -abs(one.change)))


def compare_times(
    schedule: ScheduleComparison | None, series_a: pl.DataFrame, series_b: pl.DataFrame
) -> TimeComparison:
    """The times of steps, by series or by the period of the schedule, and of collectives by group, operation, size."""
    steps = list[TimeRatio]()
    if not (series_a.is_empty() or series_b.is_empty()):
        # what a trainer printed, without the first ones; one series for a run
        seconds = []
        for table in (series_a, series_b):
            rows = table.filter((pl.col("name") == STEP_SECONDS) & (pl.col("value") > 0)).sort("step")
            each = rows.group_by("step", maintain_order=True).agg(pl.col("value").max())["value"].to_numpy()
            seconds.append(each[warm_up(len(each)) :])
        if all(map(len, seconds)):
            steps.append(step_ratio("step, as logged", *seconds))
    if schedule is None:
        return TimeComparison(tuple(steps), ())
    steps = steps or list(_periods(schedule))
    collectives = () if schedule.apart else tuple(_collectives(schedule))
    return TimeComparison(tuple(steps), collectives, stragglers=last_ranks(schedule))


def time_ratio(name: str, a: Floats, b: Floats) -> TimeRatio:
    """The ratio of medians of two series of times in seconds, in order of time."""
    low, high = ratio_interval(a, b) if min(len(a), len(b)) >= LEAST_STEPS else (None, None)
    drift = min(own_drift(a), own_drift(b)) if low is not None else 0.0
    return TimeRatio(name, float(np.median(a)), float(np.median(b)), len(a), len(b), low, high, drift=drift)


def step_ratio(name: str, a: Floats, b: Floats) -> TimeRatio:
    """The ratio of the times of steps; too few for an interval count if they stand apart."""
    found = time_ratio(name, a, b)
    if found.low is not None:
        return found
    return found._replace(apart=stand_apart(a, b), above=above_share(a, b))


def above_share(a: Floats, b: Floats) -> float:
    """The share, of all pairs of a value of each side, in which that of the side with the larger median is larger."""
    slow, fast = (a, b) if np.median(a) > np.median(b) else (b, a)
    larger = (slow[:, None] > fast).mean() + 0.5 * (slow[:, None] == fast).mean()
    return float(larger)


def own_drift(values: Floats) -> float:
    """The largest change between the medians of the quarters of a run, as a part of the smaller one."""
    middles = [float(np.median(part)) for part in np.array_split(values, _QUARTERS)]
    return max(middles) / min(middles) - 1 if min(middles) > 0 else 0.0


def stand_apart(a: Floats, b: Floats) -> bool:
    """Whether the values of one side lie above those of the other, and the medians much further apart than they do.

    Where each value of one side lies above each of the other, they are apart if the medians are by `LEAST_FEW_CHANGE`
    (`LEAST_APART_CHANGE` of the fewest) and by the range that the steadier side has. Of `LEAST_RANKED` values and more,
    some may be pauses.
    """
    if min(len(a), len(b)) < LEAST_APART:
        return False
    change = abs(float(np.median(b) / np.median(a)) - 1)
    least = LEAST_FEW_CHANGE if min(len(a), len(b)) >= LEAST_RANKED else LEAST_APART_CHANGE
    steadier = min(float(np.ptp(one) / np.median(one)) for one in (a, b))
    if above_share(a, b) == 1 and change >= max(least, steadier):
        return True
    if min(len(a), len(b)) >= LEAST_RANKED:
        drift = max(own_drift(a), own_drift(b))
        return change >= max(LEAST_FEW_CHANGE, APART * drift) and above_share(a, b) >= LEAST_ABOVE
    reach = max(float(np.ptp(one) / np.median(one)) for one in (a, b))
    above = a.max() < b.min() or b.max() < a.min()
    return bool(above) and change >= APART * reach


def ratio_interval(a: Floats, b: Floats) -> tuple[float, float]:
    """2.5 % and 97.5 % of the ratio of medians over resampled moving blocks; the seed is fixed."""
    rng = np.random.default_rng(_SEED)
    medians = []
    for values in (a, b):
        # samples of the series, one in each row, made of blocks of neighbours
        size = block_length(values)
        starts = rng.integers(0, len(values) - size + 1, size=(_RESAMPLINGS, -(-len(values) // size)))
        places = (starts[:, :, None] + np.arange(size)).reshape(_RESAMPLINGS, -1)[:, : len(values)]
        medians.append(np.median(values[places], axis=1))
    ratios = medians[1] / medians[0]
    return float(np.quantile(ratios, 0.025)), float(np.quantile(ratios, 0.975))


def block_length(values: Floats) -> int:
    """(2c/(1-c²))^(2/3) T^(1/3) with the rank autocorrelation c of neighbours; 1 if c is small (Carlstein, 1986)."""
    ranks = pl.Series(values).rank("average").to_numpy()
    spread = float(np.std(ranks[:-1]) * np.std(ranks[1:]))
    if not spread:
        return 1
    c = float(np.mean((ranks[:-1] - ranks[:-1].mean()) * (ranks[1:] - ranks[1:].mean()))) / spread
    if c <= _UNCORRELATED:
        return 1
    c = min(c, 0.99)
    length = float((2 * c / (1 - c * c)) ** (2 / 3) * len(values) ** (1 / 3))
    return max(1, min(round(length), int(len(values) * _LARGEST)))


def warm_up(count: int) -> int:
    """The number of first steps of a run that are left out: no more than a third, so that `LEAST_APART` are left."""
    return min(WARM_UP, count // 3, max(0, count - LEAST_APART))


def _periods(schedule: ScheduleComparison) -> Iterator[TimeRatio]:
    """The times between repetitions of the loop on the lowest rank of both runs."""
    ranks = [rank for rank, one in schedule.alignments.items() if one.placed != "none"]
    if not ranks:
        return
    times = [_turn_seconds(run, ranks[0]) for run in (schedule.a, schedule.b)]
    if all(len(one) > 1 for one, _ in times) and times[0][1] == times[1][1]:
        name = f"turn of the loop of {times[0][1]} operations, rank {ranks[0]}"
        yield step_ratio(name, times[0][0], times[1][0])


def _turn_seconds(run: ScheduleRows, rank: int) -> tuple[Floats, int]:
    """Seconds of each turn of the loop, and the operations of a turn; 0 if nothing repeats."""
    start, end = run.bounds[rank]
    rows = run.rows[start:end]
    created = rows["created_ns"].to_numpy()
    period = period_of(plain_codes(rows))
    if not period or rows["created_ns"].null_count():
        return np.zeros(0), 0
    first = (len(created) - 1) % period
    if rank in run.whole:
        first += warm_up((len(created) - first) // period) * period
    turns: Floats = np.diff(created[first::period]) / 1e9
    return turns[turns > 0], period


def plain_codes(rows: pl.DataFrame) -> Ints:
    """A number for each operation by kind, group and size, within this rank."""
    codes: Ints = rows.select(
        pl.struct(pl.col("op").cast(pl.String), "group", "in_sizes", "peer").rank("dense").cast(pl.Int64).alias("code")
    )["code"].to_numpy()
    return codes


def period_of(codes: Ints) -> int:
    """The length of the loop at the end of a sequence: the shortest that repeats; 0 if nothing does."""
    size = _PERIOD_STRETCH
    if len(codes) < 2 * size:
        return 0
    hashes = stretch_hashes(codes, size)
    places = np.flatnonzero(hashes == hashes[-1])
    shifts: list[int] = (len(hashes) - 1 - places[:-1][::-1])[:64].tolist()
    for shift in shifts:
        recent = codes[-min(len(codes), 4 * shift) :]
        if np.mean(recent[shift:] == recent[:-shift]) >= _REGULAR:
            return shift
    return 0


LEAST_LAST, LAST, SELDOM_LAST, LEAST_LATE_S = 30, 0.97, 0.5, 1e-3
"""Collectives of a rank that tell who comes last; the share of them in which a straggler does, and that in which it
does in the other run at most; and the seconds by which the others wait more for it on average."""


def last_ranks(found: ScheduleComparison) -> tuple[OwnStraggler, ...]:
    """The rank that comes last to all collectives of all ranks in one run, and not in the other.

    Members leave a collective together, so who comes last has the shortest time in it; clocks need not agree. Where
    dumps have no durations, nothing is told.
    """
    if found.apart or not all(_has_durations(run) for run in (found.a, found.b)):
        return ()
    sides = [_arrivals(run) for run in (found.a, found.b)]
    if any(side.is_empty() for side in sides):
        return ()
    both = sides[0].join(sides[1], on="rank", suffix="_b")
    stragglers = []
    for label, own, other in (("A", "", "_b"), ("B", "_b", "")):
        slow = both.filter(
            (pl.col(f"count{own}") >= LEAST_LAST)
            & (pl.col(f"count{other}") >= LEAST_LAST)
            & (pl.col(f"last{own}") >= LAST * pl.col(f"count{own}"))
            & (pl.col(f"last{other}") <= SELDOM_LAST * pl.col(f"count{other}"))
            & (pl.col(f"late{own}") - pl.col(f"late{other}") >= LEAST_LATE_S)
        )
        for row in slow.iter_rows(named=True):
            rank, late = row["rank"], row[f"late{own}"] * 1e3
            title = (
                f"rank {rank} comes last to {row[f'last{own}']} of {row[f'count{own}']} collectives in {label}, and to "
                f"{row[f'last{other}']} of {row[f'count{other}']} in the other run"
            )
            details = (f"the others wait {late:.3g} ms for it on average",)
            stragglers.append(OwnStraggler(label, (rank,), title, details))
    return tuple(stragglers)


def _arrivals(run: ScheduleRows) -> pl.DataFrame:
    """rank, count, last, late: collectives that need all of at least two members, in how many of them the rank alone
    comes last, and for how many seconds the others wait for it on average over all.

    The root of a broadcast, and members of a reduce, leave without waiting for others.
    """
    ns = pl.coalesce("duration_ns", pl.col("completed_ns") - pl.col("started_ns")).alias("ns")
    call = ["group", "seq"]
    rooted = [name for name in run.rows["op"].cast(pl.String).unique() if wire_name(name) in ROOTED_OPS]
    sizes = pl.DataFrame(
        [(group.id, len(group.ranks)) for group in run.dataset.group_list],
        schema={"group": run.rows.schema["group"], "size": pl.UInt32},
        orient="row",
    )
    rows = run.rows.lazy().filter(
        ~pl.col("is_p2p").fill_null(False) & pl.col("seq").is_not_null() & ~pl.col("op").cast(pl.String).is_in(rooted)
    )
    timed = rows.select("rank", "group", "seq", ns).filter(pl.col("ns") > 0)
    # after the first ones: ranks begin apart
    later = timed.filter(pl.col("seq").rank("dense").over("rank", "group") > WARM_UP)
    known = (
        later.with_columns(
            members=pl.len().over(call),
            least=pl.col("ns") == pl.col("ns").min().over(call),
            wait=(pl.col("ns").max() - pl.col("ns").min()).over(call) / 1e9,
        )
        .with_columns(first=pl.col("least") & (pl.col("least").sum().over(call) == 1))
        .join(sizes.lazy(), on="group", how="left")
        .filter((pl.col("members") > 1) & (pl.col("members") == pl.col("size").fill_null(pl.col("members"))))
    )
    return (
        known.group_by("rank")
        .agg(
            pl.len().alias("count"),
            pl.col("first").sum().alias("last"),
            (pl.col("wait") * pl.col("first")).mean().alias("late"),
        )
        .sort("rank")
        .collect()
    )


def matched_times(found: ScheduleComparison) -> pl.DataFrame:
    """rank, place, a, b, is_wait: seconds of each rank in collectives of both runs.

    `is_wait` says whether they are the time of the collective or a rank's delay: see `pictures.RankScatter`.
    """
    is_wait = all(_has_durations(run) for run in (found.a, found.b))
    stride = min(_stride(run) for run in (found.a, found.b))
    sides = [
        _seconds(run, numbers, is_wait, stride)
        for run, numbers in ((found.a, found.groups.of_a), (found.b, found.groups.of_b))
    ]
    joined = sides[0].join(sides[1], on=["rank", "number", "seq"], suffix="_b", maintain_order="left")
    table = joined.select("rank", pl.int_range(pl.len()).over("rank").alias("place"), a="seconds", b="seconds_b")
    enough = table.filter(pl.len().over("rank") >= LEAST_MATCHED)
    return enough.with_columns(pl.lit(is_wait).alias("is_wait"))


def _stride(run: ScheduleRows) -> int:
    """The number of blocks of which one counts, so that about `MOST_MATCHED` rows count, and enough of each rank."""
    ranks = max(len(run.bounds), 1)
    return max(1, min(run.rows.height // MOST_MATCHED, run.rows.height // ranks // (4 * LEAST_MATCHED)))


def _has_durations(run: ScheduleRows) -> bool:
    rows = run.rows
    return rows["duration_ns"].count() > 0 or bool((rows["completed_ns"] - rows["started_ns"]).count())


def _seconds(run: ScheduleRows, numbers: Ints, is_wait: bool, stride: int) -> pl.DataFrame:
    """rank, number, seq, seconds: the time in each collective, or how much later than its peers a rank issues it."""
    group = filled_array(run.rows["group"].cast(pl.Int64), -1)
    number = np.where(group < 0, -1, numbers[group]) if len(numbers) else np.full(len(group), -1)
    late = pl.col("created_ns") - pl.col("created_ns").median().over("number", "seq")
    wait = pl.coalesce("duration_ns", pl.col("completed_ns") - pl.col("started_ns"))
    rows = (
        run.rows.lazy()
        .with_columns(pl.Series("number", number, pl.Int64))
        .filter(
            pl.col("number") >= 0,
            pl.col("seq").is_not_null(),
            ~pl.col("is_p2p").fill_null(False),
            pl.col("seq") // _BLOCK % stride == 0,
        )
    )
    timed = rows.with_columns(((wait if is_wait else late) / 1e9).alias("seconds")).filter(
        pl.col("seconds").is_not_null()
    )
    once = timed.unique(["rank", "number", "seq"], keep="first", maintain_order=True)
    return once.select("rank", "number", "seq", "seconds").collect()


def _collectives(schedule: ScheduleComparison) -> Iterator[TimeRatio]:
    """Times of the costliest collectives without the wait: the shortest over the ranks, pooled over groups."""
    both = _sites(schedule.a).join(_sites(schedule.b), on=_SITE, nulls_equal=True, suffix="_b")
    cost = both["seconds"].list.sum()
    ordered = both.with_columns(cost=cost).sort("cost", *_SITE, descending=[True, *(False for _ in _SITE)])
    for row in ordered.head(MOST_SITES).iter_rows(named=True):
        name = f"{row['op']} {tensors(row['in_sizes'], row['in_dtypes'])} in {row['label']}"
        yield time_ratio(name, np.array(row["seconds"]), np.array(row["seconds_b"]))


def _sites(run: ScheduleRows) -> pl.DataFrame:
    """label, op, in_sizes, in_dtypes, seconds: the times of each call site in order of their numbers."""
    duration = pl.coalesce("duration_ns", pl.col("completed_ns") - pl.col("started_ns")).alias("ns")
    timed = run.rows.lazy().select("group", "seq", "op", "in_sizes", "in_dtypes", "is_p2p", duration)
    moved = (
        timed.filter((pl.col("ns") > 0) & ~pl.col("is_p2p").fill_null(False) & pl.col("seq").is_not_null())
        .group_by("group", "seq", "op", "in_sizes", "in_dtypes")
        .agg(pl.col("ns").min())
        .join(group_labels(run.dataset).lazy(), on="group")
        .with_columns(pl.col("op", "in_dtypes").cast(pl.String))
        .group_by(*_SITE, "seq")
        .agg(pl.col("ns").median())
    )
    return moved.sort("seq").group_by(_SITE).agg((pl.col("ns") / 1e9).alias("seconds")).collect()


def group_labels(dataset: Dataset) -> pl.DataFrame:
    """group, label: the description of each group, or the number of its members."""
    unnamed = pl.format("groups of {}", pl.col("ranks").list.len())
    label = pl.when(pl.col("description") == "").then(unnamed).otherwise("description")
    return dataset.groups.select("group", label.alias("label"))
