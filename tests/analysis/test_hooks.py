"""Dumps by the hook of torch 2.15: what they prove, and whom they do not accuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.explanations import explain_rank, operation_state
from rankscope.analysis.model import Analysis
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.tui.detail.peers import state_label
from tests.parsers.dumps import Groups, Recorder
from tests.parsers.hooked_dumps import Hook, dumped, hooks
from tests.parsers.torch_pickle import torch_pickle

PIPELINE: Groups = {"0": ("default_pg", [0, 1]), "1": ("pp", [0, 1])}
STEPS = 4


def roots(analysis: Analysis) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Kind, culprits and candidates of all root causes."""
    return [(f.kind, f.culprit_ranks, f.candidates) for f in analysis.findings if f.root_cause]


def steps(made: Sequence[Hook], count: int = STEPS) -> None:
    """Each rank sends to the next, receives from the one before, and all meet; in steps that go well."""
    world = len(made)
    for hook in made:
        for _ in range(count):
            hook.batch("0", [("send", (hook.rank + 1) % world), ("recv", (hook.rank - 1) % world)])
            hook.collective("0")


def test_operations_in_flight_accuse_nobody() -> None:
    """The other rank has noticed the end of the last operation, this one has not looked yet."""
    made = hooks(2)
    for hook in made:
        hook.collective("0")
        hook.collective("0", state="scheduled" if hook.rank == 1 else "completed")
    for after in (None, 0.5, 8):
        analysis = analyse(dumped(made, after_s=after))
        assert not analysis.is_critical
        assert analysis.status != "healthy"


def test_what_is_pending_for_long_stopped() -> None:
    made = hooks(3)
    for hook in made:
        hook.collective("0")
        hook.collective("0", state="scheduled" if hook.rank == 1 else "completed")
        hook.collective("0", state="scheduled")
    assert roots(analyse(dumped(made, after_s=60))) == [("gpu-stuck", (1,), ())]
    assert not analyse(dumped(made, after_s=5)).is_critical


def test_all_joined_is_told_last_and_only_of_what_is_pending_for_long() -> None:
    made = hooks(3)
    for hook in made:
        hook.collective("0", state="scheduled")
    assert not analyse(dumped(made, after_s=5)).is_critical
    found = [f for f in analyse(dumped(made, after_s=60)).findings if f.root_cause]
    assert [(f.kind, f.culprit_ranks, f.confidence) for f in found] == [("stuck-in-collective", (), "low")]
    assert not any("TORCH_NCCL_ENABLE_TIMING" in step for f in found for step in f.next_steps)


def test_a_batch_without_a_send_is_found_by_counts() -> None:
    made = hooks(3)
    steps(made)
    for hook in made:
        ops = [("send", (hook.rank + 1) % 3), ("recv", (hook.rank - 1) % 3)]
        hook.batch("0", ops[1:] if hook.rank == 1 else ops)
        hook.collective("0", state="scheduled")
    found = analyse(dumped(made)).findings[0]
    assert (found.kind, found.culprit_ranks, found.peer) == ("p2p-unmatched", (1,), 2)
    assert found.title == "rank 1 left out a send to rank 2 in default_pg"
    assert found.confidence == "high"
    assert set(found.waiting_ranks) == {0, 2}


def test_in_the_first_step_both_sides_are_named() -> None:
    made = hooks(2)
    for hook in made:
        hook.batch("0", [("send", 1)] if hook.rank == 0 else [("recv", 0), ("recv", 0)])
        hook.collective("0", state="scheduled")
    found = analyse(dumped(made)).findings[0]
    assert (found.kind, found.culprit_ranks, found.confidence) == ("p2p-unmatched", (0, 1), "low")


def test_a_ring_that_has_wrapped_is_counted_from_collective_to_collective() -> None:
    made = hooks(3)
    steps(made, 9)
    for hook in made:
        ops = [("send", (hook.rank + 1) % 3), ("recv", (hook.rank - 1) % 3)]
        hook.batch("0", ops[:1] if hook.rank == 2 else ops)
        hook.collective("0", state="scheduled")
    found = analyse(dumped(made, ring=14)).findings[0]
    assert (found.kind, found.culprit_ranks) == ("p2p-unmatched", (2,))
    assert found.title == "rank 2 left out a receive from rank 1 in default_pg"


def test_a_program_that_sends_behind_a_collective_leaves_nothing_out() -> None:
    made = hooks(2)
    for hook in made:
        for _ in range(6):
            if hook.rank == 1:
                hook.batch("0", [("recv", 0)])
            hook.collective("0")
            if hook.rank == 0:
                hook.batch("0", [("send", 1)])
    assert not analyse(dumped(made)).is_critical


