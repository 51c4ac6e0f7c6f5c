"""Tensors in words."""

from __future__ import annotations

import pytest

from rankscope.text.tensors import payload, tensors


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
