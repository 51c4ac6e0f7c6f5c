"""Jobs with their analysis written by hand, so that the screen is tested alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis, ChainStep, Culprit, Divergence, Evidence, Finding, GroupRef, Wait
from rankscope.schema import Dataset, Frame
from rankscope.schema.tables import OPS
from tests.analysis.hosts import LOAD, LOOP, REDUCE, TAKE_GIL
from tests.builders import START_NS, STEP_NS, JobBuilder

MODULE = ("_call_impl", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1762)
FORWARD = (
    ("forward", "/app/model/attention.py", 211), MODULE, ("train_step", "/app/train/step.py", 30),
    ("main", "/app/main.py", 88), ("<module>", "/app/main.py", 120),
)  # fmt: skip
BACKWARD = (("reduce_grads", "/app/train/ddp.py", 64), *FORWARD[2:])
TP, DP = 1, 2
"""Rows of the groups of `hang`."""
CULPRIT = 6
LAST_SEQ = 5
"""The collective of TP that rank 6 never issued."""


def hang() -> tuple[Dataset, Analysis]:
    """Eight ranks: rank 6 never issued #5 of its TP group, three wait for it there, and four in consequence."""
    return _hang_job().build(), _hang_analysis()


def looked() -> tuple[Dataset, Analysis]:
    """The same, and py-spy looked at seven of them: rank 6 waits for the GIL, which its logger holds."""
    job = _hang_job()
    for rank in range(7):
        job.thread(rank, TAKE_GIL if rank == CULPRIT else REDUCE, active=False, written_ns=START_NS)
        job.thread(rank, LOAD, name="Thread-2 (pin_memory)", active=False, written_ns=START_NS)
    job.thread(CULPRIT, (("flush", "/app/log/sink.py", 9), *LOOP), name="logger", gil=True, written_ns=START_NS)
    return job.build(), _hang_analysis()


def _hang_job() -> JobBuilder:
    job = JobBuilder(8, {"41": [4, 5, 6, 7], "7": [0, 4]})
    job.descriptions.update({"41": "TENSOR_MODEL_PARALLEL_GROUP", "7": "DATA_PARALLEL_GROUP"})
    for _ in range(4):
        job.collective("41", op="all_reduce", stack=FORWARD, sizes="[[4096, 1024]]", in_dtypes='["BFloat16"]')
        job.collective("7", op="reduce_scatter", stack=BACKWARD)
    job.collective(
        "41", ranks=[4, 5, 7], op="all_reduce", state="scheduled", stack=FORWARD, sizes="[[4096, 1024]]",
        in_dtypes='["BFloat16"]',
    )  # fmt: skip
    job.collective("7", ranks=[0], op="reduce_scatter", state="scheduled", stack=BACKWARD)
    return job


def _hang_analysis() -> Analysis:
    tp = GroupRef("41", "TENSOR_MODEL_PARALLEL_GROUP", (4, 5, 6, 7), key=TP)
    waits_in_tp = ChainStep(4, Wait("41", LAST_SEQ, "all_reduce"), CULPRIT)
    root = Finding(
        kind="missing-rank", severity="critical", id="f1", root_cause=True,
        title="rank 6 never issued all_reduce #5 of TENSOR_MODEL_PARALLEL_GROUP",
        explanation="Ranks 4,5,7 wait in all_reduce #5; rank 6 never issued it, and has nothing pending.",
        culprit_ranks=(CULPRIT,), culprits=(Culprit(CULPRIT, "node00"),), candidates=(6, 7), waiting_ranks=(0, 4, 5, 7),
        blast_radius=4, confidence="medium", confidence_reasons=("timing is off",), chain=(waits_in_tp,), group=tp,
        seq=LAST_SEQ, op="all_reduce", stack=tuple(Frame(*f) for f in FORWARD),
        evidence=(Evidence("issued all_reduce #5", "nccl_trace_rank_4", 4, 8),),
        next_steps=("py-spy dump of rank 6: what is the host doing?",),
    )  # fmt: skip
    dp = GroupRef("7", "DATA_PARALLEL_GROUP", (0, 4), key=DP)
    fallout = Finding(
        kind="missing-rank", severity="info", id="f2", title="1 group of DATA_PARALLEL_GROUP is blocked by this",
        explanation="Rank 0 waits there for ranks that are blocked too.", caused_by="f1", waiting_ranks=(0,),
        blast_radius=1, group=dp, seq=5, op="reduce_scatter",
    )  # fmt: skip
    quality = Finding("timing-off", "warning", "the recorder did not note when operations start", "", id="f3")
    return Analysis(
        verdict="rank 6 never issued all_reduce #5 of TENSOR_MODEL_PARALLEL_GROUP; 4 ranks wait", status="hang",
        findings=(root, quality, fallout),
        divergences=(
            Divergence(TP, LAST_SEQ, "all_reduce", (4, 5, 7), (6,), (), (), False, START_NS + 9 * STEP_NS),
            Divergence(DP, 5, "reduce_scatter", (0,), (4,), (), (), True, START_NS + 5 * STEP_NS),
        ),
        frozen_for_ns=600_000_000_000, hang_since_ns=START_NS + 9 * STEP_NS,
        waits={4: (waits_in_tp,), 0: (ChainStep(0, Wait("7", 5, "reduce_scatter"), 4), waits_in_tp)},
    )  # fmt: skip


