"""How fast and how large: the report against bare unpickling and torch's own analyzer, on the same dumps.

Run from the root of the repository: `python -m benchmarks.speed [--ranks 8 64 256]`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Run, alternate
from benchmarks.results import machine, put, table
from benchmarks.screen import first_screen

PICKLE = """
import gc, pathlib, pickle, sys
if sys.argv[2] == "off":
    gc.disable()
for path in pathlib.Path(sys.argv[1]).iterdir():
    pickle.loads(path.read_bytes())
"""
PHASES = """
import json, pathlib, sys, time
begin = time.perf_counter()
from rankscope.analysis import analyse
from rankscope.assemble.load import load
imported = time.perf_counter()
dataset = load([pathlib.Path(sys.argv[1])])
loaded = time.perf_counter()
analyse(dataset)
print(json.dumps([imported - begin, loaded - imported, time.perf_counter() - loaded]))
"""
RUNNER = (sys.executable, "-m", "rankscope")


def commands(folder: Path, torch: bool) -> dict[str, tuple[str, ...]]:
    """What is compared, by name."""
    found: dict[str, tuple[str, ...]] = {
        "rankscope": (*RUNNER, "report", str(folder), "--format", "json"),
        "pickle, gc on": (sys.executable, "-c", PICKLE, str(folder), "on"),
        "pickle, gc off": (sys.executable, "-c", PICKLE, str(folder), "off"),
    }
    analyzer = "torch.distributed.flight_recorder.fr_trace"
    if torch:
        found["torchfrtrace"] = (sys.executable, "-m", analyzer, "-p", "nccl_trace_rank_", str(folder))
    return found


def phases(folder: Path) -> tuple[float, float, float]:
    """Seconds to import, to load and to analyse, in one process."""
    done = subprocess.run([sys.executable, "-c", PHASES, str(folder)], capture_output=True, text=True, check=True)
    imported, loaded, analysed = json.loads(done.stdout)
    return imported, loaded, analysed


def row(ranks: int, folder: Path, times: int, torch: bool) -> list[object]:
    """One line of the table."""
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    runs = alternate(commands(folder, torch), times)
    ours = runs["rankscope"]
    if ours.code > 1:
        raise SystemExit(f"the report failed with code {ours.code}")
    imported, loaded, analysed = phases(folder)
    ratios = [f"{ours.seconds / runs[name].seconds:.2f}" for name in ("pickle, gc on", "pickle, gc off")]
    theirs = runs.get("torchfrtrace")
    return [
        ranks, f"{size:.0f}", f"{ours.seconds:.2f}", *ratios, f"{theirs.seconds / ours.seconds:.1f}" if theirs else "-",
        f"{ours.peak_mb:.0f}", _peak(runs["pickle, gc on"]), _peak(theirs),
        f"{imported:.2f} + {loaded:.2f} + {analysed:.2f}",
    ]  # fmt: skip


def _peak(run: Run | None) -> str:
    return f"{run.peak_mb:.0f}" if run else "-"


HEADER = [
    "ranks", "MB", "report, s", "x pickle (gc on)", "x pickle (gc off)", "torchfrtrace is slower by", "peak MB",
    "pickle peak MB", "torchfrtrace peak MB", "import + load + analyse, s",
]  # fmt: skip
EXPLANATION = """Simulated dumps, 2,000 entries a rank, 11 to 20 frames each, one rank stuck. *report*: the whole
process `rankscope report DIR --format json`, from start to exit. *x pickle*: that time over the time of a process that
does nothing but `pickle.loads` the same files, one after the other: below 1 is faster. Medians of {times} runs, all
commands in turn. *peak*: resident memory of the largest process. torchfrtrace runs with its defaults: it stops a
group at ten mismatches."""


def dumps(root: Path, ranks: int) -> Path:
    """The folder with dumps of that many ranks, made by a process of its own."""
    folder = root / str(ranks)
    subprocess.run([sys.executable, "-m", "benchmarks.make_dumps", str(folder), str(ranks)], check=True)
    return folder


def by_writer(dump: Path) -> str:
    """A table for a dump as others write it; in a process of its own, for this one has to stay small."""
    command = [sys.executable, "-m", "benchmarks.dump_ways", str(dump)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Measures everything and writes the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[8, 64, 256])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--torch-up-to", type=int, default=256)
    parser.add_argument("--dry", action="store_true", help="print only, leave results.md alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        rows = [row(n, dumps(root, n), args.times, n <= args.torch_up_to) for n in args.ranks]
        few = dumps(root, 4)
        screen, ways = first_screen(few, RUNNER), by_writer(min(few.iterdir()))
    text = f"{EXPLANATION.format(times=args.times)}\n\n{machine()}\n\n{table(HEADER, rows)}\n\n{screen}\n\n{ways}"
    print(text)
    if not args.dry:
        put("Speed and memory", text)


if __name__ == "__main__":
    main()
