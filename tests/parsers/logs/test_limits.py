"""More lines that tell something than are kept."""

from __future__ import annotations

import pytest

from rankscope.parsers.assemble.dataset import assemble
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.logs import kept
from rankscope.schema import Dataset
from tests.parsers.assemble.logs.job import MTIME_NS, lane, messages
from tests.parsers.assemble.logs.test_reports import printed
from tests.parsers.logs.lines import log

CAUSE = "[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Two ranks with 200 fingerprints each, and a cause at the end, of which 40 lines and the last 20 are kept."""
    monkeypatch.setattr(kept, "MOST_EVENTS", 80)
    monkeypatch.setattr(kept, "MOST_LATE", 20)
    content = log(*(printed(rank, seq) for seq in range(200) for rank in range(2)), CAUSE)
    return assemble([Source("train.log", "log", 1000, MTIME_NS, None, content)], "job", None, None, None)


def test_what_fills_a_log_does_not_push_out_the_cause(job: Dataset) -> None:
    assert job.messages.filter(role="root")["pattern"].to_list() == ["cuda-out-of-memory"]


def test_what_is_not_kept_is_said(job: Dataset) -> None:
    (text,) = messages(job, "log-cut")
    assert text.startswith("340 lines that tell something are not kept")


def test_the_last_operations_are_lanes(job: Dataset) -> None:
    assert [seq for seq, _, _ in lane(job, 1, 0)] == list(range(190, 200))
    assert job.frontiers["wrapped"].to_list() == [True, True]


def test_fingerprints_of_several_groups_are_told_of() -> None:
    lines = [printed(rank, seq) for rank in range(2) for seq in (0, 1, 0, 2, 1)]
    dataset = assemble([Source("train.log", "log", 1000, MTIME_NS, None, log(*lines))], "job", None, None, None)
    (text,) = messages(dataset, "log-unplaced")
    assert text == "10 operations: fingerprints of several groups, which the lines do not tell apart"
    assert dataset.ops.is_empty()
