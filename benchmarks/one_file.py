"""First and second start of `rankscope.pyz`, beside the installed program and files made in other ways.

    make pyz && python -m benchmarks.one_file [--beside pex=FILE] [--times 3] [--write]

Each first start has an empty home folder; a start is the report on sample_data/two_groups. Files are in the page cache.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table

ROOT = Path(__file__).parents[1]
VERDICT = b"HANG: rank 3 never issued all_reduce #10 of tensor_parallel"
SECTION = "One file for nodes without a network"


@dataclass(frozen=True)
class StartTimes:
    """Seconds of a start on the clock and on the processor, and what lies in the home folder afterwards."""

    clock: float
    processor: float
    home_bytes: int
    home_files: int


def start(command: Sequence[str], home: Path) -> StartTimes:
    """One start; AssertionError if it does not name the rank."""
    before, begin = _processor(), time.monotonic()
    done = subprocess.run(
        [*command, "report", str(ROOT / "sample_data" / "two_groups")],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, capture_output=True, check=False,
    )  # fmt: skip
    clock, processor = time.monotonic() - begin, _processor() - before
    assert done.returncode == 1 and done.stdout.startswith(VERDICT), done
    files = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink()]
    return StartTimes(clock, processor, sum(path.stat().st_size for path in files), len(files))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def row(name: str, command: Sequence[str], times: int) -> list[str]:
    """Medians of first and second starts, each pair in a home folder of its own."""
    firsts, seconds = [], []
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="rankscope-home-") as home:
            firsts.append(start(command, Path(home)))
            seconds.append(start(command, Path(home)))
    size = f"{Path(command[-1]).stat().st_size / 1e6:.0f} MB" if len(command) > 1 else "-"
    home_text = f"{firsts[-1].home_bytes / 1e6:.0f} MB, {firsts[-1].home_files:,} files"
    return [name, size, *map(_middle, (firsts, seconds)), home_text]


def _middle(times: Sequence[StartTimes]) -> str:
    return f"{median(one.clock for one in times):.1f} s ({median(one.processor for one in times):.1f} s)"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--file", type=Path, default=ROOT / "dist" / "rankscope.pyz")
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args(arguments)
    files = [("`make pyz`", str(options.file)), *(tuple(beside.split("=", 1)) for beside in options.beside)]
    rows = [row(name, [sys.executable, file], options.times) for name, file in files]
    rows.append(row("installed", [str(Path(sys.executable).with_name("rankscope"))], options.times))
    about = f"The report on a small job, medians of {options.times}, on the clock (and on the processor). {machine()}"
    shown = table(["", "size", "first start", "second start", "unpacked"], rows)
    publish(SECTION, f"{about}\n\n{shown}", write=options.write)


if __name__ == "__main__":
    run_program(main)
