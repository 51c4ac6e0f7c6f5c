"""Installs example packages into a folder, as pip does with their wheel, and lets rankscope look for them."""

from __future__ import annotations

import csv
import io
import shutil
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope.kinds import functions, site_packages
from rankscope.kinds.features import FEATURES
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.input_kinds import INPUTS
from rankscope.kinds.view_kinds import VIEWS
from rankscope.parsers import contents

PACKAGES = Path(__file__).parent


def built_wheel(package: Path, target: Path) -> Path:
    """The wheel of a package of plain modules, by its pyproject.toml."""
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    info = f"{name}-{version}.dist-info"
    files = {path.name: path.read_text("utf-8") for path in sorted(package.glob("*.py"))}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    groups = project["entry-points"].items()
    files[f"{info}/entry_points.txt"] = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items()) for group, entries in groups
    )
    record = io.StringIO()
    csv.writer(record, lineterminator="\n").writerows([file, "", ""] for file in (*files, f"{info}/RECORD"))
    wheel = target / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record.getvalue()}.items():
            archive.writestr(file, text)
    return wheel


def install(package: Path, target: Path) -> None:
    """Builds a package and unpacks its wheel."""
    target.mkdir(exist_ok=True)
    wheel = built_wheel(package, target)
    shutil.unpack_archive(wheel, target, "zip")
    wheel.unlink()


def write_package(folder: Path, name: str, module: str, code: str, rows: str = "ROWS") -> Path:
    """A package of one module."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(code, "utf-8")
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "1.0"\n'
        f'[project.entry-points."rankscope.features"]\n{module} = "{module}:{rows}"\n',
        "utf-8",
    )
    return folder


def look_again() -> None:
    """Forgets which packages were installed."""
    functions.names_packages.cache_clear()
    functions.function.cache_clear()
    functions._found.cache_clear()
    site_packages.site_packages.cache_clear()
    contents.recognised_kinds.cache_clear()
    tables: tuple[Mapping[str, object], ...] = (FEATURES, FINDINGS, INPUTS, VIEWS)
    for table in tables:
        table.__dict__.pop("_joined", None)


@contextmanager
def on_path(target: Path) -> Iterator[None]:
    """The packages of a folder are on the path, also for worker processes, which no other test takes over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_SITE_PACKAGES", str(target))
        patch.syspath_prepend(str(target))
        look_again()
        yield
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None) or "").startswith(f"{target}/"):
            del sys.modules[name]
    look_again()
