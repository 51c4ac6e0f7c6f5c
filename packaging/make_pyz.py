"""One file with rankscope and all that it needs, for several Pythons and no network: `make pyz`.

uv installs the wheel for each Python, which need not be on this machine. Equal files are stored once. A file for one
Python only is a third of the size: `make pyz PYZ_PYTHONS=3.12`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GLIBC = "2.28"
"""Oldest glibc of the wheels of numpy and scipy: that of RHEL 8."""
SHEBANG = b"#!/usr/bin/env python3\n"
START = Path(__file__).with_name("pyz_start.py")
LEFT_OUT = frozenset({"bin", "share", "tests", "__pycache__", ".lock"})
"""Names of folders and files of an installation that nobody imports."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the file, and prints its path and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--python", action="append", choices=PYTHONS, help="repeatable (default: all)")
    parser.add_argument("--machine", default="x86_64", choices=("x86_64", "aarch64"))
    parser.add_argument("--level", type=int, default=6, help="of compression, 1 to 9 (default: 6)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rankscope-pyz-") as scratch:
        folders = {version: Path(scratch) / version for version in options.python or PYTHONS}
        for version, folder in folders.items():
            _install(options.wheel, version, options.machine, folder)
        about = {"version": options.wheel.name.split("-")[1], "machine": options.machine, "glibc": GLIBC}
        _write(options.output, folders, about, options.level)
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.0f} MB for Python {', '.join(folders)}")


def _install(wheel: Path, version: str, machine: str, folder: Path) -> None:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--only-binary", ":all:"]
    target = ["--target", str(folder), "--python-version", version]
    platform = ["--python-platform", f"{machine}-manylinux_{GLIBC.replace('.', '_')}"]
    subprocess.run([*command, "--python", sys.executable, *target, *platform, str(wheel)], check=True)


def _write(output: Path, folders: Mapping[str, Path], about: Mapping[str, str], level: int) -> None:
    """The archive: the start, what it is made for, the files of each Python by name, and their contents by digest."""
    output.parent.mkdir(parents=True, exist_ok=True)
    lists = {version: dict(_contents(folder)) for version, folder in folders.items()}
    stored: set[str] = set()
    with output.open("wb") as sink:
        sink.write(SHEBANG)
        with ZipFile(sink, "w") as archive:
            add = partial(_add, archive, level)
            digest = hashlib.sha256(json.dumps(lists, sort_keys=True).encode()).hexdigest()[:12]
            add("__main__.py", START.read_bytes())
            add("about.json", json.dumps({**about, "digest": digest, "pythons": list(lists)}).encode())
            for version, names in lists.items():
                add(f"files/{version}.json", json.dumps(names).encode())
                for name, content in names.items():
                    if content not in stored:
                        stored.add(content)
                        add(content, (folders[version] / name).read_bytes())
    output.chmod(0o755)


def _contents(folder: Path) -> Iterator[tuple[str, str]]:
    """The files of an installation, each with the name of its content in the archive."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and LEFT_OUT.isdisjoint(name.parts):
            yield name.as_posix(), f"contents/{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}"


def _add(archive: ZipFile, level: int, name: str, content: bytes) -> None:
    """Adds a file with no time of its own, so that equal inputs make equal archives."""
    archive.writestr(ZipInfo(name), content, ZIP_DEFLATED, level)


if __name__ == "__main__":
    main()