def test_a_job_that_went_on_left_nothing_out() -> None:
    made = hooks(2)
    steps(made)
    made[0].batch("0", [("send", 1)])
    for hook in made:
        for _ in range(3):
            hook.collective("0")
    assert not analyse(dumped(made)).is_critical


def test_a_rank_that_skips_a_collective_left_out_no_send() -> None:
    made = hooks(2, PIPELINE)
    for hook in made:
        for _ in range(STEPS):
            hook.batch("1", [("send", 1)] if hook.rank == 0 else [("recv", 0)])
            hook.collective("1")
            hook.collective("0")
    for hook in made:
        hook.batch("1", [("send", 1)] if hook.rank == 0 else [("recv", 0)])
        hook.collective("1")
        if hook.rank == 1:
            hook.collective("0", state="scheduled")
            continue
        hook.batch("1", [("send", 1)])
        hook.collective("1", state="scheduled")
    assert not any(kind == "p2p-unmatched" for kind, *_ in roots(analyse(dumped(made))))


def test_who_owes_a_receive_from_any_source() -> None:
    made = hooks(3, library="mpi", blind=True)
    for step in range(STEPS):
        for hook in made:
            if hook.rank == 0:
                hook.from_any("0")
                hook.from_any("0")
            elif (hook.rank, step) != (2, STEPS - 1):
                hook.batch("0", [("send", 0)])
            hook.collective("0")
    found = analyse(dumped(made)).findings[0]
    assert (found.kind, found.culprit_ranks) == ("p2p-unmatched", (2,))


@pytest.mark.parametrize(("after", "named"), [(None, False), (0.001, False), (60, True)])
def test_a_blind_hook_tells_who_is_behind_only_in_a_job_that_stands_still(after: float | None, named: bool) -> None:
    made = hooks(3, library="mpi", blind=True)
    steps(made)
    for hook in made[:2]:
        hook.collective("0")
    analysis = analyse(dumped(made, after_s=after))
    assert roots(analysis) == ([("missing-rank", (2,), ())] if named else [])
    assert analysis.status == ("hang" if named else "unknown" if after is None else "progressing")
    told = [f.candidates or f.culprit_ranks for f in analysis.findings]
    assert ((2,) in told) == (after != 0.001)


def test_what_a_blind_hook_does_not_tell_is_no_rest() -> None:
    made = hooks(3, library="mpi", blind=True)
    steps(made)
    dataset = dumped(made)
    title = explain_rank(dataset, analyse(dataset), 0).title
    assert "the operation that it waits in is not known" in title


def test_of_several_that_are_behind_a_blind_hook_names_nobody() -> None:
    made = hooks(6, {"0": ("default_pg", list(range(6)))}, library="mpi", blind=True)
    for hook in made:
        hook.collective("0")
    for hook in made[:4]:
        hook.collective("0")
    assert roots(analyse(dumped(made, after_s=60))) == [("missing-rank", (), (4, 5))]


def test_a_blind_hook_never_says_that_a_job_is_healthy() -> None:
    made = hooks(2, library="mpi", blind=True)
    steps(made)
    analysis = analyse(dumped(made))
    assert (analysis.status, analysis.is_critical) == ("unknown", False)
    assert analysis.verdict == ("2 ranks, no divergence, but their backend does not record whether operations finish")


def test_the_rank_that_left_no_dump_is_the_suspect() -> None:
    made = hooks(4)
    steps(made)
    for hook in made:
        hook.collective("0", state="scheduled")
    assert roots(analyse(dumped([hook for hook in made if hook.rank != 2], after_s=60))) == [("missing-rank", (2,), ())]


def test_a_job_of_which_a_rank_left_no_dump_is_not_healthy() -> None:
    made = hooks(4)
    steps(made)
    analysis = analyse(dumped(made[:3]))
    assert (analysis.status, analysis.verdict) == ("unknown", "3 ranks, no divergence, but rank 3 left no dump")


def test_nothing_recorded_is_not_healthy() -> None:
    analysis = analyse(dumped(hooks(4)))
    assert (analysis.status, analysis.is_critical) == ("unknown", False)
    assert analysis.verdict == "4 ranks left dumps in which nothing was recorded"
    assert any("TORCH_FR_BUFFER_SIZE" in step for f in analysis.findings for step in f.next_steps)


def test_who_captures_a_job_is_told_of_no_setting_before_its_first_operation() -> None:
    dataset = dumped(hooks(4))
    captured = replace(dataset, files=dataset.files.with_columns(interval_ns=pl.lit(10**10)))
    analysis = analyse(captured)
    assert analysis.verdict == "4 ranks left dumps in which nothing was recorded so far"
    assert "TORCH_FR_BUFFER_SIZE" not in str(analysis.findings)


