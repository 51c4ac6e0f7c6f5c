"""Several dumps of one recorder: what they prove of the time between, and of whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import polars as pl

from rankscope.analysis import analyse
from rankscope.analysis.facts import Facts
from rankscope.analysis.freeze import DumpPairs, judge_freeze
from rankscope.schema import Dataset
from rankscope.schema.tables import REPEATS
from tests.analysis.jobs import running
from tests.builders import START_NS

SECOND = 1_000_000_000
NOW = START_NS + 60 * SECOND


def hanging() -> Dataset:
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    return job.build()


def repeated(
    dataset: Dataset, rows: Mapping[int, tuple[int | None, bool | None]], used_ns: int | None = NOW, moment: int = NOW
) -> Dataset:
    """With an earlier dump of each of `rows`: seconds before the used one, and whether anything went on."""
    table = [
        {
            "rank": rank,
            "file": 100 + rank,
            "written_ns": None if ago is None else moment - ago * SECOND,
            "later_ns": None if ago is None else moment,
            "progressed": moved,
        }
        for rank, (ago, moved) in rows.items()
    ]
    files = dataset.files.with_columns(mtime_ns=pl.lit(used_ns, dtype=pl.Int64))
    return dataclasses.replace(
        dataset, files=files, repeats=pl.DataFrame(table, schema=REPEATS), world_size=dataset.world_size
    )


def ahead(dataset: Dataset, rank: int) -> Dataset:
    """With the clock of a rank an hour ahead: the newest event seems to be newer than the files."""
    shift = pl.when(pl.col("rank") == rank).then(3600 * SECOND).otherwise(0)
    moved = [(pl.col(name) + shift).alias(name) for name in ("created_ns", "started_ns", "completed_ns")]
    return dataclasses.replace(dataset, ops=dataset.ops.with_columns(moved))


def same(*ranks: int, ago: int = 50) -> dict[int, tuple[int | None, bool | None]]:
    return dict.fromkeys(ranks, (ago, False))


def test_same_frontiers_twice_is_a_stopped_job() -> None:
    freeze = judge_freeze(Facts(repeated(hanging(), same(0, 1, 2, 3))))
    assert (freeze.stopped, freeze.reason) == (True, "two dumps 50 s apart show the same frontiers")


def test_same_frontiers_twice_outweigh_a_clock_that_is_off() -> None:
    skewed = ahead(hanging(), 1)
    assert judge_freeze(Facts(repeated(skewed, {}))).stopped is None
    analysis = analyse(repeated(skewed, same(0, 1, 2, 3)))
    assert (analysis.culprits, analysis.frozen_for_ns) == ((2,), 50 * SECOND)
    assert analysis.findings[0].confidence == "high"


def test_two_dumps_must_be_further_apart_than_what_a_rank_is_known_to_get_over() -> None:
    job = running(steps=200)
    job.collective(delay_ns=40 * SECOND)
    job.collective(ranks=[0, 1, 3], state="scheduled")
    skewed = ahead(job.build(), 1)
    later = NOW + 40 * SECOND
    assert judge_freeze(Facts(repeated(skewed, same(0, 1, 2, 3, ago=50), later, later))).stopped is None
    later = NOW + 100 * SECOND
    assert judge_freeze(Facts(repeated(skewed, same(0, 1, 2, 3, ago=90), later, later))).stopped is True


def test_dumps_within_a_moment_claim_nothing() -> None:
    skewed = ahead(hanging(), 1)
    assert judge_freeze(Facts(repeated(skewed, same(0, 1, 2, 3, ago=1)))).stopped is None


def test_most_ranks_have_to_be_there_twice() -> None:
    untimed = hanging()
    none = [pl.lit(None, pl.Int64).alias(name) for name in ("created_ns", "started_ns", "completed_ns")]
    untimed = dataclasses.replace(untimed, ops=untimed.ops.with_columns(none))
    assert judge_freeze(Facts(repeated(untimed, same(0, 1)))).stopped is None
    assert judge_freeze(Facts(repeated(untimed, same(0, 1, 3)))).stopped is True


def test_rank_with_one_dump_that_went_on_shows_that_the_job_did() -> None:
    assert DumpPairs(repeated(ahead(hanging(), 2), same(0, 1, 3))).still is None
    assert DumpPairs(repeated(hanging(), same(0, 1, 3))).still == (NOW - 50 * SECOND, NOW)


def test_one_rank_that_went_on_shows_that_the_job_did() -> None:
    live = repeated(hanging(), {**same(0, 1, 3), 2: (50, True)}, START_NS + SECOND, START_NS + SECOND)
    freeze = judge_freeze(Facts(live))
    assert freeze.stopped is False
    assert freeze.reason.endswith("; operations went on between two dumps 50 s apart")


def test_a_rank_that_was_not_dumped_any_more_is_not_going_on() -> None:
    """A process that was killed, or stopped by a debugger: its last two dumps show that it moved before."""
    dataset = repeated(hanging(), {**same(0, 1, 3, ago=40), 2: (58, True)})
    before = pl.when(pl.col("rank") == 2).then(NOW - 50 * SECOND).otherwise(pl.col("later_ns"))
    gone = dataclasses.replace(dataset, repeats=dataset.repeats.with_columns(later_ns=before))
    assert DumpPairs(gone).still == (NOW - 40 * SECOND, NOW)
    since = pl.when(pl.col("rank") == 2).then(NOW - 30 * SECOND).otherwise(pl.col("later_ns"))
    assert DumpPairs(dataclasses.replace(dataset, repeats=dataset.repeats.with_columns(later_ns=since))).still is None


def test_what_was_only_noticed_when_a_dump_was_written_makes_no_gap() -> None:
    """Once NCCL failed nobody retires an operation, and every dump finds anew that it ended."""
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    dataset = repeated(job.build(), {})
    last = pl.col("created_ns") == pl.col("created_ns").max()
    noticed = pl.when(last).then(pl.lit(NOW + 1)).otherwise(pl.col("completed_ns"))
    found = judge_freeze(Facts(dataclasses.replace(dataset, ops=dataset.ops.with_columns(completed_ns=noticed))))
    plain = judge_freeze(Facts(dataset))
    assert (found.needed_ns, found.still_ns) == (plain.needed_ns, plain.still_ns)
    assert plain.needed_ns < 10 * SECOND


def test_still_since_the_second_of_three_dumps() -> None:
    dataset = repeated(hanging(), same(0, 1, 2, 3))
    third = dataset.repeats.with_columns(written_ns=pl.col("written_ns") - 100 * SECOND, progressed=pl.lit(True))
    repeats = DumpPairs(dataclasses.replace(dataset, repeats=pl.concat([dataset.repeats, third])))
    assert repeats.still == (NOW - 50 * SECOND, NOW)
    assert repeats.moved[2] == (NOW - 150 * SECOND, NOW)


def test_ranks_dumped_one_after_the_other_have_no_time_in_common() -> None:
    dataset = repeated(hanging(), same(0, 1, 2, 3))
    late = pl.when(pl.col("rank") == 3).then(100 * SECOND).otherwise(0)
    apart = dataset.repeats.with_columns(pl.col("written_ns") + late, pl.col("later_ns") + late)
    assert DumpPairs(dataclasses.replace(dataset, repeats=apart)).still is None


def test_what_cannot_be_told_or_believed_claims_nothing() -> None:
    assert DumpPairs(repeated(hanging(), {**same(0), 1: (50, None), 2: (None, False), 3: (50, None)})).still is None


def test_copies_of_the_day_after_claim_nothing() -> None:
    day = NOW + 2 * 86_400 * SECOND
    assert judge_freeze(Facts(repeated(hanging(), same(0, 1, 2, 3), day, day))).stopped is None
