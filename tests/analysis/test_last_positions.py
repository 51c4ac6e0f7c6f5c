"""What a rank has sent and received, told by the last collective of dumps that keep only what is active."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.facts import Facts
from rankscope.analysis.unmatched_p2p import P2pCount, RankCounts, find_deviation, rank_counts
from rankscope.schema import Dataset
from tests.parsers.dumps import Groups, Recorder, dataset_of, job, named

SENDER, RECEIVER = 1, 5
"""The second of four pipelines of two stages."""
GROUPS: Groups = {
    "0": ("default_pg", list(range(8))),
    **{str(i + 1): ("PIPELINE", [i, i + 4]) for i in range(4)},
    "5": ("DATA", [0, 1, 2, 3]),
    "6": ("DATA", [4, 5, 6, 7]),
}


def exchange(recorder: Recorder, step: int, without: int | None, batched: bool) -> None:
    """A send of the first stage to the second and one back, but for the one that is left out in the last step."""
    group, first = str(recorder.rank % 4 + 1), recorder.rank < 4
    broken = step == 2 and recorder.rank in (SENDER, RECEIVER) and without is not None
    ops = [("send", 1), ("recv", 1)] if first else [("recv", 0), ("send", 0)]
    if step == 2 and recorder.rank == without:
        ops = [op for op in ops if op[0] != "send"]
    if batched:
        recorder.batch(group, ops, state="scheduled" if broken else "completed")
        return
    for op, peer in ops:
        waits = broken and (recorder.rank, op) in ((RECEIVER, "recv"), (RECEIVER, "send"), (SENDER, "recv"))
        recorder.p2p(group, op, peer, state="scheduled" if waits else "completed")


def pipelines(without: int | None = SENDER, batched: bool = False) -> Dataset:
    """Three steps; in the last one a rank leaves its send out, and all end in the collective of all."""
    made = job(8, GROUPS)
    for recorder in made:
        for step in range(3):
            exchange(recorder, step, without, batched)
            state = "scheduled" if step == 2 and without is not None else "completed"
            recorder.collective("5" if recorder.rank < 4 else "6", state=state)
            recorder.collective("0", state=state)
    return dataset_of(named(made, only_active=True))


@pytest.mark.parametrize("batched", [False, True])
def test_a_send_that_was_left_out_is_counted_by_the_other_pipelines(batched: bool) -> None:
    found = analyse(pipelines(batched=batched)).findings[0]
    assert (found.kind, found.culprit_ranks) == ("p2p-unmatched", (SENDER,))
    assert found.title == f"rank {SENDER} left out a send or receive in PIPELINE"
    what = "records in PIPELINE; the same stage of other pipelines had issued 9" if batched else "5 operations"
    assert what in found.explanation


def test_where_a_rank_stands() -> None:
    found = rank_counts(Facts(pipelines()))
    assert found[0] == RankCounts(
        11, ("default_pg", "all_reduce", 3), (("DATA", 3), ("default_pg", 3)), (("PIPELINE", 6),)
    )
    assert found[SENDER].pairs == (("PIPELINE", 5),)
    assert sorted(found) == list(range(8))


def test_nobody_stands_anywhere_without_a_collective_that_waits() -> None:
    assert rank_counts(Facts(pipelines(without=None))) == {}


PLACE = ("default_pg", "all_reduce", 3)
PLACE_TEXT = "all_reduce #3 of default_pg"
USUAL = RankCounts(20, PLACE, (("default_pg", 3),), (("PIPELINE", 6),))


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (USUAL, [USUAL, USUAL], P2pCount(6, 6, 2, "PIPELINE", PLACE_TEXT)),
        (USUAL._replace(record_id=19, pairs=(("PIPELINE", 5),)), [USUAL], P2pCount(5, 6, 1, "PIPELINE", PLACE_TEXT)),
        (USUAL._replace(record_id=19), [USUAL], P2pCount(17, 18, 1, "PIPELINE", PLACE_TEXT, "records")),
        (USUAL._replace(pairs=(("PIPELINE", 5),)), [USUAL], None),
        (USUAL._replace(record_id=21, pairs=(("PIPELINE", 5),)), [USUAL], None),
        (USUAL._replace(collectives=(("default_pg", 2),)), [USUAL], None),
        (USUAL._replace(place=("default_pg", "all_reduce", 2)), [USUAL], None),
        (USUAL, [USUAL, USUAL._replace(record_id=18)], None),
        (USUAL._replace(pairs=()), [USUAL._replace(pairs=())], None),
        (USUAL._replace(pairs=(("OTHER", 5),)), [USUAL], None),
        (USUAL, [], None),
    ],
    ids=[
        "alike", "fewer", "records", "not borne out", "contradicted", "another collective", "another place",
        "no majority", "no sends", "other groups", "nobody else",
    ],
)  # fmt: skip
def test_held_against_the_others(own: RankCounts, others: list[RankCounts], expected: P2pCount | None) -> None:
    assert find_deviation(own, others) == expected
