"""A session beside the files that it was read from: `python -m benchmarks.sessions DUMPS [--write]`.

Reports of the directory, of its session of tables, and of a session of parts, in turn in one run; and the processor
time of reading all shares one after the other, beside that of one read.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.child_processes import run_program
from benchmarks.measure import Run, alternate, run
from benchmarks.results import machine, program_parser, publish, table


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints the section of results.md."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("dumps", type=Path)
    parser.add_argument("--times", type=int, default=5, help="reports of each")
    parser.add_argument("--shares", type=int, default=8, help="parts of the session of parts")
    given = parser.parse_args(arguments)
    dumps, count = given.dumps, given.shares
    rankscope = [sys.executable, "-m", "rankscope"]
    with tempfile.TemporaryDirectory() as scratch:
        tables, parts = Path(scratch) / "tables", Path(scratch) / "parts"
        whole = run([*rankscope, "ingest", str(dumps), "-o", str(tables)])
        shares = [
            run([*rankscope, "ingest", str(dumps), "-o", str(parts), "--shard", f"{number}/{count}"])
            for number in range(1, count + 1)
        ]
        sources = {"the files": dumps, "a session of tables": tables, f"a session of {count} parts": parts}
        reports = alternate({name: [*rankscope, "report", str(path)] for name, path in sources.items()}, given.times)
        for name, one in [("ingest", whole), *(("ingest of a share", share) for share in shares), *reports.items()]:
            if one.code > 1:
                raise SystemExit(f"{name} fails: exit {one.code}")
        sizes = {name: sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) for name, path in sources.items()}
    files = sum(1 for path in dumps.rglob("*") if path.is_file())
    about = f"{files:,} files, the cache off, median of {given.times} in turn. {machine()}"
    publish("Sessions", f"{about}\n\n{_section(reports, sizes, whole, shares)}", write=given.write)


def _section(reports: dict[str, Run], sizes: dict[str, int], whole: Run, shares: list[Run]) -> str:
    first = reports["the files"]
    rows = [
        [
            f"report of {name}", f"{sizes[name] / 1e6:,.1f} MB", f"{one.seconds:.2f} s", f"{one.cpu_seconds:.2f} s",
            f"{one.cpu_seconds / first.cpu_seconds:.2f}", f"{one.peak_mb:,.0f} MB",
        ]
        for name, one in reports.items()
    ]  # fmt: skip
    cost = sum(one.cpu_seconds for one in shares)
    notes = (
        f"Reading and writing takes one task {whole.cpu_seconds:.1f} s of processor time, {len(shares)} tasks together "
        f"{cost:.1f} s; the largest process of one of them has {max(one.peak_mb for one in shares):,.0f} MB."
    )
    header = ["", "on the disk", "on the clock", "processor", "processor / files", "largest process"]
    return f"{table(header, rows)}\n\n{notes}"


if __name__ == "__main__":
    run_program(main)
