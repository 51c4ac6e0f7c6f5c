"""The list of messages: order, what narrows it down, whole records, and the way to the lanes."""

from __future__ import annotations

import time
from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis.model import Analysis
from rankscope.features.logs.page.message_list import MESSAGE_COLUMNS, MessageList, Wanted, brief, date, when
from rankscope.features.logs.page.messages_page import MessagesScreen, RecordScreen, record_text, selection_at
from rankscope.schema import Dataset
from rankscope.schema.tables import MESSAGES
from rankscope.tui.detail.screens.findings_page import FindingsScreen
from rankscope.tui.selection import Selection
from tests.builders import START_NS
from tests.logs import LOG_FILES, SECOND, line, with_logs
from tests.tui.detail.goldens import logged
from tests.tui.detail.samples import CULPRIT, HOSTILE, QUIET, hang, hostile, large
from tests.tui.detail.show import UNSET, opened, screen_text
from tests.tui.drive import opened as opened_app
from tests.tui.drive import press


def texts(dataset: Dataset, wanted: Wanted) -> list[str]:
    listing = MessageList(dataset)
    return [str(listing.row(at)["text"]) for at in range(listing.choose(wanted))]


def small() -> Dataset:
    """Five lines of three ranks; the second of rank 1 has no time of its own."""
    lines = [
        line(1, "b", at_s=2, role="victim"), line(0, "a", at_s=1, role="noise"),
        line(1, "undated", at_s=None, role=""), line(2, "c", at_s=3, role="root", kind="traceback"),
        line(None, "nobody", at_s=None, file=LOG_FILES + 9, host="node09"),
    ]  # fmt: skip
    return with_logs(hang()[0], lines)


def test_lines_without_a_time_follow_the_one_before_them_in_their_file() -> None:
    assert texts(small(), Wanted(roles="with noise")) == ["a", "b", "undated", "c", "nobody"]
    assert texts(small(), Wanted(roles="with noise", newest=True)) == ["nobody", "c", "undated", "b", "a"]


@pytest.mark.parametrize(
    ("wanted", "listed"),
    [
        (Wanted(), ["b", "undated", "c", "nobody"]),
        (Wanted(roles="root causes"), ["c"]),
        (Wanted(ranks=frozenset({1, 0})), ["b", "undated"]),
        (Wanted(text="trace"), ["c"]),
        (Wanted(text="node09"), ["nobody"]),
        (Wanted(text="rank2.err"), ["c"]),
        (Wanted(text="[a-"), []),
    ],
)
def test_the_list_is_narrowed_down(wanted: Wanted, listed: list[str]) -> None:
    assert texts(small(), wanted) == listed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog", "[Rank 0] Watchdog"),
        ("[rank0]:[E1206 18:44:12 x", "[rank0]:[E1206 18:44:12 x"),
        ("ng30903:3063028:3066152 [3] include/alloc.h:178 NCCL WARN x", "include/alloc.h:178 NCCL WARN x"),
        ("KeyError: 'a'", "KeyError: 'a'"),
    ],
)
def test_lists_leave_out_what_stands_in_their_columns(text: str, shown: str) -> None:
    assert brief(text) == shown


def test_an_empty_table_is_an_empty_list() -> None:
    assert texts(hang()[0], Wanted(text="a", ranks=frozenset({1}))) == []


async def test_keys_narrow_down_and_go_back_step_by_step() -> None:
    async with opened(MessagesScreen(*logged())) as (app, pilot):
        page = app.page
        assert isinstance(page, MessagesScreen)
        every = page.listing.count
        await pilot.press("f", *"6-", "enter", "slash", *"memory", "enter", "g", "r")
        await pilot.pause()
        assert page.listing.count == 1
        assert "only ranks 6,7  only 'memory'" in screen_text(app)
        assert "root causes, oldest first" in screen_text(app)
        await pilot.press("g", "r", "g", "r", "escape", "escape")
        await pilot.pause()
        assert page.listing.count == every
        assert app.result is UNSET
        await pilot.press("escape")
        assert app.result is None


async def test_ranks_that_are_none_are_refused() -> None:
    async with opened(MessagesScreen(*logged())) as (app, pilot):
        await pilot.press("f", *"x", "enter")
        await pilot.pause()
        assert "not a list of ranks: x" in screen_text(app)
        await pilot.press("f", "enter")
        await pilot.pause()
        assert "only" not in screen_text(app).splitlines()[-1]


async def test_a_record_is_opened_and_left_for_the_lane() -> None:
    async with opened(MessagesScreen(*logged())) as (app, pilot):
        await pilot.press("g", "r", "enter")
        await pilot.pause()
        text = screen_text(app)
        assert "OutOfMemoryError: CUDA out of memory" in text
        assert "forward  model/attention.py:211" in text
        await pilot.press("enter")
        await pilot.pause()
        assert (app.result.rank, app.result.seq) == (CULPRIT, 4)


async def test_a_page_over_a_page_has_the_same_title_tabs_and_keys() -> None:
    async with opened_app(logged()) as (app, pilot):
        app.lanes.open_view("logs")
        await pilot.pause()
        assert screen_text(app).splitlines()[1].endswith(" 7 evidence  [logs] 2/4")
        await press(app, pilot, "enter")
        record = app.screen
        assert isinstance(record, RecordScreen)
        title, tabs = screen_text(app).splitlines()[:2]
        assert title.startswith(" rankscope ") and tabs.endswith(" 7 evidence  4 pages")
        await press(app, pilot, "7")
        findings = app.screen
        assert isinstance(findings, FindingsScreen)
        await press(app, pilot, "1")
        assert app.screen is app.lanes


