"""Jobs with a known analysis, written by hand, for tests of the reports."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, ChainStep, Culprit, Evidence, Finding, GroupRef, Wait
from rankscope.schema import Dataset, Frame
from tests.builders import START_NS, JobBuilder
from tests.logs import line, setting, with_logs
from tests.traces import training

EVIL = "\x1b]0;pwn\x07\u202e<img src=x>|`@all`\n# [x](http://e.test)"
"""What a hostile file may say anywhere: terminal controls, HTML, markup, a mention, a new line."""

TP = GroupRef("41", "mesh_tp", (2, 3), key=1)
WORLD = GroupRef("0", "default_pg", (0, 1, 2, 3), key=0)


def hang() -> tuple[Dataset, Analysis]:
    """Rank 3 never issues a collective of its pair; 0 and 1 wait for 2, which waits for 3. One file is cut short."""
    job = JobBuilder(4, {"41": [2, 3]})
    job.collective()
    stack = [("forward", "/home/alice/run/model/attention.py", 209), ("train_step", "train/step.py", 30)]
    job.collective("41", ranks=[2], state="scheduled", stack=stack)
    job.collective(ranks=[0, 1], state="scheduled")
    return _with_problems(job.build()), Analysis(
        verdict="rank 3 never issued mesh_tp all_reduce #1; 3 ranks wait for it",
        status="hang",
        findings=(_missing_rank(), _consequence(), _ring_wrapped()),
        frozen_for_ns=600 * 10**9,
        hang_since_ns=START_NS + 3_000_000,
    )


def _missing_rank() -> Finding:
    return Finding(
        id="f1", kind="missing-rank", severity="critical", root_cause=True,
        title="rank 3 never issued all_reduce #1 of mesh_tp",
        explanation="Rank 2 waits in it and rank 3 shows no sign of it: its host is stuck or took another path.",
        culprit_ranks=(3,), culprits=(Culprit(3, "node07"),), waiting_ranks=(0, 1, 2), blast_radius=3,
        confidence="medium", confidence_reasons=("timing is off", "the ring of rank 1 wrapped"),
        chain=(ChainStep(0, Wait("0", 2, "all_reduce"), 2), ChainStep(2, Wait("41", 1, "all_reduce"), 3)),
        group=TP, seq=1, op="all_reduce",
        stack=(Frame("forward", "/home/alice/run/model/attention.py", 211), Frame("train_step", "train/step.py", 30)),
        evidence=(
            Evidence("rank 2 issued mesh_tp all_reduce #1, pending", "nccl_trace_rank_2", 2, 1),
            Evidence("rank 3's last operation is default_pg all_reduce #1, completed", "nccl_trace_rank_3", 3, 0),
        ),
        next_steps=("Take py-spy dump of the training process of rank 3 on node07.", "Read the log of rank 3."),
    )  # fmt: skip


def _consequence() -> Finding:
    return Finding(
        id="f2", kind="missing-rank", severity="warning", caused_by="f1",
        title="default_pg all_reduce #2 waits for ranks 2,3", explanation="It follows.",
        group=WORLD, seq=2, op="all_reduce",
    )  # fmt: skip


def _ring_wrapped() -> Finding:
    return Finding(
        id="f3", kind="ring-wrapped", severity="info", title="The ring of rank 1 overwrote its oldest entries",
        explanation="What came before cannot be told.", next_steps=("Set TORCH_FR_BUFFER_SIZE=20000.",),
    )  # fmt: skip


def _with_problems(dataset: Dataset) -> Dataset:
    files = dataset.files.with_columns(
        problem=pl.when(pl.col("rank") == 1).then(pl.lit("cut short: the last entry is not whole"))
    )
    return replace(dataset, files=files)


def logged() -> tuple[Dataset, Analysis]:
    """The hang with what the logs say: rank 3 ran out of memory, the others suffered; and settings."""
    dataset, analysis = hang()
    lines = [
        line(0, "NCCL INFO Bootstrap: Using eth0", at_s=0),
        line(3, "CUDA out of memory. Tried to allocate 2.00 GiB. api_key=abc", "root", 1.5, pattern="cuda-oom"),
        line(3, "Failed to initialize NVML", "noise", 2),
        *(line(r, f"[Rank {r}] Watchdog caught collective operation timeout", "victim", 600 + r) for r in range(3)),
        line(None, "Broken pipe", "victim", None, host=None, kind="nccl-warning"),
    ]
    settings = [
        *(setting(r, "NCCL_ALGO", "Tree" if r == 2 else "Ring") for r in range(4)),
        *(setting(r, "NCCL_IB_DISABLE", "1") for r in range(3)),
        *(setting(r, "WANDB_API_KEY", f"secret{r}", source="environ") for r in range(2)),
        *(setting(r, "RANK", str(r), source="environ") for r in range(4)),
        *(setting(r, "version:torch", "2.10.0", source="collect_env") for r in range(4)),
    ]
    return with_logs(dataset, lines, settings), analysis


def healthy() -> tuple[Dataset, Analysis]:
    """Nothing wrong."""
    job = JobBuilder(4)
    job.collective()
    return job.build(), Analysis(verdict="all 4 ranks agree on every collective", status="healthy")


def traced() -> tuple[Dataset, Analysis]:
    """Traces of four ranks on two hosts, whose clocks differ; the data loader of rank 2 is slow."""
    dataset = training(4, 6, slow_host={2: 30_000_000}, clock_ns={2: 250_000, 3: 250_000}, hosts=2).build()
    return dataset, analyse(dataset)


def hostile(evil: str = EVIL) -> tuple[Dataset, Analysis]:
    """The hang, with every text that can come from a file replaced."""
    dataset, analysis = hang()
    files = dataset.files.with_columns(path=pl.lit(evil), problem=pl.lit(evil))
    finding = replace(
        analysis.findings[0], title=f"rank 3 {evil}", explanation=evil, op=evil, next_steps=(evil,),
        culprits=(Culprit(3, evil, device=evil), Culprit(None, evil, 12, evil)), confidence_reasons=(evil,),
        chain=(ChainStep(0, Wait(evil, 2, evil), 2),), group=GroupRef(evil, evil, (2, 3)),
        stack=(Frame(evil, evil, 1), Frame("```", "```", 2)), evidence=(Evidence(evil, evil, 2, 1),),
    )  # fmt: skip
    follower = replace(analysis.findings[1], title=evil)
    note = replace(analysis.findings[2], title=evil, explanation=evil)
    found = replace(analysis, verdict=evil, findings=(finding, follower, note))
    stacks = dataset.stacks.with_columns(function=pl.lit(evil), file=pl.lit(evil))
    said = line(2, evil, "root", host=evil, pattern=evil, values=evil)
    dataset = with_logs(replace(dataset, files=files), [said], [setting(r, evil, f"{evil}{r % 2}") for r in range(4)])
    files = dataset.files.with_columns(path=pl.lit(evil))
    return replace(dataset, files=files, stacks=stacks, root=evil), found


def many_ranks(world: int = 1_024) -> tuple[Dataset, Analysis]:
    """A hang of many ranks with a consequence in every second group and much of everything."""
    job = JobBuilder(world)
    job.collective()
    job.no_dump = set(range(5, world, 7))
    root = replace(
        _missing_rank(), waiting_ranks=tuple(r for r in range(world) if r != 3), blast_radius=world - 1,
        candidates=tuple(range(0, world, 2)),
        evidence=tuple(Evidence(f"rank {r} waits", f"nccl_trace_rank_{r}", r, 1) for r in range(world)),
        chain=tuple(ChainStep(r, Wait("0", 1, "all_reduce"), r + 1) for r in range(100)),
        stack=tuple(Frame(f"f{i}", "a.py", i) for i in range(100)),
    )  # fmt: skip
    following = tuple(replace(_consequence(), id=f"c{i}", title=f"group {i} waits") for i in range(500))
    dataset = job.build()
    files = dataset.files.with_columns(problem=pl.format("entry {} is not whole", pl.col("rank") % 40))
    analysis = Analysis(verdict="rank 3 holds up 1,023 ranks", status="hang", findings=(root, *following))
    return replace(dataset, files=files), analysis
