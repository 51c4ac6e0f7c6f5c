"""The merged trace: what is in it, and that it can be read back."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.features.traces import perfetto
from rankscope.features.traces.perfetto import export_merged, save_merged, write_merged
from rankscope.features.traces.read.decode import decode_range
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.schema import Dataset
from tests.features.traces.read.documents import document, loaded, x
from tests.traces import MS, training

AHEAD = 400_000
"""Nanoseconds that the clock of rank 1 is ahead."""


@cache
def job() -> tuple[Dataset, Analysis]:
    dataset = training(3, 4, slow_host={2: 20 * MS}, hosts=1, clock_ns={1: AHEAD}).build()
    return dataset, analyse(dataset)


def written(dataset: Dataset, analysis: Analysis, *, flows: bool = True) -> dict[str, Any]:
    out = io.BytesIO()
    count = write_merged(dataset, analysis, out, flows=flows)
    document: dict[str, Any] = json.loads(out.getvalue())
    assert len(document["traceEvents"]) == count
    return document


def events(ph: str) -> list[dict[str, Any]]:
    return [event for event in written(*job())["traceEvents"] if event["ph"] == ph]


def test_every_span_is_there_at_its_aligned_time() -> None:
    dataset, analysis = job()
    document = written(dataset, analysis)
    assert TRACE_RESULTS.find(analysis) is not None
    offsets = TRACE_RESULTS.of(analysis).offsets
    assert abs(offsets[1] - offsets[0] + AHEAD) < 20_000
    file_of = dict(dataset.tracks.select("track", "file").iter_rows())
    rows = dataset.spans.select("track", pl.col("name").cast(pl.String), "start_ns", "duration_ns").iter_rows()
    base = document["baseTimeNanoseconds"]
    wanted = Counter(
        (track + 1, name, start + offsets[file_of[track]] - base, length) for track, name, start, length in rows
    )
    found = Counter(
        (e["tid"], e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000))
        for e in document["traceEvents"] if e["ph"] == "X"
    )  # fmt: skip
    assert found == wanted


def test_ranks_are_processes_and_streams_are_threads() -> None:
    names = events("M")
    processes = {e["pid"]: e["args"]["name"] for e in names if e["name"] == "process_name"}
    assert processes == {0: "rank 0 (node00)", 1: "rank 1 (node01)", 2: "rank 2 (node02)"}
    threads = [e["args"]["name"] for e in names if e["name"] == "thread_name" and e["pid"] == 1]
    assert threads == ["thread 100 (python)", "stream 7", "stream 20"]


def test_arrows_lead_from_launches_to_kernels_and_along_collectives() -> None:
    begins, steps, ends = (events(ph) for ph in "stf")
    kinds = Counter(e["cat"] for e in begins)
    assert kinds == Counter(e["cat"] for e in ends)
    assert kinds["collective"] == 12
    assert len(steps) == 12, "the member in the middle of three"
    assert len({e["id"] for e in begins}) == len(begins)
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events("X")}
    assert all((e["pid"], e["tid"], e["ts"]) in slices for e in [*begins, *steps, *ends])
    last = [e["pid"] for e in ends if e["cat"] == "collective"]
    assert last.count(2) >= 4, "the straggler comes last"


def test_without_arrows_there_are_only_spans_and_names() -> None:
    assert {e["ph"] for e in written(*job(), flows=False)["traceEvents"]} == {"M", "X"}


def test_collectives_say_what_they_are() -> None:
    args = [e["args"] for e in events("X") if "Collective name" in e.get("args", {})]
    assert {a["Collective name"] for a in args} == {"all_reduce"}
    assert {a["Process Group Description"] for a in args} == {"default_pg"}


def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(event: dict[str, Any]) -> str:
        return json.dumps(event, sort_keys=True)

    whole = sorted(written(*job())["traceEvents"], key=key)
    monkeypatch.setattr(perfetto, "PIECE_SPANS", 7)
    assert sorted(written(*job())["traceEvents"], key=key) == whole


def test_it_can_be_read_back(tmp_path: Path) -> None:
    dataset, analysis = job()
    path = tmp_path / "merged.json.gz"
    save_merged(dataset, analysis, path)
    again = decode_range(io.BytesIO(gzip.decompress(path.read_bytes())), 0, None, "all")
    assert again.rows == dataset.spans.height and again.lost == 0
    assert sorted(again.column("duration_ns").tolist()) == dataset.spans["duration_ns"].sort().to_list()


def test_names_from_files_cannot_break_the_document() -> None:
    dataset, analysis = job()
    evil = 'a"b\\c\n\x1b[31m</script>\u2028'
    spans = dataset.spans.with_columns(name=pl.lit(evil, pl.Categorical))
    found = written(replace(dataset, spans=spans), analysis)
    assert {e["name"] for e in found["traceEvents"] if e["ph"] == "X"} == {evil}


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "merged.json"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        save_merged(*job(), path)
    assert path.read_text() == "mine"
    save_merged(*job(), path, force=True)
    assert json.loads(path.read_text())["traceEvents"]
    assert [p.name for p in tmp_path.iterdir()] == ["merged.json"]


def test_a_file_that_could_not_be_finished_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(perfetto, "write_merged", full)
    with pytest.raises(OSError, match="No space"):
        save_merged(*job(), tmp_path / "merged.json.gz")
    assert not list(tmp_path.iterdir())


def test_the_app_writes_to_the_next_free_name(tmp_path: Path) -> None:
    names = [export_merged(*job(), tmp_path).name for _ in range(2)]
    assert names == ["merged_trace.json.gz", "merged_trace-2.json.gz"]
    with gzip.open(tmp_path / names[0]) as file:
        assert json.load(file)["displayTimeUnit"] == "ms"


def test_speeds_of_copies_are_counters_and_those_at_once_are_added_up(tmp_path: Path) -> None:
    speed = "memory bandwidth (GB/s)"
    copies = [
        x(
            "gpu_memcpy",
            "Memcpy HtoD (Pinned -> Device)",
            ts,
            10,
            pid=0,
            tid=stream,
            correlation=stream,
            **{speed: gbps},
        )
        for ts, stream, gbps in ((100, 7, 2.5), (105, 8, 1.0))
    ]
    dataset = loaded(tmp_path, {"rank0.json": document(copies)})
    counters = [e for e in written(dataset, analyse(dataset))["traceEvents"] if e["ph"] == "C"]
    assert {(e["pid"], e["name"]) for e in counters} == {(0, "Memcpy HtoD, GB/s")}
    assert [e["args"]["speed"] for e in counters] == [2.5, 3.5, 1.0, 0.0]
    assert [round(e["ts"] - counters[0]["ts"]) for e in counters] == [0, 5, 10, 15]
