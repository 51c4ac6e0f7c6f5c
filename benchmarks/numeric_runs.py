"""Runs numeric jobs, many in one set of processes, and reads what they recorded."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.child_processes import run_ranks
from benchmarks.numeric_plan import NumericJob
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.numbers.read.decode import decode_numbers
from rankscope.schema import Dataset

LONGEST_S = 7_200.0
"""Patience with a set of processes."""


def run_missing(jobs: Iterable[NumericJob], base: Path) -> None:
    """Runs the jobs whose folders are not complete; raises RuntimeError if one fails."""
    sizes: defaultdict[int, dict[str, NumericJob]] = defaultdict(dict)
    for job in jobs:
        if not (base / job.name / "done").exists():
            sizes[job.shape.ranks][job.name] = job
    for size, missing in sorted(sizes.items()):
        print(f"{len(missing)} jobs of {size} ranks", file=sys.stderr, flush=True)
        _run(list(missing.values()), size, base)


def _run(jobs: list[NumericJob], size: int, base: Path) -> None:
    with TemporaryDirectory() as scratch:
        plan = Path(scratch) / "jobs"
        for job in jobs:
            (base / job.name).mkdir(parents=True, exist_ok=True)
        plan.write_text("".join(json.dumps({"folder": str(base / j.name), **asdict(j)}) + "\n" for j in jobs))
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.numeric_job", str(plan)]
        run_ranks(command, size, Path(scratch), {"OMP_NUM_THREADS": "1"}, LONGEST_S)


def recorded(folder: Path) -> Dataset:
    """The numbers of a run, read in this process."""
    sources = [
        SourceFile(path.name, "numbers", 1, 1, None, decode_numbers(path.read_bytes()))
        for path in sorted(folder.glob("numbers_rank_*.jsonl"))
    ]
    return assemble(sources, str(folder), None, None, None)


Marks = dict[int, list[tuple[int, int]]]


def marks(folder: Path) -> Marks:
    """By rank with a fault its moments: the step, and how many tensors were recorded before."""
    found: Marks = {}
    for path in folder.glob("planted_*.json"):
        told = json.loads(path.read_text())
        if told:
            found[int(path.stem.removeprefix("planted_"))] = [(step, order) for step, order in told]
    return found
