"""Jobs for tests of the screen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import polars as pl

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.model import Model, build_model
from tests.builders import START_NS, JobBuilder
from tests.simulator.loaded import simulated

TRAIN = (("forward", "model/attention.py", 211), ("train_step", "train/step.py", 30), ("main", "main.py", 12))
SAVE = (("save", "train/checkpoint.py", 77), ("main", "main.py", 12))


def step(job: JobBuilder, groups: list[str], **more: object) -> None:
    """One step of training: a reduction in each small group, then a gather and a scatter over all."""
    for group in groups:
        job.collective(group, stack=TRAIN, **more)  # type: ignore[arg-type]
    job.collective("0", op="_all_gather_base", stack=TRAIN)
    job.collective("0", op="_reduce_scatter_base", stack=TRAIN)


def hang_builder(world: int = 16, steps: int = 10, culprit: int = 6, no_dump: tuple[int, ...] = ()) -> JobBuilder:
    """Rank `culprit` never issues the reduction of its group of four; all others wait in consequence."""
    groups = {f"tp{i}": list(range(4 * i, 4 * i + 4)) for i in range(world // 4)}
    job = JobBuilder(world, {**groups})
    job.no_dump = set(no_dump)
    for name in groups:
        job.descriptions[name] = f"TENSOR_PARALLEL_{name[2:]}"
    for _ in range(steps):
        step(job, list(groups))
    bad = f"tp{culprit // 4}"
    for name, ranks in groups.items():
        if name == bad:
            job.collective(name, [r for r in ranks if r != culprit], state="scheduled", stack=TRAIN)
        else:
            job.collective(name, stack=TRAIN)
    waiting = [r for r in range(world) if r not in groups[bad]]
    job.collective("0", waiting, op="_all_gather_base", state="scheduled", stack=TRAIN)
    return job


def still(dataset: Dataset, after_s: int = 600) -> Dataset:
    """The dataset with dumps written so long after the start that the job has certainly stopped."""
    written = pl.lit(START_NS + after_s * 1_000_000_000)
    return replace(dataset, files=dataset.files.with_columns(mtime_ns=written))


@cache
def hang(world: int = 16, steps: int = 10, culprit: int = 6, no_dump: tuple[int, ...] = ()) -> tuple[Dataset, Analysis]:
    """A hang and what the analysis says of it."""
    dataset = still(hang_builder(world, steps, culprit, no_dump).build())
    return dataset, analyse(dataset)


@cache
def healthy(world: int = 8, steps: int = 6) -> tuple[Dataset, Analysis]:
    """A job that ended well."""
    job = JobBuilder(world, {"tp0": [0, 1, 2, 3], "tp1": [4, 5, 6, 7]})
    for _ in range(steps):
        step(job, ["tp0", "tp1"])
    dataset = still(job.build())
    return dataset, analyse(dataset)


def model_of(job: JobBuilder, analysis: Analysis | None = None) -> Model:
    """The model of a job that is taken to hang."""
    return build_model(job.build(), analysis or Analysis("it hangs", "hang"))


@dataclass(frozen=True)
class ShownFault:
    """A simulated fault with a picture in the docs and a golden of the same screen."""

    name: str
    fault: str
    seed: int
    size: str = "small"
    screen: tuple[int, int] = (80, 24)

    def job(self) -> tuple[Dataset, Analysis]:
        """The dumps of the job, and what the analysis says of them."""
        dataset, analysis = simulated(self.fault, self.seed, self.size)
        return replace(dataset, root="dumps/"), analysis


SHOWN_FAULTS = (
    ShownFault("screenshot", "host-stuck", 1, "medium", (120, 36)),
    ShownFault("missing-rank", "host-stuck", 4),
    ShownFault("size-mismatch", "wrong-size", 2),
    ShownFault("order-deadlock", "order", 1),
    ShownFault("lost-send", "lost-send", 1),
    ShownFault("gpu-stuck", "device-dead", 3),
)
"""Faults that differ, each in a small job whose screen shows it well."""
