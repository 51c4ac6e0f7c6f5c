"""`rankscope diff`: exit codes, formats, and text that is harmless."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import run
from rankscope.commands import diff
from rankscope.commands.diff import render_comparison
from rankscope.commands.report import Format
from rankscope.commands.source import JobSource
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.run_comparison import compare_runs
from tests.features.comparison.rules.test_settings import run_with

SAMPLES = Path(__file__).parents[2] / "sample_data"
EQUAL = [str(SAMPLES / "two_groups")] * 2
DIFFERENT = [str(SAMPLES / "healthy"), str(SAMPLES / "size_mismatch")]
Captured = pytest.CaptureFixture[str]


def test_a_run_equals_itself(capsys: Captured) -> None:
    assert run(["diff", *EQUAL]) == 0
    out = capsys.readouterr().out
    assert out.startswith("no difference between A and B in schedule")
    assert "equal: " in out


def test_two_real_jobs_differ_and_the_stacks_of_both_are_shown(capsys: Captured) -> None:
    assert run(["diff", *DIFFERENT]) == 1
    out = capsys.readouterr().out
    headline = "first difference: B lacks 3 operations on ranks 0-3, broadcast [64,32] f32"
    assert " ".join(out.split()).startswith(headline)
    assert "healthy (/job/job.py:" in out and "train_step (/job/job.py:" in out
    assert max(map(len, out.splitlines())) <= 80


def test_dumps_are_not_compared_with_traces(capsys: Captured) -> None:
    assert run(["diff", str(SAMPLES / "straggler"), str(SAMPLES / "slow_loader")]) == 2
    assert "of A come from flight-recorder, those of B come from profiler" in capsys.readouterr().err


def test_logs_of_a_trainer_are_compared_though_nothing_else_is_there(tmp_path: Path, capsys: Captured) -> None:
    for name, norm in (("a", 1.42), ("b", 1.31)):
        (tmp_path / name).mkdir()
        lines = [f"step: {i}  loss: {3 - i / 100:.5f}  grad_norm: {norm if i > 4 else 1.5:.4f}\n" for i in range(1, 12)]
        (tmp_path / name / "train.log").write_text("".join(lines))
    assert run(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("B differs from A: grad_norm at step 5: 1.42 in A, 1.31 in B")
    assert "the ratio stays at 0.9225 (equal up to step 4)" in out and "gradients of another scale" in out


def test_a_pattern_of_the_user_reads_other_lines(tmp_path: Path, capsys: Captured) -> None:
    for name in "ab":
        (tmp_path / name).write_text("".join(f"<{i}> cost is {i / 7:.3f}\n" for i in range(1, 9)))
    paths = [str(tmp_path / name) for name in "ab"]
    assert run(["diff", *paths, "--series", r"<(?P<step>\d+)> cost is (?P<loss>\S+)"]) == 0
    assert "no difference seen in 8 steps" in capsys.readouterr().out
    assert run(["diff", *paths, "--series", r"cost is (?P<loss>\S+)"]) == 2
    assert "needs the groups" in capsys.readouterr().err


def test_json_has_the_differences_in_order(capsys: Captured) -> None:
    assert run(["diff", *DIFFERENT, "-f", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in found["differences"]] == ["schedule-differs", "outcome-differs"]
    assert found["differences"][0] | {"stacks": 0, "details": 0, "title": 0} == {
        "kind": "schedule-differs", "title": 0, "ranks": [0, 1, 2, 3], "step": None, "operation": 0, "details": 0,
        "stacks": 0, "runs": [],
    }  # fmt: skip
    assert (found["groups"], found["metrics"], found["gate"]) == (None, [], [])
    assert [part["name"] for part in found["compared"]] == ["schedule", "settings", "values", "durations"]
    assert found["same"] is False


def test_the_suffix_says_the_format_and_files_stay(tmp_path: Path, capsys: Captured) -> None:
    assert run(["diff", *DIFFERENT, "--ascii", "-o", str(tmp_path / "diff.html")]) == 1
    page = (tmp_path / "diff.html").read_text("ascii")
    assert page.startswith("<!doctype html>") and "&#8800; broadcast" in page and page.count("</svg>") >= 2
    output = tmp_path / "diff.md"
    assert run(["diff", *DIFFERENT, "-o", str(output)]) == 1
    assert output.read_text().startswith("# first difference: ")
    assert run(["diff", *DIFFERENT, "-o", str(output)]) == 2
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["json", "html"])
def test_redaction_takes_paths_away(form: Format, capsys: Captured) -> None:
    run(["diff", *DIFFERENT, "--redact", "-f", form])
    out = capsys.readouterr().out
    assert str(SAMPLES) not in out and "/job/" not in out
    assert "job.py" in out


@pytest.mark.parametrize(
    "args",
    [
        ["missing", "missing"], ["missing"], [*EQUAL, "third"], ["--baseline", *EQUAL], ["--candidate", *EQUAL],
        [*EQUAL, "--gate", "step=fast"], [*EQUAL, EQUAL[0], "--gate", "schedule"], ["--vary", "NCCL_ALGO=Ring,Tree"],
        [*EQUAL, "--gate", "loss=1%"], ["--vary", "A=1,2", "--vary", "B=1,2", "--", "true"],
    ],
)  # fmt: skip
def test_wrong_arguments_are_exit_code_2(args: list[str], capsys: Captured) -> None:
    assert run(["diff", "-f", "json", *args]) == 2
    out = json.loads(capsys.readouterr().out)
    assert out.get("error") or out["gate"][0]["outcome"] == "unmeasured"


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_text_of_files_is_harmless(form: Format) -> None:
    a, b = (run_with({"NCCL_ALGO": value, "X_Y": "1"}) for value in ("Ring", "\x1b[2J<b>|@someone"))
    shown = render_comparison(compare_runs(a, b), form, ascii_only=True).decode("ascii")
    assert "\x1b" not in shown
    if form == "markdown":
        assert r"`\x1b[2J<b>\xa6@someone`" in shown


# Several runs.


def logs(folder: Path, **seconds: float) -> dict[str, str]:
    """Runs of a trainer with these times of steps, by name."""
    for name, own in seconds.items():
        (folder / name).mkdir()
        lines = [f"step: {i}  loss: {3 - i / 100:.5f}  step time: {own + (i % 7) / 100:.4f}\n" for i in range(1, 31)]
        (folder / name / "train.log").write_text("".join(lines))
    return {name: str(folder / name) for name in seconds}


@pytest.fixture
def reads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads each run once, however often it is compared."""
    known: dict[tuple[str, ...], ComparedRun] = {}
    read = diff._loaded

    def loaded(source: JobSource, *others: Any) -> ComparedRun:
        if source.paths not in known:
            known[source.paths] = read(source, *others)
        return known[source.paths]

    monkeypatch.setattr(diff, "_loaded", loaded)