async def test_a_lane_is_gone_to_at_the_time_of_the_message() -> None:
    dataset, analysis = hang()
    times = dataset.ops.filter(rank=CULPRIT)["created_ns"]
    said = with_logs(dataset, [line(CULPRIT, "x", at_s=(times[1] - START_NS + 1) / SECOND)])
    async with opened(MessagesScreen(said, analysis)) as (app, pilot):
        await pilot.press("g", "l")
        await pilot.pause()
        assert (app.result.rank, app.result.seq) == (CULPRIT, 2)


def test_without_time_or_operation_the_rank_is_gone_to() -> None:
    dataset = hang()[0]
    assert selection_at(dataset, {"rank": None, "time_ns": 1}) is None
    assert selection_at(dataset, {"rank": 99, "time_ns": 1}) == Selection(99)
    before = selection_at(dataset, {"rank": CULPRIT, "time_ns": 0})
    undated = selection_at(dataset, {"rank": CULPRIT, "time_ns": None})
    assert before is not None and before.seq == 1
    assert undated is not None and undated.seq == 4


async def test_a_line_of_nobody_leads_nowhere() -> None:
    async with opened(MessagesScreen(with_logs(hang()[0], [line(None, "x")]), QUIET)) as (app, pilot):
        await pilot.press("g", "l")
        assert "the rank that printed it is not known" in screen_text(app)
        await pilot.press("enter", "enter")
        assert "the rank that printed it is not known" in screen_text(app)
        assert app.result is UNSET


async def test_without_a_log_the_screen_says_how_to_get_one() -> None:
    async with opened(MessagesScreen(*hang())) as (app, pilot):
        assert "no logs loaded" in screen_text(app)
        await pilot.press("enter", "g", "l", "g", "n", "g", "r")
        assert "no message here" not in screen_text(app)
        assert app.result is UNSET


@pytest.mark.parametrize("width", [1, 20, 80, 200])
def test_hostile_records_are_made_harmless(width: int) -> None:
    values = ['{"frames": [["f", "a.py", 3], 7, ["x"], ["f", "a.py", "3"]], "key": "v"}', "[1]", "{", "", None, HOSTILE]
    for value in values:
        row = {**line(1, HOSTILE, role=HOSTILE, kind=HOSTILE, pattern=HOSTILE, host=HOSTILE), "values": value}
        row |= {"path": HOSTILE, "line": None, "group": None, "time_ns": 2**63 - 1}
        lines = [*record_text(row, HOSTILE.replace("\n", ""), width)[8:], MESSAGE_COLUMNS.line(row, width)]
        assert all(parts.plain.isprintable() for parts in lines)


def test_secrets_are_hidden_in_lists_and_records() -> None:
    row = {**line(1, "HF_TOKEN=abc"), "path": "", "line": 1, "group": None, "values": '{"api_key": "abc"}'}
    shown = [*record_text(row, "", 80), MESSAGE_COLUMNS.line(row, 80)]
    assert "abc" not in "".join(parts.plain for parts in shown)


async def test_of_two_hundred_thousand_messages_a_screen_is_made() -> None:
    dataset, number = large(64), 200_000
    rows = pl.select(row=pl.int_range(number)).select(
        time_ns=START_NS + pl.col("row") * 7919 % number, rank=(pl.col("row") % 64).cast(pl.Int32),
        file=(pl.col("row") % 64).cast(pl.UInt32), offset=pl.col("row"), text=pl.format("line {} of a log", "row"),
        role=pl.when(pl.col("row") % 1000 == 0).then(pl.lit("root")).otherwise(pl.lit("context")),
    )  # fmt: skip
    messages = pl.concat([MESSAGES.empty(), rows], how="diagonal_relaxed")
    async with opened(MessagesScreen(replace(dataset, messages=messages), Analysis("", "hang"))) as (app, pilot):
        await pilot.press("end", "pageup", "g", "n", "g", "r", "f", *"8-", "enter", "slash", *"line 1", "enter", "down")
        await pilot.pause()
        page = app.page
        assert isinstance(page, MessagesScreen)
        assert 0 < page.listing.count < 200


async def test_a_hostile_log_does_not_reach_the_terminal() -> None:
    dataset, analysis = hostile()
    said = with_logs(dataset, [line(1, HOSTILE, "root", host=HOSTILE, kind=HOSTILE, pattern=HOSTILE, values=HOSTILE)])
    async with opened(MessagesScreen(said, analysis)) as (app, pilot):
        for keys in ((), ("enter",)):
            await pilot.press(*keys)
            await pilot.pause()
            assert screen_text(app).replace("\n", "").isprintable()


def test_times_are_shown_as_they_stand_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert when(1_700_000_000_123_000_000, 1) == "22:13:20.123"
        assert when(1_700_000_000_123_000_000, 10**9) == "22:13:20"
        assert date(1_700_000_000_123_000_000) == "2023-11-14"
    finally:
        monkeypatch.undo()
        time.tzset()
