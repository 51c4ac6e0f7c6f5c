"""Dumps beside other files: those are left as they were put together last while only dumps are new."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rankscope.parsers.assemble.again import partly_again
from rankscope.parsers.assemble.dataset import assemble
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.tables import Memory
from rankscope.parsers.logs.model import LogContent
from rankscope.schema import Dataset
from tests.parsers.assemble.logs.job import log_of, source
from tests.parsers.assemble.test_again import assert_equal, put_together
from tests.parsers.assemble.test_placed import RANKS, Captured
from tests.parsers.dumps import FRAMES, START_NS
from tests.parsers.py_spy.dumps import process, read

OTHERS = ("messages", "settings", "comms", "ras", "threads", "traces", "world_size", "attempt")


@pytest.fixture
def captured() -> Captured:
    return Captured()


def put(captured: Captured, memory: Memory, *, partly: bool) -> Dataset:
    """Assembles as the watcher does; the same comes of all the files without anything remembered."""
    known = partly_again(memory, (None, None, None), captured.sources) if partly else None
    found = known or assemble(captured.sources, "dumps", None, None, None, memory)
    anew = put_together(captured.sources)
    assert_equal(found, anew)
    for name in OTHERS:
        one, other = getattr(found, name), getattr(anew, name)
        assert one == other if isinstance(one, int) else one.drop("stack_id", strict=False).equals(
            other.drop("stack_id", strict=False)), name  # fmt: skip
    return found


def beside(captured: Captured, steps: bool = False) -> None:
    """Each rank has a log of NCCL, with its operations or without."""
    for rank in range(RANKS):
        name = f"nccl_{rank}.log"
        captured.files[name] = source(name, log_of(rank, None if steps else lambda _: ()))


def test_dumps_are_put_together_without_what_lies_beside_them(captured: Captured) -> None:
    beside(captured)
    memory, chance = Memory(), random.Random(1)
    whole = put(captured, memory, partly=False)
    for _ in range(6):
        ranks = chance.sample(range(RANKS), chance.randint(1, 3))
        for rank in ranks:
            captured.write(rank)
        found = put(captured, memory, partly=True)
        assert memory.partly and memory.renewed == frozenset(ranks)
        assert found.comms is whole.comms and found.comms.height == 2 * RANKS
    put(captured, memory, partly=False)
    assert not memory.partly


def test_a_log_that_only_grew_is_no_news(captured: Captured) -> None:
    beside(captured)
    memory = Memory()
    put(captured, memory, partly=False)
    captured.write(1)
    captured.files["nccl_0.log"] = replace(captured.files["nccl_0.log"], size=10**6, mtime_ns=9)
    put(captured, memory, partly=True)
    assert memory.partly and memory.renewed == frozenset({1})


def test_all_is_put_together_where_anything_else_is_new(captured: Captured) -> None:
    beside(captured)
    memory = Memory()
    put(captured, memory, partly=False)
    changes = {
        "nccl_0.log": source("nccl_0.log", log_of(0, lambda _: ())),
        "notes.txt": Source("notes.txt", "log", 3, 1, None, LogContent()),
        "more.log": source("more.log", log_of(1, lambda _: ())),
        "capture_rank_1.json": replace(captured.files["capture_rank_1.json"], problem="cut short"),
    }
    for name, now in changes.items():
        captured.write(2)
        captured.files[name] = now
        put(captured, memory, partly=True)
        assert memory.partly == name.startswith("capture"), name
    captured.card(1, ended="exit")
    put(captured, memory, partly=True)
    assert not memory.partly


def test_where_logs_have_operations_of_their_own_all_is_put_together(captured: Captured) -> None:
    beside(captured, steps=True)
    memory = Memory()
    assert put(captured, memory, partly=False).ops["source"].n_unique() == 2
    captured.write(2)
    put(captured, memory, partly=True)
    assert not memory.partly


def of_process(dataset: Dataset) -> str:
    """Where the process stands of which py-spy wrote the stacks."""
    return dataset.stack(dataset.threads["stack_id"][0])[0].function


def test_stacks_of_processes_keep_their_numbers(captured: Captured) -> None:
    stacks = Source("pyspy_rank_0.txt", "py-spy", 1, START_NS, None, read(process(pid=7)))
    captured.files["pyspy_rank_0.txt"] = stacks
    memory = Memory()
    put(captured, memory, partly=False)
    captured.write(2)
    assert of_process(put(captured, memory, partly=True)) == "forward" and memory.partly
    captured.recorders[2].frames = [{**FRAMES[0], "line": 7}]
    captured.write(2)
    assert of_process(put(captured, memory, partly=True)) == "forward"
    assert not memory.partly, "there are more stacks before it now"
