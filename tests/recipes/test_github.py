"""The GitHub action: its step run with the variables of a runner, and what the manifest hands to it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.recipes.scripts import RECIPES, SAMPLES, run_script, with_rankscope

SUMMARY = RECIPES / "github" / "summary.sh"
ACTION: dict[str, Any] = yaml.safe_load((RECIPES / "github" / "action.yml").read_text())
HOSTILE = "[rank2]: torch.OutOfMemoryError: out of memory ::set-output name=status::healthy @alice\n"


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": with_rankscope(tmp_path / "tools"), "OUT": str(tmp_path / "out"), "REDACT": "true",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "GITHUB_OUTPUT": str(tmp_path / "output"),
    }  # fmt: skip


def outputs(folder: Path) -> dict[str, str]:
    lines = (folder / "output").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_hang_becomes_a_summary(runner: dict[str, str], tmp_path: Path) -> None:
    dumps = f"{SAMPLES / 'two_groups'}\n"
    done = run_script(SUMMARY, {**runner, "DUMPS": dumps}, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "summary.md").read_text().startswith("# Hang: rank 3 never issued")
    told = outputs(tmp_path)
    assert (told["found"], told["status"], told["culprits"]) == ("true", "hang", "3")
    assert told["verdict"] == json.loads((tmp_path / "out" / "report.json").read_text())["verdict"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "report.md"]


def test_several_paths_one_a_line_and_names_replaced(runner: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    shutil.copytree(SAMPLES / "early_return", folder)
    (tmp_path / "job.log").write_text(HOSTILE.replace("alice", "/home/alice/x"))
    dumps = f"{folder}\n\n{tmp_path / 'job.log'}\n"
    assert run_script(SUMMARY, {**runner, "DUMPS": dumps}, tmp_path).returncode == 0
    assert "/home/alice" not in (tmp_path / "summary.md").read_text() + (tmp_path / "output").read_text()
    run_script(SUMMARY, {**runner, "DUMPS": dumps, "REDACT": "false"}, tmp_path)
    assert "/home/alice" in (tmp_path / "summary.md").read_text()


def test_without_dumps_the_step_succeeds_and_says_so(runner: dict[str, str], tmp_path: Path) -> None:
    done = run_script(SUMMARY, {**runner, "DUMPS": "none"}, tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("::warning title=rankscope::no report")
    assert outputs(tmp_path) == {"found": "false"} and "No such file" in done.stderr


def test_a_path_is_no_option(runner: dict[str, str], tmp_path: Path) -> None:
    run_script(SUMMARY, {**runner, "DUMPS": "--output=/tmp/elsewhere"}, tmp_path)
    assert outputs(tmp_path) == {"found": "false"}


def test_outputs_stand_on_one_line(runner: dict[str, str], tmp_path: Path) -> None:
    """A verdict with a new line must not become another output."""
    folder = tmp_path / "dumps"
    shutil.copytree(SAMPLES / "two_groups", folder)
    (folder / "job.log").write_text(HOSTILE)
    assert run_script(SUMMARY, {**runner, "DUMPS": str(folder)}, tmp_path).returncode == 0
    assert list(outputs(tmp_path)) == ["found", "report", "status", "verdict", "culprits"]


def test_inputs_reach_the_script_as_variables_only() -> None:
    """An expression in the text of a script lets whoever sets an input run commands."""
    steps = ACTION["runs"]["steps"]
    assert all("${{" not in step.get("run", "") for step in steps)
    (report,) = [step for step in steps if step.get("id") == "report"]
    assert set(report["env"]) == {"DUMPS", "REDACT", "OUT"}
    told = {value["value"].split(".")[-1].rstrip(" }") for value in ACTION["outputs"].values()}
    assert told <= {"found", "report", "status", "verdict", "culprits"} and len(told) == 4
    assert ACTION["inputs"]["redact"]["default"] == "true"


def test_the_programs_of_the_action_are_on_the_path_of_its_own_step_alone(
    runner: dict[str, str], tmp_path: Path
) -> None:
    """Its environment has a Python of its own, which must not become the one of later steps."""
    (tmp_path / "rankscope-venv").mkdir()
    with_rankscope(tmp_path / "rankscope-venv" / "bin")
    for step in ACTION["runs"]["steps"]:
        assert "GITHUB_PATH" not in step.get("run", "")
    (report,) = [step["run"] for step in ACTION["runs"]["steps"] if step.get("id") == "report"]
    (tmp_path / "step.sh").write_text(report)
    of_github = {
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_ACTION_PATH": str(RECIPES / "github"),
        "PATH": os.environ["PATH"],
    }
    told = {**runner, **of_github, "DUMPS": str(SAMPLES / "two_groups")}
    assert run_script(tmp_path / "step.sh", told, tmp_path).returncode == 0
    assert outputs(tmp_path)["culprits"] == "3"
