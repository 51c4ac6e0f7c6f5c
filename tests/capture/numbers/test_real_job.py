"""A real job with everything recorded: it goes on, its numbers stay the same bits, and its rows fit each other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.capture.numbers.recorded import MASK, calls, is_consistent, lines, rows, samples_of
from tests.torch_forks import printed

pytestmark = pytest.mark.torch

RANKS = 4
JOB = Path(__file__).with_name("job.py")
TRAINED = ("ddp", "ddp_futures", "fsdp", "tensor_parallel")
PARTS = ("collectives", "crossed", "exchange", *TRAINED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished job: that it finishes is the first test."""
    made = tmp_path_factory.mktemp("job")
    printed([str(JOB), str(made)], tmp_path_factory.mktemp("printed"))
    return made


@pytest.fixture(scope="module")
def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"told_{rank}.json").read_text()) for rank in range(RANKS)]


def test_the_recording_changes_no_bit_of_a_training(told: list[dict[str, Any]]) -> None:
    for one in told:
        for name in TRAINED:
            plain, recorded = one[name]
            assert plain == recorded


def test_torch_is_as_made_before_and_after(told: list[dict[str, Any]]) -> None:
    assert all(all(each) for one in told for each in one["as made"])


def test_nothing_is_lost(folder: Path) -> None:
    for part in PARTS:
        ends = [lines(folder / part, rank)[-1] for rank in range(RANKS)]
        assert ends == [{"end": True, "dropped": 0, "unwaited": 0}] * RANKS, part


@pytest.mark.parametrize("part", ["collectives", "crossed", "ddp", "ddp_futures", "fsdp"])
def test_outputs_of_collectives_fit_their_inputs(folder: Path, part: str) -> None:
    found = calls(rows(folder / part))
    assert [key for key, call in found.items() if not is_consistent(key[3], call)] == []
    ops = Counter(key[3] for key in found)
    assert (
        ops
        == {
            "collectives": {"all_reduce": 15, "all_gather": 12, "reduce_scatter": 9, "broadcast": 6}
            | dict.fromkeys(("all_to_all", "reduce", "gather", "scatter"), 3),
            "crossed": {"all_reduce": 6, "broadcast": 3},
            "ddp": {"all_reduce": ops["all_reduce"], "broadcast": ops["broadcast"]},
            "ddp_futures": {"all_reduce": ops["all_reduce"], "broadcast": ops["broadcast"]},
            "fsdp": {"all_gather": ops["all_gather"], "reduce_scatter": 6},
        }[part]
    )
    assert min(ops.values()) > 1


def test_a_wrong_output_does_not_fit(folder: Path) -> None:
    (key, call), *_ = ((key, call) for key, call in calls(rows(folder / "ddp")).items() if key[3] == "all_reduce")
    call[-1]["hash"] = "0" * 16
    assert not is_consistent(key[3], call)


def test_what_is_received_was_sent(folder: Path) -> None:
    found = [row for row in rows(folder / "exchange") if row["site"] == "p2p"]
    sent = {
        (row["step"], row["rank"], row["peer"], row["occurrence"]): row["hash"] for row in found if row["op"] == "send"
    }
    received = {
        (row["step"], row["peer"], row["rank"], row["occurrence"]): row["hash"] for row in found if row["op"] == "recv"
    }
    assert sent == received
    assert len(sent) == 3 * (4 + 2)


def test_numbers_of_operations_are_those_of_the_flight_recorder(folder: Path, told: list[dict[str, Any]]) -> None:
    entries = {
        (entry["process_group"][0], entry["collective_seq_id"]): entry
        for entry in json.loads(told[1]["entries"])["entries"]
        if not entry["is_p2p"]
    }
    recorded = [row for part in PARTS for row in rows(folder / part) if row["site"] == "collective"]
    mine = [row for row in recorded if row["rank"] == 1 and row["op"] == "all_reduce" and row["slot"] == "in0"]
    sizes = [entries[row["group"], row["seq"]]["input_sizes"] for row in mine]
    assert sizes == [[row["shape"]] for row in mine]
    assert len(mine) > 10


def test_hashes_of_shards_add_up_to_the_hash_of_the_whole(folder: Path) -> None:
    whole = {
        row["name"].removeprefix("module."): row
        for row in rows(folder / "ddp", 1)
        if row["site"] == "parameter" and row["step"] == 0
    }
    for part, members in (("fsdp", range(4)), ("tensor_parallel", range(2))):
        shards = [
            row
            for row in rows(folder / part)
            if row["site"] == "parameter" and row["step"] == 0 and row["rank"] in members and "offsets" in row
        ]
        names = {row["name"] for row in shards}
        assert names >= {"0.weight", "0.bias", "2.weight"}
        for name in names:
            mine = [row for row in shards if row["name"] == name]
            assert sum(int(row["hash"], 16) for row in mine) & MASK == int(whole[name]["hash"], 16)
            held = {k: value for row in mine for k, value in zip(row["sample_at"], samples_of(row), strict=True)}
            assert [held[k] for k in sorted(held)] == samples_of(whole[name])
            assert mine[0]["global_shape"] == whole[name]["shape"]


def test_modules_say_what_they_are(folder: Path) -> None:
    found = rows(folder / "tensor_parallel", 1)
    assert {row["site"] for row in found} == {
        "batch", "collective", "forward", "backward", "gradient", "parameter", "optimizer", "loss",
    }  # fmt: skip
    forward = [row for row in found if row["site"] == "forward" and row["name"] == "0" and row["step"] == 0]
    assert [(row["slot"], row["occurrence"], row.get("recompute", False)) for row in forward][:3] == [
        ("in0", 0, False), ("out0", 0, False), ("in0", 1, True),
    ]  # fmt: skip
    weight = next(row for row in found if row["site"] == "parameter" and row["name"] == "2.weight")
    assert (weight["placements"], weight["mesh"], weight["dtype"]) == ("S(1)", "tp", "f32")
    assert [row["order"] for row in found] == list(range(found[-1]["order"] + 1))


def test_a_header_says_how_it_was_recorded(folder: Path) -> None:
    for rank in range(RANKS):
        header, group, *_ = lines(folder / "fsdp", rank)
        assert (header["rankscope_numbers"], header["rank"], header["world_size"]) == (1, rank, 4)
        assert (header["level"], header["every"], header["mode"], header["part"]) == ("modules", 1, "faithful", 0)
        assert set(header["settings"]["rng"]) >= {"python", "torch"}
        assert group["ranks"] == [0, 1, 2, 3]
    stack = next(line for line in lines(folder / "collectives", 0) if "stack" in line)
    assert [frame[0] for frame in stack["frames"]][:3] == ["all_reduce", "collectives", "repeat"]
