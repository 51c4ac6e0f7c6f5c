"""`rankscope demo`: real jobs that break while they are looked at, and that are gone afterwards."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope import cli
from rankscope.command_line import acting
from rankscope.commands import demo
from tests import torch_forks

Captured = pytest.CaptureFixture[str]
LONGEST_S = 600.0


def test_without_torch_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert cli.run(["demo"]) == 2
    assert f"{sys.executable} -m pip install torch" in capsys.readouterr().err


@pytest.mark.torch
def test_a_job_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert cli.run(["demo"]) == 2
    assert "the job does not start" in capsys.readouterr().err


@pytest.mark.torch
def test_the_command_knows_the_scenarios() -> None:
    from rankscope.capture.demo.job import SCENARIOS

    assert tuple(SCENARIOS) == acting.SCENARIOS
    assert [name for name in SCENARIOS if name not in (acting.demo.help or "")] == []


EXPECTED = {
    "skip": (1, "rank 2 never issued all_reduce #5 of tensor_parallel"),
    "slow": (1, "rank 0 never issued all_reduce #5 of tensor_parallel"),
    "straggler": (0, "rank 1 arrives last"),
    "wrong-gradient": (
        1,
        "rank 2 holds another result of all_reduce #19 of default_pg than the other members, in step 4",
    ),
}


@pytest.fixture
def loaded_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The demo starts its job with torch loaded; the pipe that the job reads is open until the test ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)

    def start(command: list[str], *, env: dict[str, str], **_: object) -> torch_forks.TorchFork:
        arguments = ["-m", *command[command.index("rankscope.capture.demo") :]]
        return torch_forks.started(arguments, env, tmp_path, tmp_path / "output", stdin=str(pipe))

    constants = {"PIPE": subprocess.PIPE, "STDOUT": subprocess.STDOUT}
    monkeypatch.setattr(demo, "subprocess", SimpleNamespace(Popen=start, **constants))
    yield
    os.close(writer)


@pytest.mark.torch
@pytest.mark.usefixtures("loaded_job")
@pytest.mark.parametrize("scenario", EXPECTED)
def test_the_verdict_on_each(scenario: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    code, said = EXPECTED[scenario]
    assert cli.run(["demo", scenario, "--at", "4"]) == code
    printed = capsys.readouterr()
    assert printed.err == "" and said in " ".join(printed.out.split())
    assert list(scratch.iterdir()) == []
    assert _working_in(tmp_path) == []


@pytest.mark.torch
def test_the_job_ends_with_whoever_started_it_even_if_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rankscope", "demo", "straggler"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    cards: list[Path] = []
    end = time.monotonic() + LONGEST_S
    while len(cards) < demo.RANKS and time.monotonic() < end:
        time.sleep(0.05)
        cards = list(tmp_path.glob("*/dumps/capture_rank_*.json"))
    pids = [json.loads(card.read_bytes())["pid"] for card in cards]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(pids) == demo.RANKS
    left = True
    while left and time.monotonic() < end:
        time.sleep(0.05)
        left = bool(_ranks(tmp_path) or list(tmp_path.glob("rankscope-demo-*")))
    assert not left


def _working_in(folder: Path) -> list[str]:
    """Processes whose working directory is a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if path.readlink() == folder:
                found.append(path.parent.name)
    return found


def _ranks(folder: Path) -> list[str]:
    """Processes of demos below a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"rankscope.capture.demo" in words and any(str(folder).encode() in word for word in words):
            found.append(path.parent.name)
    return found
