"""Answers of NCCL's RAS: whose ranks are behind, joined over communicators, and compared over time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from rankscope.assemble.load import load

TIMES = ("2026-03-02 10:00:00", "2026-03-02 10:05:00")


def comm(name: str, members: list[int], counts: dict[int, int], kind: str = "AllGather") -> dict[str, Any]:
    """A communicator whose members, by global rank, launched so many operations; the rest one more than the most."""
    most = counts.get(-1, 50)
    rows = [
        {
            "rank": own, "host": f"n{rank // 4}", "pid": 7000 + rank, "cuda_dev": rank % 4,
            "status": {"init_state": 0, "async_error": 0}, "collective_counts": {kind: counts.get(rank, most)},
        }
        for own, rank in enumerate(members)
    ]  # fmt: skip
    return {
        "hash": name, "size": len(members), "ranks_count": len(members), "missing_ranks_count": 0, "ranks": rows,
        "missing_ranks": [],
    }  # fmt: skip


def answer(*comms: dict[str, Any], at: str = TIMES[0]) -> str:
    """One answer as JSON."""
    return json.dumps({"nccl_version": "2.28.9", "timestamp": at, "communicators_count": 1, "communicators": comms})


def read(tmp_path: Path, *answers: str) -> Analysis:
    """The analysis of answers in a file each."""
    for at, text in enumerate(answers):
        (tmp_path / f"ras_{at}.json").write_text(text)
    return analyse(load([tmp_path]))


def first(analysis: Analysis) -> Finding:
    return next(f for f in analysis.findings if f.kind == "missing-rank")


def test_who_is_behind_is_named_with_host_process_and_device(tmp_path: Path) -> None:
    found = first(read(tmp_path, answer(comm("0xaa", list(range(8)), {6: 49}))))
    assert (found.candidates, found.severity) == ((6,), "warning")
    assert "process 7006 on n1 (GPU 2)" in found.next_steps[0]
    assert "process 7006 on n1, GPU 2" in found.evidence[0].text


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_ranks_of_a_part_are_joined_to_global_ones(tmp_path: Path, order: tuple[int, ...]) -> None:
    comms = [comm("0xb", [1, 5, 3, 7], {3: 9}), comm("0xc", [0, 4, 2, 6], {}), comm("0xd", list(range(8)), {-1: 2})]
    found = first(read(tmp_path, answer(*(comms[at] for at in order))))
    assert found.candidates == (3,) and "rank 3 launched 9 AllGather, others up to 50" in found.title


def test_without_a_communicator_of_all_no_rank_is_guessed(tmp_path: Path) -> None:
    comms = (comm("0xb", [4, 5, 6, 7], {6: 3}), comm("0xc", [0, 1, 2, 3], {}))
    found = first(read(tmp_path, answer(*comms)))
    assert found.candidates == () and "rank 2 of communicator 0xb" in found.title
    assert "process 7006 on n1 (GPU 2)" in found.next_steps[0]


def test_one_of_two_is_no_majority(tmp_path: Path) -> None:
    found = first(read(tmp_path, answer(comm("0xb", [2, 3], {3: 4}), comm("0xd", [0, 1, 2, 3], {-1: 1}))))
    assert found.candidates == (3,) and "the other one 50" in found.title
    assert not any("most" in reason for reason in found.confidence_reasons)


def test_counts_that_stand_still_are_a_hang(tmp_path: Path) -> None:
    world = comm("0xaa", list(range(8)), {6: 49})
    analysis = read(tmp_path, answer(world, at=TIMES[1]), answer(world, at=TIMES[0]))
    assert analysis.status == "hang" and analysis.culprits == (6,)
    (culprit,) = analysis.findings[0].culprits
    assert (culprit.host, culprit.pid, culprit.device) == ("n1", 7006, "GPU 2")
    assert "two answers 5 min apart" in analysis.findings[0].explanation


def test_counts_that_moved_are_none(tmp_path: Path) -> None:
    before, after = comm("0xaa", list(range(8)), {6: 49}), comm("0xaa", list(range(8)), {-1: 90, 2: 89})
    analysis = read(tmp_path, answer(before), answer(after, at=TIMES[1]))
    assert not analysis.culprits and not any(f.candidates for f in analysis.findings)


def test_answers_at_one_moment_prove_no_standstill(tmp_path: Path) -> None:
    world = comm("0xaa", list(range(8)), {6: 49})
    analysis = read(tmp_path, answer(world), answer(world))
    assert not analysis.culprits and first(analysis).candidates == (6,)


def test_answers_one_after_the_other_in_one_file(tmp_path: Path) -> None:
    world = comm("0xaa", list(range(8)), {5: 49})
    analysis = read(tmp_path, answer(world) + "\n" + answer(world, at=TIMES[1]) + "\n")
    assert analysis.culprits == (5,)


def test_a_job_in_which_nobody_is_behind_and_nothing_moves(tmp_path: Path) -> None:
    world = comm("0xaa", list(range(4)), {})
    analysis = read(tmp_path, answer(world), answer(world, at=TIMES[1]))
    assert "nobody launched anything in any communicator" in analysis.verdict and not analysis.culprits


TEXT = """{date}
Job summary
===========

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

