"""Any bytes in a log: a Dataset, and never an error."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.analysis import analyse
from tests.features.logs.read.lines import coll
from tests.features.logs.rows.job import init, job, said, source, split, step
from tests.features.logs.rows.test_reports import hang, printed, status, timeout

LINES = [
    *(line for r in range(4) for line in (init(r), split(r), step(r, 1), step(r, 2), timeout(r, 8))),
    *hang(), status(1, 3, 3, 2, "4 PG GUID 9(TP)"), *(printed(r, n) for n in range(2) for r in range(4)),
    said(1, coll("Send", root=0, comm="0xbb00", nranks=2)),
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, "
    "TensorDeviceTypes=X), but Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=3, OpType=BARRIER)",
    "[rank0]:[I1 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 0] ProcessGroupNCCL initialization "
    "options: size: 4, global rank: 0, TIMEOUT(ms): 600000",
    '{"communicators": [], "event": "PEER_DEAD", "peer": {"host": "a", "pid": 1, "cuda_devs": [1]}}',
]  # fmt: skip


@given(st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_numbers_of_any_size(data: st.DataObject) -> None:
    text = "\n".join(LINES)
    numbers = list(re.finditer(r"\d+", text))
    for found in sorted(data.draw(st.lists(st.sampled_from(numbers), max_size=6)), key=lambda m: -m.start()):
        new = data.draw(st.sampled_from(["0", "3", "999999999", str(2**31), str(2**63), "9" * 19, "9" * 30, "-1"]))
        text = text[: found.start()] + new + text[found.end() :]
    dataset = job(source("train.log", text.split("\n")))
    analyse(dataset)
    assert dataset.world_size <= 1 << 18


@given(st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_lines_in_any_order_and_cut_anywhere(data: st.DataObject) -> None:
    lines = data.draw(st.permutations(LINES))
    cuts = data.draw(st.lists(st.tuples(st.integers(0, len(lines) - 1), st.integers(0, 200)), max_size=5))
    for at, length in cuts:
        lines[at] = lines[at][:length]
    analyse(job(source("train.log", lines)))


@pytest.mark.parametrize("size", ["999999999", str(1 << 30)])
def test_a_communicator_too_large_for_any_job_makes_no_list_of_its_ranks(size: str) -> None:
    lines = [init(0).replace("nranks 4", f"nranks {size}"), step(0, 1)]
    assert job(source("nccl.0", lines)).world_size <= 4
