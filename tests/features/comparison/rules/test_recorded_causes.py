"""Causes by what is recorded: options, code and versions that differ explain; what records refute goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import run as command
from rankscope.commands.diff import changed_files
from rankscope.features.comparison.option_roles import current_roles, option_role
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.run_comparison import compare_runs
from rankscope.schema.option_sources import OptionTree
from tests.features.comparison.rules.test_hypotheses import EARLY, LATER, LOSS, ROUNDED, STEPS, run
from tests.features.comparison.rules.test_settings import run_with

SAME: Mapping[str, OptionTree] = {"seed": 1, "lr": 0.1}
CODE = {"code commit": "c" * 40, "code file train.py": "aa", "version:numpy": "2.0", "command line": "train.py --n 1"}
HALF = [value * 1.00005 for value in LOSS]


def job(loss: list[float], settings: Mapping[str, str] = CODE, **options: Any) -> ComparedRun:
    """A run with this loss, these settings of rank 0, and options of its trainer."""
    series = run(loss=loss, options={**SAME, **options})
    return replace(run_with(dict(settings), source="capture"), series=series.series, options=series.options)


def first(a: ComparedRun, b: ComparedRun) -> tuple[str, str]:
    """The id and the words of the first cause."""
    cause = compare_runs(a, b).hypotheses[0]
    return cause.id, cause.cause


@pytest.mark.parametrize(
    ("loss", "option", "values", "cause"),
    [
        (EARLY, "precision", ("fp32", "bf16"), "precision:option precision"),
        (EARLY, "grad_accum", (1, 4), "accumulation:option grad_accum"),
        (ROUNDED, "num_gpus", (2, 4), "world-size:option num_gpus"),
        (ROUNDED, "ddp_bucket_cap_mb", (25, 1), "order:option ddp_bucket_cap_mb"),
        (LATER, "beta2", (0.999, 0.95), "optimizer:option beta2"),
        ([*LOSS[:2], *EARLY[2:]], "beta2", (0.999, 0.95), "optimizer:option beta2"),
        (EARLY, "own_flag", (1, 2), "option:option own_flag"),
    ],
)
def test_an_option_that_differs_explains(loss: list[float], option: str, values: tuple[Any, Any], cause: str) -> None:
    a, b = (job(own, CODE, **{option: value}) for own, value in zip((LOSS, loss), values, strict=True))
    assert first(a, b)[0] == cause


def test_other_code_explains_and_names_its_files() -> None:
    other = CODE | {"code commit": "d" * 40, "code file train.py": "bb"}
    b = replace(job(EARLY, other), code_changes=("between the commits: train.py (+1 -1)",))
    cause = compare_runs(job(LOSS), b).hypotheses[0]
    assert (cause.id, cause.cause) == ("code", "other code: train.py")
    assert "between the commits: train.py (+1 -1)" in cause.speaks_for


def test_another_version_explains() -> None:
    assert first(job(LOSS), job(EARLY, CODE | {"version:numpy": "2.1"}))[0] == "version:version:numpy"


def test_the_command_line_of_a_process_tells_its_options() -> None:
    b = job(EARLY, CODE | {"command line": "train.py --n 1 --dropout=0.1 --output-dir /b"})
    found = compare_runs(job(LOSS), b)
    assert found.hypotheses[0].id == "dropout:option dropout"
    assert "option dropout: unset -> 0.1" in found.hypotheses[0].cause


@pytest.mark.parametrize("loss", [EARLY, HALF, LATER])
def test_where_all_that_is_recorded_is_equal_nothing_is_guessed(loss: list[float]) -> None:
    found = compare_runs(job(LOSS), job(loss)).hypotheses[0]
    assert (found.id, found.kinds) == ("untold", ())
    assert found.cause == "same options and code; data or a kernel differs: record modules"
    without = {"version:numpy": "2.0"}
    assert first(job(LOSS, without), job(loss, without))[1].startswith("same options; code, data or a kernel differs")


def test_what_records_refute_is_no_cause() -> None:
    cause = compare_runs(job(LOSS, lr=0.1), job(EARLY, lr=0.2)).hypotheses[0]
    assert cause.id == "untold" and "which no update reaches" in " ".join(cause.speaks_against)
    buckets = compare_runs(job(LOSS, bucket_mb=25), job(EARLY, bucket_mb=1)).hypotheses[0]
    assert buckets.id == "untold" and "larger than rounding" in " ".join(buckets.speaks_against)


def test_a_run_of_series_alone_is_called_that() -> None:
    compared = compare_runs(run(grad_norm=[1.0] * STEPS), run(grad_norm=[2.0] * STEPS))
    assert [one.verdict for one in compared.runs] == ["training series only"] * 2


def test_random_states_are_a_symptom() -> None:
    a, b = (CODE | {"random states of step 0": state} for state in ("torch 1", "torch 2"))
    assert first(job(LOSS, a, dropout=0.0), job(EARLY, b, dropout=0.1))[0] == "dropout:option dropout"
    cause = compare_runs(job(LOSS, a), job(EARLY, b)).hypotheses[0]
    assert cause.id == "untold" and any("random states" in text for text in cause.speaks_for)
    seeds = compare_runs(job(LOSS, seed=1), job(EARLY, seed=2)).hypotheses[0]
    assert seeds.experiment == "Set the seed of A as in B, and change nothing else."


def test_a_ratio_within_the_printed_digits_is_no_factor() -> None:
    for factor, is_scale in ((1 + 2e-6, False), (1.01, True)):
        a, b = (run(grad_norm=[scale] * STEPS) for scale in (1.0, factor))
        assert (compare_runs(a, b).hypotheses[0].id == "scale") == is_scale


def test_the_table_of_options_knows_trainers_and_takes_rows_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        "gradient_accumulation_steps": "accumulation", "trainer.accumulate_grad_batches": "accumulation",
        "micro-batch-size": "accumulation", "update_freq": "accumulation", "nproc_per_node": "world-size",
        "world_size": "world-size", "num_processes": "world-size", "trainer.devices": "world-size",
        "ddp_bucket_cap_mb": "order", "zero_optimization.reduce_bucket_size": "order",
    }  # fmt: skip
    roles = {name: option_role(name) for name in known}
    assert {name: role.role for name, role in roles.items() if role is not None} == known
    table = tmp_path / "roles.tsv"
    table.write_text("id\trole\tpattern\nours\tdropout\tblanking\n")
    monkeypatch.setenv("RANKSCOPE_OPTIONS", str(table))
    own = option_role("net.blanking")
    assert own is not None and own.role == "dropout" and option_role("lr") is not None
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text("id\trole\tpattern\tweight\nours\tdropout\tblanking\theavy\n")
    monkeypatch.setenv("RANKSCOPE_OPTIONS", str(wrong))
    assert "weight 'heavy'" in (current_roles()[1] or "")
    unknown = tmp_path / "unknown.tsv"
    unknown.write_text("id\trole\tpattern\nours\tdatta\tblanking\n")
    monkeypatch.setenv("RANKSCOPE_OPTIONS", str(unknown))
    assert "role 'datta'" in (current_roles()[1] or "")


def test_commits_are_named_only_where_the_repository_has_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert changed_files(job(LOSS), job(LOSS, CODE | {"code commit": "d" * 40})) == ()
    assert changed_files(job(LOSS), job(LOSS, CODE | {"code commit": "--output=x"})) == ()


# The gate.


def write_log(path: Path, factor: float) -> str:
    path.write_text("".join(f"step: {i}  loss: {factor * (3 - i / 100):.5f}\n" for i in range(1, 12)))
    return str(path)


def test_a_gate_leaves_junit_and_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (write_log(tmp_path / name, factor) for name, factor in (("a<b.log", 1.0), ("b.log", 1.1)))
    junit, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    summary.write_text("# Job\n\n")
    asked = ["diff", a, b, "--gate", "loss=1%", "--gate", "schedule", "--junit", str(junit), "--summary", str(summary)]
    assert command(asked) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("gate failed: 1 of 2 budgets is exceeded; B differs from A")
    text = junit.read_text()
    assert '<testsuite name="rankscope diff" tests="2" failures="1" errors="1" skipped="0">' in text
    assert '<testcase classname="rankscope.diff" name="loss=1%">' in text and "<failure message=" in text
    page = summary.read_text()
    assert page.startswith("# Job\n\n## gate failed") and "| loss=1%" in page
    assert command(asked) == 2 and "already exists" in capsys.readouterr().err
    assert command(["diff", a, b, "--junit", str(tmp_path / "x.xml")]) == 2


def test_one_run_given_several_times_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (write_log(tmp_path / name, 1.0) for name in ("a.log", "b.log"))
    assert command(["diff", "--baseline", a, str(tmp_path / "." / "a.log"), "--candidate", b]) == 2
    assert "are the same run" in capsys.readouterr().err