@pytest.mark.usefixtures("reads_once")
def test_options_of_sides_take_several_runs(tmp_path: Path, capsys: Captured) -> None:
    own = logs(tmp_path, a1=1.0, a2=1.01, b1=1.5, b2=1.51)
    told = []
    for args in (
        ["--baseline", own["a1"], own["a2"], "--candidate", own["b1"], own["b2"], "-f", "json"],
        [own["a1"], own["a2"], "-f", "json", "--candidate=" + own["b1"], own["b2"]],
        ["--baseline", own["a1"], "--baseline", own["a2"], "-f", "json", own["b1"], own["b2"]],
    ):
        assert run(["diff", *args]) == 1
        told.append(json.loads(capsys.readouterr().out))
    assert all(one == told[0] for one in told)
    assert (told[0]["groups"]["baselines"], told[0]["groups"]["candidates"]) == (["A1", "A2"], ["B1", "B2"])
    assert told[0]["metrics"][0]["verdict"] == "too-few-runs"
    assert told[0]["differences"][0]["title"].endswith("too few runs to call it significant")


@pytest.mark.usefixtures("reads_once")
def test_a_gate_says_passed_or_failed_and_nothing_else_decides(tmp_path: Path, capsys: Captured) -> None:
    own = logs(tmp_path, a1=1.0, a2=1.01, b1=1.5, b2=1.51)
    sides = ["--baseline", own["a1"], own["a2"], "--candidate", own["b1"], own["b2"]]
    assert run(["diff", *sides, "--gate", "step=90%", "--gate", "values"]) == 0
    assert run(["diff", *sides, "--gate", "step=5%", "--gate", "loss=1%"]) == 1
    out = capsys.readouterr().out
    assert "gate passed: 2 budgets kept; B differs from A: step, as logged" in " ".join(out.split())
    assert "gate failed: 1 of 2 budgets is exceeded; B differs" in " ".join(out.split())
    assert "\n   failed     step=5%: step, as logged +4" in out
    assert run(["diff", *sides, "--gate", "throughput=5%", "-f", "markdown"]) == 2
    assert "| throughput=5% | unmeasured |" in capsys.readouterr().out
    assert max(len(line) for line in out.splitlines() if "/pytest-" not in line) <= 80


