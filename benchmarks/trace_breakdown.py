"""How our breakdown of the time of devices agrees with that of Holistic Trace Analysis (HTA).

Run from the root of the repository: `python -m benchmarks.trace_breakdown --hta PYTHON SET... [--write]`, where each
SET is a folder of traces that tell their ranks, and PYTHON an interpreter that has HolisticTraceAnalysis and pandas
before 3.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser, publish, table
from rankscope.assemble.load import LoadOptions, load
from rankscope.features.traces.rules.device_spans import SpanIndex, step_spans, steps_on_device
from rankscope.features.traces.rules.trace_tables import split_steps

EXPLANATION = """The same public traces, by HTA's temporal breakdown and overlap, and by ours. HTA takes all work that
was launched before the last marked step, from the start of the first to the end of the last; with one step or none, all
work. Ours are the same steps, cut where the device begins the work of the next one. *Largest difference* of all ranks:
in percent of the time of the device, of the overlap in percentage points ("-": HTA finds no communication). HTA reads
copies without what it takes for kernels, though it is none: waits and annotations of devices (these also for steps of
the host), and operators that tell a stream, as those of inductor do; and it is told not to round times
(HTA_DISABLE_NS_ROUNDING=1). Without that, the sets of compiled code differ by up to 20 %."""
NO_WORK = ("gpu_user_annotation", "cuda_sync", "overhead")
GZIP = b"\x1f\x8b"
_HTA = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
files = {int(rank): path for rank, path in json.loads(sys.argv[1]).items()}
analysis = TraceAnalysis(trace_files=files, trace_dir=sys.argv[2])
times = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
overlaps = {row["rank"]: row["comp_comm_overlap_pctg"] for row in
            analysis.get_comm_comp_overlap(visualize=False).to_dict("records")}
print(json.dumps([[int(row["rank"]), *(float(row[name]) for name in ("compute_time(us)", "non_compute_time(us)",
      "idle_time(us)")), float(overlaps[row["rank"]])] for row in times]))
"""


class DeviceTime(NamedTuple):
    """The time of one device, in microseconds."""

    compute: float
    other: float
    """Communication or copies, and no computing."""
    idle: float
    overlap: float
    """Share of communication beside which the device computes, in percent."""

    @property
    def total(self) -> float:
        """From the start of the first work to the end of the last."""
        return self.compute + self.other + self.idle


PARTS = ("compute", "communication or copies alone", "idle", "overlap")


def own_times(folder: Path) -> dict[int, tuple[str, DeviceTime]]:
    """By rank the path of its trace and its times."""
    dataset = load([folder], LoadOptions(detail="all"))
    spans, marked = SpanIndex(dataset), step_spans(dataset)
    paths = dict(dataset.files.select("file", "path").iter_rows())
    found = {}
    for file, rank, start, end in dataset.traces.select("file", "rank", "start_ns", "end_ns").iter_rows():
        steps, device = marked.filter(pl.col("file") == file), spans.device(file)
        assert device is not None
        if steps["step"].n_unique() > 1:
            steps = steps_on_device(spans, file, steps)[:-1]
        else:
            steps = pl.DataFrame({"file": [file], "step": [0], "begin_ns": [start], "end_ns": [end]})
        rows = split_steps(spans, file, steps)
        # idle before the first work and behind the last does not count
        begin, over = int(rows["start_ns"][0]), int(rows["end_ns"][-1])
        ran = device.filter(pl.col("end_ns") > begin, pl.col("start_ns") < over)
        ran = ran.select(pl.col("start_ns").clip(begin).min(), pl.col("end_ns").clip(None, over).max())
        edges = ran["start_ns"][0] - begin + over - ran["end_ns"][0]
        totals = {name: int(rows[f"{name}_ns"].sum()) for name in ("compute", "exposed", "memory", "idle", "overlap")}
        communication = int(rows["communication_ns"].sum())
        found[int(rank)] = (
            folder / paths[file],
            DeviceTime(
                totals["compute"] / 1000,
                (totals["exposed"] + totals["memory"]) / 1000,
                (totals["idle"] - edges) / 1000,
                100 * totals["overlap"] / max(communication, 1),
            ),
        )
    return {rank: (str(path), times) for rank, (path, times) in sorted(found.items())}


def _copied(path: Path, copy: Path) -> Path:
    data = path.read_bytes()
    trace = json.loads(gzip.decompress(data) if data[:2] == GZIP else data)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") not in NO_WORK]
    for event in trace["traceEvents"]:
        if event.get("cat") == "cpu_op":
            event.get("args", {}).pop("stream", None)
    copy.write_text(json.dumps(trace))
    return copy


def hta_times(python: str, files: dict[int, str]) -> dict[int, DeviceTime]:
    """By rank the times of HTA."""
    with tempfile.TemporaryDirectory() as place:
        copies = {rank: str(_copied(Path(path), Path(place, f"rank{rank}.json"))) for rank, path in files.items()}
        environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
        command = [python, "-c", _HTA, json.dumps(copies), place]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return {int(rank): DeviceTime(*times) for rank, *times in json.loads(ran.stdout.splitlines()[-1])}


def differences(ours: DeviceTime, theirs: DeviceTime) -> list[float]:
    """By PARTS, in percent."""
    parts = zip(ours[:3], theirs[:3], strict=True)
    return [*(100 * abs(a - b) / max(theirs.total, 1) for a, b in parts), abs(ours.overlap - theirs.overlap)]


def _largest(values: Sequence[float]) -> str:
    return "-" if np.isnan(values).any() else f"{max(values):.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Compares all sets, and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--hta", required=True)
    parser.add_argument("sets", type=Path, nargs="+")
    args = parser.parse_args(arguments)
    rows: list[list[object]] = []
    for folder in args.sets:
        ours = own_times(folder)
        theirs = hta_times(args.hta, {rank: path for rank, (path, _) in ours.items()})
        compared = [differences(times, theirs[rank]) for rank, (_, times) in ours.items()]
        for rank, (_, times) in ours.items():
            print(folder.name, rank, *(f"{a:.1f}/{b:.1f}" for a, b in zip(times, theirs[rank], strict=True)))
        rows.append(
            [
                folder.name,
                len(ours),
                *map(_largest, zip(*compared, strict=True)),
            ]
        )
    text = table(["set", "ranks", *(f"{part} %" for part in PARTS)], rows)
    publish("Breakdown of traces against HTA", f"{EXPLANATION}\n\n{text}", write=args.write)


if __name__ == "__main__":
    run_program(main)
