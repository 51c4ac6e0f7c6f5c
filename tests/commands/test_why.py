"""`rankscope report --why RANK`."""

from __future__ import annotations

import json

import pytest

from rankscope.cli import run
from rankscope.commands.source import JobSource
from tests.commands.conftest import Serve
from tests.report import samples

Captured = pytest.CaptureFixture[str]


def test_answers_come_in_the_order_of_the_questions_each_once(hang: list[JobSource], capsys: Captured) -> None:
    assert run(["report", "dumps", "--why", "3", "--why", "0", "--why=3", "-f", "json"]) == 1
    assert [w["rank"] for w in json.loads(capsys.readouterr().out)["why"]] == [3, 0]


def test_a_job_without_findings_answers_too(serve: Serve, capsys: Captured) -> None:
    serve(samples.healthy)
    assert run(["report", "dumps", "--why", "0"]) == 0
    assert "Why? Rank 0 is not accused: it does not wait in any operation" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_rank_that_is_not_there_is_one_line_and_exit_code_2(
    hang: list[JobSource], capsys: Captured, form: str
) -> None:
    assert run(["report", "dumps", "--why", "9", "-f", form]) == 2
    assert capsys.readouterr() == ("", "rankscope: there is no rank 9: the job has 4 ranks, 0 to 3\n")


def test_as_json_the_error_is_an_object(hang: list[JobSource], capsys: Captured) -> None:
    assert run(["report", "dumps", "--why", "9", "-f", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"] == "there is no rank 9: the job has 4 ranks, 0 to 3"


@pytest.mark.parametrize("rank", ["-1", "x", "1-3"])
def test_what_is_no_rank_is_refused_before_anything_is_read(hang: list[JobSource], capsys: Captured, rank: str) -> None:
    assert run(["report", "dumps", "--why", rank]) == 2
    assert hang == []
    assert capsys.readouterr().err.count("\n") == 1


def test_redacted_answers_name_no_path(hang: list[JobSource], capsys: Captured) -> None:
    run(["report", "dumps", "--why", "3", "--redact"])
    assert "alice" not in capsys.readouterr().out
