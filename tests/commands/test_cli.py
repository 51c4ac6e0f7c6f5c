"""The command line as a whole: what opens the app, what prints, and what each costs to start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import click
import pytest

import rankscope as rankscope_package
from rankscope import __version__
from rankscope.cli import run
from rankscope.command_line.group import FORMER_NAMES, LOADING, PARTS, rankscope
from rankscope.commands import view
from rankscope.commands.source import JobSource
from rankscope.kinds.view_kinds import VIEWS
from tests.commands.conftest import every_command
from tests.parsers.dumps import job, named

Captured = pytest.CaptureFixture[str]


class App:
    """Stands in for the real app and remembers what it was given."""

    opened: dict[str, Any]

    def __init__(self, **given: Any) -> None:
        App.opened = given

    last_words = ""

    def run(self) -> None:
        """Notes that it ran."""
        App.opened["ran"] = True


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> type[App]:
    """There is a terminal, and opening the app on it is noted."""
    module = types.ModuleType("rankscope.tui.app")
    module.RankscopeApp = App  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rankscope.tui.app", module)
    monkeypatch.setattr(view, "on_terminal", lambda: True)
    App.opened = {}
    return App


def test_a_path_opens_the_app(hang: list[JobSource], app: type[App]) -> None:
    assert run(["dumps", "--ascii", "--palette", "16", "--no-mouse", "--path-map", "/a=/b", "--world-size", "4"]) == 0
    options = app.opened["options"]
    assert app.opened["ran"]
    assert app.opened["title"] == "dumps"
    assert (options.ascii_only, options.palette, options.mouse) == (True, "16", False)
    assert options.path_map == (("/a", "/b"),)
    assert app.opened["load"](print)[1].status == "hang"
    assert hang == [JobSource(("dumps",), world_size=4, called=("dumps",))]


def test_a_view_is_opened_by_its_name_only(hang: list[JobSource], app: type[App], capsys: Captured) -> None:
    assert run(["dumps", "--view", "groups"]) == 0
    assert app.opened["options"].view == "groups"
    assert run(["dumps", "--view", "nonsense"]) == 2
    assert ", ".join(VIEWS) in capsys.readouterr().err
    assert run(["--help"]) == 0
    assert ", ".join(list(VIEWS)[:-1]) in " ".join(capsys.readouterr().out.split())


def test_the_terminal_is_asked_for_its_size(
    hang: list[JobSource], app: type[App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run(["dumps"])
    assert "COLUMNS" not in os.environ


def test_options_may_come_before_the_path(hang: list[JobSource], app: type[App]) -> None:
    assert run(["--ascii", "dumps"]) == 0
    assert app.opened["ran"]


def test_the_app_exports_where_one_stands_and_overwrites_nothing(hang: list[JobSource], app: type[App]) -> None:
    run(["dumps"])
    options = app.opened["options"]
    job = app.opened["load"](print)
    assert [*options.exports] == ["Markdown", "HTML", "JSON"]
    written = [export(*job, options.export_dir).name for export in options.exports.values() for _ in range(2)]
    assert written == [f"findings{number}.{ending}" for ending in ("md", "html", "json") for number in ("", "-2")]
    assert Path("findings.md").read_text().startswith("#")
    assert Path("findings.html").read_text().startswith("<!doctype html>")
    assert json.loads(Path("findings.json").read_text())["status"] == "hang"


def test_what_is_not_there_is_said_before_the_app_opens(
    hang: list[JobSource], app: type[App], capsys: Captured
) -> None:
    assert run(["nowhere"]) == 2
    assert app.opened == {}
    assert capsys.readouterr().err == "rankscope: nowhere: No such file or directory\n"


def test_without_a_terminal_the_report_is_printed(hang: list[JobSource], capsys: Captured) -> None:
    assert run(["dumps"]) == 1
    assert capsys.readouterr().out.startswith("HANG: rank 3")


def test_a_path_named_like_a_command_is_written_with_its_directory(hang: list[JobSource], capsys: Captured) -> None:
    Path("report").mkdir()
    assert run(["./report"]) == 1
    assert hang[0].paths == ("./report",)


def test_without_arguments_it_asks_for_a_path(capsys: Captured) -> None:
    assert run([]) == 2
    assert capsys.readouterr().err == (
        "rankscope: no PATH given: name a directory of dumps, logs or traces (see rankscope --help)\n"
    )


def test_version(capsys: Captured) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"rankscope {__version__}\n"


def test_help_fits_a_small_terminal_and_says_what_to_type(capsys: Captured) -> None:
    for args in (["--help"], ["-h"], ["report", "--help"]):
        assert run(args) == 0
        out = capsys.readouterr().out
        assert "PATH..." in out
        assert max(map(len, out.splitlines())) <= 80
    assert "--redact" in out


MODULES = "import sys; from rankscope.cli import run; code = run({args!r}); print(*sys.modules, file=sys.stderr)"


def _loaded(*args: str) -> set[str]:
    """Top-level modules that are imported after a command line."""
    done = subprocess.run(
        [sys.executable, "-c", MODULES.format(args=list(args))], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stderr.splitlines()[-1].split()}


def test_help_imports_next_to_nothing() -> None:
    assert not _loaded("--help") & {"polars", "numpy", "textual", "rich", "torch", "orjson"}


def test_an_error_imports_no_more() -> None:
    assert not _loaded("report", "/nowhere") & {"polars", "numpy", "textual", "rich", "torch"}


@pytest.mark.parametrize("debug", ["", "1"])
def test_the_debug_log_says_which_dumps_were_read_the_slow_way(tmp_path: Path, debug: str) -> None:
    made = job(2)
    for recorder in made:
        for _ in range(900):
            recorder.collective()
    made[1].entries.append(dict(reversed(made[1].entries.pop().items())))
    for name, data in named(made).items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "rankscope", "report", str(tmp_path)],
        capture_output=True, text=True, check=True, env={**os.environ, "RANKSCOPE_DEBUG": debug},
    )  # fmt: skip
    told = [
        "rankscope: 1 of 2 flight recorder dumps were read the slow way",
        "rankscope: nccl_trace_rank_1 was read the slow way: entries that do not begin like the first",
    ]
    assert done.stderr.splitlines() == (told if debug else [])


def test_the_help_names_each_view() -> None:
    (view_option,) = (param for param in rankscope.commands["view"].params if param.name == "view")
    told = re.findall(r"\w+", view_option.get_help_record(click.Context(rankscope))[1])  # type: ignore[index]
    assert set(VIEWS) <= set(told)


@pytest.mark.parametrize(
    ("command", "unused"),
    [
        ("export", {"path_map", "ascii_only", "groups", "last"}),
        ("ingest", {"path_map", "ascii_only", "no_cache"}),
        ("repro script", {"path_map", "ascii_only", "ranks", "groups"}),
        ("repro fork", {"path_map", "ascii_only"}),
        ("watch", {"no_cache", *PARTS}),
        ("report", set()),
    ],
)
def test_a_command_takes_the_options_of_reading_that_it_uses(command: str, unused: set[str]) -> None:
    names = {param.name for param in dict(every_command())[command].params}
    assert {"paths", *LOADING, *PARTS, "path_map", "ascii_only"} - names == unused


def test_an_option_without_its_value_leads_to_the_help_of_its_command(capsys: Captured) -> None:
    assert run(["watch", "dumps", "--metrics"]) == 2
    assert "requires an argument (see rankscope watch --help)" in capsys.readouterr().err


def test_an_option_that_a_command_does_not_use_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert run(["ingest", str(tmp_path), "-o", "session", "--ascii"]) == 2
    assert "No such option '--ascii'" in capsys.readouterr().err


@pytest.mark.parametrize("former", FORMER_NAMES)
def test_a_former_name_goes_on_working_and_says_the_present_one(former: str, capsys: Captured) -> None:
    assert run([former, "--help"]) == 0
    told = capsys.readouterr()
    assert told.err == f"rankscope: `rankscope {former}` is now `rankscope {FORMER_NAMES[former]}`\n"
    assert told.out.startswith(f"Usage: rankscope {FORMER_NAMES[former].partition(' --')[0]}")


def test_no_help_lists_more_than_eleven_commands(capsys: Captured) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2]
    names = re.findall(r"^  (\w+)", listed, re.MULTILINE)
    assert {"report", "repro", "config", "tool"} <= set(names) and len(names) <= 11
    assert not set(names) & {*FORMER_NAMES, "view"}


@pytest.mark.parametrize(("word", "command"), [("reprot", "report"), ("wacth", "watch"), ("dif", "diff")])
def test_a_misspelled_command_is_named(word: str, command: str, tmp_path: Path, capsys: Captured) -> None:
    assert run([word, str(tmp_path)]) == 2
    assert f"{word}: no such command or path; did you mean {command}?" in capsys.readouterr().err


def test_a_path_that_nearly_spells_a_command_is_opened(hang: list[JobSource]) -> None:
    Path("reports").mkdir()
    assert run(["reports"]) == 1
    assert hang[0].paths == ("reports",)


def test_errors_name_a_command_that_is_listed(capsys: Captured) -> None:
    for args, command in ((["--bad"], ""), (["repro", "--bad"], " repro"), (["numbers", "x", "--save"], " report")):
        assert run(args) == 2
        assert f"(see rankscope{command} --help)" in capsys.readouterr().err.splitlines()[-1]


def test_each_section_refuses_options_that_it_would_leave_unread(capsys: Captured) -> None:
    for args, said in (
        (["--strict"], "--strict needs --only numbers"),
        (["--only", "memory", "--why", "1"], "--only memory takes no --why"),
        (["--only", "next", "-f", "json"], "--only next takes no --format"),
    ):
        assert run(["report", "dumps", *args]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "wanted"), [("memory", "torch.cuda.memory._dump_snapshot"), ("numbers", "rankscope.capture")]
)
def test_an_empty_directory_is_told_what_the_section_reads(
    section: str, wanted: str, tmp_path: Path, capsys: Captured
) -> None:
    assert run(["report", "--only", section, str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert wanted in told and "TORCH_FR" not in told


def test_sentences_name_commands_that_exist() -> None:
    sources = [path for path in Path(rankscope_package.__file__).parent.rglob("*.py") if path.name != "group.py"]
    named = {(path.name, name) for path in sources for name in re.findall(r"\brankscope (\w+)", path.read_text())}
    assert len(named) > 50
    assert [one for one in named if one[1] in FORMER_NAMES] == []
