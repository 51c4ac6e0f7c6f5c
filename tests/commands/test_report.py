"""`rankscope report`: formats, files, exit codes, and errors of one line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from rankscope.cli import run
from rankscope.commands.source import JobSource
from rankscope.report.html import render_html
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.text import render_text
from tests.commands.conftest import Serve
from tests.report import samples

Captured = pytest.CaptureFixture[str]


def test_the_text_report_goes_to_stdout_and_nothing_else(hang: list[JobSource], capsys: Captured) -> None:
    assert run(["report", "dumps"]) == 1
    assert capsys.readouterr() == (render_text(*samples.hang()), "")


@pytest.mark.parametrize("args", [["--format", "json"], ["--format=json"], ["-f", "json"], ["-fjson"]])
def test_json(hang: list[JobSource], capsys: Captured, args: list[str]) -> None:
    assert run(["report", "dumps", *args]) == 1
    assert capsys.readouterr().out.encode() == render_json(*samples.hang())


def test_markdown(hang: list[JobSource], capsys: Captured) -> None:
    run(["report", "--format", "markdown", "dumps"])
    assert capsys.readouterr().out == render_markdown(*samples.hang())


def test_a_page_says_whether_names_were_replaced(hang: list[JobSource], capsys: Captured) -> None:
    run(["report", "dumps", "-f", "html"])
    page = capsys.readouterr().out
    assert page == render_html(*samples.hang()) and "--redact replaces them" in page
    run(["report", "dumps", "-f", "html", "--redact"])
    assert "stand-ins such as host-1" in capsys.readouterr().out


def test_nothing_critical_is_exit_code_0(serve: Serve, capsys: Captured) -> None:
    serve(samples.healthy)
    assert run(["report", "dumps"]) == 0


def test_what_the_user_knows_reaches_the_reader(hang: list[JobSource]) -> None:
    run(["report", "dumps", "dumps", "--rank-from", r"_(\d+)$", "--world-size", "8", "--attempt", "1", "--jobs", "3"])
    assert hang == [JobSource(("dumps", "dumps"), r"_(\d+)$", 8, 1, 3, called=("dumps", "dumps"))]


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.md", "# Hang"),
        ("a.json", "{"),
        ("a.txt", "HANG"),
        ("a", "HANG"),
        ("a.html", "<!doctype html>"),
        ("a.HTM", "<!doctype html>"),
    ],
)
def test_the_suffix_of_the_file_says_the_format(hang: list[JobSource], capsys: Captured, name: str, start: str) -> None:
    assert run(["report", "dumps", "-o", name]) == 1
    assert Path(name).read_text().startswith(start)
    assert capsys.readouterr().out == ""


def test_a_format_that_is_given_wins_over_the_suffix(hang: list[JobSource]) -> None:
    run(["report", "dumps", "-o", "a.md", "-f", "text"])
    assert Path("a.md").read_text().startswith("HANG")


def test_a_dash_is_stdout(hang: list[JobSource], capsys: Captured) -> None:
    run(["report", "dumps", "-o", "-"])
    assert capsys.readouterr().out.startswith("HANG")


def test_a_file_is_overwritten_only_by_force(hang: list[JobSource], capsys: Captured) -> None:
    Path("a").write_text("mine")
    assert run(["report", "dumps", "-o", "a"]) == 2
    assert capsys.readouterr().err == "rankscope: a: already exists; --force overwrites it\n"
    assert Path("a").read_text() == "mine"
    assert hang == []
    assert run(["report", "dumps", "-o", "a", "--force"]) == 1
    assert Path("a").read_text().startswith("HANG")


@pytest.mark.parametrize(
    ("output", "said"),
    [("dumps", "dumps: is a directory"), ("no/a", "no: no such directory"), ("link", "link: already exists")],
)
def test_where_it_cannot_be_written(hang: list[JobSource], capsys: Captured, output: str, said: str) -> None:
    Path("link").symlink_to("nowhere")
    assert run(["report", "dumps", "-o", output]) == 2
    assert said in capsys.readouterr().err


def test_ascii_only(serve: Serve, capsys: Captured) -> None:
    serve(samples.hostile)
    for form in ("text", "markdown", "json", "html"):
        run(["report", "dumps", "--ascii", "-f", form])
        assert capsys.readouterr().out.isascii()


def test_redacted(hang: list[JobSource], capsys: Captured) -> None:
    run(["report", "dumps", "--redact", "-f", "markdown"])
    kept = capsys.readouterr().out
    assert "alice" not in kept
    assert "node07" not in kept
    assert "train.py:10" in kept
    run(["report", "dumps", "--redact-sources", "-f", "markdown"])
    gone = capsys.readouterr().out
    assert "train.py" not in gone and "file-1.py:10" in gone


@pytest.mark.parametrize(
    ("mapping", "shown"),
    [
        ("/home/alice/run=/src", "/src/model/attention.py:211"),
        ("/home/alice/run/=/src/", "/src/model/attention.py:211"),
        ("/home/ali=/src", "/home/alice/run/model/attention.py:211"),
        ("train=lib", "lib/step.py:30"),
    ],
)
def test_source_files_are_shown_where_they_are(
    hang: list[JobSource], capsys: Captured, mapping: str, shown: str
) -> None:
    run(["report", "dumps", "--path-map", mapping])
    assert f"  {shown}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["report", "nowhere"], "nowhere: No such file or directory"),
        (["report"], "Missing argument 'PATH...' (see rankscope report --help)"),
        (["report", "dumps", "--bogus"], "No such option '--bogus'"),
        (["report", "dumps", "--format", "yaml"], "'yaml' is not one of"),
        (["report", "dumps", "--rank-from", "("], "not a regular expression"),
        (["report", "dumps", "--rank-from", "rank"], "the expression needs a group for the rank"),
        (["report", "dumps", "--path-map", "x"], "'x' is not FROM=TO"),
        (["report", "dumps", "--world-size", "0"], "Invalid value for '--world-size'"),
        (["report", "\x1b[31m\nx"], r"\x1b[31m\nx: No such file or directory"),
        (["report", "a\0b"], r"a\x00b: not a path"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(
    hang: list[JobSource], capsys: Captured, args: list[str], said: str
) -> None:
    assert run(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rankscope: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize("args", [["nowhere", "--format", "json"], ["-f", "json"], ["--bogus", "--format=json"]])
def test_a_program_gets_errors_as_json(hang: list[JobSource], capsys: Captured, args: list[str]) -> None:
    assert run(["report", *args]) == 2
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert list(report) == ["schema", "error"]
    assert err == f"rankscope: {report['error']}\n"


def _broken() -> tuple[object, object]:
    raise ZeroDivisionError("a bug\x1b[0m")


def test_a_bug_is_one_line_too_unless_one_asks(serve: Serve, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(_broken)  # type: ignore[arg-type]
    monkeypatch.delenv("RANKSCOPE_DEBUG", raising=False)
    assert run(["report", "dumps", "-f", "json"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("rankscope: error of rankscope's own, ZeroDivisionError: a bug\\x1b[0m")
    assert json.loads(out)["schema"] == 1
    monkeypatch.setenv("RANKSCOPE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["report", "dumps"])


def _without_threads() -> tuple[object, object]:
    reason = 'could not spawn threads: ... message: "Resource temporarily unavailable"'
    raise pl.exceptions.PanicException(reason)


def test_a_user_who_may_start_no_threads_is_told(serve: Serve, capsys: Captured) -> None:
    serve(_without_threads)  # type: ignore[arg-type]
    assert run(["report", "dumps"]) == 2
    assert "start no more threads or processes (ulimit -u)" in capsys.readouterr().err


def _interrupted() -> tuple[object, object]:
    raise KeyboardInterrupt


def test_an_interrupt_ends_quietly(serve: Serve, capsys: Captured) -> None:
    serve(_interrupted)  # type: ignore[arg-type]
    assert run(["report", "dumps"]) == 130
    assert "Traceback" not in capsys.readouterr().err
