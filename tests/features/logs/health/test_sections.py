"""Health checks of a debug server, whole, partial and hostile."""

from __future__ import annotations

import json

import pytest

from rankscope.features.logs.read.health_check import (
    FOREIGN_TABLES,
    HEALTHY,
    NO_CHECK,
    SILENT,
    UNHEALTHY,
    RankHealth,
    decode_check,
)
from rankscope.parsers.contents import NotThisKindError, kinds_of, restore_content

UNWELL = '{"healthy":false,"unhealthy_backends":["nccl2"]}'
WELL = '{"healthy":true,"unhealthy_backends":[]}'
DUMPED = """

=== Unhealthy rank detected, triggering FR dump ===
--- Backend: nccl2 ---
Rank 0: http://node07:41234/handler/fr_dump_file?backend=nccl2
Flight Recorder dump initiated for rank 0"""


def section(rank: int, answer: str, page: str = "c10d_health_check") -> str:
    return f"=== Rank {rank}: http://node07:{41_234 + rank}/handler/{page}? ===\n{answer}"


def written(*answers: str, more: str = "") -> bytes:
    return ("\n".join(section(rank, answer) for rank, answer in enumerate(answers)) + more).encode()


def test_each_rank_says_how_it_is() -> None:
    data = written(UNWELL, WELL, "Error: 503", more=DUMPED)
    assert [kind.name for kind in kinds_of(data[:512], len(data))] == ["health-check"]
    check = decode_check(data)
    assert check.ranks == [
        RankHealth(0, "node07", UNHEALTHY, ("nccl2",), "", 1),
        RankHealth(1, "node07", HEALTHY, (), "", 3),
        RankHealth(2, "node07", SILENT, (), "error 503", 5),
    ]
    assert (check.rows, check.problem) == (2, None)
    header = json.loads(json.dumps(check.header()))
    assert restore_content("health-check", header, memoryview(b""), check.rows) == check


def test_a_partial_one_says_first_who_is_away() -> None:
    head = "PARTIAL DATA: 1/2 workers responded\n  Rank 1: ConnectionError: refused\n\n"
    data = head.encode() + written(UNWELL, "Error: 503")
    assert [kind.name for kind in kinds_of(data[:512], len(data))] == ["health-check"]
    assert [(health.rank, health.state, health.line) for health in decode_check(data).ranks] == [
        (0, UNHEALTHY, 4),
        (1, SILENT, 6),
    ]


def test_ranks_that_know_of_no_health_check_tell_nothing() -> None:
    check = decode_check(written("Error: 404", "Error: 404"))
    assert (check.ranks, check.problem) == ([], None)


@pytest.mark.parametrize("answer", ["[1]", "{", '{"healthy": 1}', "[" * 10_000, "", "\x1b[2J"])
def test_what_is_no_answer_is_none(answer: str) -> None:
    data = written(answer, WELL)
    assert [(health.state, health.why) for health in decode_check(data).ranks] == [(SILENT, "no JSON"), (HEALTHY, "")]


@pytest.mark.parametrize("names", ['"nccl2"', "[1, null, {}]", "null"])
def test_backends_that_are_no_names_are_left_out(names: str) -> None:
    (health,) = decode_check(written(f'{{"healthy": false, "unhealthy_backends": {names}}}')).ranks
    assert (health.state, health.backends) == (UNHEALTHY, ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (section(0, "Current thread 0x1 (most recent call first):", page="dump_traceback"), NO_CHECK),
        ("=== FR Trace ===\n--- Groups ---\n  id  desc\n", FOREIGN_TABLES),
        ("PARTIAL DATA: 0/1 workers responded\n  Rank 0: x\n\n=== TorchComms FR Trace ===\n", FOREIGN_TABLES),
        (section(9_999_999, WELL), NO_CHECK),
        ("=== Rank 0: http://[broken/handler/c10d_health_check? ===", NO_CHECK),
    ],
)
def test_other_files_of_the_server_are_no_health_check(text: str, why: str) -> None:
    assert kinds_of(text.encode(), len(text))[0].name == "health-check"
    with pytest.raises(NotThisKindError) as error:
        decode_check(text.encode())
    assert str(error.value) == why
