"""The lines of text around the lanes: title, verdict, ruler, overview, status, keys."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from rich.text import Text

from rankscope.analysis.model import Analysis, Finding, Severity
from rankscope.schema import ReadParts
from rankscope.tui.actions import ACTIONS, FOOTER, footer_keys, hint_line, lane_hints
from rankscope.tui.axis import View, fit, group_ticks, sequence_ruler, time_ruler
from rankscope.tui.filters import Filter
from rankscope.tui.footer import Found, distance, in_lines, joined, lane_words, overview_line, status_line
from rankscope.tui.header import finding_text, title_line, verdict_lines
from rankscope.tui.help_screen import help_lines, sections
from rankscope.tui.model import build_model
from rankscope.tui.options import Progress
from rankscope.tui.overview import TABLE, sequence_strip, time_strip, worst_by_column
from rankscope.tui.shown_operations import ShownOperations
from rankscope.tui.text_bars import end_of, progress_line, shortened
from rankscope.tui.times import build_times
from tests.builders import START_NS
from tests.tui.jobs import hang, healthy


def text(line: Text) -> str:
    return line.plain


def title(width: int = 80, **change: object) -> str:
    dataset, analysis = hang(16, 10)
    return text(title_line(replace(dataset, **change), analysis, width, zone=UTC)).rstrip()  # type: ignore[arg-type]


def test_the_title_says_how_the_job_is() -> None:
    assert title() == " rankscope dumps  16 ranks  5 groups  HANG since 22:13:20, still 10 min"


def test_the_status_stays_when_there_is_no_room() -> None:
    assert title(64) == " rankscope dumps  16 ranks  HANG since 22:13:20, still 10 min"
    long = title(70, root="/scratch/jobs/4711/attempt_3/dumps")
    assert long == " rankscope ../dumps  16 ranks  HANG since 22:13:20, still 10 min".replace(
        "../dumps", "..mpt_3/dumps"
    )
    assert len(long) <= 70


def test_the_title_says_what_is_missing() -> None:
    dataset, _ = hang(16, 10)
    unread = pl.concat([dataset.files, dataset.files.head(1).with_columns(used=pl.lit(False), problem=pl.lit("empty"))])
    attempts = pl.DataFrame({"attempt": [0, 1]})
    line = title(120, world_size=20, files=unread, attempts=attempts, root="a\x1b[31mb")
    assert line.startswith(r" rankscope a\x1b[31mb  16 of 20 ranks  5 groups  attempt 1/2  1 file unread  HANG")
    unknown = unread.tail(1).with_columns(kind=pl.lit("unknown").cast(unread.schema["kind"]))
    files = pl.concat([unread, unknown, unknown])
    line = title(140, world_size=20, files=files, attempts=attempts)
    assert "  5 groups  attempt 1/2  2 unknown files  1 file unread  HANG" in line
    # which are not so likely to be a dump
    assert title(95, world_size=20, files=files).count("unknown") == 0
    assert "1 file unread" in title(95, world_size=20, files=files)


def test_a_healthy_job_has_no_times_in_its_title() -> None:
    dataset, analysis = healthy()
    assert text(title_line(dataset, analysis, 80)).endswith("  HEALTHY ")


def sureness(width: int, index: int = 0, severity: Severity = "critical", *, whole_follows: bool = False) -> str:
    """The end of the title over a finding."""
    dataset, analysis = hang(16, 10)
    doubtful = replace(analysis.findings[index], confidence="low", severity=severity)
    findings = [doubtful if at == index else finding for at, finding in enumerate(analysis.findings)]
    dataset = replace(dataset, parts=ReadParts(whole_follows=whole_follows))
    line = text(title_line(dataset, replace(analysis, findings=tuple(findings)), width, index, UTC))
    assert len(line) <= width
    return line.partition("still 10 min")[2].strip()


def test_the_title_says_how_sure_a_finding_is_and_its_number() -> None:
    assert sureness(80) == "sure: low  1/3"
    assert sureness(200) == "sure: low  1/3"
    assert sureness(80, 2, "info") == "2/3", "what is merely noted needs no confidence"
    assert sureness(100, whole_follows=True) == "still reading  1/3", "nothing is sure of a part"
    assert sureness(62) == ""


def verdict(width: int, index: int | None = 0, **change: object) -> list[str]:
    _, analysis = hang(16, 10)
    finding = replace(analysis.findings[0], **change)  # type: ignore[arg-type]
    return [text(line) for line in verdict_lines(replace(analysis, findings=(finding,)), index, width)]


def test_the_verdict_names_the_root() -> None:
    assert verdict(80) == ["  ROOT  rank 6 never issued all_reduce #11 of TENSOR_PARALLEL_1; 15 ranks wait"]


def test_a_long_verdict_is_cut_after_two_lines() -> None:
    lines = verdict(36, title="word " * 13)
    assert len(lines) == 2
    assert lines[1].endswith("...")
    assert all(len(line) <= 36 for line in lines)


def test_the_verdict_counts_the_ranks_that_wait() -> None:
    late = Finding("missing-rank", "critical", "rank 1 is late", "", blast_radius=1)
    assert finding_text(late) == "rank 1 is late; 1 rank waits"
    assert finding_text(replace(late, title="rank 2 waits")) == "rank 2 waits"


def test_without_findings_the_verdict_is_shown() -> None:
    lines = verdict_lines(Analysis("all is well", "healthy"), None, 40)
    assert [text(line).rstrip() for line in lines] == ["  HEALTHY  all is well"]


def test_hostile_text_does_no_harm() -> None:
    line = verdict(120, title="\x1b[2J[bold]boo\x07[/]")[0]
    assert "\x1b" not in line
    assert "\x07" not in line
    assert "[bold]" in line


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (None, " rankscope dumps  opening ..."), (Progress(0, 0, "looking"), " looking"),
        (Progress(5, 10, "reading dumps"), " reading dumps 5/10 " + "#" * 20 + "." * 20),
        (Progress(99, 10, "reading"), " reading 99/10 " + "#" * 40),
    ],
)  # fmt: skip
def test_progress_is_one_line(progress: Progress | None, line: str) -> None:
    assert text(progress_line("dumps", progress, 80, ascii_only=True)) == line
    assert len(text(progress_line("dumps", progress, 20, ascii_only=True))) <= 40


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("mesh_tp", 9, "mesh_tp"), ("TENSOR_PARALLEL_12", 10, "TENSOR..12"), ("TENSOR_MODEL_GROUP", 10, "TENSOR_M.."),
        ("x" * 9 + "1" * 30, 10, "xxxx..1111"),
    ],
)  # fmt: skip
def test_names_are_shortened_but_keep_their_number(name: str, width: int, short: str) -> None:
    assert shortened(name, width) == short
    assert len(end_of(name, width)) <= width


# Ruler


def test_the_ruler_shows_sequence_numbers_of_the_group() -> None:
    model = build_model(*hang(16, 10))
    ticks = group_ticks(model, 2)
    assert sequence_ruler(View("sequence", 0, 1, 2), 44, ticks, model.width) == (
        "|1                |4          |6          |8"
    )
    assert (
        sequence_ruler(View("sequence", 20, 1, 8), 40, ticks, model.width) == "        |8                      |9      "
    )


def test_without_a_group_the_ruler_counts_steps() -> None:
    assert sequence_ruler(View("sequence", 3, 1, 2), 40, ([], []), 100) == "    |5        |10       |15       |20   "
    assert "|300" in sequence_ruler(View("sequence", 0, 16, 1), 80, ([], []), 1000) + "|300"


def test_numbers_never_run_into_each_other() -> None:
    model = build_model(*hang(16, 10))
    for view in (
        View("sequence", 0, 1, 1),
        View("sequence", 0, 2, 1),
        View("sequence", 5, 1, 4),
        View("sequence", 1, 8, 1),
    ):
        for group in (0, 2, None):
            line = sequence_ruler(view, 50, group_ticks(model, group), model.width)
            assert len(line) == 50
            assert re.fullmatch(r"( *\|\d+(?= |$))* *", line)


def test_the_ruler_of_time() -> None:
    view = View("time", START_NS, 100_000, 1)
    line = time_ruler(view, 60, UTC)
    assert line == "|22:13:20.000       |22:13:20.002       |22:13:20.004       "
    assert time_ruler(View("time", START_NS, 10**9, 1), 40, UTC).startswith("|22:13:20           |")


# Overview


def test_the_overview_shows_the_worst_of_all_lanes() -> None:
    model = build_model(*hang(16, 10))
    codes = worst_by_column(model)
    strip = sequence_strip(codes, 16)
    assert strip.text == "...............!"
    assert len(sequence_strip(codes, 500).text) == 32
    assert strip.window(16, 24) == (8, 12)
    assert strip.window(-5, 9999) == (0, 16)
    assert strip.window(31, 31) == (15, 16)


def test_in_the_overview_of_time_what_never_ends_goes_on() -> None:
    model = build_model(*hang(16, 10))
    line = time_strip(build_times(model), 30).text
    assert re.fullmatch(r"\.+[ .]*#*[!#]+", line)


def test_the_window_is_between_brackets() -> None:
    assert text(overview_line("....!!", (2, 4))) == "..[..]!!"


# Status and keys


def status(board: ShownOperations, width: int = 100, wanted: Filter | None = None, found: Found | None = None) -> str:
    words = joined(lane_words(board, wanted or Filter(), found), ascii_only=True)
    return text(status_line("why", words, width, lit=False, ascii_only=True))


@pytest.fixture
def board() -> ShownOperations:
    """The end of a hang."""
    board = ShownOperations(build_model(*hang(16, 10)), 40, 3)
    board.go_unit(30)
    return board


def test_the_status_names_the_pane_below_and_counts_rows(board: ShownOperations) -> None:
    line = status(board)
    assert line.startswith("- why ---")
    assert line.endswith("--- 16 ranks in 5 rows, rows 1-3 shown -")
    assert len(line) == 100
    lit = text(status_line("detail", Text("x"), 40, lit=True, ascii_only=True))
    assert lit.startswith("= DETAIL ==="), "no colour is needed to see which pane has the keys"
    beside = text(status_line("", Text("x"), 40, lit=False, ascii_only=True))
    assert beside == "-" * 36 + " x -"


@pytest.mark.parametrize("width", [8, 20, 40, 80])
def test_words_of_the_legend_take_the_lines_that_they_need(width: int) -> None:
    words = ["! never issued", "A all_reduce", "lower case waits", "R reduce_scatter", "blank nothing"]
    lines = in_lines(words, width)
    assert "  ".join(lines).split("  ") == words, "nothing is left out"
    assert all(len(line) <= width or line in words for line in lines)
    assert all(len(f"{line}  {after.split('  ')[0]}") > width for line, after in pairwise(lines))


def test_the_status_says_what_else_is_set(board: ShownOperations) -> None:
    board.marker = 20
    board.set_order("host")
    line = status(board, 200, Filter(state="pending"), Found("x", 0, 3, 1))
    for piece in ("only pending", "find 'x': 1/3, 1 in messages", "marker +10 steps", "by host"):
        assert piece in line
    assert ".." in status(board, 30) and status(board, 30).startswith("- why -")
    assert len(status(board, 30)) == 30


def test_the_distance_to_the_marker(board: ShownOperations) -> None:
    board.marker = 31
    assert distance(board) == "-1 step"
    board.show_time(build_times(board.model))
    board.marker = board.unit - 2_500_000
    assert distance(board) == "+2.5 ms"
    board.marker = None
    assert distance(board) == ""


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_the_keys_fit(width: int) -> None:
    line = text(hint_line(lane_hints(width, FOOTER), width))
    assert len(line) <= width
    assert line.strip()


def test_help_comes_first_where_room_is_scarce() -> None:
    assert [action.id for action in footer_keys(16)] == ["help"]
    assert {action.id for action in footer_keys(300)} == set(FOOTER)


@pytest.mark.parametrize("width", [56, 76, 200])
def test_the_help_names_every_action_and_fits_with_hanging_indents(width: int) -> None:
    lines = [one.plain for one in help_lines([("This view", 15, [("x", "do " * 60)]), *sections()], width)]
    words = " ".join("\n".join(lines).split())
    assert all(word in words for action in ACTIONS for word in action.help.split())
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("This view")
    assert lines[2].startswith(" " * 18 + "do do")
    assert ("Letters" in lines) == (width < 100)


def test_codes_of_the_overview_are_characters() -> None:
    assert set(" .?#*!%") <= set(TABLE.tobytes().decode()) <= set(" .,;?#*!%")
    assert fit("sequence", 0, 10, 40).per == 1
    assert sequence_strip(np.zeros(1, np.uint8), 10).text == " "
