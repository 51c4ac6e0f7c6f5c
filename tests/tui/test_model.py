"""The lanes: operations, and marks for what is not there, each with its reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis, Divergence, Finding, GroupRef
from rankscope.tui.letters import CHARACTERS, SHIFT, Mark
from rankscope.tui.marks import REASONS
from rankscope.tui.model import Model, build_model
from tests.builders import JobBuilder
from tests.tui.jobs import hang, healthy, model_of


def text(model: Model, rank: int) -> str:
    """The lane of a rank, one character for each column."""
    lane = model.lane_of[rank]
    mine = slice(*model.bounds[lane : lane + 2].tolist())
    out = [" "] * model.width
    for col, code in zip(model.items.col[mine].tolist(), model.items.code[mine].tolist(), strict=True):
        out[col] = chr(CHARACTERS[code])
    return "".join(out)


def reasons(model: Model, rank: int) -> list[str]:
    lane = model.lane_of[rank]
    mine = slice(*model.bounds[lane : lane + 2].tolist())
    marks = model.items.row[mine] < 0
    return [REASONS[number] for number in model.items.reason[mine][marks].tolist()]


def test_the_culprit_is_absent_in_the_column_its_peers_wait_in() -> None:
    model = build_model(*hang(8, 2))
    assert text(model, 0) == "AGRAGRAg"
    assert text(model, 5) == "AGRAGRa!"
    assert text(model, 6) == "AGRAGR!!"
    assert reasons(model, 6) == ["never issued", "never issued"]


def test_only_the_culprit_is_marked_as_one() -> None:
    model = build_model(*hang(8, 2))
    absent = model.items.code[model.items.row < 0]
    lanes = model.items.lane[model.items.row < 0]
    guilty = {int(model.ranks[lane]) for lane, code in zip(lanes, absent, strict=True) if code >> SHIFT == Mark.ABSENT}
    assert guilty == {6}


def test_in_a_job_that_runs_nothing_is_absent() -> None:
    dataset, _ = hang(8, 2)
    for status in ("progressing", "healthy"):
        model = build_model(dataset, Analysis("goes on", status))
        assert "!" not in text(model, 6)


def test_a_healthy_job_has_no_marks() -> None:
    model = build_model(*healthy())
    assert (model.items.row >= 0).all()
    assert text(model, 0) == "AGR" * 6


def test_a_rank_without_a_dump_has_a_lane() -> None:
    model = build_model(*hang(8, 2, no_dump=(6,)))
    assert model.ranks.tolist() == list(range(8))
    assert text(model, 6) == "      ??"
    assert reasons(model, 6) == ["no dump", "no dump"]
    assert model.gap_until[6] == model.width
    assert REASONS[model.gap_reason[6]] == "no dump"


def test_what_a_ring_overwrote_is_a_gap() -> None:
    dataset, analysis = hang(8, 4)
    lost = (pl.col("rank") == 3) & (pl.col("record_id") < 5)
    dataset = replace(
        dataset,
        ops=dataset.ops.filter(~lost),
        files=dataset.files.with_columns(wrapped=pl.col("rank") == 3),
        frontiers=dataset.frontiers.with_columns(
            wrapped=pl.col("rank") == 3,
            first_kept=pl.when((pl.col("rank") == 3) & (pl.col("group") == 0)).then(4).otherwise(pl.col("first_kept")),
        ),
    )
    model = build_model(dataset, analysis)
    assert model.gap_until[3] == 5
    assert REASONS[model.gap_reason[3]] == "overwritten"
    assert text(model, 3)[5:] == text(model, 2)[5:]


def test_an_older_dump_is_not_accused() -> None:
    job = JobBuilder(2)
    job.collective("0")
    job.collective("0", ranks=[0])
    model = model_of(job)
    assert text(model, 1) == "A?"
    assert reasons(model, 1) == ["unknown"]


def test_completed_operations_that_were_left_out_are_filtered() -> None:
    job = JobBuilder(2)
    job.collective("0", ranks=[0], state="scheduled")
    dataset = job.build()
    frontiers = dataset.frontiers.with_columns(
        filtered=pl.lit("only-active", dtype=dataset.frontiers.schema["filtered"]),
        last_enqueued=pl.lit(5, pl.Int64),
    )
    model = build_model(replace(dataset, frontiers=frontiers), Analysis("", "hang"))
    assert reasons(model, 1) == ["filtered"]


def test_what_differs_is_a_mismatch() -> None:
    job = JobBuilder(3)
    job.collective("0", ranks=[0, 1])
    job.collective("0", ranks=[2], op="broadcast")
    wrong = Divergence(0, 1, "all_reduce", (0, 1, 2), (), (), (2,), False, None)
    model = model_of(job, Analysis("", "mismatch", divergences=(wrong,)))
    assert [text(model, rank) for rank in range(3)] == ["A", "A", "*"]


def test_a_receive_that_was_never_posted_is_absent_where_the_sender_waits() -> None:
    job = JobBuilder(2)
    job.collective("0")
    job.p2p("0", 0, 1, "send", state="scheduled")
    finding = Finding(
        "p2p-unmatched", "critical", "", "", root_cause=True, culprit_ranks=(1,),
        group=GroupRef("0", "", (0, 1), key=0), seq=1, op="recv", peer=0,
    )  # fmt: skip
    model = model_of(job, Analysis("", "hang", findings=(finding,)))
    assert text(model, 0) == "As"
    assert text(model, 1) == "A!"


def test_taking_some_lanes_renumbers_them() -> None:
    model = build_model(*hang(8, 2))
    lanes = np.isin(model.ranks, [2, 6])
    part = model.take(lanes, model.items.code > 0)
    assert part.ranks.tolist() == [2, 6]
    assert text(part, 6) == "AGRAGR!!"
    assert part.bounds.tolist() == [0, 8, 16]


def test_a_million_absent_rows_are_not_made_for_ranks_without_a_dump() -> None:
    job = JobBuilder(64)
    job.no_dump = set(range(2, 64))
    for _ in range(30):
        job.collective("0", ranks=[0, 1])
    model = model_of(job)
    assert (model.items.row < 0).sum() == 0
    assert (model.gap_until[2:] == 30).all()


def test_nothing_at_all_makes_an_empty_model() -> None:
    model = model_of(JobBuilder(0))
    assert len(model.ranks) == 0
    assert model.width == 0
