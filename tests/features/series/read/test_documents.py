"""Series in documents and binary files, as the programs write them."""

from __future__ import annotations

import json
import math
import random
import struct

import polars as pl
import pytest

from rankscope.features.series.read.event_files import is_event_file, read_event_file
from rankscope.features.series.read.json_series import read_csv_series, read_json_series, read_pairs
from rankscope.features.series.read.log_series import read_log_series
from rankscope.features.series.read.wandb_files import is_wandb_file, read_wandb_file
from tests.features.series.read.binary_series import event, event_file, varint, wandb_file, wandb_history


def rows_of(points: pl.DataFrame | None) -> list[tuple[object, ...]]:
    """Step, name, value and resolution of each row."""
    assert points is not None
    return points.select("step", "name", "value", "resolution").rows()


def test_trainer_state() -> None:
    """huggingface/transformers: the last print is of the whole run."""
    history = [
        {"epoch": 0.1, "grad_norm": 0.7599466443061829, "learning_rate": 2e-05, "loss": 3.1007, "step": 10},
        {"epoch": 0.2, "eval_loss": 2.9134, "step": 10},
        {"epoch": 3.0, "train_runtime": 812.4, "train_loss": 2.31, "step": 20},
    ]
    assert rows_of(read_json_series(json.dumps({"best_metric": None, "log_history": history}).encode())) == [
        (10, "grad_norm", 0.7599466443061829, 0.0), (10, "lr", 2e-5, pytest.approx(5e-6)),
        (10, "loss", 3.1007, pytest.approx(5e-5)), (10, "eval_loss", 2.9134, pytest.approx(5e-5)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "document",
    [
        {"lm loss": {"start_step": 1, "end_step": 3, "step_interval": 1, "values": {"1": 10.84, "2": 10.8}}},
        {"lm loss": {"start_step": 1, "end_step": 3, "step_interval": 1, "values": [10.84, 10.8]}},
        [{"step": 1, "lm loss": 10.84}, {"step": 2, "lm loss": 10.8}],
    ],
)
def test_golden_values_of_megatron(document: object) -> None:
    found = rows_of(read_json_series(json.dumps(document, indent=1).encode()))
    assert [row[:3] for row in found] == [(1, "loss", 10.84), (2, "loss", 10.8)]


def test_golden_file_of_torchtitan() -> None:
    assert rows_of(read_pairs(b"1 8.049097061157227\n2 7.6\n")) == [
        (1, "loss", 8.049097061157227, 0.0), (2, "loss", 7.6, pytest.approx(0.05)),
    ]  # fmt: skip
    assert read_pairs(b"1 8.0\nstep 2\n") is None


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_tables(mark: str) -> None:
    """Lightning's CSVLogger: cells are empty where a print has no value."""
    text = "epoch,grad_norm,lr,step,train_loss\n0,1.25,0.001,0,2.31\n0,,0.001,1,nan\n0,oops,0.001,x\n".replace(
        ",", mark
    )
    found = read_csv_series(text.encode())
    assert found is not None
    assert [(row[0], row[1]) for row in rows_of(found)] == [
        (0, "grad_norm"), (0, "lr"), (0, "loss"), (1, "lr"), (1, "loss"), (None, "lr"),
    ]  # fmt: skip
    assert found["line"].to_list() == [2, 2, 2, 3, 3, 4]
    assert read_csv_series(b"a,b\n1,2\n") is None


def test_lines_of_json_among_others() -> None:
    text = (
        '{"step": 1, "train": {"loss": 2.5, "grad_norm": NaN}, "time": "2026-01-01T00:00:00Z", "tags": ["a"]}\n'
        'text\n{"step": 2, "loss": Infinity, "rank": 3}\n{"a": 1}\n{"step": 3, "loss": \n[1, 2]\n'
    )
    found = read_log_series(text.encode())
    assert found.select("line", "rank", "step", "name").rows() == [
        (1, None, 1, "loss"), (1, None, 1, "grad_norm"), (3, 3, 2, "loss"),
    ]  # fmt: skip
    assert math.isnan(found["value"][1]) and math.isinf(found["value"][2]) and found["time_ns"][0] == 1767225600 * 10**9


def test_event_file() -> None:
    """A step and a value of 0 are left out of their records."""
    data = event_file(
        event(0, {"train/loss": 2.5, "lm loss vs samples": 2.5}), event(1, {"grad-norm": 0.0, "train/loss": math.nan}),
        event(2, {"learning-rate": 0.1}, tensor=True),
    )  # fmt: skip
    found = read_event_file(data)
    assert is_event_file(data[:100])
    assert found.select("line", "step", "name", "time_ns", "resolution").rows() == [
        (2, 0, "loss", 10**18, 0.0), (3, 1, "grad_norm", 10**18, 0.0), (3, 1, "loss", 10**18, 0.0),
        (4, 2, "lr", 10**18, 0.0),
    ]  # fmt: skip
    assert found["value"].to_list()[:2] == [2.5, 0.0] and math.isnan(found["value"][2])
    assert found["value"][3] == struct.unpack("f", struct.pack("f", 0.1))[0]


def test_wandb_file() -> None:
    """Records of more than a block are parted; a step of 0 is left out."""
    rows: list[dict[str, object]] = [
        {"train/loss": 2.5, "_step": 0, "_timestamp": 1.7e9, "_runtime": 3},
        {"big": "x" * 70_000, "train/loss": 2.25},
    ]
    data = wandb_file(*(wandb_history(row, step) for step, row in enumerate(rows)), wandb_history({"lr": math.nan}, 2))
    found = read_wandb_file(data)
    assert is_wandb_file(data)
    assert found.select("step", "name", "time_ns").rows() == [
        (0, "loss", 1_700_000_000 * 10**9), (1, "loss", None), (2, "lr", None),
    ]  # fmt: skip
    assert found["value"].to_list()[:2] == [2.5, 2.25] and math.isnan(found["value"][2])


def test_damaged_files_give_what_is_whole() -> None:
    events = event_file(*(event(step, {"loss": 1.0}) for step in range(5)))
    assert read_event_file(events[:-9]).height == 4
    assert read_event_file(events[:40] + struct.pack("<Q", 1 << 60) + events[48:]).height <= 1
    offline = wandb_file(*(wandb_history({"loss": 1.0, "pad": "x" * 9000}, step) for step in range(20)))
    assert read_wandb_file(offline[:-9]).height == 19
    assert read_wandb_file(offline[:40_000] + b"\xff" * 40 + offline[40_040:])["step"].max() == 19


def test_no_bytes_raise() -> None:
    chance = random.Random(5)
    events = event_file(*(event(step, {"loss": 1.0}, tensor=step % 2 == 0) for step in range(4)))
    offline = wandb_file(*(wandb_history({"loss": 1.0}, step) for step in range(4)))
    document = b'{"log_history": [{"step": 1, "loss": 2.5}, {"step": 1e999, "loss": {"a": {"b": {"c": {"d": 1}}}}}]}'
    for _ in range(150):
        for data in (events, offline, document):
            hurt = bytearray(data)
            for _ in range(chance.randrange(1, 6)):
                hurt[chance.randrange(len(hurt))] = chance.randrange(256)
            whole = bytes(hurt)
            read_event_file(whole), read_wandb_file(whole), read_json_series(whole), read_csv_series(whole)
    assert read_event_file(varint(1 << 63) * 50).is_empty() and read_json_series(b"[" * 100_000) is None
