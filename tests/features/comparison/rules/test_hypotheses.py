"""Causes that series, options and schedules of two runs suggest; the runs are made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.assembly import assemble
from rankscope.features.comparison.rules.hypotheses import LatePlace, late_place
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.run_comparison import compare_runs
from rankscope.features.comparison.rules.schedule_comparison import (
    Alignment,
    GroupMatching,
    ScheduleComparison,
    ScheduleRows,
)
from rankscope.schema import Dataset
from rankscope.schema.option_sources import OptionTree, RunOptions, printed_options
from rankscope.schema.tables import SCALARS

STEPS = 12
LOSS = [4.0 - 0.1 * step for step in range(STEPS)]
EARLY = [value * 1.01 for value in LOSS]
LATER = [*LOSS[:1], *(value * 1.003 for value in LOSS[1:])]
ROUNDED = [value * (1 + 1e-7) for value in LOSS]


@cache
def nothing() -> tuple[Dataset, Analysis]:
    """A run without dumps, and what is said of it."""
    dataset = assemble([], "", None, None, None)
    return dataset, analyse(dataset)


def run(first: int = 1, options: Mapping[str, OptionTree] | None = None, **series: Sequence[float]) -> ComparedRun:
    """A run with these exact series from a step on, and these options of its trainer."""
    rows = [
        {"name": name, "raw_name": name, "value": float(value), "step": first + i}
        for name, values in series.items()
        for i, value in enumerate(values)
    ]
    same = {"attempt": 0, "segment": 0, "resolution": 0.0, "source": "csv", "file": "metrics.csv", "line": 1}
    table = pl.DataFrame([{**dict.fromkeys(SCALARS), **same, **row} for row in rows], schema=SCALARS)
    return ComparedRun("run", *nothing(), table, (), printed_options(options or {}))


def resumed(one: ComparedRun, step: int) -> ComparedRun:
    """The run, whose log says that it goes on from a checkpoint of that step."""
    return replace(one, options=RunOptions(resumed=(step,)))


RATES = [1e-3] * STEPS
CASES = {
    "seed": (run(loss=LOSS, options={"seed": "1"}), run(loss=EARLY, options={"seed": "2"}), ("seed",)),
    "data": (
        run(loss=LOSS, batch_hash=range(STEPS)), run(loss=EARLY, batch_hash=[*range(1, STEPS + 1)]), ("data",)
    ),
    "dropout": (
        run(loss=LOSS, options={"attention_dropout": "0.0"}), run(loss=EARLY, options={"attention_dropout": "0.1"}),
        ("dropout",),
    ),
    "nothing tells": (run(loss=LOSS), run(loss=EARLY), ()),
    "equal options": (
        run(loss=LOSS, options={"seed": "1", "dropout": "0"}), run(loss=EARLY, options={"seed": "1", "dropout": "0"}),
        (),
    ),
    "equal batches and parameters": (
        run(loss=LOSS, batch_hash=range(STEPS), lr=RATES, params_norm=[50.0] * STEPS),
        run(loss=EARLY, batch_hash=range(STEPS), lr=RATES, params_norm=[50.0001] * STEPS), (),
    ),
    "other parameters": (
        run(loss=LOSS, lr=RATES, params_norm=[50.0] * STEPS), run(loss=EARLY, lr=RATES, params_norm=[50.1] * STEPS),
        ("seed", "initial-values"),
    ),
    "rate": (run(loss=LOSS, lr=RATES), run(loss=LATER, lr=[2e-3] * STEPS), ("lr",)),
    "rate that is not printed": (run(loss=LOSS), run(loss=LATER), ("lr", "optimizer", "data")),
    "decay": (
        run(loss=LOSS, options={"weight_decay": "0.1"}), run(loss=LATER, options={"weight_decay": "0.01"}),
        ("optimizer",),
    ),
    "optimizer": (
        run(loss=LOSS, lr=RATES), run(first=5, loss=[*LOSS[4:5], *EARLY[5:]], lr=RATES[4:]), ("optimizer-state",)
    ),
    "optimizer, by the log": (
        run(loss=LOSS), resumed(run(loss=[*LOSS[:5], *EARLY[5:]]), 4), ("optimizer-state",)
    ),
    "state": (run(loss=LOSS), run(first=5, loss=EARLY[4:]), ("resume-state",)),
    "event": (run(loss=LOSS), run(loss=[*LOSS[:6], *EARLY[6:]]), ("event",)),
    "rounding": (run(loss=LOSS), run(loss=ROUNDED), ("kernel", "order")),
    "buckets": (
        run(loss=LOSS, options={"ddp_bucket_cap_mb": "25"}), run(loss=ROUNDED, options={"ddp_bucket_cap_mb": "5"}),
        ("order",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_first_cause(name: str) -> None:
    a, b, kinds = CASES[name]
    first = compare_runs(a, b).hypotheses[0]
    assert first.kinds == kinds
    assert first.speaks_for
    assert first.experiment


def test_options_of_one_run_are_no_difference() -> None:
    told: dict[str, OptionTree] = {"output_dir": "/a", "run_name": "x", "seed": 1, "lr": "1e-3", "master_port": 1}
    other: dict[str, OptionTree] = {"output_dir": "/b", "run_name": "y", "seed": 1, "lr": 0.001, "master_port": 2}
    found = compare_runs(run(loss=LOSS, options=told), run(loss=LOSS, options=other))
    assert found.is_same
    assert found.headline.startswith("no difference between A and B in values; what differs in settings does not count")


# Where a run loses time.

TURNS, PERIOD, NS = 40, 4, 1_000_000


def schedule_rows(waits: Sequence[Sequence[int]]) -> ScheduleRows:
    """Ranks that issue turns of four operations, each so many milliseconds behind the one before."""
    parts = []
    for rank, own in enumerate(waits):
        times = 1_700_000_000_000 * NS + np.cumsum(np.tile(own, TURNS)) * NS
        parts.append(
            pl.DataFrame({
                "rank": [rank] * len(times), "record_id": range(len(times)), "created_ns": times,
                "op": ["all_reduce"] * len(times), "group": [0] * len(times), "peer": [0] * len(times),
                "in_sizes": [f"[[{8 << place}]]" for place in range(PERIOD)] * TURNS,
                "in_dtypes": ['["Float"]'] * len(times),
            })
        )  # fmt: skip
    return ScheduleRows(nothing()[0], pl.concat(parts), ())


def compared(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> ScheduleComparison:
    """Two equal schedules with these waits."""
    rows = schedule_rows(a), schedule_rows(b)
    equal = dict.fromkeys(range(len(a)), Alignment("number", TURNS * PERIOD))
    nobody = np.zeros(0, np.int64)
    return ScheduleComparison(*rows, GroupMatching(nobody, nobody, (), ()), equal, ())


QUICK, WAITS, LATE = (20, 3, 3, 3), (20, 43, 3, 3), (60, 3, 3, 3)


@pytest.mark.parametrize(
    ("b", "place"),
    [
        ([LATE, LATE, LATE], LatePlace("all_reduce [8] f32", ())),
        ([WAITS, LATE, WAITS], LatePlace("all_reduce [8] f32", (1,))),
        ([LATE, WAITS, (20, 3, 43, 3)], None), ([(30, 13, 13, 13)] * 3, None),
    ],
)  # fmt: skip
def test_the_place_of_lost_time_tells_who_is_late(b: list[tuple[int, ...]], place: LatePlace | None) -> None:
    assert late_place(compared([QUICK] * 3, b)) == place
