"""The record of a job's code: what it tells with and without git, and what it keeps to itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rankscope.capture import code_record
from rankscope.capture.code_record import CodeRecord, without_secrets
from rankscope.features.numbers.read.model import header_settings
from rankscope.parsers.sidecar import decode_sidecar

AUTHOR = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A script that is the main module of this process, with a module of its own and an installed package."""
    path = tmp_path / "train.py"
    path.write_text("import model\n")
    (tmp_path / "model.py").write_text("WIDTH = 8\n")
    main, package = ModuleType("__main__"), ModuleType("small_kernels")
    main.__dict__["__file__"], package.__dict__["__version__"] = str(path), "1.2"
    package.__spec__ = sys.__spec__
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(sys.modules, "small_kernels", package)
    module = ModuleType("model")
    module.__spec__ = spec_from_file_location("model", tmp_path / "model.py")
    monkeypatch.setitem(sys.modules, "model", module)
    monkeypatch.setattr(code_record, "_command", ["train.py", "--lr", "0.1", "--hf-token", "abcdef"])
    yield path


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, env={**os.environ, **AUTHOR})


def told(record: CodeRecord, key: str) -> dict[str, Any]:
    """The facts, once the thread that asks git has told one."""
    until = time.monotonic() + 120
    while key not in (facts := record.facts(is_first=True)) and time.monotonic() < until:
        time.sleep(0.02)
    return facts


def test_commit_changes_files_packages_and_command_are_told(script: Path) -> None:
    git(script.parent, "init", "-q")
    git(script.parent, "add", "train.py", "model.py")
    git(script.parent, "commit", "-qm", "one")
    clean = told(CodeRecord(), "commit")
    assert len(clean["commit"]) == 40 and clean["changes"] == "none"
    assert clean["files"].keys() >= {"train.py", "model.py"}
    assert clean["packages"]["small_kernels"] == "1.2"
    assert clean["command"] == ["train.py", "--lr", "0.1", "--hf-token", "(hidden)"]
    (script.parent / "model.py").write_text("WIDTH = 16\n")
    dirty = told(CodeRecord(), "changes")
    assert dirty["commit"] == clean["commit"] and dirty["changes"] not in ("", "none")
    assert dirty["files"]["model.py"] != clean["files"]["model.py"]
    assert dirty["files"]["train.py"] == clean["files"]["train.py"]


