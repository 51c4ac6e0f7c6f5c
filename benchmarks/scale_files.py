"""Files where every call costs: calls to the system for each rank, and a job in a tree of files of others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.make_dumps import make
from benchmarks.measure import run_watched
from benchmarks.results import table

RANKS = (8, 64)
"""Two sizes: the difference is what a rank costs, without the start of Python."""
CALLS = {
    "open": ("openat", "open"), "stat": ("stat", "fstat", "lstat", "newfstatat", "statx"), "read": ("read", "pread64"),
    "other": ("lseek", "ioctl", "fcntl", "getdents64", "access", "readlink"),
}  # fmt: skip
PER_DIRECTORY = 1000
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)$")


def count_calls(root: Path, runner: Sequence[str]) -> str:
    """A table of the calls on files of dumps for each rank, by strace; says so where there is none."""
    if shutil.which("strace") is None:
        return "Calls to the system were not counted: there is no strace."
    counts = [_counted(root / str(ranks), ranks, runner) for ranks in RANKS]
    few, many = counts
    each = {name: (many[name] - few[name]) / (RANKS[1] - RANKS[0]) for name in CALLS}
    rows = [[f"{each[name]:.2f}" for name in CALLS]]
    about = f"Calls to the system on the files of a rank (strace, {RANKS[0]} and {RANKS[1]} ranks):"
    return f"{about}\n\n{table(list(CALLS), rows)}"


def _counted(folder: Path, ranks: int, runner: Sequence[str]) -> Counter[str]:
    make(folder, ranks, 200)
    names = [name for calls in CALLS.values() for name in calls]
    with tempfile.NamedTemporaryFile("r") as log:
        command = ["strace", "-f", "-y", "-q", "-o", log.name, "-e", f"trace={','.join(names)}"]
        subprocess.run([*command, *runner, "report", str(folder)], stdout=subprocess.DEVNULL, check=False)
        lines = [line for line in log if str(folder) in line]
    shutil.rmtree(folder)
    kinds = {name: kind for kind, calls in CALLS.items() for name in calls}
    calls = (match[1] for line in lines if (match := _CALL.match(line)))
    return Counter(kinds[call] for call in calls if call in kinds)


def unrelated_tree(root: Path, runner: Sequence[str], count: int) -> str:
    """A sentence on a job of 8 ranks in a tree of so many small files that are not of it."""
    make(root / "dumps", 8, 200)
    alone = run_watched([*runner, "report", str(root), "--format", "json"])
    for number in range(count):
        directory = root / f"data_{number // PER_DIRECTORY:04d}"
        if number % PER_DIRECTORY == 0:
            directory.mkdir()
        (directory / f"sample_{number}.npy").write_bytes(b"\x93NUMPY" + bytes(122))
    among = run_watched([*runner, "report", str(root), "--format", "json"])
    shutil.rmtree(root)
    if json.loads(among.output)["verdict"] != json.loads(alone.output)["verdict"]:
        raise SystemExit("the verdict differs among files of others")
    return (
        f"The dumps of 8 ranks among {count:,} other files: {among.seconds:.1f} s on the clock and "
        f"{among.cpu_seconds:.1f} s of processors in {among.together_mb:.0f} MB; alone {alone.seconds:.1f} s, "
        f"{alone.cpu_seconds:.1f} s and {alone.together_mb:.0f} MB."
    )
