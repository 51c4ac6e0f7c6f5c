"""One job of a size: its files, and what it costs to read them in several ways."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulator.topology import build

from benchmarks.log_speed import write_logs
from benchmarks.make_dumps import layout_of
from benchmarks.measure import Run, alternate, run, run_watched
from benchmarks.screen import verdict_after

REPORT = (sys.executable, "-m", "rankscope", "report")
WAY = (sys.executable, "-m", "benchmarks.scale_ways")
FRTRACE = (sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", "-p", "nccl_trace_rank_")
HEADER = [
    "files", "ranks", "entries", "writer", "groups", "MB", "report, s", "CPU, s", "base, s", "x base", "CPU x base",
    "stages, CPU s", "paint, s", "peak, MB", "torchfrtrace, s",
]  # fmt: skip


@dataclass(frozen=True)
class Job:
    """What a job left behind."""

    kind: str
    """"dumps", "logs" or "traces"."""
    ranks: int
    entries: int
    """Entries or lines of each rank; kB of a trace."""
    writer: str = "legacy"
    tp: int = 8
    """Size of the tensor parallel groups: there are the more of them, the smaller they are."""

    @property
    def plain(self) -> bool:
        """Whether it differs from others in ranks and entries only."""
        return (self.writer, self.tp) == ("legacy", 8)

    @property
    def groups(self) -> int:
        """Number of process groups of the job."""
        return len(build(layout_of(self.ranks, self.tp)).groups) if self.kind == "dumps" else 1

    def with_tp(self, tp: int) -> Job:
        """The same job with tensor parallel groups of another size."""
        return replace(self, tp=tp)

    def made(self, root: Path, make_traces: Callable[[Path, int, float], Sequence[Path]]) -> Path:
        """The folder with its files, made if it is not there; dumps by a process of its own, for they take memory."""
        folder = root / f"{self.kind}-{self.ranks}-{self.entries}-{self.writer}-{self.tp}"
        if folder.is_dir():
            return folder
        if self.kind == "dumps":
            what = (str(folder), str(self.ranks), str(self.entries), self.writer, str(self.tp))
            subprocess.run([sys.executable, "-m", "benchmarks.make_dumps", *what], check=True)
        elif self.kind == "logs":
            write_logs(folder, self.ranks, self.entries)
        else:
            make_traces(folder, self.ranks, self.entries / 1000)
        return folder


@dataclass(frozen=True)
class Measured:
    """What it costs to read a job."""

    job: Job
    megabytes: float
    report: Run
    base: Run | None
    """None where there is nothing to compare with."""
    stages: dict[str, list[float]]
    paint: float | None
    together_mb: float
    analyser: Run | None
    """torchfrtrace."""

    @property
    def cost(self) -> float:
        """Processor time to read, assemble and analyse."""
        return sum(cpu for name, (_, cpu) in self.stages.items() if name != "import")


def measured(job: Job, folder: Path, times: int, args: argparse.Namespace) -> Measured:
    """All ways over the files of a job, in turn."""
    report = (*REPORT, str(folder), "--format", "json")
    commands: dict[str, tuple[str, ...]] = {"report": report}
    if job.kind != "traces":
        commands["base"] = (*WAY, {"dumps": "pickle", "logs": "finditer"}[job.kind], str(folder))
    # files are in memory before
    run(commands.get("base", report))
    runs = alternate(commands, times)
    if job.kind == "traces" and args.hta:
        paths = sorted(map(str, folder.iterdir()))
        runs["base"] = run((args.hta, "-m", "benchmarks.trace_ways", "HTA", *paths))
    if runs["report"].code > 1:
        raise SystemExit(f"the report on {folder.name} fails: exit {runs['report'].code}")
    watched = run_watched(report)
    document = json.loads(watched.output)
    staged = json.loads(run_watched((*WAY, "stages", str(folder))).output)
    verdict = " ".join(document["verdict"].split()[:3])
    paint = verdict_after(folder, verdict) if job.kind == "dumps" else None
    analyser = job.kind == "dumps" and job.ranks <= args.torch_up_to and job.plain
    return Measured(
        job, sum(path.stat().st_size for path in folder.iterdir()) / 1e6, runs["report"],
        runs.get("base"), staged, paint, watched.together_mb, run((*FRTRACE, str(folder))) if analyser else None,
    )  # fmt: skip


def row_of(one: Measured) -> list[object]:
    """The line of the table."""
    job, report, base = one.job, one.report, one.base
    entries = f"{job.entries:,}" if job.kind != "traces" else f"{job.entries} kB"
    return [
        job.kind, f"{job.ranks:,}", entries, job.writer if job.kind == "dumps" else "", f"{job.groups:,}",
        f"{one.megabytes:,.0f}", f"{report.seconds:.1f}", f"{report.cpu_seconds:.1f}",
        f"{base.seconds:.1f}" if base else "-", f"{report.seconds / base.seconds:.2f}" if base else "-",
        f"{report.cpu_seconds / base.cpu_seconds:.2f}" if base else "-",
        " + ".join(f"{cpu:.1f}" for _, cpu in one.stages.values()), f"{one.paint:.1f}" if one.paint else "",
        f"{one.together_mb:,.0f}", f"{one.analyser.seconds:.1f}" if one.analyser else "",
    ]  # fmt: skip
