"""Headlines: whole sentences that fit 80 columns, of every sample and of every kind of finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Evidence, Finding, GroupRef
from rankscope.assemble.load import load
from rankscope.kinds.finding_kinds import FINDINGS, STATUSES
from rankscope.report.headlines import LONGEST_HEADLINE, short_title, short_verdict
from tests.report.samples import hang, healthy, hostile, logged, many_ranks, traced

SAMPLES = sorted(
    path
    for path in (Path(__file__).parents[2] / "sample_data").iterdir()
    if path.is_dir() and path.name != "__pycache__"
)
JOBS = {"hang": hang, "logged": logged, "healthy": healthy, "traced": traced, "hostile": hostile, "many": many_ranks}
LONG = "a title that goes on and on without an end of a clause, with all that is known of it and of its surroundings"


def fits(analysis: Analysis) -> bool:
    """Whether the verdict and each title fit."""
    texts = [short_verdict(analysis), *map(short_title, analysis.findings)]
    return all(0 < len(text) <= LONGEST_HEADLINE for text in texts)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_headlines_of_a_sample_fit(sample: Path) -> None:
    assert fits(analyse(load([sample])))


@pytest.mark.parametrize("name", JOBS)
def test_headlines_of_a_made_job_fit(name: str) -> None:
    assert fits(JOBS[name]()[1])


@pytest.mark.parametrize("kind", FINDINGS)
def test_each_kind_has_a_short_title(kind: str) -> None:
    assert FINDINGS[kind].short, "a kind of rankscope's own says what it means"
    group = GroupRef("41", "mesh_tensor_and_sequence_parallel", (0, 1), key=0)
    for ranks in ((), (3,), tuple(range(0, 999, 2))):
        finding = Finding(
            kind,
            "critical",
            LONG,
            "",
            culprit_ranks=ranks,
            group=group,
            seq=479_232,
            op="reduce_scatter_tensor_coalesced",
        )
        title = short_title(finding)
        assert len(title) <= LONGEST_HEADLINE and "{" not in title and "479" not in LONG
        assert len(short_title(replace(finding, culprit_ranks=(), candidates=ranks))) <= LONGEST_HEADLINE


def test_a_group_without_a_description_is_called_by_its_number() -> None:
    finding = Finding("missing-rank", "critical", LONG, "", culprit_ranks=(3,), op="barrier", seq=2)
    group = GroupRef("41", "", (0, 1), key=0)
    assert short_title(replace(finding, group=group)) == "rank 3 never issued barrier #2 of group 41"


def test_what_is_short_enough_stands_as_it_is() -> None:
    title = "rank 3 never issued all_reduce #1 of mesh_tp"
    assert hang()[1].findings[0].title == short_title(hang()[1].findings[0]) == title
    assert short_verdict(hang()[1]) == f"{title}; 3 ranks wait"


def test_names_of_files_do_not_stand_in_a_headline() -> None:
    finding = Finding(
        "rank-failed", "critical", "rank 3 ran out of memory (train.log:12)", "",
        evidence=(Evidence("CUDA out of memory", file="logs/train.log", line=12),),
    )  # fmt: skip
    assert short_title(finding) == "rank 3 ran out of memory"


def test_the_first_clause_stands_for_a_long_title() -> None:
    first = "rank 2 arrives last in 6 of 6 all_reduce of default_pg, by 30 ms"
    title = f"{first}, because its host was in load_batch; costs 30 ms of each 51 ms step"
    assert short_title(Finding("straggler", "warning", title, "")) == first


def test_a_rank_without_a_dump_is_not_said_to_have_left_out_an_operation() -> None:
    title = "rank 6 left no dump, and all_reduce #11 of TENSOR_MODEL_PARALLEL_GROUP waits for it"
    assert short_title(Finding("missing-rank", "critical", title, "")) == "rank 6 left no dump"


@pytest.mark.parametrize("status", STATUSES)
def test_a_long_verdict_without_a_finding_has_a_sentence_by_its_status(status: str) -> None:
    assert 0 < len(short_verdict(Analysis(LONG, status))) <= LONGEST_HEADLINE  # type: ignore[arg-type]


def test_a_sentence_is_not_cut_inside() -> None:
    stuck = "all 8 members (ranks 0-7) joined all_reduce #2 of default_pg, but it does not finish on any of them"
    assert short_title(Finding("stuck-in-collective", "critical", stuck, "", op="all_reduce", seq=2)) == (
        "all joined all_reduce #2, and nobody finishes it"
    )
    quoted = 'the process could not do "a; b" since its own device, which all others wait for, is not there any more'
    assert short_title(Finding("known-error", "warning", quoted, "")).startswith(
        'the process could not do "a; b" since'
    )


@pytest.mark.parametrize(
    ("kind", "title", "ranks"),
    [
        ("missing-rank", "rank 3 may not have come: all others gave up waiting in all_reduce #12 of default_pg", ()),
        (
            "order-deadlock",
            "deadlock: ranks wait for each other in a circle, and each is in another group of them",
            (0, 1),
        ),
    ],
)
def test_ranks_in_question_are_not_accused(kind: str, title: str, ranks: tuple[int, ...]) -> None:
    finding = Finding(
        kind, "critical", title, "", culprit_ranks=ranks, candidates=ranks or (3,), op="all_reduce", seq=12
    )
    assert title.startswith(short_title(finding).removesuffix(".."))


def test_a_warning_behind_a_healthy_verdict_is_not_left_out() -> None:
    warning = Finding(
        "memory-leak", "warning", "memory of rank 3 grows by 20 MB with each step", "", culprit_ranks=(3,)
    )
    analysis = Analysis(f"{LONG}; but {warning.title}", "healthy", findings=(warning,))
    assert short_verdict(analysis) == warning.title


def test_killed_ranks_do_not_wait() -> None:
    failed = Finding("rank-failed", "critical", "rank 3 failed: CUDA oom", "", culprit_ranks=(3,), blast_radius=3)
    assert short_verdict(Analysis("", "failed", findings=(failed,))) == (
        "rank 3 failed: CUDA oom; 3 ranks wait or were killed"
    )
