"""Completion as shells do it: with the script that rankscope prints, in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.cli import run

BASH = shutil.which("bash") or ""
ASK = """
compopt() { echo "files: $2"; }
source completion.bash
complete -p rankscope
COMP_WORDS=(%s) COMP_CWORD=%d
_rankscope_completion rankscope
printf '%%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the script, a `rankscope` on PATH, and some files."""
    assert run(["tool", "completion", "bash"]) == 0
    (tmp_path / "completion.bash").write_text(capsys.readouterr().out)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "rankscope"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rankscope "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in ("dumps", "demos"):
        (tmp_path / name).mkdir()
    (tmp_path / "d;rm -rf").touch()
    return tmp_path


def completed(folder: Path, *words: str) -> list[str]:
    """The completions of the last word; `files: default` stands for files, which bash itself lists."""
    quoted = " ".join(f"'{word}'" for word in ("rankscope", *words))
    script = ASK % (quoted, len(words))
    done = subprocess.run([BASH, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    first, *rest = done.stdout.split("\n")
    assert first == "complete -o nosort -F _rankscope_completion rankscope"
    return [line for line in rest if line]


@pytest.mark.skipif(not BASH, reason="no bash")
def test_bash_completes_commands_options_and_paths(folder: Path) -> None:
    commands = completed(folder, "")
    assert {"report", "watch", "doctor", "tool", "repro"} <= set(commands) and "view" not in commands
    assert completed(folder, "de") == ["demo", "demos"]
    assert completed(folder, "d") == ["demo", "diff", "doctor", "demos", "dumps"]
    assert completed(folder, "./du") == ["files: default"]
    assert completed(folder, "report", "du") == ["files: default"]
    assert completed(folder, "report", "dumps", "--wor") == ["--world-size"]
    assert completed(folder, "report", "dumps", "--errors", "") == ["files: default"]
    assert completed(folder, "tool", "") == ["completion", "mcp", "schema"]
    assert completed(folder, "repro", "fo") == ["fork"] and completed(folder, "repro", "--det") == ["--determinism"]
    assert completed(folder, "report", "--only", "n") == ["numbers", "next"]
    assert completed(folder, "report", "--format", "m") == ["markdown"]


@pytest.mark.skipif(not BASH, reason="no bash")
def test_bash_completes_what_opens_the_screen(folder: Path) -> None:
    assert completed(folder, "--pal") == ["--palette"]
    assert completed(folder, "--vers") == ["--version"]
    assert completed(folder, "dumps", "--pal") == ["--palette"]
    assert completed(folder, "dumps", "--view", "gr") == ["groups"]


def test_zsh_and_fish_get_a_script_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tool", "completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef rankscope")
    assert run(["tool", "completion", "fish"]) == 0
    assert "complete --no-files --command rankscope" in capsys.readouterr().out
    assert run(["tool", "completion", "csh"]) == 2


def test_completion_loads_nothing_that_is_slow() -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from rankscope.cli import run; run([])"
    )
    asked = {"_RANKSCOPE_COMPLETE": "bash_complete", "COMP_WORDS": "rankscope report --wo", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "plain,--world-size\n"
    assert not {"polars", "numpy", "textual", "orjson", "msgspec"} & set(done.stderr.split())