QUIET = Analysis(verdict="all is well", status="healthy")
"""An analysis without findings."""
STUCK = replace(QUIET, verdict="something hangs", status="hang")
"""An analysis of a hang that names nobody."""

HOSTILE = "\x1b[31mred\x07 [bold]not markup[/bold] \u202eevil\n"
"""What a file may say to take over the terminal."""


def hostile() -> tuple[Dataset, Analysis]:
    """A job whose every name comes from somebody who wants to write on the terminal."""
    job = JobBuilder(2, {HOSTILE: [0, 1]})
    job.descriptions[HOSTILE] = HOSTILE
    job.collective(HOSTILE, op=HOSTILE, stack=((HOSTILE, f"/app/{HOSTILE}", 1),), sizes=HOSTILE, host=HOSTILE)
    job.collective(HOSTILE, ranks=[0], op=HOSTILE, state="scheduled", stack=((HOSTILE, HOSTILE, 1),))
    job.thread(0, ((HOSTILE, HOSTILE, 3), (HOSTILE, f"{HOSTILE}.so", 0)), name=HOSTILE, gil=True)
    job.thread(1, ((HOSTILE, HOSTILE, 3),), command=HOSTILE)
    dataset = job.build()
    kind = pl.when(pl.col("kind") == "py-spy").then(pl.lit(HOSTILE)).otherwise("kind")
    files = dataset.files.with_columns(path=pl.lit(HOSTILE), problem=pl.lit(HOSTILE), kind=kind)
    finding = Finding(
        kind=HOSTILE, severity="critical", title=HOSTILE, explanation=HOSTILE, root_cause=True, culprit_ranks=(1,),
        culprits=(Culprit(1, HOSTILE),), confidence_reasons=(HOSTILE,), group=GroupRef(HOSTILE, HOSTILE, (0, 1), key=1),
        seq=2, op=HOSTILE, stack=(Frame(HOSTILE, HOSTILE, 1),), evidence=(Evidence(HOSTILE, HOSTILE),),
        next_steps=(HOSTILE,),
    )  # fmt: skip
    analysis = Analysis(
        verdict=HOSTILE, status="hang", findings=(finding,), waits={0: (ChainStep(0, Wait(HOSTILE, 2, HOSTILE), 1),)},
        divergences=(Divergence(1, 2, HOSTILE, (0,), (1,), (), (), False, START_NS),),
    )  # fmt: skip
    return replace(dataset, files=files), analysis


def large(ranks: int, absent: tuple[int, ...] = (), steps: int = 2) -> Dataset:
    """One group of many ranks that all issued `steps` collectives, but for those absent in the last one."""
    rank = np.repeat(np.arange(ranks, dtype=np.int32), steps)
    seq = np.tile(np.arange(1, steps + 1, dtype=np.int64), ranks)
    last = seq == steps
    keep = ~(last & np.isin(rank, absent))
    texts = {"source": "flight-recorder", "host": "node", "library": "nccl", "op": "all_reduce", "coalesced": "none"}
    texts |= dict.fromkeys(("in_sizes", "out_sizes"), "[[64]]") | dict.fromkeys(
        ("in_dtypes", "out_dtypes"), '["Float"]'
    )
    state = pl.when(pl.col("seq") == steps).then(pl.lit("scheduled")).otherwise(pl.lit("completed"))
    columns = {"rank": rank[keep], "seq": seq[keep], "created_ns": START_NS + seq[keep] * STEP_NS + rank[keep] % 5}
    ops = (
        pl.DataFrame(columns).with_columns(
            state.alias("state"), file=pl.col("rank"), group=0, is_p2p=False, stack_id=pl.col("rank") % 3, attempt=0,
            **{name: pl.lit(text) for name, text in texts.items()},
        )
    )  # fmt: skip
    missing = [pl.lit(None).alias(name) for name in OPS if name not in ops.columns]
    ops = ops.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in OPS.items())
    small = JobBuilder(3)
    for line in range(3):
        small.collective(ranks=[line], stack=(("step", "train.py", line), ("main", "main.py", 1)))
    return _stretched(small.build(), ops, ranks, steps, absent)


def _stretched(small: Dataset, ops: pl.DataFrame, ranks: int, steps: int, absent: tuple[int, ...]) -> Dataset:
    """The tables of a small job made to fit many ranks."""
    every = pl.Series("rank", range(ranks), dtype=pl.Int32)
    last = pl.when(pl.col("rank").is_in(absent)).then(steps - 1).otherwise(steps).cast(pl.Int64)
    one = small.frontiers.head(1).drop("rank")
    frontiers = pl.DataFrame(every).join(one, how="cross").with_columns(last_enqueued=last, last_kept=last)
    files = pl.DataFrame(every).join(small.files.head(1).drop("rank", "path", "file"), how="cross").with_columns(
        path=pl.format("nccl_trace_rank_{}", "rank"), file=pl.col("rank").cast(pl.UInt32)
    )  # fmt: skip
    groups = small.groups.with_columns(ranks=pl.lit(every.implode()))
    return replace(
        small, ops=ops, frontiers=frontiers.select(small.frontiers.columns), files=files.select(small.files.columns),
        groups=groups, world_size=ranks,
    )  # fmt: skip
