"""Runs by the numbers of sidecars: of one attempt whose ranks begin apart, of two jobs in one directory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.memory.memory_samples import decode_samples
from rankscope.kinds.input_kinds import MEMORY_SAMPLES
from rankscope.report.words import summary, unread
from rankscope.schema import Dataset
from tests.assemble.test_silent import launched, without_dumps
from tests.features.logs.rules.processes import SECOND, Processes, closed


def read(files: Sequence[SourceFile], attempt: int | None = None) -> Dataset:
    return assemble(sorted(files, key=lambda source: source.shown), "dumps", None, None, attempt)


def sources(*made: Processes) -> list[SourceFile]:
    return [file for one in made for file in one.sources()]


@pytest.mark.parametrize("apart_s", [0.9, 500.0])
def test_one_attempt_stays_one_however_far_its_ranks_begin_apart(apart_s: float) -> None:
    made = Processes(4, steps=0)
    launched(made, 0, "4711")
    without_dumps(made)
    made.fail(ValueError("no such dataset"), 1, at_s=-0.5)
    for rank in (2, 3):
        made.cards[rank].started_ns += round(apart_s * SECOND)
        made.end(rank, apart_s + 5, "terminated")
    found = read(sources(made))
    assert found.attempts.height == 0
    analysis = analyse(found)
    assert (analysis.status, analysis.culprits) == ("failed", (1,))


def test_a_rank_without_a_dump_is_of_the_attempt_whose_numbers_it_has() -> None:
    made = Processes(2)
    launched(made, 0, "4711")
    made.cards[1].dumps = set()
    made.fail(ValueError("no such dataset"), 1, at_s=0.5)
    made.cards[0].started_ns += 30 * SECOND
    found = read(sources(made))
    assert (found.attempts.height, analyse(found).culprits) == (1, (1,))


def two_jobs(folder: str = "job_2/", ids: bool = True) -> tuple[Processes, Processes]:
    """Two jobs that run at the same time: rank 1 of the first fails, the second comes to its end."""
    first, second = Processes(2, steps=5), Processes(2, steps=5, folder=folder, start_s=0.00002)
    for number, made in enumerate((first, second)):
        launched(made, 0, f"471{number}" if ids else None)
        for card in made.cards:
            card.run = f"node0:2950{number}"
            card.started_ns += number * SECOND
            card._fixed["pid"] += 10 * number
    first.fail(ValueError("loss is nan"), 1, at_s=5)
    first.fail(closed(), 0, at_s=5.1)
    for rank in range(2):
        second.end(rank, 6)
    return first, second


@pytest.mark.parametrize("ids", [True, False])
def test_two_jobs_at_one_time_are_not_mixed(ids: bool) -> None:
    first, second = (read(sources(*two_jobs(ids=ids)), attempt) for attempt in (0, None))
    assert [dataset.dumps["path"].to_list()[0] for dataset in (first, second)] == [
        "fr_trace_rank_0", "job_2/fr_trace_rank_0",
    ]  # fmt: skip
    assert (analyse(first).status, analyse(first).culprits, analyse(second).status) == ("failed", (1,), "healthy")
    said = "another job, 4710" if ids else "another job, which ran at the same time"
    assert f"attempt 1 of 2 (0 is the oldest; attempt 0 is {said}: read it with --attempt 0)" in summary(second)


def test_two_jobs_that_share_a_directory_are_told_apart_by_rank() -> None:
    first, second = two_jobs("")
    files = [
        *(s for s in first.sources() if "rank_1" in s.shown),
        *(s for s in second.sources() if "rank_0" in s.shown),
    ]
    for pid, rank in ((101, 1), (110, 0)):
        line = f'{{"rankscope_memory":1,"rank":{rank},"host":"node0","pid":{pid},"started_ns":1}}\n'
        sample = '{"time_ns":1760000000000000000,"step":1,"device":"host","reserved":1,"peak":1}\n'
        memory = decode_samples((line + sample).encode())
        files.append(SourceFile(f"memory_rank_{rank}.jsonl", MEMORY_SAMPLES.name, 1, None, None, memory))
    for attempt, rank, status in ((0, 1, "failed"), (1, 0, "healthy")):
        found = read(files, attempt)
        used = found.files.filter((found.files["attempt"] == attempt) & (found.files["kind"] != "log"))
        assert used["rank"].unique().to_list() == [rank]
        assert found.memory["rank"].unique().to_list() == [rank]
        assert analyse(found).status == status


def test_attempts_of_one_job_are_no_other_job() -> None:
    first, second = Processes(2), Processes(2, folder="earlier_1/", start_s=100)
    for number, made in enumerate((first, second)):
        launched(made, number, "4711")
    assert summary(read(sources(first, second))).endswith("attempt 1 of 2 (0 is the oldest)")


@pytest.mark.parametrize("stale", [1, 2])
def test_a_restart_begins_where_no_rank_had_begun_for_longest(stale: int) -> None:
    """Without numbers: rank `stale` of the restarted job has not written anything; its old files lie there."""
    old, new = Processes(3, folder="earlier_1/"), Processes(3, start_s=40)
    for made in (old, new):
        launched(made, None, None)
    left = [s for s in old.sources() if s.content is not None]
    for source in left:
        if f"rank_{stale}" in source.shown:
            source.shown = source.shown.removeprefix("earlier_1/")
    mine = [s for s in new.sources() if f"rank_{stale}" not in s.shown]
    found = read([*left, *mine])
    assert found.attempts["dumps"].to_list() == [3, 2]
    assert found.missing_ranks == (stale,)


def problems(made: Sequence[Processes]) -> list[tuple[str, str]]:
    return [(text.problem, text.paths[0]) for text in unread(read(sources(*made)))]


def test_sidecars_that_disagree_are_told() -> None:
    made = Processes(3)
    launched(made, 0, "4711")
    made.cards[1].world_size = 8
    assert problems([made]) == [("its process knows 8 ranks, while 2 others of its run know 3", "capture_rank_1.json")]
    first, second = two_jobs()
    launched(second, 0, "4710")
    told = "rank {} of job 4710 is another process at the same time, in capture_rank_{}.json: two jobs have one id"
    assert problems([first, second]) == [
        (told.format(rank, rank), f"job_2/capture_rank_{rank}.json") for rank in range(2)
    ]
