"""The series of a job, from all of its files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from rankscope.features.series.read.scalar_rows import with_segments
from rankscope.features.series.read.user_pattern import series_pattern
from rankscope.features.series.rows import load_series, read_series
from rankscope.schema.tables import SCALARS
from tests.features.series.read.binary_series import event, event_file, wandb_file, wandb_history


def log_of(*steps: int) -> str:
    """A log of Megatron with these iterations."""
    return "".join(f" iteration {step:8}/ 100 | lm loss: {step}.5E+00 | grad norm: 1.0 |\n" for step in steps)


def test_all_sources_of_a_directory_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(log_of(1, 2))
    (tmp_path / "old.log.gz").write_bytes(gzip.compress(log_of(1).encode()))
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event_file(event(3, {"train/loss": 2.0})))
    (tmp_path / "run-1.wandb").write_bytes(wandb_file(wandb_history({"train/loss": 2.0}, 4)))
    (tmp_path / "metrics.csv").write_text("step,loss\n5,2.0\n")
    (tmp_path / "trainer_log.jsonl").write_text('{"current_steps": 6, "loss": 1.5}\n')
    (tmp_path / "golden.txt").write_text("7 8.049097061157227\n8 7.0\n")
    (tmp_path / "weights.bin").write_bytes(b"\0loss step 1\xff" * 100)
    (tmp_path / "config.json").write_text(json.dumps({"steps": 100, "model": {"norm": 1e-5}}, indent=1))
    found = read_series([tmp_path])
    assert dict(found.schema) == {name: pl.DataFrame(schema=SCALARS).schema[name] for name in SCALARS}
    loss = found.filter(name="loss")
    assert loss.select("file", "source", "step").rows() == [
        ("events.out.tfevents.1.host", "tensorboard", 3), ("golden.txt", "csv", 7), ("golden.txt", "csv", 8),
        ("metrics.csv", "csv", 5), ("old.log.gz", "log", 1), ("run-1.wandb", "wandb", 4), ("train.log", "log", 1),
        ("train.log", "log", 2), ("trainer_log.jsonl", "json", 6),
    ]  # fmt: skip
    assert set(found["file"]) == set(loss["file"])


def test_ranks_and_attempts_come_from_names(tmp_path: Path) -> None:
    for attempt in (0, 1):
        for rank in (0, 3):
            path = tmp_path / f"attempt_{attempt}" / f"rank_{rank}.log"
            path.parent.mkdir(exist_ok=True)
            path.write_text(log_of(1))
    (tmp_path / "attempt_1" / "node-7.log").write_text(log_of(1))
    found = read_series([tmp_path]).filter(name="loss")
    assert sorted(found.select("attempt", pl.col("rank").fill_null(-1)).rows()) == [
        (0, 0),
        (0, 3),
        (1, -1),
        (1, 0),
        (1, 3),
    ]


def test_a_step_that_goes_back_is_a_restart(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(log_of(10, 20, 30, 20, 30, 40, 40, 5))
    found = read_series([tmp_path]).filter(name="grad_norm")
    assert found["segment"].to_list() == [0, 0, 0, 1, 1, 1, 1, 2]


def test_several_printers_are_no_restarts() -> None:
    """Four processes print each step without their rank, and their lines change places."""
    steps = [1, 1, 1, 2, 1, 2, 2, 3, 2, 3, 3, 3, 4, 4, 4, 4, 1, 1, 1, 1]
    rows = pl.DataFrame({"attempt": 0, "file": "a", "rank": None, "raw_name": "loss", "step": steps})
    assert with_segments(rows)["segment"].to_list() == [0] * 16 + [1] * 4


def test_only_the_newest_state_of_a_trainer_counts(tmp_path: Path) -> None:
    for last in (90, 100):
        state = {"log_history": [{"step": step, "loss": 1.5} for step in range(0, last, 10)]}
        path = tmp_path / f"checkpoint-{last}" / "trainer_state.json"
        path.parent.mkdir()
        path.write_text(json.dumps(state, indent=2))
    found = read_series([tmp_path])
    assert set(found["file"]) == {"checkpoint-100/trainer_state.json"} and found.height == 10


def test_a_pattern_reads_logs(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("@3 L2.5\n@4 L2.25\n")
    found = read_series([tmp_path], series_pattern(r"@(?P<step>\d+) L(?P<loss>[\d.]+)"))
    assert found.select("step", "value", "line").rows() == [(3, 2.5, 1), (4, 2.25, 2)]


def test_problems_name_the_file_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "torn.log.gz").write_bytes(gzip.compress(log_of(*range(5000)).encode())[:2000])
    (tmp_path / "train.log").write_text(log_of(1))
    found = load_series([tmp_path])
    assert found.problems == {"torn.log.gz": "packed file is damaged (EOFError)"}
    assert set(found.scalars["file"]) == {"train.log"}
    with pytest.raises(FileNotFoundError):
        read_series([tmp_path / "none"])


def test_short_numbers_are_exact_beside_others_with_all_digits(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,lr,loss\n1,0.0002,4.25\n2,0.0006000000000000001,4.13\n")
    found = read_series([tmp_path])
    assert found.filter(name="lr")["resolution"].to_list() == [0.0, 0.0]
    assert found.filter(name="loss")["resolution"].to_list() == [0.005, 0.005]
