"""The source of each series: the same in all runs, exact before printed, files in their order."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rankscope.features.comparison.rules.series_comparison import common_series, compare_series, recomputed
from rankscope.schema.tables import SCALARS


def told(
    values: Sequence[float], *, source: str = "log", file: str = "train.log", first: int = 1, rank: int | None = None,
    time_ns: int | None = None, resolution: float = 0.0,
) -> pl.DataFrame:  # fmt: skip
    """The losses of one file."""
    rows = {
        "attempt": 0, "segment": 0, "rank": rank, "step_hi": None, "name": "loss", "raw_name": f"loss in {source}",
        "resolution": resolution, "time_ns": time_ns, "source": source, "file": file, "line": 1,
    }  # fmt: skip
    steps = [{"step": first + i, "value": value, **rows} for i, value in enumerate(values)]
    return pl.DataFrame(steps, schema=SCALARS)


def test_exact_values_are_taken_where_all_runs_have_them() -> None:
    printed, exact = told([1.0, 2.0], resolution=0.05), told([1.01, 2.01], source="tensorboard", file="events")
    both = pl.concat([printed, exact])
    assert common_series([both, exact]).tables[0]["value"].to_list() == [1.01, 2.01]
    assert common_series([both, printed]).tables[0]["value"].to_list() == [1.0, 2.0]


def test_sources_that_differ_are_compared_and_told() -> None:
    found = common_series([told([1.0], resolution=0.05), told([1.04], source="tensorboard")])
    assert found.notes == ("loss: of log and tensorboard, the runs have no source in common",)
    assert compare_series(*found.tables).steps == 1


def test_the_one_rank_that_prints_may_be_another() -> None:
    found = common_series([told([1.0, 2.0], rank=7), told([1.0, 2.5], rank=15)])
    assert [one.step for one in compare_series(*found.tables).differences] == [2]


def test_files_of_several_ranks_are_compared_rank_by_rank() -> None:
    runs = [pl.concat([told([1.0], rank=0), told([value], rank=1, file="b.log")]) for value in (2.0, 3.0)]
    assert [one.rank for one in compare_series(*common_series(runs).tables).differences] == [1]


def test_a_second_file_of_the_same_steps_is_left_out_and_said() -> None:
    nodes = pl.concat([told([1.0, 2.0, 3.0], file="node0.log"), told([9.0, 9.0], file="node1.log")])
    found = common_series([nodes, told([1.0, 2.0, 3.0])])
    assert compare_series(*found.tables).differences == ()
    assert found.notes == ("loss: node1.log tells the same steps as another file of the run and is left out",)


def test_a_file_that_goes_on_later_is_a_restart() -> None:
    run = pl.concat([told([1.0, 2.0, 3.0], time_ns=10), told([3.5, 4.0], file="second.log", first=3, time_ns=20)])
    found = common_series([run, told([1.0, 2.0, 3.5, 4.0])])
    assert compare_series(*found.tables).differences == ()
    assert [one.step for one in recomputed(found.tables[0]).differences] == [3]
