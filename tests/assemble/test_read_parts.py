"""Parts of a job: what is not read accuses nobody, and the culprit of the whole stays the culprit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import InputError, LoadOptions, load
from rankscope.schema import Dataset
from tests.simulator.options import ALL_MODES, DumpOptions
from tests.simulator.scenario import Scenario, make
from tests.simulator.truth import Truth, innocents

FAULTS = ("host-stuck", "skipped", "lost-send", "order", "crashed")
MODES = ("full", "old", "hook", "hook copied", "wrapped")
SEED = 51
COVERING = 40
"""Last entries of a dump that hold the divergence of all these jobs."""


@cache
def scenario(fault: str, mode: str) -> Scenario:
    """A small job with a fault."""
    return make(fault, SEED, "small", ALL_MODES[mode].job)


@pytest.fixture(scope="module", params=[(fault, mode) for fault in FAULTS for mode in MODES], ids=" ".join)
def job(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Truth]]:
    """The dumps of a job, and what is true of it."""
    fault, mode = request.param
    with TemporaryDirectory() as folder:
        yield Path(folder), scenario(fault, mode).write(Path(folder), ALL_MODES[mode])


def judged(folder: Path, **parts: Any) -> tuple[Dataset, Analysis]:
    """A part of a job, and what is said of it."""
    dataset = load([folder], LoadOptions(jobs=1, **parts))
    return dataset, analyse(dataset)


@pytest.fixture(scope="module")
def whole(job: tuple[Path, Truth]) -> tuple[Dataset, Analysis]:
    """The job read as a whole."""
    return judged(job[0])


def culprits(analysis: Analysis) -> set[int]:
    """The ranks that critical root causes name."""
    roots = [f for f in analysis.findings if f.root_cause and f.severity == "critical"]
    return {rank for finding in roots for rank in finding.culprit_ranks}


def accused(analysis: Analysis, truth: Truth) -> frozenset[int]:
    """Ranks that no fair answer names."""
    return innocents([asdict(finding) for finding in analysis.findings], truth)


def test_the_end_of_the_rings_names_the_same_culprits(job: tuple[Path, Truth], whole: tuple[Dataset, Analysis]) -> None:
    dataset, part = judged(job[0], last=COVERING)
    assert culprits(part) == culprits(whole[1])
    assert part.verdict == f"{whole[1].verdict} (read: the last 40 entries of each dump)"
    assert dataset.missing_ranks == whole[0].missing_ranks


def test_the_history_of_one_group_names_the_same_culprits(
    job: tuple[Path, Truth], whole: tuple[Dataset, Analysis]
) -> None:
    dataset, said = whole
    name = min(text for text in dataset.groups["description"] if text)
    count = dataset.groups.filter(dataset.groups["description"] == name).height
    _, part = judged(job[0], groups=(name,))
    assert culprits(part) == culprits(said)
    assert f"(read: {count} of {dataset.groups.height} group" in part.verdict


@pytest.mark.parametrize("last", [1, 6])
def test_fewer_entries_than_the_divergence_needs_accuse_nobody_else(job: tuple[Path, Truth], last: int) -> None:
    folder, truth = job
    assert not accused(judged(folder, last=last)[1], truth)


def test_ranks_that_are_left_out_are_not_missing(job: tuple[Path, Truth], whole: tuple[Dataset, Analysis]) -> None:
    folder, truth = job
    ranks = frozenset(whole[0].every_rank[::2])
    dataset, part = judged(folder, ranks=ranks)
    assert not accused(part, truth)
    assert set(dataset.seen_ranks) <= ranks
    assert set(dataset.unopened_ranks) == set(dataset.every_rank) - ranks
    assert not set(dataset.dumpless_ranks) - ranks
    assert dataset.unopened.endswith("left out by --ranks")


def written(folder: Path, options: DumpOptions = ALL_MODES["full"]) -> Path:
    """The dumps of a job in which a host stopped."""
    scenario("host-stuck", "full").write(folder, options)
    return folder


def test_files_of_other_ranks_are_not_opened(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "nccl_trace_rank_1").write_bytes(b"\x80\x02}X\x07\x00\x00\x00entries](")
    dataset, _ = judged(folder, ranks=frozenset({0, 2}))
    assert dataset.files["rank"].to_list() == [0, 2]
    assert dataset.files["problem"].null_count() == dataset.files.height


def test_a_file_that_does_not_name_its_rank_is_opened_and_its_rows_are_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "nccl_trace_rank_1").rename(folder / "second.bin")
    dataset, _ = judged(folder, ranks=frozenset({0, 2}))
    assert set(dataset.ops["rank"]) == {0, 2}
    assert dataset.seen_ranks == (0, 2)


def test_a_cut_ring_is_a_shorter_ring_that_has_wrapped(tmp_path: Path) -> None:
    folder = written(tmp_path)
    whole, _ = judged(folder)
    part, said = judged(folder, last=3)
    assert part.ops.height < whole.ops.height
    assert part.dumps["wrapped"].all()
    assert "ring-wrapped" not in {finding.kind for finding in said.findings}, "no ring had overwritten anything"
    assert part.ops["record_id"].max() == whole.ops["record_id"].max()
    known = part.frontiers.join(whole.frontiers, on=["rank", "group"], suffix="_of_whole").drop_nulls("last_enqueued")
    assert known["last_enqueued"].equals(known["last_enqueued_of_whole"], check_names=False)
    assert known.height > part.frontiers.height // 2


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"groups": ("nobody",)}, "no group nobody; there are "),
        ({"ranks": frozenset({900})}, "no file of the ranks that were asked for"),
    ],
)
def test_a_part_that_is_not_there_is_an_error(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        judged(written(tmp_path), **parts)
