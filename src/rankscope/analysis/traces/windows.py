"""Which files belong together: windows that the profilers of different ranks recorded at the same time."""

from __future__ import annotations

import polars as pl


def cluster_windows(traces: pl.DataFrame) -> dict[int, int]:
    """By file the number of its window; files of one number have different ranks and overlap in time.

    A file that overlaps no other is alone with its number. If each rank has one file they belong together whatever
    their clocks say.
    """
    if traces["rank"].n_unique() == traces.height:
        return dict.fromkeys(traces["file"].to_list(), 0)
    chief = traces["rank"].mode().sort()[0]
    chiefs = traces.filter(pl.col("rank") == chief).sort("start_ns")
    out = {file: number for number, file in enumerate(chiefs["file"].to_list())}
    taken = {(number, chief) for number in out.values()}
    pairs = (
        traces.filter(pl.col("rank") != chief)
        .join(chiefs.select(other="file", begin="start_ns", end="end_ns"), how="cross")
        .with_columns(both=pl.min_horizontal("end_ns", "end") - pl.max_horizontal("start_ns", "begin"))
        .filter(pl.col("both") > 0).sort("both", descending=True)
    )  # fmt: skip
    for file, rank, other in pairs.select("file", "rank", "other").iter_rows():
        if file not in out and (out[other], rank) not in taken:
            out[file] = out[other]
            taken.add((out[other], rank))
    for file in traces["file"].to_list():
        out.setdefault(file, len(set(out.values())))
    return out


def jobs_of(rows: pl.DataFrame) -> list[list[int]]:
    """The windows of `rows` (window, group) that are of one job each: those of two jobs have no group in common."""
    jobs: list[tuple[set[int], set[int]]] = []
    table = rows.group_by("window").agg(pl.col("group").unique()).sort("window")
    for window, found in table.iter_rows():
        groups = set(found)
        same = [job for job in jobs if job[1] & groups]
        jobs = [job for job in jobs if not job[1] & groups]
        jobs.append(({window}.union(*(job[0] for job in same)), groups.union(*(job[1] for job in same))))
    return sorted(sorted(windows) for windows, _ in jobs)
