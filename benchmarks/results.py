"""Keeps benchmarks/results.md: each benchmark replaces its own section."""

from __future__ import annotations

import argparse
import platform
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results.md"
PACKAGES = ("rankscope", "polars", "numpy", "textual", "torch")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def machine() -> str:
    """The processor, cores, memory and versions a result belongs to."""
    cpus = (
        re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) if Path("/proc/cpuinfo").exists() else None
    )
    cores = len(__import__("os").sched_getaffinity(0))
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{cpus[1] if cpus else platform.processor()}, {cores} cores; Python {platform.python_version()}, {versions}."
    )


def program_parser(name: str, about: str | None, *, writes: bool = False) -> argparse.ArgumentParser:
    """The parser of a program, with `--write` for one that has a section of the results.

    `name` is that of the module, `about` its docstring.
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=about, formatter_class=form)
    if writes:
        parser.add_argument("--write", action="store_true", help="write what is printed to benchmarks/results.md, too")
    return parser


def publish(section: str, body: str, *, write: bool) -> None:
    """Prints a section of the results, and with `write` puts it into benchmarks/results.md."""
    print(body)
    if write:
        put(section, body)


def put(section: str, body: str) -> None:
    """Writes a section, in the place of what it was."""
    known = dict(_sections(RESULTS.read_text())) if RESULTS.exists() else {}
    known[section] = body.strip()
    text = "".join(f"\n## {name}\n\n{known[name]}\n" for name in sorted(known))
    RESULTS.write_text(f"# Benchmark results\n{text}")


def _sections(text: str) -> list[tuple[str, str]]:
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return [(name, body.strip()) for name, body in zip(parts[1::2], parts[2::2], strict=True)]
