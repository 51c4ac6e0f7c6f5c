"""Who is named where processes noted how they ended."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from rankscope.assemble.sources import SourceFile
from rankscope.features.stacks.captured_stacks import decode_captured
from rankscope.schema.tables import AT_CRASH
from tests.builders import JobBuilder
from tests.features.logs.rules.processes import SECOND, Processes, closed, waited
from tests.parsers.dumps import FRAMES, START_NS


def roots(found: Analysis) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.kind, f.culprit_ranks) for f in found.findings if f.root_cause]


def root(found: Analysis) -> Finding:
    (one,) = (f for f in found.findings if f.root_cause)
    return one


def candidates(found: Analysis) -> tuple[int, ...]:
    assert roots(found) == []
    return next((f.candidates for f in found.findings if f.severity == "critical"), ())


def test_a_job_whose_processes_all_came_to_their_end_is_well() -> None:
    made = Processes(3)
    for rank in range(3):
        made.end(rank, 5 + rank)
    assert (made.analysis().status, made.analysis().findings) == ("healthy", ())


@pytest.mark.parametrize("tracebacks", [True, False])
def test_who_failed_of_itself_is_named_and_not_who_lost_its_connection(tracebacks: bool) -> None:
    made = Processes(4)
    made.issue(0, 1, 3)
    made.fail(ValueError("bad sample index 17"), 2, at_s=5)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    found = made.analysis(tracebacks)
    assert roots(found) == [("rank-failed", (2,))]
    assert "ValueError: bad sample index 17" in found.verdict
    assert set(root(found).waiting_ranks) == {0, 1, 3}


def test_of_two_that_failed_the_first_leads_and_the_other_is_a_candidate() -> None:
    made = Processes(4)
    made.fail(ValueError("bad sample index 17"), 2, at_s=5)
    made.fail(KeyError("optimizer_state"), 1, at_s=5.05)
    made.fail(closed(), 0, 3, at_s=5.1)
    found = root(made.analysis())
    assert (found.culprit_ranks, found.candidates, found.confidence) == ((2,), (1,), "medium")


def test_who_left_early_is_named() -> None:
    made = Processes(4)
    made.issue(0, 1, 3)
    made.end(2, 5)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    found = made.analysis()
    assert (roots(found), root(found).confidence) == ([("rank-failed", (2,))], "high")
    assert "came to the end of its program" in found.verdict
    assert root(found).evidence[0].file == "capture_rank_2.json"
    assert (root(found).seq, root(found).op) == (4, "all_reduce")
    assert "Rank 0 was in all_reduce #4 of default_pg then." in root(found).explanation


def test_clocks_of_two_hosts_that_are_close_only_make_a_candidate() -> None:
    made = Processes(4, hosts=2)
    made.issue(0, 1, 3)
    made.end(2, 5)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    assert candidates(made.analysis()) == (2,)


def test_a_dump_from_before_the_end_does_not_tell_what_was_never_issued() -> None:
    made = Processes(4)
    made.without_last_dump = {2}
    made.issue(0, 1, 3)
    made.end(2, 5)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    assert candidates(made.analysis()) == (2,)


def test_who_waited_where_a_watchdog_aborts_is_only_a_candidate() -> None:
    made = Processes(4, library="nccl")
    for rank in (0, 1, 2):
        made.recorders[rank].collective("0", state="started")
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    assert (2,) not in [f.culprit_ranks for f in made.analysis().findings if f.root_cause]


def test_who_had_issued_all_that_the_others_did_has_not_left_early() -> None:
    made = Processes(4)
    made.end(2, 5)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    assert roots(made.analysis()) == []


def test_who_went_on_alone_after_the_others_had_ended_is_the_odd_one() -> None:
    made = Processes(4)
    made.issue(1)
    for rank in (0, 2, 3):
        made.end(rank, 5)
    made.fail(closed(), 1, at_s=5.01)
    assert roots(made.analysis()) == [("extra-collective", (1,))]


def test_the_last_to_end_whom_the_others_did_not_wait_for_is_not() -> None:
    made = Processes(4)
    for rank in (0, 2, 3):
        made.end(rank, 5)
    made.fail(closed(), 1, at_s=5.01)
    assert roots(made.analysis()) == []


def test_of_two_ranks_either_may_be_wrong() -> None:
    made = Processes(2)
    made.issue(0)
    made.end(1, 5)
    made.fail(closed(), 0, at_s=5.01)
    assert candidates(made.analysis()) == (0, 1)


def test_a_process_that_could_not_note_its_end_was_killed() -> None:
    made = Processes(4)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    found = made.analysis()
    assert (roots(found), root(found).confidence) == ([("rank-failed", (2,))], "medium")
    assert "no record of how it ended" in found.verdict


def test_a_silent_rank_that_took_its_stacks_in_a_crash_has_crashed() -> None:
    made = Processes(4)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    job = JobBuilder(4)
    job.thread(2, [("step", "train.py", 9)], tool=AT_CRASH)
    threads = job.build().threads
    found = analyse(replace(made.dataset(), threads=threads))
    assert (roots(found), root(found).confidence) == ([("rank-failed", (2,))], "high")
    assert "rank 2 crashed, and the others lost their connection to it" in found.verdict


def stacks(rank: int, *frames: str, crash: bool) -> SourceFile:
    """A file of stacks that the capture leaves: `frames` of the main thread, innermost first."""
    thread = "\n".join(["Thread 0x00000000000000a1 (most recent call first):", *(f"  File {f}" for f in frames)])
    facts: dict[str, object] = {"rankscope_stacks": 1, "rank": rank, "pid": 100 + rank}
    moment = {
        "calls": "sleep",
        "reason": "standstill",
        "still_s": 61.0,
        "stall_after": 60.0,
        "time_ns": START_NS + 61 * SECOND,
    }
    head = json.dumps(facts if crash else facts | moment)
    text = f"{head}\nFatal Python error: Aborted\n\n{thread}\n" if crash else f"{head}\n{thread}\n--\n"
    snapshot = decode_captured(text.encode())
    return SourceFile(f"stacks_rank_{rank}.txt", "py-spy", 1, None, None, snapshot)


IN_ALL_REDUCE = '"/x/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce'


def crashed_in_gloo(line: int) -> Finding:
    made = Processes(4, steps=0)
    for recorder in made.recorders:
        recorder.frames = FRAMES[1:]
    made.issue(*range(4))
    made.issue(0, 1, 3)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    file = stacks(2, IN_ALL_REDUCE, f'"train.py", line {line} in train', crash=True)
    (found,) = (f for f in analyse(made.dataset(more=(file,))).findings if f.root_cause)
    assert (found.kind, found.culprit_ranks) == ("rank-failed", (2,))
    return found


def test_a_rank_that_gloo_aborts_at_the_line_of_the_others_may_have_met_the_wrong_size_of_another() -> None:
    found = crashed_in_gloo(88)
    assert found.confidence == "medium"
    assert found.confidence_reasons == ("the rank at the other end may be the one whose size is wrong",)


def test_a_rank_that_gloo_aborts_at_a_line_of_its_own_left_the_way_of_the_others() -> None:
    found = crashed_in_gloo(150)
    assert found.confidence == "high"
    assert "from train.py:150, and the others from train.py:88" in found.explanation


def test_a_rank_that_gloo_aborts_some_collectives_behind_the_others_is_at_no_line_of_its_own() -> None:
    made = Processes(4)
    for frames in (FRAMES[1:], [{"name": "train", "filename": "train.py", "line": 89}]):
        for recorder in made.recorders:
            recorder.frames = frames
        made.issue(0, 1, 3)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    file = stacks(2, IN_ALL_REDUCE, '"train.py", line 88 in train', crash=True)
    assert root(analyse(made.dataset(more=(file,)))).confidence == "medium"


def test_where_no_collective_is_recorded_the_rank_that_did_not_give_up_did_not_come() -> None:
    made = Processes(4, steps=0)
    made.fail(waited(), 0, 1, 3, at_s=65)
    made.end(2, 66, "terminated")
    found = root(made.analysis())
    assert (found.kind, found.culprit_ranks, found.confidence) == ("missing-rank", (2,), "medium")


def test_a_rank_that_waited_for_a_connection_while_the_others_gave_up_is_only_a_candidate() -> None:
    made = Processes(4, steps=0)
    made.fail(waited(), 0, 1, 3, at_s=65)
    made.end(2, 66, "terminated")
    setup = '"/x/site-packages/torch/distributed/distributed_c10d.py", line 2100 in _new_process_group_helper'
    file = stacks(2, setup, '"train.py", line 12 in setup', crash=False)
    assert candidates(analyse(made.dataset(more=(file,)))) == (2,)


def test_where_no_recorder_holds_a_send_the_rank_that_stood_in_its_own_code_did_not_come() -> None:
    made = Processes(4)
    made.fail(waited(), 0, 1, 3, at_s=65)
    made.end(2, 66, "terminated")
    assert candidates(made.analysis()) == (), "it issued all that the others did"
    file = stacks(2, '"train.py", line 75 in read_more', '"train.py", line 86 in step', crash=False)
    found = root(analyse(made.dataset(more=(file,))))
    assert (found.culprit_ranks, found.confidence) == ((2,), "high")
    assert found.explanation.endswith("Its stack, taken while it stood still, shows it sleeping.")


def test_a_rank_that_ended_well_may_have_closed_the_connections_and_not_the_one_that_noted_nothing() -> None:
    made = Processes(4)
    made.end(3, 5)
    made.fail(closed(), 0, 1, at_s=5.01)
    assert candidates(made.analysis()) == (2,)


def test_of_two_that_noted_nothing_one_was_killed() -> None:
    made = Processes(5)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    assert candidates(made.analysis()) == (2, 4)


def test_who_left_no_word_where_sigterm_ended_all_others_may_have_been_first() -> None:
    made = Processes(4)
    for rank in (0, 1, 3):
        made.end(rank, 5, "terminated")
    found = made.analysis()
    assert (candidates(found), found.status) == ((2,), "failed")
    assert "rank 2 left no record of how it ended; the others were ended by SIGTERM" in found.verdict
    made.issue(2, at_s=9)
    assert candidates(made.analysis()) == (), "it was still there"


@pytest.mark.parametrize("reasons", [["terminated"] * 2, ["terminated", "terminated", "exit"], ["interrupted"] * 3])
def test_where_somebody_may_have_ended_the_job_nobody_is_suspected(reasons: list[str]) -> None:
    made = Processes(4)
    for rank, reason in enumerate(reasons):
        made.end(rank, 5, reason)
    assert candidates(made.analysis()) == ()


def test_who_alone_was_terminated_first_is_named() -> None:
    made = Processes(4)
    made.issue(0, 1, 3)
    made.end(2, 5, "terminated")
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    assert roots(made.analysis()) == [("rank-failed", (2,))]


@pytest.mark.parametrize("reason", ["terminated", "interrupted"])
def test_a_job_that_somebody_ended_has_no_culprit(reason: str) -> None:
    made = Processes(4)
    for rank in (0, 1, 2):
        made.end(rank, 5, reason)
    made.fail(closed(), 3, at_s=5.01)
    assert roots(made.analysis()) == []


def test_a_launcher_that_ends_the_rest_hides_nobody() -> None:
    made = Processes(5)
    made.fail(closed(), 0, 1, at_s=5.01)
    made.end(3, 6, "terminated")
    made.end(4, 6, "terminated")
    assert roots(made.analysis()) == [("rank-failed", (2,))]


def test_harm_that_a_program_words_anew_is_harm() -> None:
    made = Processes(4)
    for rank in (0, 1, 3):
        try:
            try:
                raise closed()
            except RuntimeError:
                raise ValueError("step failed") from None
        except ValueError as error:
            made.fail(error, rank, at_s=5.01)
    assert roots(made.analysis()) == [("rank-failed", (2,))]


def test_what_a_program_got_over_does_not_excuse_its_own_exception() -> None:
    made = Processes(4)
    try:
        try:
            raise KeyError("cache")
        except KeyError:
            raise ValueError("bad sample") from None
    except ValueError as error:
        made.fail(error, 2, at_s=5)
    made.fail(closed(), 0, 1, 3, at_s=5.01)
    assert roots(made.analysis()) == [("rank-failed", (2,))]


def test_who_did_not_come_before_the_others_gave_up_is_named() -> None:
    made = Processes(4)
    made.issue(0, 1, 3)
    made.fail(waited(), 0, 1, at_s=11)
    made.fail(closed(), 3, at_s=11.01)
    assert roots(made.analysis()) == [("missing-rank", (2,))]
    made.end(2, 41, "terminated")
    assert roots(made.analysis()) == [("missing-rank", (2,))]


def test_who_came_when_the_others_had_given_up_is_named() -> None:
    made = Processes(4)
    made.issue(0, 1, 3, at_s=1)
    made.issue(2, at_s=13)
    made.fail(waited(), 0, 1, 3, at_s=7)
    made.fail(closed(), 2, at_s=13.01)
    found = made.analysis()
    assert roots(found) == [("missing-rank", (2,))]
    assert "too late" in found.verdict


def test_who_was_there_all_the_time_is_not_late() -> None:
    made = Processes(4)
    made.issue(0, 1, 2, 3, at_s=1)
    made.fail(waited(), 0, 1, 2, 3, at_s=7)
    assert roots(made.analysis()) == []


def test_an_exception_before_there_is_a_process_group_is_told_without_any_dump() -> None:
    made = Processes(4, steps=0)
    for card in made.cards:
        card.dumps, card.groups = set(), []
    made.fail(ValueError("no such device"), 1, at_s=2)
    found = made.dataset()
    assert (found.world_size, found.messages.filter(found.messages["kind"] == "process-end").height) == (4, 1)
    assert roots(made.analysis()) == [("rank-failed", (1,))]
