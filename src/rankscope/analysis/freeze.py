"""Was the job stopped when its dumps were written, or caught moving?

The recorder does not store when it was dumped. What there is: the file's modification time against the newest event
of any rank, and operations that were given up by the watchdog. A job was still if nothing had happened for more
than 2 s and for more than 20 times the usual gap between the operations of a rank (99th percentile over the job),
or if an operation was older than its timeout.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.analysis.calls import PENDING
from rankscope.analysis.facts import Facts

FLOOR_NS = 2_000_000_000
GAPS = 20
PERCENTILE = 0.99


@dataclass(frozen=True)
class Freeze:
    """What is known of the job's standstill."""

    stopped: bool | None
    """None: nothing tells."""
    still_ns: int | None
    """From the newest event to the last dump; None if the files' times cannot be believed."""
    needed_ns: int
    """How long it would have had to be still."""
    reason: str


def judge_freeze(facts: Facts) -> Freeze:
    """Weighs the age of the newest event against the usual gap between events, and timeouts."""
    needed = max(FLOOR_NS, GAPS * _usual_gap_ns(facts))
    newest, written = _newest_ns(facts), _written_ns(facts)
    if newest is None:
        return Freeze(None, None, needed, "no operation carries a time")
    still = written - newest if written is not None and written >= newest else None
    if _gave_up(facts):
        return Freeze(True, still, needed, "an operation was given up by its watchdog")
    if still is None:
        return Freeze(None, None, needed, "the files' modification times tell nothing")
    if still > needed:
        return Freeze(True, still, needed, "nothing happened for long before the dumps were written")
    if _timed_out(facts, written):
        return Freeze(True, still, needed, "an operation is older than its timeout")
    return Freeze(False, still, needed, "the dumps were written within moments of the newest event")


def _usual_gap_ns(facts: Facts) -> int:
    ops = facts.dataset.ops
    gaps = ops.select((pl.col("created_ns") - pl.col("created_ns").shift(1)).over("rank"))["created_ns"].drop_nulls()
    found = gaps.filter(gaps > 0).quantile(PERCENTILE, "higher")
    return int(found) if found is not None else 0


def _newest_ns(facts: Facts) -> int | None:
    times = pl.max_horizontal("created_ns", "started_ns", "completed_ns").max()
    found = facts.dataset.ops.select(times).item() if facts.dataset.ops.height else None
    return int(found) if found is not None else None


def _written_ns(facts: Facts) -> int | None:
    used = facts.dataset.files.filter(pl.col("used") & pl.col("rank").is_not_null())
    found = used["mtime_ns"].max()
    return int(found) if isinstance(found, int) else None


def _gave_up(facts: Facts) -> bool:
    given_up = PENDING & pl.col("retired").fill_null(False) & (pl.col("coalesced") != "inner")
    return bool(facts.dataset.ops.select((given_up & (pl.col("library") != "gloo")).any()).item())


def _timed_out(facts: Facts, written: int | None) -> bool:
    age = pl.lit(written, dtype=pl.Int64) - pl.col("created_ns")
    late = PENDING & (age > pl.col("timeout_ms") * 1_000_000)
    return bool(facts.dataset.ops.select(late.fill_null(False).any()).item())
