"""Shares: each file is in one, and launchers tell which is this task's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.sessions.parquet_tables import SessionError
from rankscope.sessions.shares import Share, own_files, share_of


@given(names=st.lists(st.text(), unique=True), count=st.integers(1, 40))
def test_each_file_is_in_one_share(names: list[str], count: int) -> None:
    found = [FoundPath(name, name) for name in names]
    shares = [own_files(found, Share(index, count)) for index in range(count)]
    assert sorted(one.shown for share in shares for one in share) == sorted(names)


def test_shares_of_ranks_are_about_equal() -> None:
    found = [FoundPath("", f"nccl_trace_rank_{rank}") for rank in range(4096)]
    sizes = [len(own_files(found, Share(index, 8))) for index in range(8)]
    assert min(sizes) > 400 and max(sizes) < 630


@pytest.mark.parametrize(
    ("text", "environment", "share"),
    [
        ("3/8", {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, Share(2, 8)),
        ("", {"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, Share(5, 8)),
        ("", {"SLURM_ARRAY_TASK_ID": "11", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "10",
              "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Share(1, 4)),
        ("", {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_MIN": "0",
              "SLURM_PROCID": "6", "SLURM_NTASKS": "8"}, Share(6, 8)),
        ("", {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Share(0, 1)),
        ("", {"RANK": "1", "WORLD_SIZE": "2"}, Share(1, 2)),
        ("", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, Share(1, 3)),
        ("", {"PMI_RANK": "0", "PMI_SIZE": "3"}, Share(0, 3)),
        ("/6", {"JOB_COMPLETION_INDEX": "4"}, Share(4, 6)),
        ("", {"JOB_COMPLETION_INDEX": "4", "JOB_COMPLETIONS": "5"}, Share(4, 5)),
    ],
)  # fmt: skip
def test_the_share_of_a_task(text: str, environment: dict[str, str], share: Share) -> None:
    assert share_of(text, environment) == share


@pytest.mark.parametrize(
    ("text", "environment", "reason"),
    [
        ("0/8", {}, "part 0 of 8"),
        ("9/8", {}, "part 9 of 8"),
        ("1/0", {}, "part 1 of 0"),
        ("a/b", {}, "'a/b' is no share"),
        ("1/999999", {}, "which is no share; name it, as --shard 3/8"),
        ("", {"JOB_COMPLETION_INDEX": "4"}, "Kubernetes tells the number of this task, not how many there are"),
        ("", {}, "no launcher tells the share of this task"),
        ("", {"SLURM_PROCID": "x", "SLURM_NTASKS": "8"}, "no launcher tells"),
        ("/4", {"RANK": "7"}, "torchrun tells part 8 of 4"),
    ],
)
def test_a_wrong_share_is_refused(text: str, environment: dict[str, str], reason: str) -> None:
    with pytest.raises(SessionError, match=reason):
        share_of(text, environment)
