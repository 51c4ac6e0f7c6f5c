"""Files that the user names, and standard input: read as logs whatever their names."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.cli import run
from tests.features.logs.read.test_word_wrapped import STATUS, TIMEOUT
from tests.parsers.dumps import job

Captured = pytest.CaptureFixture[str]
LOG = f"{TIMEOUT}\n{STATUS}\n"


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Callable[..., tuple[int, str, str]]:
    """A run of the command line with standard input: exit code, output and errors."""

    def with_input(data: bytes, *args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return run(args), *capsys.readouterr()

    return with_input


@pytest.mark.parametrize("args", [("report", "-"), ("-",)])
@pytest.mark.parametrize("packed", [False, True])
def test_standard_input(args: tuple[str, ...], packed: bool, piped: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = piped(gzip.compress(LOG.encode()) if packed else LOG.encode(), *args)
    assert (code, err) == (1, "")
    assert out.startswith("HANG: rank 5 gave up waiting in allreduce #85 (standard input:1)")
    assert "\nstandard input: 1 rank of an unknown number" in out and "/rankscope-" not in out


def test_the_device_of_standard_input_with_a_pipe_behind_it() -> None:
    command = [sys.executable, "-m", "rankscope", "report", "/dev/stdin"]
    made = subprocess.run(command, input=LOG.encode(), capture_output=True, check=False)
    assert made.returncode == 1 and made.stdout.startswith(
        b"HANG: rank 5 gave up waiting in allreduce #85 (standard input:1)"
    )


def test_standard_input_that_holds_nothing(piped: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = piped(b"", "report", "-")
    assert code == 2 and "standard input: empty file" in err


def test_standard_input_is_not_followed(piped: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = piped(LOG.encode(), "watch", "-")
    assert code == 2 and "standard input cannot be followed" in err


@pytest.mark.parametrize("name", ["comment.md", "job.json", "a.err", "out", "x.html", "README", "paste.py"])
@pytest.mark.parametrize("front", ["", "### Bug\n\n```\n", "> mail\n"])
def test_a_named_file_is_read_whatever_its_name(capsys: Captured, tmp_path: Path, name: str, front: str) -> None:
    (tmp_path / name).write_text(front + LOG)
    assert run(["report", str(tmp_path / name)]) == 1
    assert "rank 5 gave up waiting in allreduce #85" in capsys.readouterr().out.replace("\n", " ")


def test_a_document_is_read_only_where_nothing_else_tells_anything(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "issue.md").write_text(f"# Bugs\n\n```\n{LOG}```\n")
    (tmp_path / "notes.txt").write_text("roses are red\n")
    assert run(["report", str(tmp_path)]) == 1
    assert "rank 5 gave up waiting in allreduce #85" in capsys.readouterr().out.replace("\n", " ")
    for recorder in job(2):
        (tmp_path / f"dump_{recorder.rank}").write_bytes(recorder.pickle())
    assert run(["report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "rank 5" not in out and "issue.md, notes.txt: not a kind of file that is known" in out


def test_a_directory_of_texts_without_events_is_refused(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("roses are red\n" * 10)
    assert run(["report", str(tmp_path)]) == 2
    assert "poem.txt: not a kind of file that is known" in capsys.readouterr().err


@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_marks_and_line_ends_of_other_systems(capsys: Captured, tmp_path: Path, mark: str, end: str) -> None:
    (tmp_path / "log.txt").write_bytes((mark + LOG.replace("\n", end)).encode())
    assert run(["report", str(tmp_path)]) == 1
    assert "rank 5 gave up waiting in allreduce #85 (log.txt:1)" in capsys.readouterr().out.replace("\n", " ")


def test_a_named_text_without_events_and_a_binary_are_refused(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("roses are red\n" * 10)
    (tmp_path / "a.bin").write_bytes(b"\x7fELF" + bytes(range(256)) * 4)
    assert run(["report", str(tmp_path / "poem.txt")]) == 2
    assert (
        "poem.txt: no line of a program reports an operation, an error or the end of a process"
        in capsys.readouterr().err
    )
    assert run(["report", str(tmp_path / "a.bin")]) == 2
    assert "a.bin: not a kind of file that is known" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["log.txt", "train_log.txt", "slurm-123", "slurm-123_4.txt", "logs", "output.txt", "o"]
)
@pytest.mark.parametrize("front", ["trainer-1  | ", "worker.1.k2j@node1    | ", "12:00:01 web.1   | ", "> "])
def test_lines_below_a_container_or_quoted_in_a_directory(
    capsys: Captured, tmp_path: Path, name: str, front: str
) -> None:
    (tmp_path / name).write_text("".join(f"{front}{line}\n" for line in LOG.splitlines()))
    assert run(["report", str(tmp_path)]) == 1
    assert "rank 5 gave up waiting in allreduce #85" in capsys.readouterr().out.replace("\n", " ")


def test_an_exception_alone_is_a_failure_of_its_rank(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "errors.txt").write_text("[rank1]: RuntimeError: the loader gave nothing\n")
    assert run(["report", str(tmp_path / "errors.txt")]) == 1
    assert "rank 1 failed: RuntimeError: the loader gave nothing" in capsys.readouterr().out.replace("\n", " ")
