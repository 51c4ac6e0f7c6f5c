"""Traces of several jobs in one directory: each is judged by itself."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.traces.rules.matching import jobs_of
from tests.features.traces.read.documents import about, all_reduce, comms, document, issued, x

LATE = Path(__file__).parents[4] / "sample_data" / "slow_loader"


def test_windows_without_a_group_in_common_are_of_two_jobs() -> None:
    rows = pl.DataFrame({"window": [0, 0, 1, 2, 3, 4], "group": [0, 1, 1, 2, 3, 3]})
    assert jobs_of(rows) == [[0, 1], [2], [3, 4]]
    assert jobs_of(pl.DataFrame({"window": [2, 0, 1, 1], "group": [0, 1, 0, 1]})) == [[0, 1, 2]]
    assert jobs_of(rows.clear()) == []


def test_another_job_beside_it_hides_no_late_rank(tmp_path: Path) -> None:
    for rank in range(2):
        step = x("user_annotation", "ProfilerStep#9", 0, 5000)
        sends = issued(3000, 90 + rank, comms("send" if rank == 0 else "recv", Rank=1 - rank))
        events = [step, *all_reduce(500, 7), *all_reduce(1500, 8), sends]
        (tmp_path / f"rank{rank}.json").write_bytes(document(events, about(rank)))
    alone, both = (analyse(load(paths)) for paths in ([LATE], [LATE, tmp_path]))
    assert alone.culprits == both.culprits == (2,)
    assert both.status == "slow"
    assert analyse(load([tmp_path])).culprits == ()
