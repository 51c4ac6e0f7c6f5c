"""A session beside the files that it was read from: `python -m benchmarks.sessions DUMPS`.

Reports of the directory, of its session of tables, and of a session of parts, in turn in one run; and the processor
time of reading all shares one after the other, beside that of one read.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Run, alternate, run
from benchmarks.results import machine, put, table

TIMES, SHARES = 5, 8


def main(dumps: Path) -> None:
    """Measures, and replaces the section in results.md."""
    rankscope = [sys.executable, "-m", "rankscope"]
    with tempfile.TemporaryDirectory() as scratch:
        tables, parts = Path(scratch) / "tables", Path(scratch) / "parts"
        whole = run([*rankscope, "ingest", str(dumps), "-o", str(tables)])
        shares = [
            run([*rankscope, "ingest", str(dumps), "-o", str(parts), "--shard", f"{number}/{SHARES}"])
            for number in range(1, SHARES + 1)
        ]
        sources = {"the files": dumps, "a session of tables": tables, f"a session of {SHARES} parts": parts}
        reports = alternate({name: [*rankscope, "report", str(path)] for name, path in sources.items()}, TIMES)
        sizes = {name: sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) for name, path in sources.items()}
    files = sum(1 for path in dumps.rglob("*") if path.is_file())
    put("Sessions", _section(files, reports, sizes, whole, shares))


def _section(files: int, reports: dict[str, Run], sizes: dict[str, int], whole: Run, shares: list[Run]) -> str:
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
        f"Reading and writing takes one task {whole.cpu_seconds:.1f} s of processor time, {SHARES} tasks together "
        f"{cost:.1f} s; the largest process of one of them has {max(one.peak_mb for one in shares):,.0f} MB."
    )
    header = ["", "on the disk", "on the clock", "processor", "processor / files", "largest process"]
    about = f"{files:,} files, the cache off, median of {TIMES} in turn. {machine()}"
    return f"{about}\n\n{table(header, rows)}\n\n{notes}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
