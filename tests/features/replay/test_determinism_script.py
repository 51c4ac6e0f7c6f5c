"""The script that repeats reductions: standalone, safe from names in files, and it finds where the order matters."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from rankscope.cli import rankscope
from rankscope.features.replay.determinism_script import determinism_script
from rankscope.features.replay.summation_order import order_settings, reductions_of
from rankscope.schema import Dataset
from tests.tui.jobs import hang

SAMPLES = Path(__file__).parents[3] / "sample_data"


def script_of(dataset: Dataset) -> str:
    found = reductions_of(dataset)
    return determinism_script(dataset, found, order_settings(dataset, found.library), 2)


def test_names_from_files_stay_texts() -> None:
    dataset, _ = hang(16)
    hostile = 'x"""\nimport os; os.abort()\n\x1b[31m%s{0}\\'
    text = script_of(replace(dataset, groups=dataset.groups.with_columns(description=pl.lit(hostile))))
    assert not any(isinstance(node, ast.Attribute) and node.attr == "abort" for node in ast.walk(ast.parse(text)))
    assert "\x1b" not in text
    assert "list(range(0, 16, 1))" in text


def test_the_script_needs_nothing_of_rankscope() -> None:
    tree = ast.parse(script_of(hang()[0]))
    used = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    used |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert used - {name for name in used if name.split(".")[0] in sys.stdlib_module_names} == {
        "torch", "torch.distributed",
    }  # fmt: skip
    assert len({node.name for node in tree.body if isinstance(node, ast.ClassDef)}) == 4


@pytest.mark.torch
def test_gloo_repeats_in_any_order_of_arrival_and_other_places_have_other_bits(tmp_path: Path) -> None:
    script, answers = tmp_path / "determinism.py", tmp_path / "answers.json"
    run = CliRunner().invoke(
        rankscope, ["repro", str(SAMPLES / "early_return"), "--determinism", "2", "-o", str(script)]
    )
    assert run.exit_code == 0 and "1 reduction, 2 repetitions" in run.output, run.output
    environment = {**os.environ, "BACKEND": "gloo", "RANKS": "3", "JSON": str(answers)}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    told = [
        (one["repeats"], one["ranks_equal"], one["as_recorded"]) for one in json.loads(answers.read_text())["variants"]
    ]
    assert told == [(True, True, None), (True, True, True), (False, True, False)], done.stdout
    assert "has other bits: the order of summation matters" in done.stdout


def test_a_number_that_is_a_path_is_refused_with_the_place_to_put_it() -> None:
    run = CliRunner().invoke(rankscope, ["repro", "--determinism", str(SAMPLES / "early_return")])
    assert run.exit_code == 2
    assert "behind PATH" in run.output
