"""Jobs whose ranks take different branches: operations that fit each other, issued from different places."""

from __future__ import annotations

from functools import cache

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from tests.builders import JobBuilder
from tests.tui.jobs import still

MAIN = ("main", "main.py", 12)
FORWARD = (("forward", "model/attention.py", 211), ("train_step", "train/step.py", 30), MAIN)
AGAIN = (("forward", "model/attention.py", 211), ("validate", "train/validate.py", 41), MAIN)
GRADIENTS = (("reduce_gradients", "train/step.py", 55), ("train_step", "train/step.py", 33), MAIN)
EARLY_STOP = (("all_agree", "train/early_stop.py", 19), MAIN)


@cache
def branches(steps: int = 4, odd: tuple[int, ...] = (2, 5)) -> tuple[Dataset, Analysis]:
    """Eight ranks in two groups of four; after the last step, ranks `odd` reduce from another place than the others."""
    job = JobBuilder(8, {"tp0": [0, 1, 2, 3], "tp1": [4, 5, 6, 7]})
    for name in ("tp0", "tp1"):
        job.descriptions[name] = f"TP_{name[2:]}"
    for _ in range(steps):
        for group in ("tp0", "tp1"):
            job.collective(group, stack=FORWARD)
            job.collective(group, stack=FORWARD)
        job.collective("0", op="_reduce_scatter_base", stack=GRADIENTS)
    usual = [rank for rank in range(8) if rank not in odd]
    for ranks, stack in ((usual, FORWARD), (list(odd), AGAIN)):
        for group, members in (("tp0", range(4)), ("tp1", range(4, 8))):
            job.collective(group, [rank for rank in ranks if rank in members], stack=stack)
    job.collective("0", op="_reduce_scatter_base", stack=GRADIENTS)
    dataset = still(job.build())
    return dataset, analyse(dataset)
