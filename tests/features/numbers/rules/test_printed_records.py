"""Rules on records of other tools: their hashes prove, printed statistics warn, and healthy ones are silent."""

from __future__ import annotations

import pytest

from rankscope.features.numbers.rules.number_findings import NumbersJudgement, judge_numbers
from rankscope.features.numbers.rules.reference import compare_numbers
from rankscope.schema import Dataset
from tests.msprobe_writer import MsprobeJob, read_records


def job(*, crc: bool = True, grouped: bool = True, names: str = "rank{}", **fault: int) -> Dataset:
    """Three steps of four ranks, the second one with a fault."""
    made = MsprobeJob(4, crc, grouped)
    made.step()
    made.step(**fault)
    made.step()
    return read_records(made.files(names))


def first(judged: NumbersJudgement) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    root = judged.causes[0]
    return root.first.rule, root.first.ranks, root.first.candidates


@pytest.mark.parametrize("crc", [True, False])
def test_a_healthy_dump_is_silent(crc: bool) -> None:
    judged = judge_numbers(job(crc=crc))
    assert judged.causes == ()
    asked = {count.rule for count in judged.counts}
    assert asked & {"E1", "E1p"} == {"E1" if crc else "E1p"}
    assert not asked & {"R1", "R2", "R3", "R3s", "R4", "N2", "E3"}


def test_another_result_by_its_hash_and_by_its_statistics() -> None:
    assert first(judge_numbers(job(spoiled=1))) == ("E1", (1,), ())
    assert first(judge_numbers(job(spoiled=1, crc=False))) == ("E1p", (1,), ())
    assert first(judge_numbers(job(spoiled=1, grouped=False))) == ("E1", (1,), ())


@pytest.mark.parametrize("crc", [True, False])
def test_the_rank_that_makes_a_nan(crc: bool) -> None:
    judged = judge_numbers(job(nan_on=2, crc=crc))
    assert first(judged) == ("NF", (2,), ()) and len(judged.causes) == 1
    assert judged.causes[0].path == ("ranks 0,1,3 got it in all_reduce of ranks 0-3 from rank 2",)


def test_a_lost_rank_of_the_default_group_accuses_nobody() -> None:
    """A NaN may have come from a member whose dump is missing: only written groups are whole."""
    made = MsprobeJob(4, grouped=False)
    made.step(nan_on=3)
    files = {path: data for path, data in made.files().items() if "rank3" not in path}
    judged = judge_numbers(read_records(files))
    assert [cause.first.rule for cause in judged.causes] == ["NF"] and judged.causes[0].first.ranks == ()


def test_dumps_against_a_reference() -> None:
    good = job()
    assert compare_numbers(job(), good).causes == ()
    assert first(compare_numbers(job(spoiled=1), good)) == ("RX", (1,), ())
    plain = compare_numbers(job(spoiled=1, crc=False), good)
    assert first(plain) == ("RX", (1,), ()) and "in all that is printed" in plain.notes[0]
    assert 0 < plain.causes[0].first.value < 1


def test_processes_without_ranks() -> None:
    """The groups of processes do not tell them apart: nobody is taken for a rank, and the files say so."""
    made = MsprobeJob(2)
    made.step()
    lost = read_records(made.files("proc200{}"))
    assert lost.tensors.is_empty() and "--rank-from" in lost.files["problem"].drop_nulls()[0]
    alone = MsprobeJob(1, grouped=False)
    alone.step()
    found = read_records(alone.files("proc2016"))
    assert found.tensors["rank"].unique().to_list() == [0] and "only process" in found.files["problem"].drop_nulls()[0]
