"""Sends and receives that one side left out, in rings of which no replica tells who is right."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.facts import Facts
from rankscope.analysis.unmatched_p2p import OddMember, find_odd
from rankscope.assemble.load import load
from rankscope.report.words import place
from rankscope.schema import Dataset
from tests.analysis.test_simulated import judge
from tests.parsers.dumps import Recorder, dataset_of, job, named
from tests.simulator.options import MODES
from tests.simulator.scenario import make

ENDS = ("send", "recv")


def exchange(recorder: Recorder, world: int, state: str = "completed") -> None:
    """A batch to the next rank and from the one before."""
    peers = ((recorder.rank + 1) % world, (recorder.rank - 1) % world)
    recorder.batch("0", list(zip(ENDS, peers, strict=True)), state=state)


def ring(world: int, steps: int, without: int, ring: int = 2000) -> Dataset:
    """`steps` rings that went well, then one that a rank leaves out; its neighbour waits, all others go on."""
    made = job(world)
    for recorder in made:
        for _ in range(steps):
            exchange(recorder, world)
            recorder.collective("0")
        if recorder.rank != without:
            exchange(recorder, world, "started" if (recorder.rank - 1) % world == without else "completed")
        recorder.collective("0", op="_all_gather_base", state="scheduled")
    return dataset_of(named(made, ring=ring))


@pytest.mark.parametrize("kept", [2000, 20])
def test_a_rank_that_leaves_a_ring_out_falls_out_of_step(kept: int) -> None:
    found = analyse(ring(4, steps=9, without=2, ring=kept)).findings[0]
    assert (found.kind, found.culprit_ranks) == ("p2p-unmatched", (2,))
    assert found.confidence_reasons == (
        "file times do not prove that the job had stopped",
    )
    assert found.title == "rank 2 left out 2 sends or receives in default_pg"
    assert found.waiting_ranks == (0, 1, 3)
    assert "rank 2 had issued 28 operations in default_pg, each other member 30" in found.explanation


def test_what_a_rank_left_out_is_found_though_it_has_issued_the_like_again() -> None:
    """Launched ahead of the device, as with NCCL: the send of the next step takes the place of the one left out."""
    made = job(4)
    for recorder in made:
        for _ in range(6):
            exchange(recorder, 4)
            recorder.collective("0")
        if recorder.rank == 1:
            recorder.batch("0", [("recv", 0)])
        else:
            exchange(recorder, 4, "completed" if recorder.rank != 2 else "scheduled")
        if recorder.rank != 2:
            recorder.collective("0", state="scheduled")
            exchange(recorder, 4, "scheduled")
    found = analyse(dataset_of(named(made))).findings[0]
    assert (found.kind, found.culprit_ranks) == ("p2p-unmatched", (1,))
    assert found.title == "rank 1 left out a send or receive in default_pg"
    assert (found.seq, found.waiting_ranks) == (7, (0, 2, 3))


@pytest.mark.parametrize("batched", [True, False])
def test_a_rank_that_does_not_come_makes_nobody_fall_out_of_step(batched: bool) -> None:
    """Rank 0 gathers a value of each rank by hand, and sends back one; rank 3 is stuck on its host before it."""
    made = job(4)
    for recorder in made:
        for _ in range(6):
            exchange(recorder, 4)
            recorder.collective("0")
        if recorder.rank == 0 and batched:
            recorder.batch("0", [("recv", 1), ("recv", 2), ("recv", 3)], state="scheduled")
        elif recorder.rank == 0:
            for peer in (1, 2, 3):
                recorder.p2p("0", "send", peer, state="completed" if peer < 3 else "scheduled")
        elif recorder.rank != 3:
            recorder.p2p("0", "send" if batched else "recv", 0)
        if recorder.rank != 3:
            recorder.collective("0", state="scheduled")
    roots = [f for f in analyse(dataset_of(named(made))).findings if f.root_cause]
    assert [(f.kind, f.culprit_ranks) for f in roots] == [("missing-rank", (3,))]


def test_too_few_rounds_prove_no_step() -> None:
    dataset = ring(4, steps=2, without=2)
    assert find_odd(Facts(dataset), dataset.group_list[0]) is None
    found = analyse(dataset).findings[0]
    assert (found.kind, found.culprit_ranks, found.confidence) == ("p2p-unmatched", (2, 3), "low")
    assert found.evidence[0].text == "never posted its side of recv 2->3 #3; this is its last operation"


def apart(odd: Iterable[int], after: bool = False, world: int = 4) -> Dataset:
    """Rings of which some ranks do one more, which all others may do a little later."""
    made = job(world)
    for recorder in made:
        for _ in range(6):
            exchange(recorder, world)
            recorder.collective("0")
        for late in (False, True):
            if late == (recorder.rank not in odd) and (after or not late):
                exchange(recorder, world)
            recorder.collective("0")
    return dataset_of(named(made))


def test_the_odd_one_is_told_with_its_place() -> None:
    dataset = apart({1})
    assert find_odd(Facts(dataset), dataset.group_list[0]) == OddMember(1, 21, 19, "all_reduce #7 of default_pg", 6)


@pytest.mark.parametrize(
    "dataset", [apart({0, 1}), apart({1}, after=True), apart({1}, world=2)], ids=["two", "caught up", "of two"]
)
def test_where_no_single_rank_is_out_of_step(dataset: Dataset) -> None:
    assert find_odd(Facts(dataset), dataset.group_list[0]) is None


def test_a_rank_that_leaves_both_its_neighbours_waiting_explains_both() -> None:
    made = job(4)
    for recorder in made:
        peer = {0: 1, 2: 1}.get(recorder.rank)
        if peer is not None:
            recorder.p2p("0", "send", peer, state="started")
        recorder.collective("0", state="scheduled")
    found = analyse(dataset_of(named(made))).findings[0]
    assert (found.kind, found.culprit_ranks, found.confidence) == ("p2p-unmatched", (1,), "medium")
    assert found.title == "rank 1 left out its side of send 0->1 #1 and send 2->1 #1 in default_pg"
    assert place(found).startswith("receive from rank 0 (#1), never posted in default_pg")
    assert found.confidence_reasons[0] == "no replica to compare with: ranks 0,2 may be wrong in the same way"


def test_a_batch_that_waits_for_one_of_its_sends_accuses_no_device() -> None:
    made = job(3)
    for recorder in made[:2]:
        recorder.batch("0", [("send", 1 - recorder.rank)], state="completed" if recorder.rank else "scheduled")
    made[0].entries.clear()
    made[0].batch("0", [("send", 1), ("recv", 2)], state="started")
    made[1].entries.clear()
    made[1].batch("0", [("recv", 0)])
    for recorder in made[1:]:
        recorder.collective("0", state="scheduled")
    found = analyse(dataset_of(named(made)))
    assert "gpu-stuck" not in {f.kind for f in found.findings}
    assert found.culprits == (0, 2)


@pytest.mark.parametrize("mode", ["full", "no-timing", "wrapped", "only-active"])
@pytest.mark.parametrize("fault", ["lost-batch", "lost-send", "lost-recv", "host-stuck", "device-dead", "network"])
def test_rings(fault: str, mode: str, tmp_path: Path) -> None:
    got = []
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        got.append(judge(make(fault, seed, "rings"), mode, folder))
    assert [line for found, line in got if found in ("accused", "other-kind")] == []
    if mode == "full":
        assert all(found in ("exact", "allowed") for found, _ in got), got


@pytest.mark.parametrize(("seed", "mode"), [(92001, "only-active"), (92001, "wrapped"), (92128, "only-active")])
def test_a_send_without_its_receive_does_not_hide_that_a_rank_is_elsewhere(
    seed: int, mode: str, tmp_path: Path
) -> None:
    """It issued a collective that nobody else did: its peers wait for it in several others, and one in a send."""
    scenario = make("extra", seed, "small")
    truth = scenario.write(tmp_path, MODES[mode])
    (root,) = [finding for finding in analyse(load([tmp_path])).findings if finding.root_cause]
    assert frozenset(root.culprit_ranks) == truth.culprits
    assert root.confidence == "medium"