def test_without_git_all_else_is_told(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    record = CodeRecord()
    assert record.facts(is_first=True)["files"].keys() >= {"train.py"}
    assert code_record._git_output(str(script.parent), "rev-parse", "HEAD") is None


def test_other_processes_of_a_host_tell_no_packages_and_ask_no_git(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    monkeypatch.setattr(CodeRecord, "_ask_git", lambda _, path: asked.append(path))
    assert "packages" not in CodeRecord().facts(is_first=False) and asked == []


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["t.py", "--api_key=abc", "--lr=1"], ["t.py", "--api_key=(hidden)", "--lr=1"]),
        (["t.py", "--password", "x y", "--n", "3"], ["t.py", "--password", "(hidden)", "--n", "3"]),
        (["t.py", "--data", "s3://me:pw@host/x"], ["t.py", "--data", "s3://(hidden)@host/x"]),
        (["t.py", "--num_tokens=5", "--keyframes=2"], ["t.py", "--num_tokens=5", "--keyframes=2"]),
        (
            ["--api-keys=abc", "--pass=x", "--passphrase", "y"],
            ["--api-keys=(hidden)", "--pass=(hidden)", "--passphrase", "(hidden)"],
        ),
        (["--token", "-abc", "--lr", "1"], ["--token", "(hidden)", "--lr", "1"]),
        (["-H", "Authorization: Bearer abc"], ["-H", "Authorization: (hidden) (hidden)"]),
        (['--config={"api_key": "hunter2", "lr": 1}'], ['--config={"api_key": (hidden), "lr": 1}']),
        (["postgres://u:p/w@h"], ["postgres://(hidden)@h"]),
        (
            ["--train-tokens", "3e11", "--lr-warmup-tokens=3e9", "--lr-decay-tokens", "5", "--json-keys", "text"],
            ["--train-tokens", "3e11", "--lr-warmup-tokens=3e9", "--lr-decay-tokens", "5", "--json-keys", "text"],
        ),
        (["--header", "1", "--data", "http://h/x?mail=a@b"], ["--header", "1", "--data", "http://h/x?mail=a@b"]),
        (["http://h:80/x?a=b@c", '{"tokens": 5}'], ["http://h:80/x?a=b@c", '{"tokens": 5}']),
        (
            ["--hf-tokens", "a", "--api_tokens=b", "--private-keys", "c", "--secret-keys=d", "--auth-header", "e"],
            [
                "--hf-tokens",
                "(hidden)",
                "--api_tokens=(hidden)",
                "--private-keys",
                "(hidden)",
                "--secret-keys=(hidden)",
                "--auth-header",
                "(hidden)",
            ],
        ),
        (["--header", "Authorization: token abc"], ["--header", "Authorization: (hidden) (hidden)"]),
        (["--header", "Cookie: a=b; c=d"], ["--header", "Cookie: (hidden); (hidden)"]),
        (["--header=X-Api-Key: abc", "--url=h?token=a"], ["--header=X-Api-Key: (hidden)", "--url=h?token=(hidden)"]),
        (["s3://u:12/b@h", "s3://u:a@b@h"], ["s3://(hidden)@h", "s3://(hidden)@h"]),
        (['{"password": "a b", "url": "h?token=c"}'], ['{"password": (hidden), "url": "h?token=(hidden)']),
        (
            ["--pad-token", "0", "--eos_token=</s>", "--token-ids", "5"],
            ["--pad-token", "0", "--eos_token=</s>", "--token-ids", "5"],
        ),
    ],
)
def test_secrets_of_a_command_line_are_not_written(arguments: list[str], shown: list[str]) -> None:
    assert without_secrets(arguments) == shown


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("s3://me:", "@host/x"),
        ("s3://me:a/", "@host/x"),
        ("s3://", ":b@host"),
        ('{"password": "', '"}'),
        ("-H=Authorization: Digest a=", " b"),
        ("--note=Bearer ", ""),
        ("token=", ""),
    ],
)
def test_a_secret_behind_which_an_argument_is_cut_is_not_written(begin: str, end: str) -> None:
    for filler in (0, 300, code_record.LONGEST_ARGUMENT - len(begin) - 4):
        words = "SECRETWORD" if filler else "SECRETWORD " * 2 if '"' in begin else "SECRETWORD" * 60
        (shown,) = without_secrets(["x" * filler + " " + begin + words + end + "z" * 400])
        assert "SECR" not in shown and len(shown) <= code_record.LONGEST_ARGUMENT + len("=(hidden)")


@pytest.mark.parametrize("part", ["pad", "://a", "-a", "token", "secret_", 'key: "', "Cookie: a "])
def test_the_time_of_a_long_argument_does_not_grow_with_the_square_of_its_length(part: str) -> None:
    begin = time.process_time()
    without_secrets([part * 20_000, "--" + part * 20_000 + "=1"])
    assert time.process_time() - begin < 0.5


def test_a_sidecar_tells_the_code_as_settings_whatever_is_in_it() -> None:
    code = (
        b'{"command":["train.py","--lr","0.1",7],"files":{"train.py":"ab","x":3},"commit":"c0","changes":"none",'
        b'"packages":{"numpy":"2.0"}}'
    )
    card = decode_sidecar(b'{"rankscope_capture":1,"rank":0,"versions":{"torch":"2.9"},"code":' + code + b"}")
    assert dict(card.settings) == {
        "command line": "train.py --lr 0.1", "code file train.py": "ab", "code commit": "c0", "code changes": "none",
        "version:numpy": "2.0", "version:torch": "2.9",
    }  # fmt: skip
    assert decode_sidecar(b'{"rankscope_capture":1,"rank":0,"code":[1]}').settings == []


def test_a_recording_of_numbers_tells_the_code_by_the_same_names(script: Path) -> None:
    told = CodeRecord().settings(is_first=True)
    assert told["command line"] == "train.py --lr 0.1 --hf-token '(hidden)'"
    assert told.keys() >= {"code file train.py", "code file model.py", "version:small_kernels"}
    assert dict(header_settings({}, {"threads": 1, "code": told})) == {"torch.threads": "1", **told}


class Bare:
    """Stands among modules, and has no attributes."""

    __slots__ = ()


class Late:
    """Would load itself, and fail, if it were asked for an attribute."""

    def __getattribute__(self, name: str) -> object:
        raise ImportError(name)


def test_whatever_stands_among_modules_hides_no_other_one(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = CodeRecord().facts(is_first=False)["files"]
    later = {name: module for name, module in sys.modules.items() if name == "model"}
    monkeypatch.delitem(sys.modules, "model")
    for name, module in {"bare": Bare(), "late": Late(), **later}.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert CodeRecord().facts(is_first=False)["files"] == known and "model.py" in known
