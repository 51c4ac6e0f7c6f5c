"""The command that is run when a job freezes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.commands.watch import FreezeHook
from rankscope.parsers.workers.machine_share import limit_threads


def test_it_gets_the_report(tmp_path: Path) -> None:
    said: list[str] = []
    hook = FreezeHook(f"cat > '{tmp_path / 'got'}'", said.append)
    hook.fire(b'{"verdict": "x"}')
    hook.wait()
    assert (tmp_path / "got").read_bytes() == b'{"verdict": "x"}'
    assert said == []


def test_it_sees_what_the_user_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"OPENBLAS_NUM_THREADS": "5"}
    limit_threads(environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    hook = FreezeHook(f"env > '{tmp_path / 'seen'}'", lambda _: None)
    hook.fire(b"")
    hook.wait()
    seen = (tmp_path / "seen").read_text()
    assert "OPENBLAS_NUM_THREADS=5" in seen and "POLARS_MAX_THREADS" not in seen


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo 'no pager\x1b[2J' >&2; exit 7", "--on-freeze: the command failed with exit code 7: no pager"),
        ("/does/not/exist", "--on-freeze: the command failed with exit code 127"),
        ("true", ""),
        ("exec 0<&-; sleep 0.1", ""),
    ],
)
def test_its_failure_is_said(command: str, told: str) -> None:
    said: list[str] = []
    hook = FreezeHook(command, said.append)
    hook.fire(b"x" * 1_000_000)
    hook.wait()
    assert len(said) == bool(told)
    assert not told or said[0].startswith(told)
    assert "\x1b" not in "".join(said)


def test_it_is_not_run_twice_at_a_time(tmp_path: Path) -> None:
    said: list[str] = []
    flag = tmp_path / "go"
    hook = FreezeHook(f"while [ ! -e '{flag}' ]; do sleep 0.05; done", said.append)
    hook.fire(b"")
    hook.fire(b"")
    assert "still running" in said[0]
    flag.touch()
    hook.wait()