#0-0 (00c0ffee00c0ffee) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation {most}
  1 ranks have launched up to operation {least}
  Rank 5 -- GPU 1 managed by process 323033 on node n4

"""
DATES = [
    ("Tue Feb  3 09:15:00 UTC 2026", "Tue Feb  3 09:20:00 UTC 2026"), ("2026-02-03 09:15:00", "2026-02-03 09:20:00"),
    ("2026-02-03T09:15:00+00:00", "2026-02-03T09:20:00+00:00"),
]  # fmt: skip


@pytest.mark.parametrize("dates", DATES)
def test_texts_with_what_date_printed(tmp_path: Path, dates: tuple[str, str]) -> None:
    still = "".join(TEXT.format(date=date, most=641, least=640) for date in dates)
    (tmp_path / "ras.txt").write_text(still)
    assert analyse(load([tmp_path])).culprits == (5,)
    moved = TEXT.format(date=dates[0], most=641, least=640) + TEXT.format(date=dates[1], most=900, least=899)
    (tmp_path / "ras.txt").write_text(moved)
    analysis = analyse(load([tmp_path]))
    assert not analysis.culprits and not any(f.candidates for f in analysis.findings)


def test_texts_without_a_date_prove_no_standstill(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(TEXT.format(date="", most=641, least=640) * 2)
    analysis = analyse(load([tmp_path]))
    found = first(analysis)
    assert not analysis.culprits and found.candidates == (5,)
    assert "the time between them is not known" in found.confidence_reasons[0]


BLOCK = """#1-1 (ff00) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 640
  1 ranks have launched up to operation 639
  Rank 5 -- GPU 1 managed by process 323032 on node n7
"""


@pytest.mark.parametrize("front", ["", "> ", "    ", "trainer-1  | "])
@pytest.mark.parametrize("cut", [0, 1])
def test_a_pasted_block_without_its_head(tmp_path: Path, front: str, cut: int) -> None:
    lines = BLOCK.splitlines()[cut:]
    (tmp_path / "paste.txt").write_text("".join(f"{front}{line}\n" for line in lines))
    analysis = analyse(load([tmp_path]))
    assert "launched 639 AllReduce, others up to 640" in analysis.verdict
    assert "process 323032 on n7 (GPU 1)" in first(analysis).next_steps[0]


def marked(name: str, status: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """A communicator of four in which nobody is behind, with more flags of some."""
    whole = comm(name, list(range(4)), {})
    for rank, more in status.items():
        whole["ranks"][rank]["status"] |= more
    return whole


def test_who_got_an_error_of_its_own_is_named_before_those_that_lost_it(tmp_path: Path) -> None:
    status: dict[int, dict[str, Any]] = {1: {"async_error": 6}, 2: {"async_error": 1}, 3: {"abort_flag": True}}
    found = read(tmp_path, answer(marked("0xaa", status)))
    assert (found.culprits, found.status) == ((2,), "failed")
    assert "rank 2 got ncclUnhandledCudaError from NCCL" in found.verdict


@pytest.mark.parametrize("more", [{"async_error": 6}, {"async_error": "ncclRemoteError"}, {"abort_flag": True}])
def test_who_only_lost_another_rank_is_told_and_not_suspected(tmp_path: Path, more: dict[str, Any]) -> None:
    found = read(tmp_path, answer(marked("0xaa", {1: more})))
    (failed,) = (f for f in found.findings if f.kind == "rank-failed")
    assert (found.culprits, failed.candidates, failed.root_cause) == ((), (), False)
    assert found.status == "failed" and found.verdict.startswith("rank 1 ")


def test_who_takes_a_communicator_down_alone_is_a_suspect(tmp_path: Path) -> None:
    found = first(read(tmp_path, answer(marked("0xaa", {2: {"finalize_called": True}}))))
    assert (found.candidates, found.culprit_ranks) == ((2,), ())
    assert "rank 2 took a communicator down that others still use" in found.title


def test_all_that_end_together_are_none(tmp_path: Path) -> None:
    ending = marked("0xaa", {rank: {"destroy_flag": True} for rank in range(4)})
    assert not [f for f in read(tmp_path, answer(ending)).findings if f.kind in ("missing-rank", "rank-failed")]


def test_a_torn_answer_keeps_whole_ranks(tmp_path: Path) -> None:
    text = answer(comm("0xaa", list(range(8)), {6: 49}))
    (tmp_path / "ras.json").write_text("\ufeff" + text[: text.index('"pid": 7007')])
    dataset = load([tmp_path])
    found = first(analyse(dataset))
    assert found.candidates == (6,) and "rank 6 launched 49 AllGather" in found.title
    assert "cut off" in dataset.files["problem"][0]
