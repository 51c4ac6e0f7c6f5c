"""What stacks alone say where no frame names communication, where ranks gave no answer, and where logs tell more."""

from __future__ import annotations

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from rankscope.schema.tables import AT_CRASH
from tests.analysis.hosts import LOOP, MAIN, REDUCE, Stack
from tests.builders import JobBuilder

SYNC = (("synchronize", "torch/cuda/__init__.py", 1040), *MAIN)
UNTOLD = (("step", "train/step.py", 12), *MAIN)


def seen(stacks: dict[int, Stack], tool: str = "faulthandler") -> JobBuilder:
    """A job of which there are only stacks, taken by a tool that does not tell who was running."""
    job = JobBuilder(8)
    job.no_dump = set(range(8))
    for rank, stack in stacks.items():
        job.thread(rank, stack, active=None, gil=None, tool=tool)
    return job


def first(job: JobBuilder) -> Finding:
    return next(f for f in analyse(job.build()).findings if f.kind in ("missing-dump", "missing-rank"))


def test_who_is_elsewhere_than_most_is_a_suspect_where_no_frame_names_a_call() -> None:
    for waits in (UNTOLD, SYNC):
        found = first(seen({**dict.fromkeys((0, 1, 3), waits), 2: LOOP}))
        assert (found.severity, found.candidates, found.culprit_ranks) == ("warning", (2,), ())


def test_without_a_majority_nobody_is() -> None:
    assert first(seen({0: UNTOLD, 1: UNTOLD, 2: LOOP, 3: LOOP})).candidates == ()
    assert first(seen({0: UNTOLD, 1: LOOP})).candidates == ()
    assert first(seen(dict.fromkeys(range(4), UNTOLD))).candidates == ()


def test_of_two_ranks_the_one_that_does_not_communicate_is() -> None:
    assert first(seen({0: REDUCE, 1: LOOP})).candidates == (1,)


def test_more_that_are_elsewhere_than_wait_are_none() -> None:
    assert first(seen({0: REDUCE, 1: LOOP, 2: LOOP})).candidates == ()


def test_who_gave_up_waiting_is_no_suspect_wherever_it_stands() -> None:
    job = seen({**dict.fromkeys((0, 1, 3), UNTOLD), 2: LOOP})
    job.known("watchdog-timeout", 2)
    found = first(job)
    assert found.candidates != (2,)
    assert found.title.startswith("no flight recorder dump, but stacks: ")


def test_who_gave_no_answer_is_a_suspect_where_the_others_did() -> None:
    job = seen(dict.fromkeys((0, 1, 3), UNTOLD))
    job.message("no-answer", 2, text="rank 2 did not answer the debug server: TimeoutError")
    found = first(job)
    assert (found.candidates, found.severity) == ((2,), "warning")
    assert found.title.startswith("only stacks were found: rank 2 gave no answer; ")
    assert found.evidence[0].text == "rank 2 did not answer the debug server: TimeoutError"


def test_where_most_gave_no_answer_nobody_is_one_for_it() -> None:
    job = seen({0: UNTOLD})
    for rank in (1, 2, 3):
        job.message("no-answer", rank)
    assert first(job).candidates == ()


def test_what_looked_is_named() -> None:
    found = first(seen({0: REDUCE, 1: LOOP}, "pystack"))
    assert {e.text.partition(":")[0] for e in found.evidence} == {"pystack"}
    assert first(seen({0: REDUCE, 1: LOOP}, "py-spy")).title.startswith("only py-spy dumps were found: ")


def test_of_a_stack_alone_nobody_knows_whether_it_ran() -> None:
    assert "rank 1 busy or waiting, at preprocess data/clean.py:12" in first(seen({0: REDUCE, 1: LOOP})).title


def test_who_printed_its_stacks_because_it_ended_is_not_alive() -> None:
    for tool, alive in (("faulthandler", True), (AT_CRASH, False)):
        job = JobBuilder(4)
        job.collective(state="scheduled", ranks=(0, 1, 2))
        job.no_dump = {3}
        job.thread(3, LOOP, active=None, gil=None, tool=tool)
        told = " ".join(f.explanation for f in analyse(job.build()).findings)
        assert ("stacks show rank 3 alive" in told) is alive
