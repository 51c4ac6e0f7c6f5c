"""What the lists of groups, files, members and findings hold and in which order."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rankscope.analysis.model import Divergence, Finding
from rankscope.tui.detail.detail_text import compact, expanded, launched
from rankscope.tui.detail.finding_text import full_text, short_text
from rankscope.tui.detail.group_states import group_states
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.peers import collective
from rankscope.tui.detail.screens.files_page import FILE_COLUMNS, file_detail, ordered_files
from rankscope.tui.detail.screens.findings_page import FINDING_COLUMNS
from rankscope.tui.detail.screens.groups_page import group_detail, parting, span_text
from rankscope.tui.detail.screens.member_page import Roster, counts
from rankscope.tui.detail.selection_facts import finding_of, look_up
from rankscope.tui.selection import Selection
from tests.builders import START_NS, JobBuilder
from tests.tui.detail.goldens import absent
from tests.tui.detail.samples import CULPRIT, DP, LAST_SEQ, QUIET, STUCK, TP, hang, large


def test_groups_that_part_by_themselves_come_first() -> None:
    dataset, analysis = hang()
    states = group_states(dataset, analysis)
    assert [state.group.id for state in states] == [TP, DP, 0]
    assert [span_text(state.reached) for state in states] == ["#4-5", "#4-5", "#0"]
    assert states[1].cause == analysis.findings[0].title
    assert states[0].cause == states[2].cause == ""
    assert [state.rank_first for state in states] == [CULPRIT, 4, 0]


def test_a_group_tells_where_it_parts() -> None:
    def said(**more: tuple[int, ...]) -> str:
        nobody: dict[str, tuple[int, ...]] = {"joined": (4,), "absent": (), "unknown": (), "differing": ()}
        parted = Divergence(TP, 5, "all_reduce", consequence=False, pending_since_ns=None, **(nobody | more))
        return parting(parted)

    assert said(absent=(6,)) == "6 never issued #5 all_reduce"
    assert said(differing=(5, 6)) == "5,6 differ in #5 all_reduce"
    assert said(unknown=(7,)) == "7 not known in #5 all_reduce"
    assert said() == "unfinished, all joined #5 all_reduce"
    assert span_text(None) == "-"


def test_the_detail_of_a_group_says_what_it_rests_on() -> None:
    dataset, analysis = hang()
    state = group_states(dataset, analysis)[1]
    inferred = replace(state, group=replace(state.group, membership="inferred", has_p2p=True))
    text = "\n".join(parts.plain for parts in group_detail(inferred, 80))
    assert "inferred from who has entries" in text
    assert "follows from rank 6 never issued" in text
    assert "numbers of their own" in text


def test_files_with_problems_and_guesses_come_first() -> None:
    dataset, _ = hang()
    rank = pl.col("rank")
    files = dataset.files.with_columns(
        problem=pl.when(rank == 5).then(pl.lit("cut off after 3 entries")),
        rank_source=pl.when(rank == 3).then(pl.lit("guess")).otherwise(pl.lit("name")).cast(pl.Enum(["guess", "name"])),
        used=rank != 2, filtered=pl.when(rank == 3).then(pl.lit("only-active")), wrapped=rank == 3,
    )  # fmt: skip
    ordered = ordered_files(replace(dataset, files=files))
    assert ordered["rank"].to_list() == [5, 3, 0, 1, 2, 4, 6, 7]
    lines = [FILE_COLUMNS.line(row, 80).plain for row in ordered.iter_rows(named=True)]
    assert lines[0].startswith("~")
    assert "GUESSED" in lines[1]
    about = " ".join(parts.plain for parts in file_detail(ordered.row(1, named=True)))
    assert "ring wrapped" in about
    assert "only active entries" in about


def test_a_file_of_which_nothing_is_known_has_a_line() -> None:
    dataset, _ = hang()
    nothing = [pl.lit(None, kind).alias(name) for name, kind in dataset.files.schema.items() if name != "path"]
    row = dataset.files.head(1).with_columns(nothing).with_columns(used=False).row(0, named=True)
    assert "nccl_trace_rank_0" in FILE_COLUMNS.line(row, 80).plain
    assert file_detail(row)[0].plain == "nccl_trace_rank_0"


def test_a_roster_lists_ranks_or_what_they_did() -> None:
    dataset, analysis = hang()
    roster = Roster(collective(OpIndex(dataset), analysis, TP, LAST_SEQ))
    assert roster.usual == "all_reduce [4096,1024] bf16"
    assert roster.toggle(0) == 0
    for wanted, ranks in (("6,4", [(6,), (4,)]), ("pending", [(4, 5, 7)]), ("bf16", [(4, 5, 7)]), ("zzz", [])):
        roster.wanted = wanted
        roster.list_entries()
        assert [one.ranks for one in roster.entries] == ranks


def test_what_is_usual_is_not_repeated_in_the_list() -> None:
    dataset, analysis = hang()
    roster = Roster(collective(OpIndex(dataset), analysis, TP, LAST_SEQ))
    columns = roster.columns(dataset)
    usual = columns.line(roster.entries[1], 121).plain
    assert "all_reduce" not in usual
    odd = replace(roster.entries[1], differs=True)
    assert "all_reduce [4096,1024] bf16" in columns.line(odd, 121).plain


def test_members_are_counted_by_why_they_are_not_there() -> None:
    job = JobBuilder(4)
    job.collective(ranks=[0, 1], state="scheduled")
    job.no_dump = {3}
    peers = collective(OpIndex(job.build()), STUCK, 0, 1)
    assert counts(peers) == "2 of 4 issued it, 1 never issued, 1 no dump"


def test_a_finding_about_the_cell_comes_before_the_one_that_is_shown() -> None:
    _, analysis = hang()
    assert finding_of(analysis, absent()) is analysis.findings[0]
    assert finding_of(analysis, Selection(0, None, DP, 5, finding=0)) is analysis.findings[2]
    assert finding_of(analysis, Selection(0, None, DP, 1, finding=1)) is analysis.findings[1]
    assert finding_of(analysis, Selection(0, finding=99)) is None
    assert finding_of(QUIET, absent()) is None


def test_a_finding_says_who_else_it_may_be_and_what_caused_it() -> None:
    _, analysis = hang()
    text = "\n".join(parts.plain for parts in short_text(analysis, analysis.findings[0], 60))
    assert "rank 7 may be to blame instead" in text
    assert "medium: timing is off" in text
    caused = "\n".join(parts.plain for parts in short_text(analysis, analysis.findings[2], 60))
    assert "caused by  f1: rank 6 never issued" in caused
    assert "confidence" not in caused


def test_a_finding_of_any_length_fits_its_width_and_is_cut() -> None:
    finding = Finding("straggler", "warning", "x " * 50, "y" * 300, next_steps=tuple(f"step {i}" for i in range(500)))
    lines = full_text(QUIET, finding, {}, 60)
    assert max(parts.cell_len for parts in lines) <= 60
    assert lines[-1].plain.strip() == "(300 lines more in the JSON report)"


def test_a_line_of_a_finding_has_its_kind_where_there_is_room() -> None:
    _, analysis = hang()
    assert "missing-rank" not in FINDING_COLUMNS.line((0, analysis.findings[0]), 80).plain
    assert "missing-rank" in FINDING_COLUMNS.line((0, analysis.findings[0]), 140).plain


def test_a_late_rank_is_told_so_and_one_that_differs_what_others_issued() -> None:
    job = JobBuilder(4)
    for rank in range(4):
        job.collective(ranks=[rank], delay_ns=80_000_000 * (rank == 2), sizes="[[3]]" if rank == 1 else "[[64]]")
    index = OpIndex(job.build())
    said = [
        "\n".join(parts.plain for parts in compact(look_up(index, QUIET, index.last_operation(r)), 80))
        for r in range(3)
    ]
    assert "DIFFERS 1 issued all_reduce [3] f32" in said[0]
    assert "late    2 +80 ms" in said[0]
    assert "DIFFERS 3 others issued all_reduce [64] f32" in said[1]
    assert "late    +80 ms behind the first" in said[2]


def test_log_lines_around_the_operation_are_looked_up() -> None:
    dataset, analysis = hang()
    rows = [(START_NS + i * 1_000_000 + 300_000, CULPRIT, f"line {i}") for i in range(40)] + [
        (None, CULPRIT, "undated")
    ]
    table = pl.DataFrame(rows, schema={"time_ns": pl.Int64, "rank": pl.Int32, "text": pl.String}, orient="row")
    messages = pl.concat([dataset.messages, table], how="diagonal")
    (part,) = look_up(OpIndex(replace(dataset, messages=messages)), analysis, absent()).parts
    said = [parts.plain.split("  ")[-1].strip() for parts in part.section(80)]
    assert said == ["log", *(f"line {i}" for i in range(1, 7))]


def test_many_ranks_are_looked_up_as_few_entries() -> None:
    dataset = large(16_384, absent=(77,))
    detail = look_up(OpIndex(dataset), STUCK, Selection(77, None, 0, 2, absence="never issued"))
    assert len(detail.folds) == 2
    assert len(group_states(dataset, STUCK)) == 1


def test_rows_in_which_much_is_missing_are_looked_up() -> None:
    job = JobBuilder(2)
    job.collective(state="scheduled")
    job.p2p("0", 0, 1, "send", state="scheduled")
    dataset = job.build()
    kept = ("rank", "is_p2p", "coalesced", "record_id")
    nothing = [pl.lit(None, kind).alias(name) for name, kind in dataset.ops.schema.items() if name not in kept]
    index = OpIndex(replace(dataset, ops=dataset.ops.with_columns(nothing)))
    for row in range(3):
        detail = look_up(index, STUCK, index.selection(row))
        assert compact(detail, 80)
        assert expanded(detail, STUCK, 50)


def test_a_closer_names_what_it_launched() -> None:
    job = JobBuilder(3)
    for _ in range(2):
        job.collective(op="all_gather", coalesced="inner", seq=1)
    job.collective(op="coalesced", coalesced="closer", seq=1, sizes="[]")
    job.p2p("0", 0, 1, "send", coalesced="inner", p2p_seq=1)
    job.p2p("0", 0, 2, "recv", coalesced="inner", p2p_seq=1)
    job.p2p("0", 0, 1, "coalesced", coalesced="closer", p2p_seq=1)
    job.rows[-1]["peer"] = None
    index = OpIndex(job.build())
    gathered, exchanged = (look_up(index, QUIET, index.selection(row)) for row in (2, 5))
    assert launched(gathered) == "all_gather x2 [64] f32"
    assert launched(exchanged) == "send to 1 [8] f32, recv from 2 [8] f32"
    assert "all_gather x2" in compact(gathered, 120)[0].plain
    assert launched(look_up(index, QUIET, index.selection(3))) == ""
