"""Which thread stands for a rank, who holds the interpreter lock, and how hosts stand to each other."""

from __future__ import annotations

from rankscope.analysis.host_stacks import host_stacks
from rankscope.analysis.places import host_steps
from rankscope.features.stacks.stack_text import find_pattern, host_text
from tests.analysis.hosts import BACKWARD, GATHER, LEAVE, LOAD, LOOP, REDUCE, SAVE, TAKE_GIL, missing_one, seen
from tests.builders import JobBuilder


def test_the_main_thread_stands_for_a_rank() -> None:
    job = JobBuilder(2)
    job.thread(0, LOAD, name="Thread-1")
    job.thread(0, SAVE)
    job.thread(None, REDUCE)
    found = host_stacks(job.build())
    assert list(found) == [0]
    assert host_text(found[0]) == "in torch.save, at W.write train/ckpt.py:7 < save_checkpoint train/ckpt.py:77"
    assert len(found[0].threads) == 2


def test_where_the_main_thread_waits_in_backward_the_thread_in_a_collective_stands_for_it() -> None:
    job = JobBuilder(1)
    job.thread(0, BACKWARD)
    job.thread(0, LOAD, name="pin_memory")
    job.thread(0, REDUCE, name="Dummy-2")
    host = host_stacks(job.build())[0]
    assert host.trains.name == "Dummy-2"
    assert host_text(host).endswith("(Dummy-2)")


def test_the_holder_of_the_interpreter_lock_is_named() -> None:
    job = JobBuilder(2)
    job.thread(0, TAKE_GIL)
    job.thread(0, LOOP, name="logger", gil=True)
    job.thread(1, TAKE_GIL)
    found = host_stacks(job.build())
    assert "the GIL is held by logger, running, at preprocess data/clean.py:12" in host_text(found[0])
    assert "a native thread does" in host_text(found[1])


def test_only_the_newest_look_counts_and_no_worker_of_a_data_loader() -> None:
    job = JobBuilder(1)
    job.thread(0, REDUCE, written_ns=1)
    job.thread(0, SAVE, written_ns=2)
    job.thread(0, LOOP, written_ns=2, pid=9, parent_pid=4000)
    assert host_stacks(job.build())[0].activity.words == "in torch.save"


def test_a_launcher_does_not_stand_for_the_rank_it_started() -> None:
    job = JobBuilder(1)
    job.thread(0, [("select", "selectors.py", 1)], pid=1)
    job.thread(0, REDUCE, pid=2)
    assert host_stacks(job.build())[0].pid == 2


def test_patterns() -> None:
    def letter(stacks: dict[int, tuple[tuple[str, str, int], ...]]) -> str | None:
        pattern = find_pattern(host_stacks(seen(JobBuilder(4), stacks).build()))
        return pattern.letter if pattern else None

    assert letter({0: REDUCE}) is None
    assert letter({0: LEAVE, 1: REDUCE, 2: REDUCE}) == "A"
    assert letter({0: GATHER, 1: REDUCE}) == "B"
    assert letter({0: REDUCE, 1: REDUCE}) == "C"
    assert letter({0: LEAVE, 1: LEAVE}) == "C"


def test_the_same_helper_called_from_two_places_is_two_places() -> None:
    other = (*REDUCE[:-2], ("evaluate", "eval.py", 9), REDUCE[-1])
    pattern = find_pattern(host_stacks(seen(JobBuilder(4), {0: REDUCE, 1: REDUCE, 2: other}).build()))
    assert pattern is not None
    assert [site.ranks for site in pattern.sites] == [(0, 1), (2,)]


def test_next_steps_name_the_ranks_that_were_not_looked_at() -> None:
    dataset = seen(missing_one(), {1: SAVE}).build()
    assert host_steps(dataset, [1]) == ()
    assert host_steps(dataset, [1, 3], "why?") == ("rankscope stacks -o dumps on each host, for rank 3: why?",)
    assert host_steps(dataset, range(2, 8), native=True) == ("rankscope stacks -o dumps on each host, for ranks 2-7",)