def test_batches_at_the_end_are_not_healthy_yet() -> None:
    made = hooks(2)
    steps(made)
    for hook in made:
        hook.batch("0", [("send", 1 - hook.rank), ("recv", 1 - hook.rank)])
    assert analyse(dumped(made)).status == "unknown"


def test_what_is_captured_in_graphs_is_said_where_all_count_it() -> None:
    made = hooks(2)
    for hook in made:
        hook.collective("0")
        hook.counters["0"][2] += 7
        hook.collective("0")
    kinds = {f.kind: f for f in analyse(dumped(made)).findings}
    assert "7 of default_pg" in kinds["unrecorded-operations"].explanation
    made[0].entries[-1]["op_id"] -= 7
    assert "unrecorded-operations" not in {f.kind for f in analyse(dumped(made)).findings}


def test_a_barrier_of_nccl_meets_that_of_nccl2() -> None:
    groups: Groups = {"0": ("default_pg", [0, 1, 2])}
    made: list[Recorder] = [Hook(0, groups), Recorder(1, groups), Hook(2, groups)]
    for recorder in made:
        recorder.collective("0")
        barrier = "all_reduce_barrier" if recorder.library == "nccl" else "barrier"
        recorder.collective("0", op=barrier)
        recorder.collective("0")
    assert analyse(dumped(made)).status == "healthy"


@pytest.mark.parametrize("late", [1, 2])
def test_what_gloo_has_not_retired_yet_holds_up_nobody(late: int) -> None:
    """All others have seen its end, and the thread that retires had not come to it on one rank."""
    made = [Recorder(rank, {"0": ("default_pg", list(range(5)))}, library="gloo") for rank in range(5)]
    for recorder in made:
        for _ in range(3):
            recorder.collective("0", state="scheduled", retired=True, time_discovered_completed_ns=None)
        recorder.entries[-1]["retired"] = recorder.rank >= late
    for after in (None, 0.1, 60):
        assert not analyse(dumped(made, after_s=after)).culprits


def test_a_late_rank_is_no_straggler_where_clocks_do_not_agree() -> None:
    apart = 300_000_000
    for skewed in (False, True):
        made = hooks(2)
        for hook in made:
            for _ in range(40):
                hook.clock += 2 * apart
                hook.collective("0")
        made[0].clock = made[1].clock
        for mine, late in zip(made[0].entries, made[1].entries, strict=True):
            late["time_created_ns"] = mine["time_created_ns"] + apart
            # without a skew nobody finishes before the last has come
            ended = mine["time_created_ns"] + (20_000_000 if skewed else apart + 20_000_000)
            mine["time_discovered_completed_ns"] = mine["time_discovered_started_ns"] = ended
            late["time_discovered_completed_ns"] = late["time_discovered_started_ns"] = apart + 20_000_000 + ended
        found = [f.culprit_ranks for f in analyse(dumped(made)).findings if f.kind == "straggler"]
        assert found == ([] if skewed else [(1,)])


def test_a_group_of_which_one_member_is_known_is_not_joined_by_all() -> None:
    """Gloo does not write down who is in a group, and the other member left no dump."""
    made = [Recorder(rank, {"0": ("default_pg", [0, 1, 2]), "1": ("tp", [1, 2])}, library="gloo") for rank in (0, 1)]
    for recorder in made:
        recorder.collective("0", state="scheduled", retired=True, time_discovered_completed_ns=None)
    made[1].collective("1", state="scheduled", retired=False, time_discovered_completed_ns=None)
    dumps = [torch_pickle({**recorder.document(), "pg_config": {}}) for recorder in made]
    sources = [
        SourceFile(f"rank_{i}", "flight-recorder", len(d), None, None, decode_dump(d)) for i, d in enumerate(dumps)
    ]
    found = analyse(assemble(sources, "dumps", None, 3, None)).findings[0]
    assert (found.kind, found.culprit_ranks, found.candidates, found.confidence) == ("missing-rank", (), (2,), "low")
    assert found.title == "rank 1 waits in all_reduce #1 of tp, and no other member left a dump"


def test_an_operation_that_a_hook_retired_at_its_issue_has_not_timed_out() -> None:
    made = hooks(2, library="mpi", blind=True)
    steps(made)
    states = dumped(made).ops.select(state_label().alias("label"))["label"].unique().to_list()
    assert states == ["unknown"]
    assert operation_state(dumped(made).ops.row(0, named=True)) == "its state is not known"
