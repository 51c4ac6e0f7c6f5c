"""Files where every call costs: calls to the system for each rank, and a job in a tree of files of others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.make_dumps import make
from benchmarks.measure import Run, run_watched
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


OTHERS = {
    "arrays of 128 bytes": ("npy", b"\x93NUMPY" + bytes(122)),
    "texts of 8 KiB": (
        "py",
        (b"def area(width: int, height: int) -> int:\n    return width * height\n\n\n" * 112)[:8192],
    ),
}
"""Kinds of files of others: suffix and content."""
_HEADS = """import os, sys
for directory, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(os.path.join(directory, name), "rb") as file:
            file.read(512)"""
"""A program that does nothing but open each file and read its head."""


def unrelated_tree(root: Path, runner: Sequence[str], count: int) -> str:
    """A table on a job of 8 ranks in trees of so many small files that are not of it."""
    make(root / "dumps", 8, 200)
    report = [*runner, "report", str(root), "--format", "json", "--no-cache"]
    alone = run_watched(report)
    rows = [["alone", *_costs(alone), "-"]]
    for others in OTHERS:
        data = root / "data"
        _write_others(data, others, count)
        bare = run_watched([sys.executable, "-c", _HEADS, str(root)])
        among = run_watched(report)
        shutil.rmtree(data)
        if json.loads(among.output)["verdict"] != json.loads(alone.output)["verdict"]:
            raise SystemExit("the verdict differs among files of others")
        rows.append([f"among {count:,} {others}", *_costs(among), f"{among.cpu_seconds / bare.cpu_seconds:.1f}"])
    shutil.rmtree(root)
    about = (
        "The dumps of 8 ranks, and files of others; *x heads*: processor time over that of a program that does nothing"
    )
    return f"{about}\nbut open each file and read 512 bytes.\n\n{table(TREE_HEADER, rows)}"


TREE_HEADER = ["8 ranks", "on the clock", "processors", "peak", "x heads"]


def _costs(run: Run) -> list[str]:
    return [f"{run.seconds:.1f} s", f"{run.cpu_seconds:.1f} s", f"{run.together_mb:.0f} MB"]


def _write_others(data: Path, others: str, count: int) -> None:
    suffix, content = OTHERS[others]
    for number in range(count):
        directory = data / f"{number // PER_DIRECTORY:04d}"
        if number % PER_DIRECTORY == 0:
            directory.mkdir(parents=True)
        (directory / f"sample_{number}.{suffix}").write_bytes(content)
