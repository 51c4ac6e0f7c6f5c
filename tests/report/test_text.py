"""The text report at 80 columns: short whatever the size of the job, harmless whatever the files say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.analysis.model import Analysis, Finding
from rankscope.report.blocks import Grid, Section
from rankscope.report.text import render_text, sections_text
from tests.report import samples


def test_the_verdict_comes_first() -> None:
    assert render_text(*samples.hang()).splitlines()[0].startswith("HANG: rank 3 never issued")


def test_a_thousand_ranks_stay_readable() -> None:
    lines = render_text(*samples.many_ranks()).splitlines()
    assert len(lines) < 120
    assert max(map(len, lines)) <= 80
    assert any("1,023 ranks (0-2,4-1023)" in line for line in lines)
    assert any("more in the JSON report" in line for line in lines)
    assert any(line.startswith("no dump of ranks 5,12,19,") and line.endswith(",+129") for line in lines)


def test_a_long_chain_shows_both_ends() -> None:
    text = render_text(*samples.many_ranks())
    assert "rank 0 waits in" in text
    assert "for rank 100" in text
    assert "more steps)" in text


def test_nothing_from_a_file_acts_on_the_terminal() -> None:
    lines = render_text(*samples.hostile()).split("\n")
    assert all(line.isprintable() for line in lines)


def test_a_path_is_never_broken() -> None:
    dataset, analysis = samples.hang()
    path = "/" + "d" * 100 + "/rank_3"
    found = replace(analysis.findings[0], title=f"Look into {path}")
    assert path in render_text(dataset, replace(analysis, findings=(found,)))


def test_findings_without_anything_make_no_empty_labels() -> None:
    dataset, _ = samples.healthy()
    bare = Finding(kind="straggler", severity="warning", title="rank 1 is late", explanation="")
    text = render_text(dataset, Analysis(verdict="slow", status="slow", findings=(bare,)))
    assert [line.split()[0] for line in text.splitlines()[4:]] == ["1.", "sure"]


@pytest.mark.parametrize(("ns", "shown"), [(-1, "-1 ns since 1970"), (2**62, "2116-02-20"), (10**30, "ns since 1970")])
def test_times_out_of_range_are_told_as_numbers(ns: int, shown: str) -> None:
    dataset, analysis = samples.hang()
    assert shown in render_text(dataset, replace(analysis, hang_since_ns=ns))


@pytest.mark.parametrize("headed", [False, True])
def test_a_long_first_cell_stands_above_its_row_where_the_table_says_so(headed: bool) -> None:
    name = "train/" + "x" * 68
    grid = Grid(head=("metric", "A", "B"), rows=[(name, "1.5 s", "1.25 s"), ("loss", "3.1", "3.2")], headed=headed)
    lines = sections_text([Section("Metrics", (grid,))]).splitlines()
    alone = [line for line in lines if line.split() == [name]]
    assert len(alone) == headed and any(line.split() == ["loss", "3.1", "3.2"] for line in lines)
    assert not headed or max(map(len, lines)) <= 80
