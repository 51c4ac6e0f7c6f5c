"""Dumps that try to act on the terminal or the page, from bytes on disk to the report."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rankscope.cli import run
from tests.jobs.scenarios import SAMPLES
from tests.report.samples import EVIL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The two groups, with every name replaced by what does harm, and files named so too."""
    for path in (SAMPLES / "two_groups").iterdir():
        dump = pickle.loads(path.read_bytes())
        for entry in dump["entries"]:
            name, description = entry["process_group"]
            entry["process_group"] = (name + EVIL, description + EVIL)
            entry["profiling_name"] += EVIL
            entry["frames"] = [dict(f, name=EVIL, filename=EVIL) for f in entry["frames"]]
        rank = path.name.rpartition("_")[2]
        (tmp_path / f"\x1b[2J<b>`\n_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    (tmp_path / "\udcff\x1b[2Jnotes").write_text(EVIL)
    return tmp_path


@pytest.mark.parametrize("args", [["-f", "text"], ["-f", "markdown"], ["-f", "json"], ["-f", "text", "--redact"]])
def test_no_control_sequence_reaches_the_terminal(
    folder: Path, args: list[str], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["report", str(folder), *args]) == 1
    printed = capsysbinary.readouterr()
    assert printed.err == b""
    lines = printed.out.decode().split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    assert "rank 3" in lines[0] + lines[6]
