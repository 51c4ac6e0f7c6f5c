"""Each documented command is one: its options exist, it runs on small inputs, and prints what stands beside it."""

from __future__ import annotations

import argparse
import importlib
import pickle
import re
import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from benchmarks.make_dumps import make as make_dumps
from benchmarks.make_numbers import make as make_numbers
from benchmarks.memory_snapshot import snapshot

from rankscope.capture.__main__ import main as capture_main
from rankscope.cli import rankscope, run
from tests.house.documents import PAGES, ROOT, ShownCommand, shown_commands

Captured = pytest.CaptureFixture[str]
SHOWN = list(shown_commands())
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
MARKERS = {line.partition(":")[0] for line in SETTINGS["markers"]}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ELSEWHERE = {
    "./run.sh": "of docs/recipes.md; tests/recipes run it", ".ci/run": "makes environments anew, with a network",
    "bash": "a plan that the line above wrote", "chmod": "coreutils", "ln": "coreutils", "git": "git",
    "check-jsonschema": "tests/report/test_json_schema.py holds reports against the schema", "jq": "not of Python",
    "kubectl": "needs a cluster", "pip": "needs a network", "pipx": "needs a network", "podman": "needs containers",
    "python3.12": "needs the file of `make pyz`",
}  # fmt: skip
"""Programs that are not of this project, or cannot run here, each with the reason."""
NOT_RUN = {
    r" --watch\b|^rankscope watch": "follows a job until it ends; tests/watching",
    r"^rankscope demo": "starts a real job; tests/commands/test_demo.py",
    r"^rankscope stacks": "looks at running ranks, or needs their recording; tests/commands/test_stacks.py",
    r"^rankscope http": "needs a server of torch; tests/commands/test_remote.py",
    r"^rankscope tool mcp": "serves until its client goes; tests/commands/test_agent_server.py",
    r"\| rankscope -$": "reads standard input; tests/commands/test_given_files.py",
    r"^srun ": "needs Slurm; tests/sessions",
    r" --run\b": "starts a process for each rank; tests/commands/test_fork.py, tests/jobs",
    r"monday/": "two runs that nobody keeps; tests/analysis/comparison",
}
"""Patterns of commands of rankscope that are only parsed, each with the reason."""
PLACEHOLDERS = {"RANK": "3", "...": ""}
"""Words that stand for others."""


def reason_of(shown: ShownCommand) -> str:
    """The reason for which a command is not run; "" if it is."""
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, shown.text)), "")


def words_of(call: Sequence[str]) -> list[str]:
    """The words of a program: without variables before it, srun and placeholders."""
    words = [word for word in (PLACEHOLDERS.get(word, word) for word in call) if word]
    while words and re.match(r"\w+=", words[0]):
        del words[0]
    if words[:1] == ["srun"]:
        del words[: next(at for at, word in enumerate(words[1:], 1) if not word.startswith("-"))]
    return words


def run_later(folder: Path, hours: int) -> None:
    """Makes a copy of the dumps of a run a rerun: its operations are later."""
    for path in folder.glob("*trace_rank_*"):
        dump = pickle.loads(path.read_bytes())
        for entry in dump["entries"]:
            entry.update(
                {key: at + hours * 3600 * 10**9 for key, at in entry.items() if key.startswith("time_") and at}
            )
        path.write_bytes(pickle.dumps(dump, protocol=2))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages name: small dumps with numbers, runs, traces, logs and a session."""
    folder = tmp_path_factory.mktemp("workspace")
    samples = ROOT / "sample_data"
    (folder / "sample_data").symlink_to(samples)
    make_dumps(folder / "dumps", 16, 30)
    for name in ("dumps", "trusted", "one", "p1", "p2", "p3"):
        make_numbers(folder / name, 8, 1)
    shutil.copytree(samples / "slow_loader", folder / "traces")
    for number, name in enumerate(("run1", "A", "A1", "main1", "main2", "main3")):
        shutil.copytree(samples / "healthy", folder / name)
        run_later(folder / name, number)
    for number, name in enumerate(("run2", "A2", "A3", "B", "B1", "B2", "B3", "C", "D", "pr1", "pr2", "pr3")):
        shutil.copytree(samples / "early_return", folder / name)
        run_later(folder / name, number)
    for name in ("snapshots", "DIR"):
        (folder / name).mkdir()
        (folder / name / "r0.pickle").write_bytes(pickle.dumps(snapshot(30)))
    (folder / "job.log").write_text("[rank2]: torch.OutOfMemoryError: CUDA out of memory\n")
    (folder / "issue.md").write_text("> [rank2]: torch.OutOfMemoryError: CUDA out of memory\n")
    assert run(["ingest", str(folder / "dumps"), "-o", str(folder / "session")]) in (0, 1)
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which commands run."""
    return tmp_path_factory.mktemp("work")


class ParsedError(Exception):
    """The arguments of a program are read, and it shall not go on."""


