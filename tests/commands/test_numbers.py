"""`rankscope report --only numbers`: exit codes, formats, and the same findings in the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.analysis.model import Analysis
from rankscope.cli import run
from rankscope.commands import numbers_report
from rankscope.commands.source import JobSource
from rankscope.features.numbers.rules.model import number_results
from rankscope.tui.options import Load
from tests.numbers_writer import NumbersJob

Captured = pytest.CaptureFixture[str]


def written(directory: Path, fault: bool) -> str:
    """A record of four ranks, with a wrong output on rank 2 or without."""
    job = NumbersJob({"dp": [0, 1, 2, 3]})
    for job.step in range(2):
        ins = [np.random.default_rng(job.step * 4 + k).standard_normal((20, 15)) for k in range(4)]

        def spoil(outs: dict[int, Any], _: list[Any]) -> None:
            outs[2][0, 0] += fault * job.step

        job.all_reduce("dp", ins, spoil=spoil)
    directory.mkdir()
    job.write(directory)
    return str(directory)


def test_a_wrong_record_and_its_reference(tmp_path: Path, capsys: Captured) -> None:
    good, bad = written(tmp_path / "good", False), written(tmp_path / "bad", True)
    assert run(["report", bad]) == 1
    out = capsys.readouterr().out
    assert " ".join(out.split()).startswith("MISMATCH: rank 2 holds another result of all_reduce #2 of dp")
    assert max(map(len, out.splitlines())) <= 80
    assert run(["report", "--only", "numbers", bad, "--reference", good, "-f", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    (first, second) = told["findings"]
    assert (first["kind"], first["culprit_ranks"], first["limits"][0]["rule"]) == ("numeric-divergence", [2], "E1")
    assert second["limits"][0]["rule"] == "RX" and second["culprit_ranks"] == [2]
    assert {rule["rule"] for rule in told["numbers"]["rules"]} >= {"E1", "R1", "RX"}


def test_the_finding_of_the_verdict_comes_first(tmp_path: Path, capsys: Captured) -> None:
    good = written(tmp_path / "good", False)
    job = NumbersJob({"dp": [0, 1, 2, 3]})
    for job.step in range(2):
        job.all_reduce("dp", [np.random.default_rng(k // 2).standard_normal((20, 15)) for k in range(4)])
    (tmp_path / "same").mkdir()
    job.write(tmp_path / "same")
    assert run(["report", "--only", "numbers", str(tmp_path / "same"), "--reference", good, "-f", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert len(told["findings"]) > 1 and told["verdict"].endswith(told["findings"][0]["title"])


def test_a_finding_that_is_no_proof_is_a_suspicion_and_fails_if_asked(tmp_path: Path, capsys: Captured) -> None:
    job = NumbersJob({"dp": [0, 1, 2, 3]})
    for layer in range(3):
        job.all_reduce("dp", [np.random.default_rng((layer, max(k, 1))).standard_normal((20, 15)) for k in range(4)])
    job.write(tmp_path)
    assert [
        run(["report", "--only", "numbers", str(tmp_path), "-f", "text", *more]) for more in ([], ["--strict"])
    ] == [0, 1]
    assert capsys.readouterr().out.startswith("SUSPECT: ranks 0,1 bring the same data to all_reduce #1 of dp")


def test_with_a_reference_nothing_is_said_to_be_missing(tmp_path: Path, capsys: Captured) -> None:
    good, again = written(tmp_path / "good", False), written(tmp_path / "again", False)
    assert run(["report", "--only", "numbers", good, "--reference", again, "--strict"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("NUMBERS OK: ") and out.splitlines()[0].endswith(" checks hold") and "Megatron" not in out


def test_a_healthy_record_in_markdown_without_names(tmp_path: Path, capsys: Captured) -> None:
    assert run(["report", "--only", "numbers", written(tmp_path / "good", False), "-f", "markdown", "--redact"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "# Numbers ok: 34 checks hold; a fault that all ranks share needs a reference"
    assert "## Rules about numbers" in out and str(tmp_path) not in out


def test_wrong_arguments(tmp_path: Path, capsys: Captured) -> None:
    here = str(tmp_path)
    assert (
        run(["report", "--only", "numbers", here, "--perturbed", here])
        == run(["report", "--only", "numbers", here, "--rename", "a=b"])
        == 2
    )
    assert run(["report", "--only", "numbers", here, "--reference", here, "--rename", "(=b"]) == 2
    assert "'(' cannot be used" in capsys.readouterr().err
    assert run(["report", "--only", "numbers", here, "--reference", str(tmp_path / "none"), "-f", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]
    sample = Path(__file__).parents[2] / "sample_data" / "two_groups"
    assert run(["report", "--only", "numbers", str(sample)]) == 2
    assert "no numbers" in capsys.readouterr().err
    (tmp_path / "numbers_rank_2.jsonl").write_text('{"rankscope_numbers":1,"rank":"x')
    shutil.copy(sample / "comm_lib_trace_rank_0", tmp_path)
    assert run(["report", "--only", "numbers", here]) == 2
    assert "numbers_rank_2.jsonl: a record of numbers without a rank" in capsys.readouterr().err


def test_a_terminal_opens_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = written(tmp_path / "good", False), written(tmp_path / "bad", True)
    opened: dict[str, Any] = {}

    def show(load: Load, source: JobSource, call: str, **given: Any) -> Analysis:
        opened.update(given, call=call, title=source.title)
        analysis = load(lambda _: None)[1]
        opened["marks"] = number_results(analysis).distances
        return analysis

    monkeypatch.setattr(numbers_report, "on_terminal", lambda: True)
    monkeypatch.setattr(numbers_report, "show_loaded", show)
    assert run([bad, "--reference", good]) == 1
    assert (opened["view"], opened["title"]) == ("numbers", bad) and opened["marks"].first.sum() == 1
    assert opened["call"] == f"report --only numbers {bad} --reference {good}"
    opened.clear()
    assert run(["report", "--only", "numbers", bad, "-f", "json"]) == 1 and not opened
