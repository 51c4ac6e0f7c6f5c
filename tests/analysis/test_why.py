"""Every rank gets an answer, and what it says is true of the dumps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.explanations import NoSuchRankError, explain_rank
from rankscope.analysis.model import Analysis, RankExplanation
from rankscope.assemble.load import load
from rankscope.schema import Dataset
from rankscope.schema.tables import FILES, REPEATS
from tests.analysis.jobs import mesh, running
from tests.builders import START_NS, JobBuilder
from tests.simulator.faults import FAULTS
from tests.simulator.options import MODES
from tests.simulator.scenario import make

SECOND = 1_000_000_000


def ask(dataset: Dataset, rank: int) -> RankExplanation:
    return explain_rank(dataset, analyse(dataset), rank)


def told(why: RankExplanation, about: str) -> list[str]:
    return [reason.evidence.text for reason in why.lines if reason.about == about]


def cascade() -> JobBuilder:
    """Rank 3 leaves out a collective with 2; 0 and 1 wait in consequence."""
    job = mesh()
    job.collective("1")
    job.collective("2", ranks=[2], state="scheduled")
    job.collective("3", ranks=[0], state="scheduled")
    job.collective("4", ranks=[1], state="scheduled")
    return job


def test_accused_with_the_rule_the_evidence_and_what_would_clear_it() -> None:
    why = ask(cascade().build(), 3)
    assert (why.rank, why.accused, why.finding) == (3, True, "f1")
    assert why.title == "rank 3 is accused: rank 3 never issued all_reduce #6 of tp"
    assert told(why, "rule")[0].startswith(
        "missing-rank: others wait in a collective that it never issued, and it waits for nothing"
    )
    assert "nothing pending" in told(why, "evidence")[0]
    assert told(why, "state") == ["rank 3, tp: last issued all_reduce #5, completed; last completed #5"]
    assert told(why, "clears") == [
        "a dump just as new, in which it issued all_reduce #6 of tp or waits in another operation"
    ]


def test_waiting_is_told_step_by_step_with_the_records() -> None:
    why = ask(cascade().build(), 0)
    assert (why.accused, why.finding) == (False, "f1")
    assert why.title == "rank 0 is not accused: it waits for rank 2, at the end for rank 3"
    steps = [r.evidence for r in why.lines if r.about == "waits"]
    assert [(e.rank, e.file, e.text) for e in steps] == [
        (0, "nccl_trace_rank_0", "rank 0 waits in all_reduce #6 of dp for rank 2"),
        (2, "nccl_trace_rank_2", "rank 2 waits in all_reduce #6 of tp for rank 3"),
    ]
    assert all(e.record_id is not None for e in steps)
    assert told(why, "root") == ["it ends there: f1 missing-rank: rank 3 never issued all_reduce #6 of tp"]
    assert told(why, "state") == [
        "rank 0, dp: last issued all_reduce #6, pending; last completed #5",
        "rank 3, tp: last issued all_reduce #5, completed; last completed #5; it has nothing pending",
    ]
    assert told(why, "unlike") == ["it is not a member of tp, where the hang began"]


def test_victim_that_also_lacks_something_is_told_why_that_does_not_count() -> None:
    why = ask(cascade().build(), 2)
    assert told(why, "unlike") == ["it issued all_reduce #6 of tp; rank 3 never did"]
    assert told(why, "close") == ["it never issued all_reduce #6 of dp: all_reduce #6 of tp is pending and blocks it"]


def test_healthy_rank() -> None:
    why = ask(running().build(), 1)
    assert (why.accused, why.finding) == (False, None)
    assert why.title.endswith("it does not wait in any operation; its dump holds 10 operations, all of them finished")
    assert told(why, "root")[0].startswith("nobody is accused: 4 ranks, no divergence")


def test_rank_that_does_not_exist() -> None:
    dataset = running().build()
    with pytest.raises(NoSuchRankError, match=r"^there is no rank 4: the job has 4 ranks, 0 to 3$"):
        ask(dataset, 4)
    with pytest.raises(NoSuchRankError):
        ask(dataset, -1)
    with pytest.raises(NoSuchRankError, match="no rank of the job is known"):
        ask(dataclasses.replace(JobBuilder(0).build(), world_size=0), 0)


def test_rank_without_a_dump() -> None:
    job = running()
    job.no_dump = {1}
    job.collective(ranks=[0, 2, 3], state="scheduled")
    accused = ask(job.build(), 1)
    assert (accused.accused, told(accused, "state")) == (True, [])
    assert "a rank without a dump is accused only then" in told(accused, "rule")[0]
    assert told(ask(job.build(), 0), "unlike") == ["it issued all_reduce #11 of default_pg"]
    other = running()
    other.no_dump = {1}
    other.collective(ranks=[0, 3], state="scheduled")
    spared = ask(other.build(), 1)
    assert (spared.accused, spared.title) == (
        False, "rank 1 is not accused: it left no dump, and the recorded operations explain the wait without it",
    )  # fmt: skip


def test_rank_that_no_group_names() -> None:
    dataset = dataclasses.replace(running().build(), world_size=6)
    assert ask(dataset, 5).title.endswith("no group lists it: it may not be part of the job")


def test_dump_that_could_not_be_read_is_named() -> None:
    job = running()
    job.no_dump = {1}
    dataset = job.build()
    row = {"file": 9, "path": "rank_1", "kind": "flight-recorder", "rank": 1, "problem": "empty", "used": False}
    files = pl.concat([dataset.files, pl.DataFrame([row], schema=FILES)])
    (reason,) = [r for r in ask(dataclasses.replace(dataset, files=files), 1).lines if r.about == "close"]
    assert (reason.evidence.file, reason.evidence.text) == ("rank_1", "empty")


def test_device_that_stopped() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3])
    job.collective(ranks=[2], state="scheduled")
    job.collective(ranks=[0, 1, 3], state="scheduled")
    assert told(ask(job.build(), 2), "rule")[0].startswith("gpu-stuck: it issued what its peers issued")
    assert told(ask(job.build(), 0), "unlike") == ["it finished all_reduce #11 of default_pg; rank 2 did not"]


def test_mismatch_names_who_fits() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    job.collective(ranks=[2], op="broadcast", state="scheduled")
    assert told(ask(job.build(), 0), "unlike") == [
        "its operation at all_reduce #11 of default_pg fits the others; that of rank 2 does not"
    ]
    assert "the minority is accused" in told(ask(job.build(), 2), "rule")[0]


def test_only_the_moving_job_holds_the_accusation_back() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3], state="scheduled")
    dataset = job.build()
    written = pl.lit(START_NS + 200_000_000)
    why = ask(dataclasses.replace(dataset, files=dataset.files.with_columns(mtime_ns=written)), 2)
    assert not why.accused
    (held, never) = told(why, "close")
    assert held.startswith("it would be accused if the job had stopped: the dumps were written within")
    assert never == "it never issued all_reduce #11 of default_pg"


def test_candidate_of_a_finding_that_accuses_another() -> None:
    job = running(8)
    job.collective(ranks=[0], op="barrier", state="scheduled")
    why = ask(job.build(), 4)
    assert told(why, "close")[0].startswith("it is a candidate of f1 extra-collective: or ranks 1-7 are stuck")


def test_older_dump_is_told() -> None:
    job = running(4, 20)
    for _ in range(2):
        job.collective(ranks=[0, 1, 2], delay_ns=30 * SECOND, state="completed")
    job.collective(ranks=[0, 1, 2], state="scheduled")
    dataset = job.build()
    times = pl.when(pl.col("rank") == 3).then(START_NS + SECOND).otherwise(START_NS + 3600 * SECOND)
    why = ask(dataclasses.replace(dataset, files=dataset.files.with_columns(mtime_ns=times)), 3)
    assert not why.accused
    assert told(why, "close") == [
        "it is a candidate of f1 missing-rank: an old dump does not show what the rank did afterwards; the dumps "
        "were taken at different times",
        "its dump does not show whether it issued all_reduce #23 of default_pg, so the gap is not held against it",
        "its dump was written 59 s before the newest operation of the job was issued",
    ]


def test_two_dumps_of_a_rank_are_told() -> None:
    dataset = cascade().build()
    rows = [
        {"rank": r, "file": 9, "written_ns": START_NS, "later_ns": START_NS + 60 * SECOND, "progressed": r == 3}
        for r in range(4)
    ]
    twice = dataclasses.replace(dataset, repeats=pl.DataFrame(rows, schema=REPEATS))
    assert "two dumps of it, 1 min apart, show the same" in told(ask(twice, 0), "close")
    all_still = dataclasses.replace(twice, repeats=twice.repeats.with_columns(progressed=pl.lit(False)))
    assert "two dumps of it, 1 min apart, show the same" in told(ask(all_still, 3), "evidence")
    assert any("its operations went on" in text for text in told(ask(twice, 3), "against"))


def test_everybody_joined_and_nobody_finishes() -> None:
    job = running()
    job.collective(state="scheduled")
    why = ask(job.build(), 1)
    assert why.title == "rank 1 is not accused: it waits in all_reduce #11, as all members do"


def test_pending_with_nobody_to_explain_it() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3])
    job.collective(ranks=[2], state="started")
    assert ask(job.build(), 2).title.endswith("it waits in all_reduce #11, and these dumps do not show why")


def test_other_side_of_a_receive_that_was_never_posted() -> None:
    job = running()
    job.p2p("0", 0, 1, "send", state="scheduled")
    why = ask(job.build(), 0)
    assert told(why, "unlike") == ["it posted its side of send #1 of default_pg; rank 1 did not"]
    assert told(why, "state")[0].startswith("rank 0, default_pg: last issued send to 1, pending")
    assert "one side of a send and receive" in told(ask(job.build(), 1), "rule")[0]


def test_straggler() -> None:
    job = JobBuilder(4)
    for step in range(30):
        for rank in range(4):
            created = START_NS + step * 200_000_000 + (50_000_000 if rank == 3 else rank * 1000)
            job.collective(ranks=[rank], created_ns=created, completed_ns=START_NS + step * 200_000_000 + 60_000_000)
    why = ask(job.build(), 3)
    assert (why.accused, told(why, "rule")[0][:10]) == (True, "straggler:")


@pytest.mark.parametrize("fault", FAULTS)
def test_every_rank_of_a_job_gets_an_answer_that_agrees_with_the_findings(fault: str, tmp_path: Path) -> None:
    make(fault, 2).write(tmp_path, MODES["wrapped"])
    dataset = load([tmp_path])
    analysis = analyse(dataset)
    for rank in range(dataset.world_size):
        why = explain_rank(dataset, analysis, rank)
        assert why.accused == any(rank in f.culprit_ranks for f in analysis.findings)
        assert why.finding in {None, *(f.id for f in analysis.findings)}
        assert all(reason.evidence.text for reason in why.lines)
        assert told(why, "rule" if why.accused else "root")


def test_abort_is_told_as_such() -> None:
    job = running()
    job.collective(ranks=[0, 1, 3], completed_ns=START_NS + 700 * SECOND, timeout_ms=600_000)
    assert told(ask(job.build(), 0), "state")[0].startswith(
        "rank 0, default_pg: last issued all_reduce #11, aborted after its timeout"
    )


def check_whys(dataset: Dataset, analysis: Analysis) -> None:
    """The ranks of the headline are accused, all others are not, and no sentence contradicts it."""
    for rank in range(min(dataset.world_size or 8, 16)):
        try:
            why = explain_rank(dataset, analysis, rank)
        except NoSuchRankError:
            assert rank not in analysis.culprits
            continue
        text = " ".join((why.title, *(reason.evidence.text for reason in why.lines)))
        if analysis.culprits:
            assert why.accused == (rank in analysis.culprits), why.title
        asked = next((f for f in analysis.findings if rank in f.candidates and not f.caused_by), None)
        if asked is not None and not why.accused:
            assert asked.title in why.title and "the cause is elsewhere" not in text
            assert "no rank is seen waiting for it" not in text and "may not be part of the job" not in text


LATE = """[rank{rank}]:[E410 09:00:00.000000000 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=912, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600029 \
milliseconds before timing out.
"""


@pytest.mark.parametrize("ranks", [(1, 2, 3), (0, 1, 2, 3), (2,)])
def test_whys_of_a_log_say_what_its_headline_says(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    (tmp_path / "job.log").write_text(
        "node:1:1 [0] NCCL INFO comm 0x1 rank 1 nranks 4 cudaDev 0 busId 1 commId 0x2 - Init COMPLETE\n"
        + "".join(LATE.format(rank=rank) for rank in ranks)
    )
    dataset = load([tmp_path])
    check_whys(dataset, analyse(dataset))


@pytest.mark.parametrize("text", ["srun: error: node07: task 5: Out Of Memory\n"])
def test_a_rank_that_only_a_headline_names_has_a_why(tmp_path: Path, text: str) -> None:
    (tmp_path / "slurm.out").write_text(text)
    dataset = load([tmp_path])
    analysis = analyse(dataset)
    assert analysis.culprits == (5,) and explain_rank(dataset, analysis, 5).accused


def test_whys_of_dumps_say_what_their_headline_says() -> None:
    for job in (cascade(), mesh(), running()):
        dataset = job.build() if isinstance(job, JobBuilder) else job
        check_whys(dataset, analyse(dataset))


def test_what_is_found_beside_a_cause_is_no_accusation() -> None:
    dataset = cascade().build()
    analysis = analyse(dataset)
    first = next(f for f in analysis.findings if f.root_cause)
    beside = dataclasses.replace(first, id="f9", root_cause=False, severity="warning", title="late", culprit_ranks=(0,))
    why = explain_rank(dataset, dataclasses.replace(analysis, findings=(*analysis.findings, beside)), 0)
    assert not why.accused and why.title == "rank 0 is not accused: it is not the cause, but f9 is about it: late"
