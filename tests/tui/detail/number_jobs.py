"""Jobs with recorded numbers for tests of the screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.number_findings import with_numbers
from rankscope.features.numbers.rules.reference import compare_numbers
from rankscope.schema import Dataset
from tests.builders import JobBuilder
from tests.numbers_writer import NumbersJob

RANKS = 6
WRONG_RANK, WRONG_STEP = 4, 2


def recorded(*, flip: bool, name: str = "layers.1.mlp", noise: float = 0.0) -> NumbersJob:
    """Four steps of two groups of three ranks with two reductions each; one output on rank 4 is wrong in step 2."""
    job = NumbersJob({"tp0": [0, 1, 2], "tp1": [3, 4, 5]})
    for job.step in range(4):
        rng = np.random.default_rng(job.step)
        for rank in range(RANKS):
            job.row(rank, "forward", "out0", rng.standard_normal((4, 6)).astype(np.float32), name=name)
        for call in range(2):
            for group in job.groups:
                ins = [rng.standard_normal((10, 12)) * (1 + noise * (job.step > 2)) for _ in range(3)]
                is_wrong = flip and group == "tp1" and call == 1 and job.step == WRONG_STEP

                def spoil(outs: dict[int, Any], _: list[Any], is_wrong: bool = is_wrong) -> None:
                    if is_wrong:
                        outs[WRONG_RANK][3, 3] += 1

                job.all_reduce(group, ins, spoil=spoil)
    return job


def judged(dataset: Dataset) -> Analysis:
    """The analysis of the numbers alone."""
    return with_numbers(Facts(dataset), Analysis("", "unknown"))


def flipped() -> tuple[Dataset, Analysis]:
    """A run with a wrong output, and what the rules say."""
    dataset = recorded(flip=True).dataset()
    return dataset, judged(dataset)


def referenced() -> tuple[Dataset, Analysis]:
    """The same beside a run without it, of which the last step has other inputs."""
    dataset, analysis = flipped()
    other = recorded(flip=False, noise=1e-3).dataset()
    return dataset, with_numbers(Facts(dataset), analysis, compare_numbers(dataset, other))


def dumped() -> tuple[Dataset, Analysis]:
    """The wrong run with flight recorder dumps of its collectives."""
    dataset, analysis = flipped()
    job = JobBuilder(RANKS, {"tp0": [0, 1, 2], "tp1": [3, 4, 5]})
    for _ in range(8):
        for group in ("tp0", "tp1"):
            job.collective(group)
    built = job.build()
    ids = {name: built.groups["name"].to_list().index(name) for name in ("tp0", "tp1")}
    names = dict(dataset.groups.select("group", "name").iter_rows())
    moved = dataset.tensors["group"].replace_strict({old: ids[name] for old, name in names.items()}, default=None)
    return replace(
        built, tensors=dataset.tensors.with_columns(group=moved.cast(dataset.tensors["group"].dtype))
    ), analysis
