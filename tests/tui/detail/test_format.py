"""Numbers as they are written on the screen."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from rankscope.schema import Group
from rankscope.tui.detail.format import (
    byte_count,
    clock,
    duration,
    group_label,
    group_short,
    payload,
    plain,
    rank_phrase,
    rank_ranges,
    tensors,
)  # fmt: skip


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"), (0, "0 ns"), (999, "999 ns"), (1_000, "1.0 us"), (999_700_000, "1.0 s"),
        (3_240_000, "3.2 ms"), (99_400_000, "99 ms"),
        (1_500_000_000, "1.5 s"), (59_400_000_000, "59 s"), (59_600_000_000, "1 min"), (602_000_000_000, "10 min 2 s"),
        (7_380_000_000_000, "2 h 3 min"), (7_200_000_000_000, "2 h"), (273_600_000_000_000, "3 d 4 h"),
        (-5_000, "-5.0 us"),
    ],
)  # fmt: skip
def test_duration_has_two_digits_or_two_units(ns: int | None, text: str) -> None:
    assert duration(ns) == text


def test_clock_shows_milliseconds_in_the_zone() -> None:
    ns = 1_700_000_000_123_456_789
    assert clock(ns, UTC) == "22:13:20.123"
    assert clock(ns, timezone(timedelta(hours=2))) == "00:13:20.123"
    assert clock(ns) == "22:13:20.123"
    assert clock(None) == "-"


def test_clock_survives_times_no_calendar_has() -> None:
    assert clock(2**80, UTC).endswith(" ns")


@pytest.mark.parametrize(
    ("count", "text"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (16 * 2**20, "16.0 MiB"), (3 * 2**51, "6144.0 TiB")]
)
def test_byte_count_is_binary(count: int | None, text: str) -> None:
    assert byte_count(count) == text


def test_ranks_fold_to_ranges_and_are_counted_where_there_is_no_room() -> None:
    assert rank_ranges([3, 0, 1, 2, 7, 7]) == "0-3,7"
    assert rank_ranges([]) == "none"
    assert rank_ranges(range(0, 100, 2), 12) == "0,2,4,6,+46"
    assert rank_phrase([5]) == "rank 5"
    assert rank_phrase([5, 6]) == "ranks 5-6"


@pytest.mark.parametrize(
    ("sizes", "dtypes", "text"),
    [
        ("[[64,32]]", '["Float"]', "[64,32] f32"),
        ("[[8],[8],[8]]", '["Long"]', "[8] i64 x3"),
        ("[[8],[9],[9],[7],[6]]", '["BFloat16","Half","Half","Byte","Byte"]', "[8] bf16, [9] f16 x2 +2 more"),
        ("[[2],[3]]", '["Float8_e4m3fn","Nonsense"]', "[2] Float8_e4m3fn, [3] Nonsense"),
        ("[[2],[3]]", '["Float","Half","Half"]', "[2] f32, [3] f16"),
        ("[]", '["Byte"]', "u8"), ("[]", "[]", ""), (None, None, ""), ("[[]]", '["Int"]', "[] i32"),
        ("not json", None, "not json"), ('{"a":1}', "[]", '{"a":1} []'), ("[[1,", "[]", "[[1, []"),
        ("[5]", '["Int"]', "5 i32"),
    ],
)  # fmt: skip
def test_tensors_are_shortened(sizes: str | None, dtypes: str | None, text: str) -> None:
    assert tensors(sizes, dtypes) == text


@pytest.mark.parametrize(
    ("sizes", "dtypes", "count"),
    [
        ("[[1024,2]]", '["BFloat16"]', 4096), ("[[2],[3]]", '["Float"]', 20), ("[[2],[3]]", '["Float","Byte"]', 11),
        ("[[2],[3]]", '["Float","Odd"]', None), ("[]", "[]", None), (None, None, None), ('[["x"]]', '["Float"]', None),
        ("[[5]]", '["Float8_e5m2"]', 5), ("[7]", '["Float"]', None), ("broken", '["Float"]', None),
    ],
)  # fmt: skip
def test_payload_is_known_only_where_everything_is(sizes: str | None, dtypes: str | None, count: int | None) -> None:
    assert payload(sizes, dtypes) == count


def test_sizes_that_are_too_long_to_take_apart_are_shown_in_part() -> None:
    endless = "[" + "[1]," * 400_000 + "[1]]"
    assert len(tensors(endless, '["Float"]')) < 200


def test_plain_is_one_harmless_line_of_bounded_length() -> None:
    assert plain("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"
    assert len(plain("x" * 10_000)) == 2_000
    assert plain(None) == ""


def test_groups_go_by_their_description() -> None:
    group = Group(1, "41", "mesh_tp", (0, 1), "config", False)
    assert group_label(group) == "mesh_tp (group 41)"
    assert group_short(group) == "mesh_tp"
    bare = Group(1, "41", "", (0, 1), "config", False)
    assert group_label(bare) == group_short(bare) == "group 41"
    assert group_label(None) == group_short(None) == "no group"