@pytest.mark.usefixtures("reads_once")
def test_text_of_several_runs_fits_and_markdown_has_no_markup_of_files(tmp_path: Path, capsys: Captured) -> None:
    own = logs(tmp_path, **{"a": 1.0, "<b>": 1.01, "c": 1.5, "d": 1.0})
    assert run(["diff", *own.values()]) == 1
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines() if "/pytest-" not in line) <= 80
    assert "outlier B2: step, as logged is 1.53 s, its peers 1.033 s: 48.1 % more" in " ".join(out.split())
    assert run(["diff", *own.values(), "-f", "markdown"]) == 1
    shown = capsys.readouterr().out
    assert "/<b>`" in shown
    assert "| metric | A | B1 | B2 | B3 |" in shown


@pytest.mark.usefixtures("reads_once")
def test_a_slow_down_over_thirty_steps_is_told_and_equal_runs_are_not(tmp_path: Path, capsys: Captured) -> None:
    own = logs(tmp_path, a=1.0, b=1.7, c=1.0, d=1.04)
    assert run(["diff", own["a"], own["b"], "-f", "text"]) == 1
    assert capsys.readouterr().out.startswith("B differs from A: step, as logged: B is 68.")
    assert run(["diff", own["a"], own["c"], "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["compared"][3]["state"] == "equal"
    assert run(["diff", own["a"], own["d"], "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["compared"][3]["state"] == "uncounted"
    assert "what differs in durations does not count" in found["headline"]


def test_configurations_alone_are_compared_key_by_key(tmp_path: Path, capsys: Captured) -> None:
    text = "betas: [0.9, 0.95]\nfreeze: [0, 1,\n  2]\ndata:\n- {name: x, weight: 0.5}\nnote: |\n  seed: 1\n"
    other = "betas: [0.9, 0.999]\nfreeze: [0, 1,\n  9]\ndata:\n- {name: x, weight: 0.9}\nnote: |\n  seed: 1\nz: 1\n"
    for name, own in (("a", text), ("b", other), ("c", "# other\n" + text)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(own)
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert run(["diff", a, b, "-f", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["compared"][1] == {
        "name": "settings", "state": "differs", "summary": "4 of 8 differ", "not_compared": [],
        "lines": [
            "behaviour: option betas[1]: 0.95 -> 0.999", "option: option freeze[2]: 2 -> 9",
            "option: option data[x].weight: 0.5 -> 0.9", "option: option z: unset -> 1",
        ],
    }  # fmt: skip
    assert run(["diff", a, c, "-f", "text"]) == 0
    assert capsys.readouterr().out.startswith("no difference between A and B in settings; not compared: schedule")


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path, capsys: Captured) -> None:
    for name, own in (("a", "lr: 1\n"), ("b", "lr: 1\n"), ("b", "x:\n\t- 1")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / ("bad.yaml" if "\t" in own else "config.yaml")).write_text(own)
    assert run(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "-f", "text"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "not compared: schedule, values, durations, some settings" in out
    assert "not compared: B: bad.yaml: no YAML, line 2" in out


# The plan of an experiment.


def test_the_plan_runs_only_when_asked_to(tmp_path: Path, capsys: Captured) -> None:
    script, tool = tmp_path / "plan.sh", tmp_path / "rankscope"
    tool.write_text('#!/bin/sh\necho compared "$@"\n')
    tool.chmod(0o755)
    command = ["sh", "-c", 'echo "$X_MODE in $RANKSCOPE_RUN_DIR"']
    assert run(["diff", "--vary", "X_MODE=fast one,b", "--times", "2", "-o", str(script), "--", *command]) == 0
    assert "RUN=1 bash" in capsys.readouterr().err
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "OUT": str(tmp_path / "out")}
    dry = subprocess.run(["bash", script], env=env, capture_output=True, text=True, check=True)
    assert [line.split("out/")[1] for line in dry.stdout.splitlines()[:4]] == [
        f"{name}/job.log" for name in ("fast-one-1", "b-1", "fast-one-2", "b-2")
    ]
    assert not (tmp_path / "out").exists()
    done = subprocess.run(["bash", script], env=env | {"RUN": "1"}, capture_output=True, text=True, check=True)
    assert (tmp_path / "out" / "fast-one-2" / "job.log").read_text() == f"fast one in {tmp_path}/out/fast-one-2\n"
    folders = [f"{tmp_path}/out/{name}" for name in ("fast-one-1", "fast-one-2", "--candidate", "b-1", "b-2")]
    assert done.stdout.splitlines()[-1] == f"compared diff --baseline {' '.join(folders)}".replace(
        f"{tmp_path}/out/--", "--"
    )


def test_one_value_is_compared_with_the_variable_as_it_is(capsys: Captured) -> None:
    assert run(["diff", "--vary", r"NCCL_ALGO=Ring\,Tree", "--times", "1", "--", "train"]) == 0
    out = capsys.readouterr().out
    assert "\nrun as-it-is-1 train\nrun Ring-Tree-1 env NCCL_ALGO=Ring,Tree train\n" in out
