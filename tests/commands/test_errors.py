"""A table of known errors of the user's own: given by hand, or found in the configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson

from rankscope.assemble.load import LoadOptions, load

LOG = (
    "[rank3]: flux capacitor failed badly\n"
    "[rank1]:[E1120 12:34:56.789012345 ProcessGroupNCCL.cpp:616] [Rank 1] "
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\n"
)
TABLE = "id\trole\tpattern\nflux\troot\tflux capacitor failed\n"


def _report(tmp_path: Path, *options: str, config: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    log = tmp_path / "job.log"
    log.write_text(LOG)
    environment = {**os.environ, "XDG_CONFIG_HOME": str(config or tmp_path / "none")}
    command = [sys.executable, "-m", "rankscope", "report", str(log), "--format", "json", *options]
    return subprocess.run(command, capture_output=True, check=False, env=environment, timeout=600)


def test_a_table_that_is_given_names_the_root(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text(TABLE)
    done = _report(tmp_path, "--errors", str(tmp_path / "own.tsv"))
    root = next(f for f in orjson.loads(done.stdout)["findings"] if f["root_cause"])
    assert root["culprit_ranks"] == [3]
    assert b"flux capacitor" in done.stdout


def test_it_is_asked_about_what_sidecars_say_too(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in range(2):
        ended = {"reason": "exception", "error": "RuntimeError: flux capacitor failed", "time_ns": 10**18}
        card = {"rankscope_capture": 1, "rank": rank, "world_size": 2, **({"ended": ended} if rank else {})}
        (folder / f"rankscope_capture_rank_{rank}.json").write_bytes(orjson.dumps(card))
    (tmp_path / "own.tsv").write_text(TABLE)
    for errors, pattern in ((None, ""), (tmp_path / "own.tsv", "flux")):
        messages = load([folder], LoadOptions(errors=errors)).messages
        assert messages.filter(rank=1)["pattern"].to_list() == [pattern]


def test_a_table_in_the_configuration_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "rankscope").mkdir()
    (tmp_path / "rankscope" / "known_errors.tsv").write_text(TABLE)
    done = _report(tmp_path, config=tmp_path)
    assert [f["culprit_ranks"] for f in orjson.loads(done.stdout)["findings"] if f["root_cause"]] == [[3]]


def test_without_it_the_line_says_nothing(tmp_path: Path) -> None:
    done = _report(tmp_path)
    assert [3] not in [f["culprit_ranks"] for f in orjson.loads(done.stdout)["findings"]]


def test_a_table_that_cannot_be_read_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("id\trole\tpattern\nflux\tvillain\tflux\n")
    done = _report(tmp_path, "--errors", str(tmp_path / "own.tsv"))
    assert done.returncode == 2
    assert b"own.tsv:2: role 'villain'" in done.stdout


def test_one_in_the_configuration_that_cannot_be_read_is_told_with_the_log(tmp_path: Path) -> None:
    (tmp_path / "rankscope").mkdir()
    (tmp_path / "rankscope" / "known_errors.tsv").write_text("nonsense\n")
    report = orjson.loads(_report(tmp_path, config=tmp_path).stdout)
    assert any("known_errors.tsv" in (i["problem"] or "") for i in report["inputs"])
