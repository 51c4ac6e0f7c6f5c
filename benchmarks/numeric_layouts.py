"""Real jobs over gloo in five layouts, healthy and with a fault, against the same job on one rank.

Run from the root of the repository: `python -m benchmarks.numeric_layouts [--seeds 0 1] [--dtypes f32 bf16]
[--layouts tp ..] [--healthy] [--keep FOLDER]`. A run on one rank, perturbed three times, gives the limits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.numeric_faults import LONGEST_S
from benchmarks.numeric_model import LAYOUTS
from benchmarks.results import table

PERTURBED = (1, 2, 3)
FAULTS = {
    "tp": ("early-read", "bias-on-every-rank", "missing-tp-sync", "norm-scale", "stale-buffer", "dropped-contribution",
           "optimizer-lost", "dropout-seed"),
    "sp": ("wrong-group", "unsynced-parameter", "stale-buffer", "norm-scale", "output-bit-flip", "dropped-contribution",
           "bias-on-every-rank"),
    "pp": ("received-wrong", "unsynced-parameter", "stale-buffer", "weight-bit-flip", "no-averaging",
           "loss-denominator", "data-order"),
    "ddp": ("weight-bit-flip", "same-data", "kernel-noise", "loss-denominator", "optimizer-lost", "data-order",
            "dropout-seed"),
    "fsdp": ("weight-bit-flip", "same-data", "decay-on-norm", "dropout-seed", "loss-denominator", "data-order",
             "optimizer-lost"),
}  # fmt: skip
"""Faults by layout."""
_RULES = ("RX", "RP")


def recorded(base: Path, layout: str, dtype: str, seed: int, fault: str = "", perturb: int = 0) -> Path:
    """The folder of a run, which is made if it is not there. Raises CalledProcessError."""
    folder = base / f"{layout}-{fault or 'healthy'}-{dtype}-{seed}-{perturb}"
    if not folder.exists():
        folder.mkdir(parents=True)
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(LAYOUTS[layout].ranks),
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "-m", "benchmarks.numeric_job", "--level",
            "modules", "--layout", layout, "--fault", fault, "--dtype", dtype, "--seed", str(seed), "--perturb",
            str(perturb), "--output", str(folder),
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_S, env=environment)
    return folder


def answers(run: Path, base: Path, dtype: str, seed: int) -> list[str]:
    """Titles of what the comparison with the run on one rank says."""
    beside = ["--reference", str(recorded(base, "one", dtype, seed))]
    for number in PERTURBED:
        beside += ["--perturbed", str(recorded(base, "one", dtype, seed, perturb=number))]
    command = [sys.executable, "-m", "rankscope", "numbers", str(run), *beside, "-f", "json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=LONGEST_S)
    found = json.loads(done.stdout)["findings"]
    return [one["title"] for one in found if one["root_cause"] and one["limits"] and one["limits"][0]["rule"] in _RULES]


def rows(arguments: argparse.Namespace, base: Path) -> Iterator[tuple[str, ...]]:
    """Layout, fault, type, seed and answer of each run."""
    for dtype in arguments.dtypes:
        for seed in arguments.seeds:
            for layout in arguments.layouts:
                for fault in ("",) if arguments.healthy else FAULTS[layout]:
                    run = recorded(base, layout, dtype, seed, fault)
                    yield layout, fault or "none", dtype, str(seed), "; ".join(answers(run, base, dtype, seed)) or "-"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--dtypes", nargs="+", default=["f32"])
    parser.add_argument("--layouts", nargs="+", default=list(FAULTS), choices=FAULTS)
    parser.add_argument("--healthy", action="store_true", help="Only jobs without a fault.")
    parser.add_argument("--keep", type=Path, help="Keep the runs here; runs that lie here are not made again.")
    arguments = parser.parse_args()
    with TemporaryDirectory() as scratch:
        found = list(rows(arguments, (arguments.keep or Path(scratch)).resolve()))
    print(table(["layout", "fault", "type", "seed", "first wrong against one rank"], found))


if __name__ == "__main__":
    main()
