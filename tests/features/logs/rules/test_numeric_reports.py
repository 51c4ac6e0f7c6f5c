"""Numbers that Megatron-LM checked itself: whose device is wrong, and what the lines cannot tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Culprit
from rankscope.assemble.load import load
from rankscope.features.logs.rules.engine_reports import numeric_reports
from tests.analysis.jobs import running

FIRST = "[default3]:WARNING:Rank 3, node n07, device 3, iteration #150: First rerun: unexpected result is reproducible within the tolerance (nan = nan)"  # noqa: E501
SECOND = "[default3]:ERROR:Rank 3, node n11, device 5, iteration #150: Possible persistent error!"
LOG = f"[default0]:iteration 149/ 1000 | lm loss: 2.1\n{FIRST}\n{SECOND}\n"
END = (
    "E0101 failed (exitcode: 16) local_rank: 3 (pid: 4801) of binary: /usr/bin/python\n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-26_18:00:00\n  host      : n11\n"
    "  rank      : 3 (local_rank: 3)\n  exitcode  : 16 (pid: 4801)\n  error_file: <N/A>\n"
)


def test_the_device_of_the_first_run_is_accused(tmp_path: Path) -> None:
    """The line of the second run names the device that checked."""
    (tmp_path / "job.log").write_text(LOG + END)
    analysis = analyse(load([tmp_path]))
    found = analysis.findings[0]
    assert (found.kind, found.severity, found.culprits) == (
        "numeric-divergence", "critical", (Culprit(3, "n07", None, "device 3"),),
    )  # fmt: skip
    assert analysis.status == "mismatch" and analysis.verdict.startswith("rank 3 (device 3 of n07) gave a wrong result")
    assert [f.caused_by for f in analysis.findings if f.kind == "rank-failed"] == [found.id]


@pytest.mark.parametrize(
    ("outcome", "severity", "accused", "candidates"),
    [
        ("persistent", "critical", (), (3,)), ("transient", "warning", (3,), ()), ("correct", "warning", (), (3,)),
        ("here-same", "warning", (), (3,)), ("refused", "warning", (), (3,)),
    ],
)  # fmt: skip
def test_what_one_line_tells(
    outcome: str, severity: str, accused: tuple[int, ...], candidates: tuple[int, ...]
) -> None:
    job = running()
    job.message("numeric-check", 3, check="rerun", outcome=outcome, node="n1", device=2, iteration=5)
    (found,) = numeric_reports(job.build())
    assert (found.severity, found.culprit_ranks, found.candidates) == (severity, accused, candidates)


@pytest.mark.parametrize(
    ("reported", "accused", "candidates"), [((2,), (2,), ()), ((1, 2, 3), (0,), ()), ((1, 2), (), (0, 1, 2, 3))]
)
def test_weights_that_differ(reported: tuple[int, ...], accused: tuple[int, ...], candidates: tuple[int, ...]) -> None:
    """Each rank reports that it differs from the first replica: the minority is wrong, and a tie accuses nobody."""
    known, unknown = running(), running()
    known.descriptions["0"] = "DATA_PARALLEL_GROUP"
    for job in (known, unknown):
        for rank in reported:
            job.message("numeric-check", rank, check="weight-hash", name="fc.weight", chunk=0)
    (found,) = numeric_reports(known.build())
    assert (found.culprit_ranks, found.candidates) == (accused, candidates)
    (found,) = numeric_reports(unknown.build())
    assert (found.culprit_ranks, found.candidates) == ((), reported)
