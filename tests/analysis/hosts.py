"""Stacks as py-spy 0.4 writes them of torch 2.13, innermost first, and jobs in which ranks are in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from rankscope.schema import Dataset
from tests.builders import START_NS, JobBuilder

Stack = Sequence[tuple[str, str, int]]
C10D, LOGGER = "torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py"
MAIN = (("main", "train.py", 40), ("<module>", "train.py", 60))
WRAPPED = (("_exception_logger.<locals>.wrapper", LOGGER, 83), ("train_step", "train/step.py", 30), *MAIN)
REDUCE = (("all_reduce", C10D, 3252), *WRAPPED)
GATHER = (("all_gather", C10D, 4287), WRAPPED[0], ("all_gather_object", C10D, 3513), *WRAPPED)
BARRIER = (("barrier", C10D, 5356), *WRAPPED)
RECV = (("recv", C10D, 2799), *WRAPPED)
LEAVE = (("destroy_process_group", C10D, 2300), ("cleanup", "train.py", 55), ("<module>", "train.py", 61))
SAVE = (
    ("W.write", "train/ckpt.py", 7), ("_save", "torch/serialization.py", 1259),
    ("save", "torch/serialization.py", 1003), ("save_checkpoint", "train/ckpt.py", 77), *MAIN,
)  # fmt: skip
LOAD = (
    ("_PollLikeSelector.select", "selectors.py", 415), ("wait", "multiprocessing/connection.py", 947),
    ("Connection._poll", "multiprocessing/connection.py", 440), ("Queue.get", "multiprocessing/queues.py", 113),
    ("_MultiProcessingDataLoaderIter._try_get_data", "torch/utils/data/dataloader.py", 1291),
    ("_BaseDataLoaderIter.__next__", "torch/utils/data/dataloader.py", 725), *MAIN,
)  # fmt: skip
LOOP = (("preprocess", "data/clean.py", 12), *MAIN)
ITEM = (
    ("cudaStreamSynchronize", "libcudart.so.12", 0), ("at::native::_local_scalar_dense_cuda", "libtorch_cuda.so", 0),
    ("log_loss", "train/step.py", 44), *MAIN,
)  # fmt: skip
TAKE_GIL = (("pthread_cond_timedwait", "libc.so.6", 0), ("take_gil", "python3.11", 0), *LOOP)
BACKWARD = (
    ("_engine_run_backward", "torch/autograd/graph.py", 870), ("backward", "torch/autograd/__init__.py", 350),
    ("Tensor.backward", "torch/_tensor.py", 650), ("train_step", "train/step.py", 31), *MAIN,
)  # fmt: skip


def missing_one(world: int = 8, culprit: int = 3) -> JobBuilder:
    """Rank `culprit` never issues the second reduction."""
    job = JobBuilder(world)
    job.collective()
    job.collective(ranks=[r for r in range(world) if r != culprit], state="scheduled")
    return job


def seen(job: JobBuilder, stacks: Mapping[int, Stack], written_ns: int | None = None) -> JobBuilder:
    """The job with the main threads of some ranks as py-spy saw them."""
    for rank, stack in stacks.items():
        job.thread(rank, stack, written_ns=written_ns)
    return job


def still(job: JobBuilder, after_s: int = 600) -> Dataset:
    """The job, with all dumps written long after it stopped."""
    dataset = job.build()
    return replace(dataset, files=dataset.files.with_columns(mtime_ns=pl.lit(START_NS + after_s * 10**9)))
