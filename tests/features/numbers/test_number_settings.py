"""Settings in records of numbers: among the settings of a job, judged between its ranks, and compared between runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankscope.analysis import analyse
from rankscope.features.comparison.rules.hypotheses import role_of
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.settings_differences import SettingChange, compare_settings
from rankscope.report.settings_section import differing_settings
from rankscope.schema import Dataset
from tests.numbers_writer import NumbersJob

STEPS = 6


def recorded(*ranks: dict[str, Any], seed: int = 0, batch: int = 0, in_step: int | None = None) -> Dataset:
    """A run whose ranks have these settings, seeds of their own, and batches of their own."""
    job = NumbersJob({"dp": list(range(len(ranks)))})
    for rank, own in enumerate(ranks):
        state = {"torch": f"{seed + rank:016x}", "python": f"{seed + rank:016x}"}
        settings = {"seed": seed + rank, "rng": state, "environment": {"NCCL_ALGO": "Ring"}, **own}
        job.lines[rank][0] |= {"settings": settings, "torch": "2.13.0+cpu"}
        for step in range(STEPS):
            job.step = step
            values = np.full(4, 10.0 * rank + step + batch * (step > 1), np.float32)
            job.row(rank, "batch", "in0", values, name="x")
            states = {"torch": f"{seed + rank + step:016x}", "cuda": 1}
            job.lines[rank].append({"end_of_step": step, "rng": states, "seed": in_step})
    return job.dataset()


def changes(a: Dataset, b: Dataset) -> dict[str, SettingChange]:
    one, other = (ComparedRun("run", dataset, analyse(dataset)) for dataset in (a, b))
    return {change.name: change for change in compare_settings(one, other).changes}


def test_they_are_settings_of_each_rank() -> None:
    rows = recorded({"threads": 1, "PYTHONHASHSEED": "7"}, {"threads": 1}).settings
    told = {name: value for rank, name, value in rows.select("rank", "name", "value").iter_rows() if rank == 0}
    batches = [told.pop(f"batch of step {step}") for step in range(4)]
    assert len(set(batches)) == 4
    assert told == {
        "version:torch": "2.13.0+cpu", "numbers level": "collectives", "numbers every": "1", "numbers mode": "sync",
        "torch.seed": "0", "torch.threads": "1", "PYTHONHASHSEED": "7", "NCCL_ALGO": "Ring",
        "random state torch": "0" * 16, "random state python": "0" * 16,
    } | {f"random states of step {step}": f"cuda 1, torch {step:016x}" for step in range(4)}  # fmt: skip


def test_seeds_and_batches_of_each_rank_are_no_fault_and_another_precision_is() -> None:
    same = {"matmul_precision": "highest"}
    dataset = recorded(same, same, {"matmul_precision": "high"})
    found = [f for f in analyse(dataset).findings if f.kind == "settings-mismatch"]
    assert [(f.culprit_ranks, f.title) for f in found] == [((2,), "rank 2: torch.matmul_precision high, most highest")]
    assert [one.name for one in differing_settings(dataset)] == ["torch.matmul_precision"]


def test_two_runs_with_other_seeds_or_batches_differ_first_in_their_first_step() -> None:
    run = recorded({}, {})
    assert changes(run, recorded({}, {})) == {}
    batches = changes(run, recorded({}, {}, batch=5))
    assert [(name, one.weight, role_of(one)) for name, one in batches.items()] == [
        ("batch of step 2", "repeatability", "data")
    ]
    assert "the same differs in 1 later step" in batches["batch of step 2"].effect
    seeds = changes(run, recorded({}, {}, seed=9))
    assert {name: role_of(one) for name, one in seeds.items()} == {
        "random state torch": "", "random states of step 0": "", "torch.seed": "seed",
        "random state python": "",
    }  # fmt: skip


DRAWN = 0x9F3A_5C11_20D4_77B1


@pytest.mark.parametrize(
    ("seed", "other", "named"),
    [(3, 3, set()), (3, 4, {"torch.seed"}), (DRAWN, DRAWN + 8, {"torch.seed"}), (None, None, set())],
)
def test_the_seed_counts_that_is_set_behind_the_start(seed: int | None, other: int | None, named: set[str]) -> None:
    """The recording starts before the script: the seed of the header was drawn, and is another one in each run."""
    a, b = (
        recorded({"seed": drawn, "rng": {"torch": f"{drawn:016x}"}}, in_step=own)
        for drawn, own in ((DRAWN, seed), (DRAWN + 8, other))
    )
    found = changes(a, b)
    assert found.keys() == named
    if seed == DRAWN:
        assert found["torch.seed"].changes[0][:2] == (f"not set (drawn: {DRAWN})", f"not set (drawn: {DRAWN + 8})")


def test_settings_that_are_none_are_left_out() -> None:
    odd = {"threads": [1], "rng": "no", "environment": {"A": {"b": 1}, "NCCL_X": "1\x1b[0m"}, "other": None}
    names = set(recorded(odd).settings["name"])
    assert "NCCL_X" in names
    assert not names & {"torch.threads", "A", "torch.other"}
