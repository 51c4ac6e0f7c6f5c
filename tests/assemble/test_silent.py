"""Attempts of which only sidecars are left: they are numbered among the others, and tell what sidecars tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.assembly import assemble
from rankscope.assemble.attempts import NoSuchAttemptError, job_attempts
from rankscope.assemble.sources import SourceFile
from rankscope.cli import run
from rankscope.parsers.sidecar import Sidecar
from rankscope.schema import Dataset
from tests.features.logs.rules.processes import Processes, closed

Captured = pytest.CaptureFixture[str]
FOLDERS = ("earlier_2/", "earlier_1/", "")


def launched(made: Processes, count: int | None, job: str | None) -> None:
    for card in made.cards:
        card._fixed.update(attempt=count, job=job)


def without_dumps(made: Processes) -> None:
    for card in made.cards:
        card.dumps = set()


def three(silent: int = 1, counted: bool = True) -> list[Processes]:
    """Three attempts of two ranks; of one of them only sidecars are left, for rank 1 failed before it issued any."""
    made = [Processes(2, folder=folder, start_s=100 * i) for i, folder in enumerate(FOLDERS)]
    for i, one in enumerate(made):
        launched(one, i if counted else 0, "none")
        if i == silent:
            without_dumps(one)
            one.fail(ValueError("no such dataset"), 1, at_s=2)
            one.end(0, 3, "terminated")
        elif i < 2:
            one.fail(ValueError(f"loss is nan in {i}"), 0, at_s=5)
            one.fail(closed(), 1, at_s=5.1)
        else:
            one.end(0, 5)
            one.end(1, 5)
    return made


def read(made: list[Processes], attempt: int | None = None) -> Dataset:
    files = sorted((file for one in made for file in one.sources()), key=lambda source: source.shown)
    return assemble(files, "dumps", None, None, attempt)


def said(made: list[Processes], attempt: int | None = None) -> Analysis:
    return analyse(read(made, attempt))


def exceptions(found: Dataset) -> set[str]:
    """Directories of the tracebacks that are told."""
    paths = found.files["path"].gather(found.messages.filter(found.messages["kind"] == "traceback")["file"])
    return {path.rpartition("/")[0] for path in paths}


@pytest.mark.parametrize("counted", [True, False])
def test_an_attempt_in_the_middle_has_its_number(counted: bool) -> None:
    made = three(counted=counted)
    found = read(made, 1)
    assert found.attempts.select("attempt", "label", "dumps").rows() == [
        (0, "earlier_2", 2), (1, "earlier_1", 0), (2, "2025-10-09 08:56:40 UTC", 2),
    ]  # fmt: skip
    assert (found.attempt, found.world_size, found.ops.height) == (1, 2, 0)
    assert exceptions(found) == {"earlier_1"}
    analysis = analyse(found)
    assert (analysis.status, analysis.culprits) == ("failed", (1,))
    assert "no such dataset" in analysis.verdict
    with pytest.raises(NoSuchAttemptError, match="numbered from 0 to 2"):
        read(made, 3)


@pytest.mark.parametrize("counted", [True, False])
def test_what_it_left_is_nothing_to_the_others(counted: bool) -> None:
    made = three(counted=counted)
    first, last = read(made, 0), read(made)
    assert (first.attempt, exceptions(first)) == (0, {"earlier_2"})
    assert (last.attempt, exceptions(last)) == (2, set())
    assert analyse(first).culprits == (0,)
    assert analyse(last).status == "healthy"


def test_the_newest_counts_if_one_of_its_processes_failed() -> None:
    made = three(silent=2)
    assert (read(made).attempt, exceptions(read(made))) == (2, {""})
    assert said(made).culprits == (1,)
    for card in made[2].cards:
        card.ended = None
    made[2].tracebacks.clear()
    assert read(made).attempt == 1
    assert read(made, 2).attempts["dumps"].to_list() == [2, 2, 0]


def test_sidecars_alone() -> None:
    made = three()
    for one in made:
        without_dumps(one)
    assert [read(made, attempt).attempts["dumps"].to_list() for attempt in (0, 1, 2, None)] == [[0, 0, 0]] * 4
    assert [said(made, attempt).culprits for attempt in (0, 1)] == [(0,), (1,)]
    assert said(made).verdict == "only sidecars were found: came to the end of its program (ranks 0,1)"
    alone = read(made[:1])
    assert (alone.attempts.height, analyse(alone).culprits) == (0, (0,))


def test_a_rank_that_left_no_dump_is_of_the_attempt_it_fits() -> None:
    made = three()
    made[0].cards[1].dumps = set()
    found = read(made, 0)
    cards = found.files.filter(found.files["kind"] == "sidecar")
    assert dict(cards.select("path", "attempt").iter_rows()) == {
        "capture_rank_0.json": 2, "capture_rank_1.json": 2, "earlier_1/capture_rank_0.json": 1,
        "earlier_1/capture_rank_1.json": 1, "earlier_2/capture_rank_0.json": 0, "earlier_2/capture_rank_1.json": 0,
    }  # fmt: skip
    assert (found.world_size, found.missing_ranks) == (2, (1,))


def _card(rank: int, **more: object) -> SourceFile:
    return SourceFile(f"{rank}-{len(more)}.json", "sidecar", 1, None, None, replace(Sidecar(rank, host="a"), **more))  # type: ignore[arg-type]


def lived(start_s: int) -> dict[str, object]:
    """A process that ended in 4 s."""
    return {"started_ns": start_s * 10**9, "ended_ns": (start_s + 4) * 10**9, "ended": "exit"}


@pytest.mark.parametrize(
    ("make", "attempts"),
    [
        (lambda _: {"started_ns": 5}, 1),
        (lambda rank: lived(5 + 50 * rank), 1),
        (lambda rank: lived(5 + 100 * rank), 2),
        (lambda rank: lived(5 + 500 * rank) | {"host": f"node-{rank}"}, 1),
        (lambda rank: lived(5 + 800 * rank) | {"host": f"node-{rank}"}, 2),
        (lambda rank: lived(5 + 800 * rank) | {"job": "4711"}, 1),
        (lambda rank: lived(5 + 800 * rank) | {"job": "4711" if rank else "", "attempt": 0}, 2),
        (lambda rank: lived(5 + 20 * rank) | {"job": "4711" if rank else "", "attempt": 0}, 1),
        (lambda rank: {"started_ns": 5, "attempt": rank}, 2),
        (lambda rank: {"started_ns": 5, "job": f"job-{rank}"}, 2),
        (lambda rank: {"attempt": rank}, 2),
        (lambda _: {}, 0),
    ],
)
def test_what_tells_attempts_apart(make: Callable[[int], dict[str, object]], attempts: int) -> None:
    found = job_attempts([], [_card(rank, **make(rank)) for rank in range(2)])
    assert len(found) == (attempts if attempts > 1 else 0)


def test_a_report_says_which_left_no_dumps_and_reads_them(tmp_path: Path, capsys: Captured) -> None:
    for number, folder in enumerate(FOLDERS):
        (tmp_path / folder).mkdir(exist_ok=True)
        for rank in range(2):
            told = {"rankscope_capture": 1, "rank": rank, "world_size": 2, "host": "a", "job": "j", "attempt": number}
            ended = {"reason": "exception", "time_ns": 10**18 + number * 10**11 + 1, "error": f"ValueError: {number}"}
            more = {"started_ns": 10**18 + number * 10**11, "ended": ended if rank == number % 2 else None}
            (tmp_path / folder / f"capture_rank_{rank}.json").write_text(json.dumps({**told, **more}))
    for attempt, rank in ((0, 0), (1, 1), (2, 0)):
        assert run(["report", str(tmp_path), "--attempt", str(attempt)]) == 1
        text = " ".join(capsys.readouterr().out.split())
        assert f"rank {rank} failed: ValueError: {attempt}" in text
        assert f"attempt {attempt} of 3 (0 is the oldest; attempts 0-2 left no dumps)" in text
    assert run(["report", str(tmp_path), "--attempt", "3"]) == 2
    assert "there is no attempt 3: they are numbered from 0 to 2" in capsys.readouterr().err
