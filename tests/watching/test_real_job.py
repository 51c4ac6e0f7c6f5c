"""A real gloo job, captured while it runs, under `rankscope watch`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import torch_forks
from tests.watching.ranks import CULPRIT, ENOUGH

pytestmark = pytest.mark.torch

LONGEST_S = 600


@contextmanager
def job(mode: str, directory: Path) -> Iterator[Path]:
    """The job while the block lasts; where its dumps are."""
    (directory / "dumps").mkdir()
    arguments = ["-m", "tests.watching.ranks", mode, str(directory)]
    process = torch_forks.started(arguments, os.environ, directory, directory / "output")
    try:
        yield directory / "dumps"
    finally:
        process.kill()
        process.wait()


def watch(dumps: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rankscope", "watch", str(dumps), "--format", "json", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def lines(said: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_a_job_that_hangs_is_named_once_it_is_frozen(tmp_path: Path) -> None:
    paged = tmp_path / "paged"
    with job("hang", tmp_path) as dumps:
        process = watch(dumps, "--until-frozen", "--freeze-after", "20", "--on-freeze", f"cat > '{paged}'")
        said, complaints = process.communicate(timeout=LONGEST_S)
    told = lines(said)
    assert process.returncode == 1, complaints
    assert told[-1]["state"] == "frozen" and told[-1]["status"] == "hang"
    assert told[-1]["culprit_ranks"] == [CULPRIT]
    assert told[-1]["still_s"] >= 20
    assert not any(line["culprit_ranks"] for line in told[:-1])
    assert json.loads(paged.read_bytes())["findings"][0]["culprit_ranks"] == [CULPRIT]


def test_a_checkpoint_is_no_hang(tmp_path: Path) -> None:
    with job("pause", tmp_path) as dumps:
        process = watch(dumps, "--freeze-after", "60")
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(json.loads(line))
            if told[-1]["state"] == "idle":
                break
            if told[-1]["rates"]:
                (tmp_path / ENOUGH).touch()
        process.send_signal(signal.SIGTERM)
        rest, complaints = process.communicate(timeout=LONGEST_S)
    told += lines(rest)
    states = [line["state"] for line in told]
    assert process.returncode == 0, complaints
    assert "progressing" in states and "frozen" not in states
    assert all(not line["culprit_ranks"] for line in told)
    assert any(rate["per_s"] > 0 for line in told for rate in line["rates"])
