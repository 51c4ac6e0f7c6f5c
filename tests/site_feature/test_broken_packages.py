"""A broken package costs one clear line; every other package, and all of rankscope, is as without it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.cli import run
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.functions import function, names_packages
from rankscope.kinds.site_packages import site_packages
from rankscope.report.text import render_text
from tests.site_feature.installed import PACKAGES, install, on_path, write_package
from tests.tui.detail.show import screen_text
from tests.tui.drive import opened

IMPORTS = """
from dataclasses import dataclass
import polars as pl
from rankscope.analysis.model import Finding
from rankscope.kinds.features import Feature
from rankscope.kinds.finding_kinds import FindingKind
from rankscope.kinds.input_kinds import InputKind
from rankscope.kinds.view_kinds import ViewKind
from rankscope.report.blocks import Grid, Section
"""
CONTENT = """
@dataclass
class Content:
    problem = None
    rows = 1
    def header(self): return {}
    def body(self): return []
def begins(head): return head.startswith(b"NAME\\n")
def decode(data): return Content()
def restore(header, body, rows): return Content()
def add_rows(tables, sources, run): return 0
ROWS = (InputKind(name="NAME", meaning="m", begins="NAME:begins", decode="NAME:decode", restore="NAME:restore",
                  add_rows="NAME:add_rows"),)
"""


class Broken(NamedTuple):
    """A package that is broken: its module, and what its line says."""

    code: str
    says: str
    has_file: bool = False
    """Whether there is a file of its kind, which begins with the name of the package."""


RULE = 'ROWS = (FindingKind(name="NAME", worst="info", meaning="m", find="NAME:rule"),)\n'
FEATURE = 'ROWS = (Feature(name="NAME", tables=("ops",), CALL="NAME:call"),)\n'
LEFT_OUT = {
    "noimport": Broken("import not_there_at_all", "cannot be imported: ModuleNotFoundError (not_there_at_all)"),
    "exits": Broken("import sys\nsys.exit(3)\nROWS = ()", "cannot be imported: SystemExit in line 11"),
    "norows": Broken("ROW = ()", "cannot be imported: AttributeError"),
    "notuple": Broken("ROWS = 5", "is no tuple of rows"),
    "wrongrow": Broken('ROWS = ("a row",)', "row 1 of wrongrow:ROWS is of type str"),
    "wrongfield": Broken('ROWS = (FindingKind(name="w", worst="awful", meaning="m"),)', "Invalid enum value 'awful'"),
    "oddname": Broken('ROWS = (FindingKind(name="A b", worst="info", meaning="m"),)', "a name is small letters"),
    "oddcall": Broken(
        'ROWS = (FindingKind(name="o", worst="info", meaning="m", find="x"),)', "is no name of a function"
    ),
    "ours": Broken(CONTENT.replace('name="NAME"', 'name="log"'), "the input 'log': there is one of this name already"),
    "twin": Broken(
        'ROWS = (FindingKind(name="link-flapped", worst="info", meaning="m"),)',
        "the finding 'link-flapped': there is one of this name already",
    ),
    "notab": Broken('ROWS = (ViewKind(name="p", tab=9, meaning="m", also="", page="a:B", empty=""),)', "tab 9"),
    "reserved": Broken(
        'ROWS = (Feature(name="r", tables=(), settle="reserved:s"),)', "settle is for rows of rankscope's own"
    ),
    "half": Broken('ROWS = (InputKind(name="half", meaning="m"),)', "needs begins, decode and restore"),
}
FAILING = {
    "nofunction": Broken(RULE, "nofunction:rule: AttributeError"),
    "raises": Broken(RULE + "def rule(facts, hung):\n    secret = 'hunter2'\n    raise ValueError(secret)\n",
                     "raises:rule: ValueError in line 13"),
    "late": Broken(RULE + "def rule(facts, hung):\n    yield 1 // 0\n", "late:rule: ZeroDivisionError in line 12"),
    "nofinding": Broken(RULE + "def rule(facts, hung):\n    return ['text']\n", "gives something else than findings"),
    "unknownkind": Broken(RULE + "def rule(facts, hung):\n    return [Finding('nokind', 'info', 't', 'e')]\n",
                          "whose kind or severity is not known"),
    "tooworse": Broken(RULE + "def rule(facts, hung):\n    return [Finding('tooworse', 'critical', 't', 'e')]\n",
                       "a finding that is worse than 'info'"),
    "joins": Broken(FEATURE.replace("CALL", "join") + "def call(findings, scene):\n    return None\n",
                    "gives something else than findings"),
    "finds": Broken(FEATURE.replace("CALL", "find") + "def call(facts, analysis):\n    return None\n",
                    "gives NoneType, and no analysis"),
}  # fmt: skip
SHOWING = {
    "section": Broken(FEATURE.replace("CALL", "section") + "def call(dataset, analysis):\n    raise KeyError(1)\n",
                      "section:call: KeyError"),
    "grid": Broken(
        FEATURE.replace("CALL", "section")
        + "def call(dataset, analysis):\n    yield Section('t', (Grid(head=('a',), rows=[(1,)]),))\n",
        "something else than sections of blocks of texts",
    ),
}  # fmt: skip
READING = {
    "begins": Broken(CONTENT.replace("return head", "return 1 // 0 or head"), "begins:begins: ZeroDivisionError"),
    "decode": Broken(CONTENT.replace("return Content()\ndef restore", "return 1 // 0\ndef restore"),
                     "decode:decode: ZeroDivisionError", has_file=True),
    "restore": Broken(CONTENT.replace("rows): return Content()", "rows): return {}['x']"),
                      "restore:restore: KeyError", has_file=True),
    "adds": Broken(CONTENT.replace("run): return 0", "run): return 1 // 0"), "adds:add_rows: ZeroDiv", has_file=True),
    "nested": Broken(
        CONTENT.replace("run): return 0", "run): tables['nested'] = pl.DataFrame({'a': [['x']]})"),
        "column 'a' is neither number nor text", has_file=True,
    ),
}  # fmt: skip
ALL = {**LEFT_OUT, **FAILING, **SHOWING, **READING}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package and all broken ones."""
    folder = tmp_path_factory.mktemp("packages")
    install(PACKAGES / "fabricwatch", folder)
    for name, broken in ALL.items():
        code = IMPORTS + broken.code.replace("NAME", name)
        # behind the example: the first package with a name keeps it
        install(write_package(folder / "source" / name, f"z-{name}", name, code), folder)
    return folder


