"""Sentences on the screen and of `--why`, held against what the dumps of simulated hangs hold."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.explanations import RankView, end_of_chain, explain_rank, operation_name
from rankscope.assemble.load import load
from rankscope.tui.cell_selection import item_of, place_of_finding
from rankscope.tui.letters import CHARACTERS, Mark, mark_of
from rankscope.tui.model import build_model
from tests.builders import JobBuilder
from tests.simulator.loaded import simulated
from tests.tui.drive import opened, screen_text
from tests.tui.jobs import still

FAULTS = ("network", "order", "lost-recv", "lost-send", "host-stuck")
HANGS = [(fault, seed) for fault in FAULTS for seed in (11, 12)]


@pytest.mark.parametrize(("fault", "seed"), HANGS)
def test_who_accuses_nobody_leads_to_a_member(fault: str, seed: int) -> None:
    dataset, analysis = simulated(fault, seed)
    model = build_model(dataset, analysis)
    for finding in analysis.findings:
        if finding.group is not None and not finding.culprit_ranks and not finding.candidates:
            place = place_of_finding(model, finding)
            assert place is not None
            assert place.rank in finding.group.ranks


def test_a_title_names_the_ranks_of_the_group() -> None:
    _, analysis = simulated("network", 11)
    stuck = next(f for f in analysis.findings if f.kind == "stuck-in-collective")
    assert stuck.group is not None
    first, last = min(stuck.group.ranks), max(stuck.group.ranks)
    assert f"({'ranks' if first != last else 'rank'} {first}" in stuck.title
    assert str(last) in stuck.title


@pytest.mark.parametrize(("fault", "seed"), HANGS)
def test_nobody_is_said_to_wait_for_nobody_with_an_operation_pending(fault: str, seed: int) -> None:
    dataset, analysis = simulated(fault, seed)
    for rank in dataset.seen_ranks:
        if rank not in analysis.waits:
            pending = RankView(dataset, rank).pending
            said = end_of_chain(dataset, analysis, rank)
            assert ("waits for nobody" in said or "does not wait in any" in said) == pending.is_empty()
            assert pending.is_empty() or operation_name(pending.row(0, named=True)) in said


@pytest.mark.parametrize("seed", [12, 13, 14])
def test_a_chain_goes_around_a_circle_and_back_to_the_culprit(seed: int) -> None:
    dataset, analysis = simulated("order", seed)
    root = next(f for f in analysis.findings if f.kind == "order-deadlock")
    for rank in {*root.culprit_ranks, *root.waiting_ranks}:
        steps = analysis.waits[rank]
        assert steps[0].rank == rank
        assert steps[-1].for_rank in root.culprit_ranks
        assert all(step.for_rank == following.rank for step, following in pairwise(steps))
        own = RankView(dataset, rank).pending
        assert steps[0].waits_in.op in own["op"].to_list()


@pytest.mark.parametrize(("fault", "seed"), HANGS)
def test_never_did_is_said_only_of_what_nobody_recorded(fault: str, seed: int) -> None:
    dataset, analysis = simulated(fault, seed)
    for rank in dataset.seen_ranks:
        for reason in explain_rank(dataset, analysis, rank).lines:
            if reason.about == "unlike" and "never did" in reason.evidence.text:
                cause = next(f for f in analysis.findings if f.root_cause)
                assert cause.group is not None and cause.seq is not None
                rows = [RankView(dataset, r).at(cause.group.key, cause.seq) for r in cause.culprit_ranks]
                assert rows and not any(rows)
            if "as all members do" in reason.evidence.text:
                head = RankView(dataset, rank).pending.row(0, named=True)
                same = dataset.ops.filter((pl.col("group") == head["group"]) & (pl.col("seq") == head["seq"]))
                assert set(same["rank"]) == set(dataset.group_list[head["group"]].ranks)


@pytest.mark.parametrize("fault", ["lost-recv", "lost-send"])
def test_a_rule_says_nothing_of_waiting_where_the_culprit_waits(fault: str) -> None:
    dataset, analysis = simulated(fault, 11)
    for rank in analysis.culprits:
        rule = next(r.evidence.text for r in explain_rank(dataset, analysis, rank).lines if r.about == "rule")
        assert ("waits for nothing" in rule) == RankView(dataset, rank).pending.is_empty()


@pytest.mark.parametrize(("state", "mark", "letter"), [
    ("scheduled", Mark.MISMATCH_PENDING, "b"), ("completed", Mark.MISMATCH, "B"),
])  # fmt: skip
def test_a_cell_tells_whether_an_operation_that_differs_is_over(state: str, mark: Mark, letter: str) -> None:
    job = JobBuilder(4)
    job.collective("0")
    job.collective("0", ranks=[0, 1, 3], state="scheduled")
    job.collective("0", op="broadcast", ranks=[2], state=state)
    dataset = still(job.build())
    model = build_model(dataset, analyse(dataset))
    item = item_of(model, 2, 0, 2, p2p=False)
    assert item is not None
    value = int(model.items.code[item])
    assert mark_of(value) is mark
    as_if = Mark.STARTED if mark is Mark.MISMATCH_PENDING else Mark.DONE
    assert chr(CHARACTERS[(as_if << 4) | (value & 15)]) == letter


async def test_logs_alone_show_the_finding_where_no_lanes_are(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/job/train.py", line 7, in <module>\n'
        "[rank1]:     step()\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    dataset = load([log])
    async with opened((dataset, analyse(dataset))) as (app, _):
        text = screen_text(app)
    assert "0 ranks" not in text and "0 groups" not in text and "nothing is selected" not in text
    assert "ROOT CAUSE, critical rank-failed: rank 1 failed" in text
    assert "The first failure that the logs hold" in text
