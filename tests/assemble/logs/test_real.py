"""What torch prints of a job with TORCH_DISTRIBUTED_DEBUG=DETAIL, run while the tests run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from tests.assemble.logs.job import groups
from tests.parsers.logs import c10d

SCRIPT = Path(c10d.__file__).parent / "job.py"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of four ranks, of which rank 2 calls something else in its third collective."""
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", str(SCRIPT)]
    ran = subprocess.run(
        [*command, "mismatch"], env=os.environ | detail, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=120, check=False,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("run") / "train.log"
    path.write_bytes(ran.stdout)
    return path


def test_fingerprints_of_a_real_job(printed: Path) -> None:
    dataset = load([printed])
    assert groups(dataset) == {"0": (0, 1, 2, 3)}
    rows = dataset.ops.filter(source="c10d-log")
    last = rows.group_by("rank").last().sort("rank")
    assert last["op"].to_list() == ["all_reduce", "all_reduce", "broadcast", "all_reduce"]
    assert set(last["in_sizes"]) == {"[[2, 3]]"}
    assert rows["created_ns"].null_count() == 0
    assert dataset.seen_ranks == (0, 1, 2, 3)


def test_the_odd_rank_of_a_real_job(printed: Path) -> None:
    analysis = analyse(load([printed]))
    assert analysis.status == "mismatch"
    assert analysis.culprits == (2,)
