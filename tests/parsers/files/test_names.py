"""Names under which people keep what a program printed."""

from __future__ import annotations

import pytest

from rankscope.parsers.files.reader import is_named

LOGS = (
    "job.log", "a/job.LOG", "slurm-4711.out", "train.err", "attempt_0/3/stderr.log", "0/stdout", "nohup.out", "dmesg",
    "dmesg.txt", "job.log.1", "job.log.gz", "train.o4711", "train.e4711", "node7.stderr.zst", "x.tar!run/console",
)  # fmt: skip
OTHERS = ("train.py", "notes.txt", "README.md", "errors.tsv", "nccl_trace_rank_0", "blog", "outline", "logs.json")


@pytest.mark.parametrize("name", LOGS)
def test_logs(name: str) -> None:
    assert is_named(name)


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    assert not is_named(name)
