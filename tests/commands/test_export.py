"""`rankscope export`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rankscope.cli import run
from tests.features.traces.read.documents import all_reduce, document, x
from tests.parsers.dumps import job as job_of_dumps
from tests.parsers.dumps import named

EVENTS = [x("cpu_op", "aten::mm", 0, 1), *all_reduce(10, 5)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A directory with one trace."""
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "rank0_trace.json.gz").write_bytes(gzip.compress(document(EVENTS)))
    return folder


def test_it_writes_a_file_that_holds_all_spans(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "merged.json.gz"
    assert run(["export", str(trace), "-o", str(out)]) == 0
    with gzip.open(out) as file:
        events = json.load(file)["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == len(EVENTS)
    assert f"{len(events):,} events" in capsys.readouterr().err


def test_what_is_there_stays(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "merged.json"
    out.write_text("mine")
    assert run(["export", str(trace), "-o", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert run(["export", str(trace), "-o", str(out), "--force", "--no-flows"]) == 0
    assert json.loads(out.read_text())["traceEvents"]


def test_without_a_trace_there_is_nothing_to_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in named(job_of_dumps(1)).items():
        (tmp_path / name).write_bytes(content)
    out = tmp_path / "out.json"
    assert run(["export", *(str(p) for p in tmp_path.iterdir()), "-o", str(out)]) == 2
    assert "no profiler trace" in capsys.readouterr().err
    assert not out.exists()


def test_a_merged_trace_needs_a_file(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", str(trace), "-o", "-"]) == 2
    assert "needs a file" in capsys.readouterr().err
