"""The tables of a Dataset of the traces that tests.traces simulates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from rankscope.schema import Dataset
from rankscope.schema.tables import FILES, FRONTIERS, GROUPS, OPS, SPANS, STACKS, TRACED, TRACES, TRACKS

HOST, COMPUTE, COPY, COMM = range(4)
"""The tracks of a rank."""
_KINDS = ("host", "compute", "memory", "communication")
_LANES = (100, 7, 14, 20)


class Job:
    """What a simulated job leaves to be written down."""

    world_size: int
    backend: str
    group_ranks: dict[str, list[int]]
    descriptions: dict[str, str]
    rows: list[dict[str, Any]]
    """Of `traced`, with the name of the group, and a number."""
    spans: list[dict[str, Any]]
    """Their `op` is the number of a row."""
    lost: dict[int, int]

    def host_of(self, rank: int) -> str:
        """The name of its host."""
        raise NotImplementedError


def build_tables(job: Job) -> Dataset:
    """The Dataset of a job: file and rank are the same number."""
    rows = sorted(job.rows, key=lambda r: (r["file"], r["created_ns"]))
    numbers = {row["number"]: at for at, row in enumerate(rows)}
    names = list(job.group_ranks)
    traced = [dict(r, group=names.index(r["group"])) for r in rows]
    spans = _nested(pl.DataFrame([{**s, "op": numbers.get(s["op"])} for s in job.spans], schema=SPANS))
    return Dataset(
        ops=OPS.empty(), groups=_groups(job, names), stacks=STACKS.empty(),
        frontiers=FRONTIERS.empty(), files=_files(job),
        traced=pl.DataFrame(traced, schema=TRACED), traces=_traces(job, spans), tracks=_tracks(spans),
        spans=spans, world_size=job.world_size, root="traces",
    )  # fmt: skip


def _groups(job: Job, names: Sequence[str]) -> pl.DataFrame:
    p2p = {r["group"] for r in job.rows if r["is_p2p"]}
    return pl.DataFrame(
        [{"group": i, "name": n, "description": job.descriptions.get(n, f"mesh_{n}"), "ranks": job.group_ranks[n],
          "membership": "config", "has_p2p": n in p2p} for i, n in enumerate(names)],
        schema=GROUPS,
    )  # fmt: skip


def _traces(job: Job, spans: pl.DataFrame) -> pl.DataFrame:
    ends = spans["start_ns"] + spans["duration_ns"]
    rows = []
    for rank in range(job.world_size):
        own = (spans["track"] // 4) == rank
        rows.append({
            "file": rank, "rank": rank, "host": job.host_of(rank), "start_ns": spans["start_ns"].filter(own).min(),
            "end_ns": ends.filter(own).max(), "events": int(own.sum()), "lost": job.lost.get(rank, 0),
            "detail": "all", "backend": job.backend, "resolution_ns": 1,
        })  # fmt: skip
    return pl.DataFrame(rows, schema=TRACES)


def _tracks(spans: pl.DataFrame) -> pl.DataFrame:
    rows = []
    for track in spans["track"].unique().sort().to_list():
        rank, part = divmod(track, 4)
        name = f"thread {_LANES[part]} (python)" if part == HOST else f"stream {_LANES[part]}"
        rows.append({
            "track": track, "file": rank, "rank": rank, "kind": _KINDS[part],
            "pid": 4000 + rank if part == HOST else None,
            "device": None if part == HOST else rank % 8, "lane": _LANES[part], "name": name, "order": part,
        })  # fmt: skip
    return pl.DataFrame(rows, schema=TRACKS)


def _files(job: Job) -> pl.DataFrame:
    rows = [
        {"file": r, "path": f"rank{r}_trace.json.gz", "kind": "torch-profiler", "rank": r, "rank_source": "content",
         "attempt": 0, "host": job.host_of(r), "rows": sum(row["rank"] == r for row in job.rows), "version": "1",
         "library_version": None, "mtime_ns": None, "size": 1000, "problem": None, "used": True}
        for r in range(job.world_size)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=FILES)


def _nested(spans: pl.DataFrame) -> pl.DataFrame:
    """Sorted as the frame is, with the depth of each in its track."""
    spans = spans.sort(["track", "start_ns", "duration_ns"], descending=[False, False, True], maintain_order=True)
    depths, stack, before = [], list[int](), -1
    for track, start, length in spans.select("track", "start_ns", "duration_ns").iter_rows():
        stack = stack if track == before else []
        before = track
        while stack and stack[-1] <= start:
            stack.pop()
        depths.append(len(stack))
        stack.append(start + length)
    return spans.with_columns(depth=pl.Series(depths, dtype=pl.UInt16))