@pytest.mark.parametrize("page", PAGES)
def test_commands_parse(page: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", _only_parsed)
    wrong = []
    for shown in SHOWN:
        for call in shown.calls if shown.page == page else ():
            try:
                _parse(words_of(call), shown)
            except (click.ClickException, SystemExit, ImportError, AssertionError) as error:
                wrong.append(f"{shown}: {error!r}")
    assert wrong == []


_parse_args = argparse.ArgumentParser.parse_args


def _only_parsed(parser: argparse.ArgumentParser, *arguments: object) -> None:
    _parse_args(parser, *arguments)  # type: ignore[call-overload]
    raise ParsedError


def _parse(words: list[str], shown: ShownCommand) -> None:
    match words:
        case ["rankscope", *arguments]:
            _parse_rankscope(arguments, shown)
        case ["torchrun", *_] if "-m" in words:
            _parse(["python", *words[words.index("-m") :]], shown)
        case ["python", "-m", "capture"]:
            pass  # src/rankscope/capture by itself, in a container
        case ["python" | ".venv/bin/python", "-m", "rankscope.capture", *arguments]:
            with pytest.raises(ParsedError):
                capture_main(arguments)
        case ["python" | ".venv/bin/python", "-m", module, *arguments] if not module.startswith("et_replay"):
            program = importlib.import_module(module)
            if arguments:
                with pytest.raises(ParsedError):
                    program.main(arguments)
        case ["make", *targets]:
            assert set(targets) <= TARGETS
        case [".venv/bin/pytest", "-m", expression]:
            assert set(re.findall(r"\w+", expression)) - {"not", "and", "or"} <= MARKERS
        case [".venv/bin/pytest" | "cd", path]:
            assert (ROOT / path).exists()
        case []:
            pass
        case [name, *_] if not shown.is_inline:
            assert name in ELSEWHERE or name in ("torchrun", "python"), name


def _parse_rankscope(arguments: list[str], shown: ShownCommand) -> None:
    try:
        context = rankscope.make_context("rankscope", list(arguments))
        name, command, rest = rankscope.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        pass  # --help and --version
    except click.MissingParameter:
        # a sentence names a command without its paths
        assert shown.is_inline


RUN = [
    shown
    for shown in SHOWN
    if not shown.is_inline and not reason_of(shown) and any("rankscope" in words_of(call)[:1] for call in shown.calls)
]


@pytest.mark.parametrize("page", list(dict.fromkeys(one.page for one in RUN)))
def test_commands_run_and_print_what_the_page_shows(
    page: str, workspace: Path, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    # the same folder for each page: processes that read files are used again where they are
    for path in work.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(workspace, work, symlinks=True, dirs_exist_ok=True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("RANKSCOPE_NO_CACHE", "1")
    wrong = []
    for shown in (one for one in RUN if one.page == page):
        monkeypatch.chdir(work)
        for words in map(words_of, shown.calls):
            if words[:1] == ["cd"] and Path(words[1]).is_dir():
                monkeypatch.chdir(words[1])
            elif words[:1] == ["rankscope"]:
                if words[1] == "ingest":
                    shutil.rmtree("session")
                capsys.readouterr()
                code = run(words[1:])
                printed = capsys.readouterr()
                if code not in (0, 1):
                    wrong.append(f"{shown}: exit code {code}: {printed.err}")
                elif not agrees(printed.out + printed.err, shown.output):
                    wrong.append(f"{shown}: prints\n{printed.out}{printed.err}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "shown",
    [one for one in SHOWN if one.output and one.text.startswith("rankscope repro ") and " fork " not in one.text],
    ids=str,
)
def test_a_page_shows_what_is_said_before_ranks_are_started(
    shown: ShownCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    assert run([word for word in shown.text.split()[1:] if word != "--run"]) == 0
    printed = capsys.readouterr()
    lines = (printed.out + printed.err).splitlines()
    assert lines and [line for line in lines if line not in shown.output.splitlines()] == []


def agrees(printed: str, shown: str) -> bool:
    """Whether an output has the shown lines one after the other; a line of three points stands for any others."""
    at = 0
    for part in re.split(r"^ *\.\.\.\n|\n *\.\.\.$", shown, flags=re.MULTILINE):
        found = printed.find(part.strip("\n"), at)
        if found < 0:
            return False
        at = found + len(part)
    return True


@pytest.mark.parametrize(
    ("shown", "is_right"),
    [("", True), ("a\nb", True), ("a\n...\nd", True), ("a\nc", False), ("d\n...\na", False), ("  ...\nc\n ...", True)],
)
def test_an_output_agrees(shown: str, is_right: bool) -> None:
    assert agrees("a\nb\nc\nd\n", shown) == is_right


def test_a_wrong_option_is_noticed() -> None:
    shown = ShownCommand("page", 1, "rankscope report dumps --nothing")
    with pytest.raises(click.NoSuchOption):
        _parse_rankscope(["report", "dumps", "--nothing"], shown)


@pytest.mark.parametrize("pattern", NOT_RUN)
def test_every_reason_is_of_a_shown_command(pattern: str) -> None:
    assert any(re.search(pattern, shown.text) for shown in SHOWN)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_every_program_of_others_is_shown(name: str) -> None:
    assert any(words_of(call)[:1] == [name] for shown in SHOWN for call in shown.calls)
