"""The one file's start on a small archive, and the recipe of conda-forge beside the metadata of the package."""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from rankscope import __version__

ROOT = Path(__file__).parents[2]
HERE = "{}.{}".format(*sys.version_info[:2])
FILES = {
    "rankscope/__init__.py": "",
    "rankscope/cli.py": "import sys, polars\ndef main():\n    print(sys.argv[1:], polars.__file__)\n",
    "polars.py": "",
}
"""A rankscope that prints its arguments and where it lies."""


def archive(folder: Path, pythons: Sequence[str] = (HERE,), files: dict[str, str] = FILES, **about: Any) -> Path:
    """A file as `make pyz` writes it, with other contents."""
    path = folder / "small.pyz"
    told = {"version": "9", "machine": platform.machine(), "glibc": "2.28", "digest": "d1", "pythons": pythons, **about}
    with ZipFile(path, "w") as content:
        content.write(ROOT / "packaging" / "pyz_start.py", "__main__.py")
        content.writestr("about.json", json.dumps(told))
        content.writestr(f"files/{HERE}.json", json.dumps({name: f"contents/{i}" for i, name in enumerate(files)}))
        for number, text in enumerate(files.values()):
            content.writestr(f"contents/{number}", text)
    return path


def command(path: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(path), *arguments]


def start(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    told = {**os.environ, "RANKSCOPE_PYZ_FOLDER": str(path.parent / "cache"), **environment}
    return subprocess.run(command(path, *arguments), env=told, capture_output=True, text=True, check=False)


def test_it_is_unpacked_once_and_then_runs_from_there(tmp_path: Path) -> None:
    path, folder = archive(tmp_path), tmp_path / "cache" / f"9-d1-py{HERE}"
    first, second = start(path, "report", "x y"), start(path)
    assert (first.returncode, first.stdout) == (0, f"['report', 'x y'] {folder / 'polars.py'}\n")
    assert first.stderr == f"rankscope: unpacking into {folder}, once\n"
    assert (second.returncode, second.stdout, second.stderr) == (0, f"[] {folder / 'polars.py'}\n", "")
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == [folder.name]


def test_another_file_has_another_folder_and_the_cache_is_the_users(tmp_path: Path) -> None:
    told = {"RANKSCOPE_PYZ_FOLDER": "", "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    for digest in ("d1", "d2"):
        assert start(archive(tmp_path, digest=digest), **told).returncode == 0
    folders = sorted(entry.name for entry in (tmp_path / "xdg" / "rankscope" / "pyz").iterdir())
    assert folders == [f"9-d1-py{HERE}", f"9-d2-py{HERE}"]


def test_many_that_start_at_once_share_one_folder(tmp_path: Path) -> None:
    path = archive(tmp_path, files={**FILES, **{f"more/{number}": "x" * 1000 for number in range(500)}})
    told = {**os.environ, "RANKSCOPE_PYZ_FOLDER": str(tmp_path / "cache")}
    started = [subprocess.Popen(command(path), env=told, stderr=subprocess.PIPE) for _ in range(4)]
    messages = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, messages
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    nothing = str(tmp_path / "empty")
    old = start(archive(tmp_path, ["3.98", "3.99"]), PATH=nothing)
    assert (old.returncode, f"needs Python 3.98, 3.99, and this is {HERE}" in old.stderr) == (2, True)
    other = start(archive(tmp_path, machine="vax"))
    assert (other.returncode, "made for vax" in other.stderr) == (2, True)
    (tmp_path / "file").write_text("")
    full = start(archive(tmp_path), RANKSCOPE_PYZ_FOLDER=str(tmp_path / "file"))
    assert (full.returncode, "cannot unpack" in full.stderr and "RANKSCOPE_PYZ_FOLDER" in full.stderr) == (2, True)
    broken = start(archive(tmp_path, files={**FILES, "polars.py": "raise ImportError('GLIBC_2.28')"}, digest="d3"))
    assert (broken.returncode, "GLIBC_2.28; it needs glibc 2.28" in broken.stderr) == (2, True)


def test_a_python_that_it_does_not_hold_gives_way_to_the_newest_that_it_does(tmp_path: Path) -> None:
    for version in ("3.98", "3.99"):
        program = tmp_path / f"python{version}"
        program.write_text(f'#!/bin/sh\necho {version} "$@"\n')
        program.chmod(0o755)
    path = archive(tmp_path, ["3.97", "3.98", "3.99"])
    assert start(path, "dumps", PATH=str(tmp_path)).stdout == f"3.99 {path} dumps\n"


def test_old_pythons_can_read_the_start() -> None:
    """They give way to a newer one, or say which one is needed."""
    assert ast.parse((ROOT / "packaging" / "pyz_start.py").read_text("utf-8"), feature_version=(3, 6))


def test_the_recipe_needs_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text("utf-8")
    sections = {name: re.search(rf"^  {name}:\n((?:    - .+\n)+)", recipe, re.MULTILINE) for name in ("host", "run")}
    needs = {
        name: {line.strip("- ").replace(" ", "") for line in found[1].splitlines() if "python_min" not in line}
        for name, found in sections.items()
        if found
    }
    assert needs["run"] == set(project["project"]["dependencies"])
    assert needs["host"] == {"pip", *project["build-system"]["requires"]}
    assert f'version: "{__version__}"' in recipe
    assert f'python_min: "{project["project"]["requires-python"].removeprefix(">=")}"' in recipe


@pytest.mark.parametrize("name", ["ci", "release"])
def test_each_python_that_is_promised_is_tried(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8")
    assert re.findall(r"python: \[(.*)\]", workflow) == [", ".join(f'"{version}"' for version in promised)]
    pythons = re.findall(r"^PYZ_PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert pythons == [" ".join(promised)]
