"""A sidecar of the capture, whole and hostile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankscope.capture.card import SidecarRecord as Written
from rankscope.capture.identity import ProcessGroup
from rankscope.parsers.contents import NotThisKindError, kinds_of, restore_content
from rankscope.parsers.members import shared_members
from rankscope.parsers.sidecar import Sidecar, SidecarGroup, decode_sidecar, looks_like_sidecar


def written(**more: Any) -> bytes:
    told = {"rankscope_capture": 1, "rank": 3, "world_size": 4, "host": "node07", "groups": [], "dumps": []}
    return json.dumps({**told, **more}).encode()


def test_what_the_capture_writes_is_read() -> None:
    card = Written()
    card.rank, card.world_size = 3, 4
    card.groups = [ProcessGroup("0", "default_pg", "nccl", [0, 1, 2, 3])]
    card.dumps = {"nccl_trace_rank_3"}
    card.interval_s = 10.0
    card.delayed(0.25)
    card.end("exception", ValueError("nan"))
    read = decode_sidecar(card.content())
    assert (read.rank, read.world_size, (read.host, read.pid, read.started_ns)) == (3, 4, card.writer)
    assert read.groups == [SidecarGroup("0", "default_pg", "nccl", shared_members(range(4)))]
    assert (read.dumps, read.ended, read.error) == (["nccl_trace_rank_3"], "exception", "ValueError: nan")
    assert (read.ended_ns, read.cause) == ((card.ended or {})["time_ns"], "")
    assert (read.interval_ns, read.delay_ns) == (10_000_000_000, 200_000_000)
    assert read.problem is None


def test_it_is_taken_for_nothing_else() -> None:
    assert kinds_of(written(version="2.10", entries=[])[:512], 512)[0].name == "sidecar"
    assert not looks_like_sidecar(b'{"version": "2.10", "rankscope_capture": 1}')


def test_it_crosses_from_a_worker() -> None:
    card = decode_sidecar(written(groups=[{"name": "0", "description": "d", "backend": "gloo", "ranks": [3, 1]}]))
    assert restore_content("sidecar", json.loads(json.dumps(card.header())), memoryview(b""), card.rows) == card


@pytest.mark.parametrize(
    "data", [b'{"rankscope_capture": 1, "rank"', written(rank=None), written(rank=-1), written(rank=1 << 40)]
)
def test_without_a_rank_it_is_no_use(data: bytes) -> None:
    with pytest.raises(NotThisKindError, match="sidecar of the capture"):
        decode_sidecar(data)


@pytest.mark.parametrize(
    "group",
    [
        None, 7, {}, {"name": "0"}, {"name": "0", "ranks": "all"}, {"name": "0", "ranks": [0, 1]},
        {"name": "0", "ranks": [3, 3]}, {"name": "0", "ranks": [3, -1]}, {"name": "0", "ranks": [3, "x"]},
        {"name": "", "ranks": [3]},
    ],
)  # fmt: skip
def test_groups_that_cannot_be_are_left_out(group: Any) -> None:
    assert decode_sidecar(written(groups=[group, {"name": "1", "ranks": [3, 0]}])).groups == [
        SidecarGroup("1", "", "", shared_members([3, 0]))
    ]


@pytest.mark.parametrize(
    "more", [{"world_size": 2}, {"world_size": "x"}, {"host": 7}, {"dumps": 7}, {"dumps": [None, 7]}, {"ended": "x"},
             {"problems": {}}, {"pid": [1]}],
)  # fmt: skip
def test_what_is_of_the_wrong_kind_is_unknown(more: dict[str, Any]) -> None:
    expected: dict[str, Any] = {"world_size": None, "host": "", "dumps": [], "ended": "", "problem": None, "pid": None}
    read = decode_sidecar(written(**more))
    name = next(iter(more)).replace("problems", "problem")
    assert getattr(read, name) == expected[name]


def test_what_it_says_of_itself_is_a_problem() -> None:
    assert decode_sidecar(written(problems=["no dump at a signal"])).problem == "no dump at a signal"
    assert "newer" in (decode_sidecar(written(rankscope_capture=2)).problem or "")
    assert isinstance(decode_sidecar(written(rankscope_capture=2)), Sidecar)
