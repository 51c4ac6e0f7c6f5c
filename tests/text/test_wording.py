"""Values in words."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, timedelta, timezone

import pytest

from rankscope.text.wording import (
    byte_count,
    clipped,
    clock,
    duration,
    exact_duration,
    group_name,
    moment,
    plural,
    rank_ranges,
    ranks_text,
    wait_text,
)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"), (0, "0 s"), (999, "999 ns"), (1_000, "1 us"), (999_700_000, "1 s"),
        (162_400, "162 us"), (3_240_000, "3.2 ms"), (3_020_000, "3 ms"), (9_960_000, "10 ms"), (99_400_000, "99 ms"),
        (1_500_000_000, "1.5 s"), (59_400_000_000, "59 s"), (59_600_000_000, "1 min"),
        (100_000_000_000, "1 min 40 s"), (600_000_000_000, "10 min"), (602_000_000_000, "10 min 2 s"),
        (7_380_000_000_000, "2 h 3 min"), (7_200_000_000_000, "2 h"), (273_600_000_000_000, "3 d 4 h"),
        (-5_000, "-5 us"),
    ],
)  # fmt: skip
def test_duration_has_two_digits_or_two_units(ns: int | None, text: str) -> None:
    assert duration(ns) == text


def test_clock_shows_milliseconds_in_the_zone() -> None:
    ns = 1_700_000_000_123_456_789
    assert clock(ns, UTC) == "22:13:20.123"
    assert clock(ns, timezone(timedelta(hours=2))) == "00:13:20.123"
    assert clock(ns) == "22:13:20.123"
    assert clock(ns, UTC, 0) == "22:13:20"
    assert clock(None) == "-"


def test_clock_survives_times_no_calendar_has() -> None:
    assert clock(2**80, UTC).endswith(" ns")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (16 * 2**20, "16 MiB"),
        (2**20 - 1, "1 MiB"),
        (3 * 2**51, "6144 TiB"),
    ],
)
def test_byte_count_is_binary(count: int | None, text: str) -> None:
    assert byte_count(count) == text


@pytest.mark.parametrize(
    ("ranks", "text"), [((), "none"), ((3,), "3"), ((1, 2), "1,2"), ((0, 1, 2, 5), "0-2,5"), ((7, 5, 6, 5), "5-7")]
)
def test_ranks_fold_to_ranges(ranks: tuple[int, ...], text: str) -> None:
    assert rank_ranges(ranks) == text


@pytest.mark.parametrize(
    ("ranks", "width", "text"),
    [
        (range(0, 100, 2), 12, "0,2,4,6,+46"), ((0, 1, 8, 9), 7, "0,1,8,9"), ((0, 1, 8, 9), 6, "0,1,+2"),
        ([0, 4, 8, 9, 10], 8, "0,4,8-10"), ([10, 4, 8, 9, 0], 7, "0,4,+3"), (range(0, 64, 2), 9, "0,2,4,+29"),
        ([12], 7, "12"), (range(12), 7, "0-11"), (range(20), 3, "0.."), ([16000, 16002], 5, "16000"), ([], 2, "no"),
        (range(12000, 16384), 11, "12000-16383"), (range(12000, 16384), 10, "12000+4383"),
        (range(12000, 16384), 8, "12000.."),
    ],
)  # fmt: skip
def test_ranks_are_counted_where_there_is_no_room(ranks: Collection[int], width: int, text: str) -> None:
    assert rank_ranges(ranks, width) == text
    assert len(text) <= width


def test_ranks_with_the_noun() -> None:
    assert [ranks_text(r) for r in ([], [4], [4, 4], [4, 5])] == ["no rank", "rank 4", "rank 4", "ranks 4,5"]
    assert ranks_text(range(0, 1000, 2), 12) == "ranks 0,2,4,6,+496"
    assert len(ranks_text(range(0, 9000, 2))) <= len("ranks ") + 60
    assert [wait_text(r) for r in ([4], [4, 5])] == ["Rank 4 waits", "Ranks 4,5 wait"]


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "process", "1 process"), (2, "process", "2 processes"), (0, "rank", "0 ranks"), (12_000, "op", "12,000 ops")],
)
def test_plural(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text


def test_groups_go_by_their_description() -> None:
    assert group_name("41", "mesh_tp") == "mesh_tp (group 41)"
    assert group_name("41", "41") == group_name("41", "") == "group 41"
    assert group_name("", "") == "group (unnamed)"


def test_moments_are_in_utc_to_the_second() -> None:
    assert moment(1_700_000_000_123_456_789) == "2023-11-14 22:13:20 UTC"
    assert moment(0, "local time") == "1970-01-01 00:00:00 local time"
    assert moment(2**80).endswith(" ns since 1970")


def test_places_on_an_axis_are_exact_to_the_microsecond() -> None:
    assert exact_duration(3_241_000) == "3.241 ms"
    assert exact_duration(2_000_013_000) == "2.000013 s"


def test_clipped_text_ends_with_dots() -> None:
    assert clipped("abcdef", 6) == "abcdef"
    assert clipped("abcdefg", 6) == "abcd.."
