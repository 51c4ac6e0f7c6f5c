"""How far the clocks of hosts are apart, by communicators that they set up: each is ready everywhere at once.

Where the zones of two logs differ, that is seen as well. What is found never orders failures: it only tells when the
times as they were printed must not be believed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import polars as pl

from rankscope.analysis.logs.lines import Line, precedes
from rankscope.schema import Dataset

LEAST = 3
"""So many communicators must two hosts have in common."""
SPREAD = 4
"""The middle of what they say must be so many times what they differ by among themselves."""
SMALL_NS = 1_000_000_000
"""Less is not told from what a second-resolution time and the setting up itself differ by."""
MOST_HOSTS = 512


@dataclass(frozen=True)
class Clocks:
    """What is known of them."""

    ahead: dict[tuple[str, str], int] = field(default_factory=dict)
    """By two hosts: how many ns the first one's clock is ahead of the other's, where that is known and matters."""
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    """By how many communicators."""
    hosts: dict[int, str] = field(default_factory=dict)
    """The host of each rank."""

    def host(self, line: Line) -> str | None:
        """Where a line was printed."""
        return line.host or (None if line.rank is None else self.hosts.get(line.rank))

    def skew(self, one: Line, other: Line) -> int:
        """By how many ns the clock behind one line is ahead of that behind another; 0 where nothing is known."""
        return self.ahead.get((self.host(one) or "", self.host(other) or ""), 0)

    def precedes(self, one: Line, other: Line, apart_ns: int = 0) -> bool:
        """Whether a line is older, if both are put on one clock."""
        ahead = self.skew(one, other)
        times = (one.time_ns, one.since_ns, one.until_ns)
        moved = [None if at is None else at - ahead for at in times]
        return precedes(replace(one, time_ns=moved[0], since_ns=moved[1], until_ns=moved[2]), other, apart_ns)


def read_clocks(dataset: Dataset) -> Clocks:
    """What the communicators of logs tell."""
    rows = dataset.comms.filter(
        (pl.col("identity") != "") & pl.col("completed_ns").is_not_null() & pl.col("host").is_not_null()
    )
    known = dataset.comms.drop_nulls(["rank", "host"]).unique("rank", keep="first").select("rank", "host")
    hosts: dict[int, str] = dict(known.iter_rows())
    names = rows["host"].unique()
    if not 1 < len(names) <= MOST_HOSTS:
        return Clocks(hosts=hosts)
    ready = rows.group_by("identity", "host").agg(at=pl.col("completed_ns").median())
    pairs = ready.join(ready, on="identity", suffix="_b").filter(pl.col("host") != pl.col("host_b"))
    apart = pl.col("at") - pl.col("at_b")
    told = pairs.group_by("host", "host_b").agg(
        ahead=apart.median(), spread=(apart - apart.median()).abs().median(), seen=pl.len()
    )
    sure = told.filter(
        (pl.col("seen") >= LEAST)
        & (pl.col("ahead").abs() > SMALL_NS)
        & (pl.col("ahead").abs() > SPREAD * pl.col("spread"))
    )
    both = {(a, b): (int(ahead), seen) for a, b, ahead, _, seen in sure.iter_rows()}
    return Clocks({key: ahead for key, (ahead, _) in both.items()}, {key: n for key, (_, n) in both.items()}, hosts)