@pytest.fixture(scope="module")
def files(job: Path) -> Path:
    """The job, with a file of each kind that a broken package reads."""
    for name, broken in ALL.items():
        if broken.has_file:
            (job / f"{name}.data").write_text(f"{name}\n")
    (job / "notes.data").write_text("nobody reads this\n")
    return job


@pytest.fixture(scope="module")
def report(target: Path, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], str]]:
    """The reports on the job, as JSON and as text."""
    out = tmp_path_factory.mktemp("out") / "report.json"
    with on_path(target):
        assert run(["report", str(files), "-f", "json", "-o", str(out)]) == 1
        dataset = load([files])
        text = render_text(dataset, analyse(dataset))
    yield json.loads(out.read_text()), " ".join(text.split())


def test_all_else_is_read_and_judged(report: tuple[dict[str, Any], str]) -> None:
    found, text = report
    kinds = Counter(finding["kind"] for finding in found["findings"])
    assert found["verdict"] == "rank 3 never issued all_reduce #19 of default_pg; 3 ranks wait"
    assert (kinds["missing-rank"], kinds["link-flapped"]) == (1, 2)
    assert kinds["broken-package"] == len(LEFT_OUT) + len(FAILING)
    assert "Links that went down" in text
    assert len({finding["id"] for finding in found["findings"]}) == len(found["findings"])


@pytest.mark.parametrize("name", [*LEFT_OUT, *FAILING])
def test_a_package_that_is_left_out_or_fails_is_one_finding(report: tuple[dict[str, Any], str], name: str) -> None:
    titles = [f["title"] for f in report[0]["findings"] if f["kind"] == "broken-package" and f"z-{name} " in f["title"]]
    assert len(titles) == 1 and ALL[name].says in titles[0]
    assert "hunter2" not in titles[0]


@pytest.mark.parametrize("name", READING)
def test_a_reader_that_fails_is_the_problem_of_its_files(report: tuple[dict[str, Any], str], name: str) -> None:
    problems = {row["path"]: row["problem"] for row in report[0]["inputs"]}
    file = f"{name}.data" if ALL[name].has_file else "notes.data"
    assert f"the package z-{name} failed: " in problems[file] and ALL[name].says in problems[file]
    assert [problem for path, problem in problems.items() if "comm_lib" in path] == [None] * 4


@pytest.mark.parametrize("name", SHOWING)
def test_a_section_that_fails_says_so_in_its_place(report: tuple[dict[str, Any], str], name: str) -> None:
    assert report[1].count(f"the package z-{name} failed: ") == 1 and ALL[name].says in report[1]


@pytest.mark.usefixtures("installed")
def test_doctor_lists_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "-f", "json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["rankscope-fabricwatch 1.2"]["state"] == "good"
    for name in [*LEFT_OUT, "nofunction"]:
        assert checks[f"z-{name} 1.0"]["state"] == "bad" and ALL[name].says in checks[f"z-{name} 1.0"]["value"]


PAGE = 'ROWS = (ViewKind(name="lost", tab=7, meaning="m", also="", page="lostpage:{}", empty="e"),)\nOTHER = str\n'


@pytest.mark.parametrize(("page", "says"), [("Missing", "AttributeError"), ("OTHER", "no page with a list")])
async def test_a_page_that_is_not_there_is_a_line(page: str, says: str, tmp_path: Path, job: Path) -> None:
    target = tmp_path / "packages"
    install(write_package(tmp_path / "source", "z-lost", "lostpage", IMPORTS + PAGE.format(page)), target)
    with on_path(target):
        dataset = load([job])
        async with opened((dataset, analyse(dataset)), size=(160, 24)) as (app, pilot):
            app.lanes.open_view("lost")
            await pilot.pause()
            assert app.screen is app.lanes
            assert f"the package z-lost failed: lostpage:{page}: {says}" in screen_text(app)


def test_a_package_may_import_the_types_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from rankscope.report.report_objects import JobReport" + IMPORTS + RULE.replace("NAME", "typed")
    install(write_package(tmp_path / "source", "z-typed", "typed", code), tmp_path / "packages")
    for name in ("json", "watch_lines", "report_objects"):
        monkeypatch.delitem(sys.modules, f"rankscope.report.{name}", raising=False)
    with on_path(tmp_path / "packages"):
        assert "typed" in FINDINGS
        assert [package.problem for package in site_packages()] == [""]


def test_functions_of_ours_raise_as_they_are() -> None:
    assert not names_packages()
    with pytest.raises(AttributeError):
        function("kinds.functions:not_there")
