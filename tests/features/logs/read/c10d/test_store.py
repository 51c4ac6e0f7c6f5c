"""Members of groups in what the store prints."""

from __future__ import annotations

import pytest

from tests.features.logs.read.lines import log

LINE = "[I1122 17:31:23.545210054 TCPStoreLibUvBackend.cpp:887] [c10d - trace] {} address:[::ffff:10.0.0.1]:47512"


def test_a_member_takes_its_place() -> None:
    (found,) = log(LINE.format("set key:/default_pg/0//tp_1//cuda//pg_wrapper:tp_1/0/3")).events
    assert (found.kind, found.rank) == ("pg-seat", None)
    told = {name: found.values[name] for name in ("name", "device", "place", "address")}
    assert told == {"name": "tp_1", "device": "cuda", "place": 3, "address": "[::ffff:10.0.0.1]:47512"}


@pytest.mark.parametrize(
    "said",
    [
        "get key:/default_pg/0//2//cpu//pg_wrapper:2/0/0",
        "set key:/default_pg/0//2//cpu//0/0",
        "set key:/default_pg/0//2//cpu//pg_wrapper:2/0/x",
    ],
)
def test_other_keys_tell_of_no_member(said: str) -> None:
    assert not log(LINE.format(said)).events
