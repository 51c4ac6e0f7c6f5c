"""Dumps that are assembled again, some of them changed: it comes to the same as assembling all of them anew."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from rankscope.parsers.assemble.dataset import assemble
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.assemble.tables import Memory
from rankscope.parsers.flight_recorder.decode import decode
from rankscope.schema import Dataset
from tests.parsers.dumps import job
from tests.simulator.instructions import Host
from tests.simulator.job import plan, run
from tests.simulator.options import MODES, Moment
from tests.simulator.programs import Style
from tests.simulator.topology import Layout

STYLES = {
    "ddp": (Style("ddp"), Layout(dp=4)),
    "fsdp": (Style("fsdp", coalesced=True), Layout(tp=2, dp=4)),
    "megatron": (Style("megatron"), Layout(tp=2, dp=2, pp=2)),
    "ring": (Style("ring"), Layout(dp=4)),
}
ROUNDS = 6


def versions(style: str, mode: str, folder: Path) -> list[list[Source]]:
    """Dumps of one job at some moments of it, by file."""
    moments: list[tuple[Moment, int]] = [("live", 0), ("live-apart", 1), ("timeout", 0)]
    out = []
    for number, (moment, seed) in enumerate(moments):
        program, layout = STYLES[style]
        planned = plan(layout, program, 2 + number)
        planned.past = 4
        planned.replace(1, 1 + number, [Host(None), *planned.steps[1][1 + number]])
        place = folder / f"{number}"
        place.mkdir()
        paths = run(planned, seed=seed).write(place, moment, MODES[mode])
        out.append([source(path) for path in sorted(paths)])
    return out


def source(path: Path) -> Source:
    data = path.read_bytes()
    return Source(path.name, "flight-recorder", len(data), path.stat().st_mtime_ns, None, decode(data))


def put_together(sources: list[Source], memory: Memory | None = None) -> Dataset:
    return assemble([one.renewed() for one in sources], "dumps", None, None, None, memory)


def assert_equal(again: Dataset, anew: Dataset) -> None:
    for name in ("groups", "frontiers", "files", "attempts", "repeats"):
        assert getattr(again, name).equals(getattr(anew, name)), name
    assert again.ops.drop("stack_id").equals(anew.ops.drop("stack_id"))
    assert _stacks(again) == _stacks(anew)


def _stacks(dataset: Dataset) -> list[list[tuple[str, str, int]] | None]:
    """The stack of each operation: which numbers stacks have does not matter."""
    frames: dict[int, list[tuple[str, str, int]]] = {}
    for number, *frame in dataset.stacks.sort("stack_id", "depth").select(
        "stack_id", "function", "file", "line"
    ).iter_rows():  # fmt: skip
        frames.setdefault(number, []).append((frame[0], frame[1], frame[2]))
    return [frames.get(number) for number in dataset.ops["stack_id"]]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_kept_changes_nothing(style: str, mode: str, tmp_path: Path) -> None:
    known, chance = versions(style, mode, tmp_path), random.Random(f"{style} {mode}")
    memory, sources = Memory(), list(known[0])
    assert_equal(put_together(sources, memory), put_together(sources))
    for _ in range(ROUNDS):
        for place in chance.sample(range(len(sources)), chance.randint(0, 3)):
            sources[place] = chance.choice(known)[place]
        assert_equal(put_together(sources, memory), put_together(sources))


def test_only_the_dumps_that_changed_are_worked_out() -> None:
    sources = [_recorded(rank, 20) for rank in range(3)]
    memory = Memory()
    put_together(sources, memory)
    before = memory.made
    put_together(sources, memory)
    assert before is not None and memory.made is not None and memory.made.entries is before.entries
    sources[1] = _recorded(1, 21)
    again = put_together(sources, memory)
    assert memory.made is not None and memory.made.groups.rows is before.groups.rows
    assert [memory.made.facts[i] is before.facts[i] for i in range(3)] == [True, False, True]
    assert_equal(again, put_together(sources))


def test_columns_in_which_nothing_is_new_are_not_copied() -> None:
    sources, memory = [_recorded(rank, 20) for rank in range(3)], Memory()
    before = put_together(sources, memory).ops
    sources[1] = _recorded(1, 20, late_ns=7)
    again = put_together(sources, memory)
    assert_equal(again, put_together(sources))
    sources[1] = _recorded(1, 20, late_ns=7)
    assert put_together(sources, memory).ops is again.ops
    shared = {name for name in before.columns if np.shares_memory(_values(before[name]), _values(again.ops[name]))}
    assert {"rank", "seq", "state", "stack_id"} <= shared
    assert "created_ns" not in shared


def _values(column: pl.Series) -> NDArray[Any]:
    return column.to_physical().to_numpy()


def test_another_rank_another_group_and_a_file_less_are_worked_out_anew() -> None:
    sources = [_recorded(rank, 5) for rank in range(3)]
    memory = Memory()
    put_together(sources, memory)
    sources[1] = replace(sources[1], content=_recorded(1, 6, "later").content)
    assert_equal(put_together(sources, memory), put_together(sources))
    sources[2] = replace(sources[2], shown="rank_7")
    assert_equal(put_together(sources, memory), put_together(sources))
    del sources[0]
    assert_equal(put_together(sources, memory), put_together(sources))


def test_stacks_that_nobody_has_any_more_are_let_go() -> None:
    memory = Memory()
    sources = [_recorded(rank, 3) for rank in range(2)]
    for number in range(60):
        sources[0] = _recorded(0, 3, line=number)
        put_together(sources, memory)
        assert memory.made is not None and len(memory.made.stacks) < 20


def _recorded(rank: int, count: int, group: str = "0", line: int = 1, late_ns: int = 0) -> Source:
    recorder = job(3, {"0": ("default_pg", [0, 1, 2]), "later": ("later", [0, 1, 2])})[rank]
    for _ in range(count):
        recorder.collective(group)
    for entry in recorder.entries:
        entry["frames"] = [{"name": "step", "filename": "train.py", "line": line}]
        entry["time_created_ns"] += late_ns
    data = recorder.pickle()
    return Source(f"rank_{rank}", "flight-recorder", len(data), 1, None, decode(data))
