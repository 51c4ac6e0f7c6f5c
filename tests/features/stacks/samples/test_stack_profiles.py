"""Profiles of stacks: folded lines of py-spy, and speedscope's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankscope.assemble.load import load
from rankscope.features.stacks.samples.decode import MOST_FRAMES, decode_profile, looks_like_profile
from rankscope.parsers.contents import NotThisKindError, StackFrame

PLAIN = b"<module> (train.py:12);step (train.py:10);load (train.py:5) 51\n<module> (train.py:12);wait (train.py:2) 98\n"
THREADS = b"""process 26528:"python train.py; x 1";thread (26528): MainThread;<module> (train.py:12);load (a.py:5) 30
process 26528:"python train.py; x 1";thread (0x1f): mon;Thread.run (threading.py:982) 99
"""


def speedscope(**more: Any) -> bytes:
    """A profile of one thread: two stacks, the second twice as long."""
    frames = [{"name": "main", "file": "/ws/train.py", "line": 9}, {"name": "load", "file": "/ws/train.py", "line": 5}]
    profile = {
        "type": "sampled", "name": 'Process 7 Thread 26528 "MainThread"', "unit": "seconds",
        "samples": [[0, 1], [0]], "weights": [0.02, 0.04], **more,
    }  # fmt: skip
    document = {"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": [profile]}
    return json.dumps({**document, "shared": {"frames": frames}}).encode()


def test_folded_stacks() -> None:
    assert looks_like_profile(PLAIN)
    content = decode_profile(PLAIN)
    load_batch, wait = content.stacks
    assert [content.frames[i] for i in load_batch.frames] == [
        StackFrame("load", "train.py", 5), StackFrame("step", "train.py", 10), StackFrame("<module>", "train.py", 12),
    ]  # fmt: skip
    assert (load_batch.times, wait.times, load_batch.thread, load_batch.pid) == (51, 98, "", None)


def test_folded_stacks_with_processes_and_threads() -> None:
    assert looks_like_profile(THREADS)
    main, other = decode_profile(THREADS).stacks
    assert (main.pid, main.thread, main.thread_id, main.times) == (26528, "MainThread", 26528, 30)
    assert (other.thread, other.thread_id) == ("mon", 0x1F)


def test_speedscope() -> None:
    assert looks_like_profile(speedscope())
    content = decode_profile(speedscope())
    assert [(len(s.frames), s.times) for s in content.stacks] == [(2, 1), (1, 2)]
    first = content.stacks[0]
    assert (first.pid, first.thread, first.thread_id) == (7, "MainThread", 26528)
    assert content.frames[first.frames[0]] == StackFrame("load", "/ws/train.py", 5)


@pytest.mark.parametrize(
    "more",
    [
        {"samples": [[0], [7], [-1], ["x"], 3, [True]], "weights": [1, 1, 1, 1, 1, 1]},
        {"samples": [[0], [0]], "weights": [1, 1e300]},
        {"samples": [[0]], "weights": [1, None, "x"], "name": None},
        {"samples": [[0] * 9999], "weights": [0.5]},
    ],
)
def test_hostile_samples_do_no_harm(more: dict[str, Any]) -> None:
    (stack,) = decode_profile(speedscope(**more)).stacks
    assert stack.times == 1 and len(stack.frames) <= MOST_FRAMES


@pytest.mark.parametrize(
    "data", [b"{", speedscope()[:-9], speedscope(samples=[], weights=[]), speedscope(type="evented"), b"a (b:1)\n"]
)
def test_what_holds_no_stack_is_another_kind(data: bytes) -> None:
    with pytest.raises(NotThisKindError):
        decode_profile(data)


def test_lines_that_are_none_are_counted() -> None:
    content = decode_profile(PLAIN + b"\n\x1b[31mred\nx " + b"9" * 40 + b"\n" + b"a;" * 900 + b"b 3\n")
    assert content.problem == "2 lines not read" and len(content.stacks[-1].frames) == MOST_FRAMES


def test_profiles_become_rows_with_the_rank_of_their_name(tmp_path: Path) -> None:
    (tmp_path / "pyspy_rank_3.folded").write_bytes(THREADS)
    (tmp_path / "pyspy_rank_1.speedscope.json").write_bytes(speedscope())
    (tmp_path / "4711.folded").write_bytes(PLAIN)
    dataset = load([tmp_path])
    assert dataset.samples.select("rank", "count").sort("rank", "count", nulls_last=True).rows() == [
        (1, 1), (1, 2), (3, 30), (3, 99), (None, 51), (None, 98),
    ]  # fmt: skip
    assert dataset.world_size == 4 and dataset.files["kind"].unique().to_list() == ["stack-profile"]
    first = dataset.samples.filter(rank=1, count=1)["stack_id"].item()
    assert [frame.function for frame in dataset.stack(first)] == ["load", "main"]
