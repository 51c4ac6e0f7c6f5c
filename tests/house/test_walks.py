"""The walks of the docs lead where they say: a test repeats each step on a copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rankscope.cli import run
from tests.house.documents import ROOT
from tests.site_feature.installed import install, on_path

_STEP = re.compile(r"^( *)(?:`([\w./]+)`:\n\n)?\1? *```(python|toml|diff)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """A block of a walk: a new file, or a change of one."""

    file: str
    form: str
    text: str

    def take(self, folder: Path) -> None:
        """Writes the file, or changes it at its one place; the first line of a change names it."""
        if self.form != "diff":
            path = folder / self.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text, "utf-8")
            return
        first, *lines = self.text.splitlines()
        path = folder / first.removeprefix(" # ")
        before = "".join(f"{line[1:]}\n" for line in lines if line.startswith(" "))
        after = "".join(f"{line[1:]}\n" for line in lines if line[:1] in " +")
        old = path.read_text("utf-8")
        assert old.count(before) == 1, f"{path.name} has not one place with {before!r}"
        path.write_text(old.replace(before, after), "utf-8")


def steps(page: str, heading: str) -> Iterator[Step]:
    """The steps below a heading of a page."""
    text = (ROOT / page).read_text("utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for _, file, form, body in _STEP.findall(section):
        yield Step(file, form, textwrap.dedent(body))


def test_the_first_feature_is_in_the_report(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src")
    walk = list(steps("CONTRIBUTING.md", "Your first feature"))
    assert [step.form for step in walk] == ["python", "python", "diff", "python"]
    for step in walk:
        step.take(tmp_path)
    test = tmp_path / walk[-1].file
    call = f"import runpy; runpy.run_path({str(test)!r})['test_the_largest_group_comes_first']()"
    report = f"from rankscope.cli import run; run(['report', {str(ROOT / 'sample_data' / 'two_groups')!r}])"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{ROOT}"}
    said = subprocess.run(
        [sys.executable, "-c", f"{call}\n{report}"], env=environment, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert said.stderr == ""
    assert re.search(r"^Sizes of groups\n   group  description +ranks$", said.stdout, re.MULTILINE)


def test_the_smallest_package_finds_lone_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    walk = list(steps("docs/site_features.md", "The smallest one"))
    assert [step.file for step in walk] == ["pyproject.toml", "rankscope_example.py"]
    for step in walk:
        step.take(tmp_path / "source")
    install(tmp_path / "source", tmp_path / "installed")
    dump = ROOT / "sample_data" / "two_groups" / "comm_lib_trace_rank_0"
    with on_path(tmp_path / "installed"):
        run(["doctor"])
        said = capsys.readouterr().out
        run(["report", str(dump)])
        assert "lone-group" in capsys.readouterr().out
    page = (ROOT / "docs" / "site_features.md").read_text("utf-8")
    line = next(line for line in said.splitlines() if "rankscope-example 1.0" in line)
    assert f"packages\n{line}\n" in page and f"packages\n{line}\n" in said
