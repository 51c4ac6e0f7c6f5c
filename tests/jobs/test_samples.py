"""The bundled dumps, through the command: each must be told as it is, whatever the files are called."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rankscope.cli import run
from tests.jobs.scenarios import EXPECTED, SAMPLES, check, report

HANGS = [name for name, expected in EXPECTED.items() if expected.exit_code == 1]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_report_names_what_is_wrong(name: str) -> None:
    said = check(name, SAMPLES / name)
    assert said["world_size"] == 4
    assert said["ranks"] == {"seen": [0, 1, 2, 3], "missing": []}


def test_every_scenario_is_there_and_told_of() -> None:
    folders = {path.parent.name for path in SAMPLES.glob("*/*rank*")}
    told = re.findall(r"^\| `(\w+)` \|", (SAMPLES / "README.md").read_text(), re.MULTILINE)
    assert folders == set(EXPECTED) == set(told)


def test_two_groups_hang_but_one_cause_is_named() -> None:
    _, said = report(SAMPLES / "two_groups")
    roots = [f for f in said["findings"] if f["root_cause"]]
    assert [(f["group"]["description"], f["seq"], f["op"]) for f in roots] == [("tensor_parallel", 10, "all_reduce")]
    assert roots[0]["waiting_ranks"] == [0, 1, 2]
    assert any(frame["function"] == "two_groups" for frame in roots[0]["stack"])


def test_dumps_name_no_machine() -> None:
    directories = ("/job/", "/venv/lib/python3.11/", "/usr/lib/python3.11/")
    for path in SAMPLES.glob("*/comm_lib_trace_rank_*"):
        named = re.findall(rb"X....(/[\x20-\x7e]+?\.py)", path.read_bytes(), re.DOTALL)
        assert named
        assert [n for n in named if not n.decode().startswith(directories)] == []


def test_an_archive_reads_as_its_directory(tmp_path: Path) -> None:
    archive = tmp_path / "dumps.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(SAMPLES / "early_return", arcname="dumps")
    check("early_return", archive)


def test_odd_company_changes_nothing(tmp_path: Path) -> None:
    """Files that are empty, foreign, or pipes nobody writes to lie in real directories of dumps."""
    shutil.copytree(SAMPLES / "early_return", tmp_path, dirs_exist_ok=True)
    (tmp_path / "comm_lib_trace_rank_9.tmp").touch()
    (tmp_path / "notes.txt").write_text("restart at 14:00")
    os.mkfifo(tmp_path / "comm_lib_trace_rank_0.pipe")
    check("early_return", tmp_path)


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("name", HANGS)
def test_reports_for_people_name_the_culprit_first(name: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(SAMPLES / name), "-f", form]) == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    assert f"rank {EXPECTED[name].culprits[0]}" in printed.out.splitlines()[0]


MOST_MODULES = 98
"""Modules of rankscope that the report of a healthy job of four dumps loads: those of features and inputs that the job
does not have stay out."""


def test_a_report_imports_neither_textual_nor_torch() -> None:
    code = "import sys; from rankscope.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, "report", str(SAMPLES / "healthy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = done.stderr.splitlines()[-1].split()
    loaded = {name.split(".")[0] for name in modules}
    assert "polars" in loaded
    assert not loaded & {"textual", "rich", "torch", "watchfiles"}
    assert sum(name.split(".")[0] == "rankscope" for name in modules) <= MOST_MODULES


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m rankscope report {SAMPLES / 'two_groups'} -f json"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-m", "rankscope", "report", str(SAMPLES / "healthy"), "-o", "-"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "rankscope: -: No space left on device\n")
