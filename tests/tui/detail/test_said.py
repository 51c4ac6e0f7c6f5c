"""Log lines around an operation: those of the rank, those of others at that time, and what holds without times."""

from __future__ import annotations

import pytest

from rankscope.features.logs.page.rank_messages import MOST, Around, around, said_lines, zones_for
from rankscope.schema import Dataset
from rankscope.tui.detail.detail_text import compact, expanded
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.selection_facts import look_up
from tests.builders import START_NS
from tests.logs import SECOND, line, with_logs
from tests.tui.detail.goldens import absent, logged, present
from tests.tui.detail.samples import CULPRIT, HOSTILE, TP, hang, hostile


def said(lines: list[dict[str, object]], rank: int = 0, at_s: float | None = 0) -> Around:
    at_ns = None if at_s is None else START_NS + round(at_s * SECOND)
    return around(with_logs(hang()[0], lines), rank, at_ns)


def test_a_root_cause_is_shown_however_far_away() -> None:
    lines = [line(0, "broke", "root", at_s=500), *(line(0, f"line {i}", at_s=i) for i in range(20))]
    own = [one.text for one in said(lines).own]
    assert own == [*(f"line {i}" for i in range(MOST - 1)), "broke"]


def test_without_times_the_last_lines_are_shown_in_their_order() -> None:
    lines = [line(0, f"line {i}", at_s=None) for i in range(20)]
    for at_s in (0, None):
        assert [one.text for one in said(lines, at_s=at_s).own] == [f"line {i}" for i in range(14, 20)]


def test_a_line_without_a_time_stands_where_it_stood_in_its_file() -> None:
    lines = [line(0, "a", at_s=1), line(0, "b", at_s=None), line(0, "c", at_s=2)]
    assert [one.text for one in said(lines, at_s=1).own] == ["a", "b", "c"]


def test_noise_is_left_out() -> None:
    assert said([line(0, "a", "noise"), line(1, "a", "noise")]) == Around()


def test_others_within_a_second_are_folded_causes_first() -> None:
    lines = [line(r, f"[Rank {r}] timeout", "victim", at_s=0.51 + r / 10) for r in range(3, 8)]
    lines += [line(2, "broke", "root", at_s=0.9), line(1, "late", "root", at_s=2), line(None, "?", at_s=0)]
    found = said(lines)
    assert found.timed
    assert [(one.text, one.ranks) for one in found.others] == [
        ("broke", (2,)), ("[Rank 3] timeout", (3, 4)), ("?", ()),
    ]  # fmt: skip
    assert any("ranks 3,4: same line" in parts.plain for parts in said_lines(found, 80))


def test_where_no_line_has_a_time_causes_of_others_are_shown_as_undated() -> None:
    found = said([line(1, "broke", "root", at_s=None), line(2, "context", at_s=None)])
    assert not found.timed
    assert [one.text for one in found.others] == ["broke"]
    assert "others said, at an unknown time" in [parts.plain for parts in said_lines(found, 80)]


def test_the_pane_tells_a_cause_early_and_a_victim_last() -> None:
    dataset, analysis = logged()
    index = OpIndex(dataset)
    cause = [parts.plain for parts in compact(look_up(index, analysis, absent()), 80)]
    assert cause[2] == "log     22:13:20.006 R OutOfMemoryError: CUDA out of memory. Tried to allocate.."
    victim = [parts.plain for parts in compact(look_up(index, analysis, present(dataset, 4, TP, 5)), 80)]
    assert victim[-1].startswith("log     22:13:20.200 v [Rank 4] Watchdog")


def test_lines_of_hosts_in_another_zone_are_not_held_against_times_of_dumps() -> None:
    hours = 5 * 3600
    lines = [line(1, "in their zone", "root", at_s=hours), line(2, "as late here", "root", at_s=0.5)]
    away = OpIndex(with_logs(hang()[0], lines))
    assert zones_for(away, "flight-recorder") == "utc"
    found = around(away.dataset, 0, START_NS, "utc")
    assert not found.timed and [one.text for one in found.others] == ["in their zone", "as late here"]
    here = OpIndex(with_logs(hang()[0], lines[1:]))
    assert zones_for(here, "flight-recorder") == "any"
    assert around(here.dataset, 0, START_NS, "any").timed


def test_lines_in_utc_are_held_against_times_of_dumps_alone() -> None:
    lines = [line(1, "broke", "root", at_s=0.5, values='{"utc":true}'), line(2, "elsewhere", "root", at_s=5 * 3600)]
    index = OpIndex(with_logs(hang()[0], lines))
    found = around(index.dataset, 0, START_NS, zones_for(index, "flight-recorder"))
    assert found.timed and [one.text for one in found.others] == ["broke"]
    assert zones_for(index, "nccl-log") == "printed"
    assert [one.text for one in around(index.dataset, 0, START_NS + 5 * 3600 * SECOND, "printed").others] == [
        "elsewhere"
    ]


@pytest.mark.parametrize("width", [1, 20, 80])
def test_hostile_lines_are_made_harmless(width: int) -> None:
    dataset, analysis = hostile()
    lines = [line(r, HOSTILE, role, at_s=0.001) for r in (0, 1) for role in ("root", "victim", HOSTILE)]
    index = OpIndex(with_logs(dataset, lines))
    for detail in (look_up(index, analysis, index.selection(row)) for row in range(3)):
        shown = [*compact(detail, width), *expanded(detail, analysis, width)]
        assert all(parts.plain.isprintable() for parts in shown)


def test_secrets_are_hidden() -> None:
    found = said([line(r, "run --api-key abc", "root") for r in range(3)])
    assert "abc" not in "".join(parts.plain for parts in said_lines(found, 80))


def test_a_rank_without_lines_has_only_those_of_others() -> None:
    job: Dataset = with_logs(hang()[0], [line(CULPRIT, "x", "root")])
    found = around(job, 3, START_NS)
    assert found.own == ()
    assert [one.ranks for one in found.others] == [(CULPRIT,)]
