"""Traces of jobs with a planted cause, and the steps of their calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.whatif_jobs import planned, write

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.features.whatif.model import WHAT_IF_RESULTS
from rankscope.features.whatif.recorded_calls import traced_calls
from tests.features.traces.read.documents import Event, about, all_reduce, document, kernel, launch, loaded, x


@pytest.mark.parametrize("seed", [1001, 1003], ids=["next stage", "tensor parallel peer"])
def test_a_rank_that_meets_the_slow_one_in_another_group_is_not_accused(seed: int, tmp_path: Path) -> None:
    plan = planned("worker", seed)
    write(plan, tmp_path)
    analysis = analyse(load([tmp_path]))
    assert analysis.culprits == plan.ranks
    first = WHAT_IF_RESULTS.of(analysis).gains[0]
    assert (first.cause, first.ranks) == ("worker", plan.ranks)


@pytest.mark.parametrize(("cause", "seed"), [("stage", 1001), ("sequence", 1000), ("link", 3)])
def test_nobody_is_accused_where_stage_sequence_or_link_explains_it(cause: str, seed: int, tmp_path: Path) -> None:
    plan = planned(cause, seed)
    write(plan, tmp_path)
    analysis = analyse(load([tmp_path]))
    first = WHAT_IF_RESULTS.of(analysis).gains[0]
    assert first.cause == cause and analysis.culprits == ()
    assert not any(finding.candidates for finding in analysis.findings if finding.kind == "straggler")


def test_calls_are_of_the_step_in_which_a_host_issued_them_though_its_device_is_behind(tmp_path: Path) -> None:
    host_us, device_us, steps = 1_000, 9_000, 6
    files = {}
    for rank in range(2):
        events: list[Event] = []
        for step in range(steps):
            begin = step * host_us
            behind = step * device_us - begin
            events += [
                x("user_annotation", f"ProfilerStep#{step}", begin, host_us - 10),
                launch(begin + 20, 10 * step + 1), kernel("gemm", begin + behind + 50, 8_000, 10 * step + 1),
                *all_reduce(begin + 100, 10 * step + 2, wait=behind + 8_200 - 100, dur=300),
            ]  # fmt: skip
        files[f"rank{rank}.json"] = document(events, about(rank))
    dataset = loaded(tmp_path, files)
    calls, steps_known = traced_calls(dataset, TRACE_RESULTS.of(analyse(dataset)))
    assert steps_known
    assert calls.group_by("rank", "step").len()["len"].to_list() == [1] * 2 * steps
