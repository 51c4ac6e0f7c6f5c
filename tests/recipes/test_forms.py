"""Forms of the recipes: shellcheck over all scripts, schemas of GitHub and Kubernetes over all manifests."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recipes.scripts import RECIPES

SCRIPTS = sorted([*RECIPES.rglob("*.sh"), *RECIPES.rglob("*.sbatch")])
GITHUB = {"action.yml": "vendor.github-actions", "workflow.yml": "vendor.github-workflows"}
DOCS = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text("utf-8")


def is_missing(module: str) -> bool:
    return importlib.util.find_spec(module) is None


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash(script: Path) -> None:
    assert script.read_text().startswith("#!/bin/bash\n")
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.skipif(is_missing("check_jsonschema"), reason="check-jsonschema is not installed")
@pytest.mark.parametrize("name", GITHUB)
def test_github_would_take_it(name: str) -> None:
    form = ["--builtin-schema", GITHUB[name], str(RECIPES / "github" / name)]
    command = [sys.executable, "-m", "check_jsonschema", *form]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok -- validation done\n"), done.stdout


@pytest.mark.skipif(is_missing("kubernetes_validate"), reason="kubernetes-validate is not installed")
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kubernetes_would_take_it(version: str) -> None:
    manifest = RECIPES / "kubernetes" / "sidecar.yaml"
    command = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", version, str(manifest)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_names_every_recipe() -> None:
    files = [path for path in RECIPES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [path for path in files if f"recipes/{path.relative_to(RECIPES)}" not in DOCS] == []
