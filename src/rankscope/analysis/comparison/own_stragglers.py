"""Ranks and hosts that are slow in one of two runs only: stragglers of that run, and no difference of settings.

A rank is late by itself by the test of one run (`late_ranks`), and in the other run much less. Of ranks that do not
communicate, and so wait for nobody, it is the one whose steps became longer while those of the others did not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.comparison.model import ComparedRun
from rankscope.analysis.comparison.time_comparison import APART, LEAST_APART, OwnStraggler
from rankscope.analysis.places import Places
from rankscope.analysis.traces.model import STEPS
from rankscope.schema.tables import empty
from rankscope.text.wording import duration, ranks_text

LEAST_RATIO = 2
"""Smallest ratio of the lateness of a straggler to that of the same rank in the other run."""
SPREADS = 6 * 1.4826
"""Distance to the others, in median absolute deviations, from which a rank is apart: six sigma of a normal spread."""
LEAST_EXCESS = 0.1
"""Least excess of the steps of a rank that waits for nobody over those of the others. With it and the ranges of
`stand_apart`, 0 to 0.3 % of pairs of equal runs of 3 to 64 ranks accuse one (5 to 20 steps, noise of 3 % with a rank
correlation up to 0.6; 1.7 % at 0.9)."""
LEAST_RANKS = 3
"""Fewest ranks of which one can be apart from the others."""
_LONGEST_RANKS = 40


class _Side(NamedTuple):
    """A run, its label, and the rows of STEPS of its traces."""

    label: str
    run: ComparedRun
    steps: pl.DataFrame

    @property
    def accused(self) -> dict[int, str]:
        """The title of the finding for each rank that is called a straggler."""
        found = [one for one in self.run.analysis.findings if one.kind == "straggler"]
        return {rank: one.title for one in found for rank in one.culprit_ranks}

    @property
    def late(self) -> dict[int, float]:
        """For each rank the part of its time by which it is late by itself."""
        known = self.steps.drop_nulls(["rank", "late_ns"]).with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
        parts = known.group_by("rank").agg(pl.col("late_ns").sum() / pl.col("ns").sum())
        return dict(parts.iter_rows())


class _SlowRank(NamedTuple):
    """The amounts by which a rank is slow."""

    here: float
    """A part of its time, or the nanoseconds of its steps if `others` are known."""
    there: float
    others: tuple[float, float] | None = None
    """Nanoseconds of the steps of the other ranks, here and there."""
    title: str = ""
    """Title of the finding of its run."""


def own_stragglers(a: ComparedRun, b: ComparedRun) -> Iterator[OwnStraggler]:
    """The stragglers of B that are none in A, then those of A that are none in B; only of runs of equal size."""
    if a.dataset.world_size != b.dataset.world_size:
        return
    one, other = (
        _Side(label, run, run.analysis.traces.steps if run.analysis.traces else empty(STEPS))
        for label, run in (("A", a), ("B", b))
    )
    for here, there in ((other, one), (one, other)):
        found = {**_slow_steps(here, there), **_late(here, there)}
        yield from _by_host(found, here, there)


def _late(here: _Side, there: _Side) -> dict[int, _SlowRank]:
    """The ranks that are late by themselves here only."""
    parts, other, innocent = here.late, there.late, there.accused
    return {
        rank: _SlowRank(parts[rank], other[rank], title=title)
        for rank, title in here.accused.items()
        if rank not in innocent and rank in parts and rank in other and parts[rank] > LEAST_RATIO * other[rank]
    }


def _slow_steps(here: _Side, there: _Side) -> dict[int, _SlowRank]:
    """The ranks without communication whose steps all are longer than there, by more than those of the others."""
    both = _step_lengths(here).join(_step_lengths(there), on="rank", suffix="_there")
    if both.height < LEAST_RANKS:
        return {}
    change = (both["ns"] / both["ns_there"]).to_numpy()
    far = change / np.median(change) - 1
    limit = max(LEAST_EXCESS, SPREADS * float(np.median(np.abs(far))))
    apart = pl.Series(change - 1) >= APART * pl.max_horizontal("reach", "reach_there")
    slow = both.filter(pl.Series(far > limit) & apart & (pl.col("least") > pl.col("most_there")))
    rest = both.join(slow, on="rank", how="anti")
    others = float(np.median(rest["ns"])), float(np.median(rest["ns_there"]))
    return {
        rank: _SlowRank(ns, before, others) for rank, ns, before in slow.select("rank", "ns", "ns_there").iter_rows()
    }


def _step_lengths(side: _Side) -> pl.DataFrame:
    """rank, ns, least, most, reach: median, shortest and longest step of each rank, and their range by the median.

    A rank with few steps is left out, and one that communicates: its steps are as long as those that it waits for.
    """
    ns = pl.col("end_ns") - pl.col("start_ns")
    steps = side.steps.drop_nulls("rank").group_by("rank").agg(
        ns=ns.median(), least=ns.min(), most=ns.max(), count=pl.len(), alone=pl.col("communication_ns").max() == 0
    )  # fmt: skip
    enough = steps.filter("alone", pl.col("count") >= LEAST_APART, pl.col("ns") > 0).sort("rank")
    return enough.select("rank", "ns", "least", "most", reach=(pl.col("most") - pl.col("least")) / pl.col("ns"))


# Words.


def _by_host(found: dict[int, _SlowRank], here: _Side, there: _Side) -> Iterator[OwnStraggler]:
    """One straggler for each host of which all traced ranks are slow, and for each other rank."""
    hosts, before = Places(here.run.dataset).hosts, Places(there.run.dataset).hosts
    traced = defaultdict[str, list[int]](list)
    for rank in here.steps["rank"].drop_nulls().unique().sort():
        traced[hosts.get(rank, "")].append(rank)
    for host, ranks in traced.items():
        slow = [rank for rank in ranks if rank in found]
        if host and len(slow) == len(ranks) > 1 and len(traced) > 1:
            yield _straggler(f"host {host} ({ranks_text(ranks, _LONGEST_RANKS)})", slow, found, here, there)
            continue
        for rank in slow:
            moved = f" ({before[rank]} in {there.label})" if before.get(rank, host) != host else ""
            place = f"rank {rank}{f' on {host}' if host else ''}{moved}"
            yield _straggler(place, [rank], found, here, there)


def _straggler(
    place: str, ranks: Sequence[int], found: dict[int, _SlowRank], here: _Side, there: _Side
) -> OwnStraggler:
    slow = [found[rank] for rank in ranks]
    after, before = (float(np.median([getattr(one, side) for one in slow])) for side in ("here", "there"))
    if (others := slow[0].others) is not None:
        told = [duration(round(ns)) for ns in (after, before, *others)]
        how = f"its steps take {told[0]}, in {there.label} {told[1]}; those of the other ranks {told[2]} and {told[3]}"
    else:
        how = f"late by itself for {after:.1%} of the time, in {there.label} for {before:.1%}"
    title = f"{place} is a straggler of {here.label} only: {how}".replace("%", " %")
    return OwnStraggler(here.label, tuple(ranks), title, tuple(one.title for one in slow if one.title))
