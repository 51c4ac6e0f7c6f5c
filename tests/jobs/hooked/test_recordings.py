"""What torch's FlightRecorderHook left of small jobs (torch 2.15; `record.py` makes it anew), read on any torch."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.jobs.hooked.record import HERE, RECORDINGS
from tests.jobs.scenarios import causes, report


class Truth(NamedTuple):
    """What a report on a recording has to say."""

    code: int
    kind: str = ""
    culprits: tuple[int, ...] = ()
    """Who is accused; nobody else may be."""


TRUTHS = {
    "healthy_mid_step": Truth(0),
    # rank 2 waits for nothing, so it sees no timeout and leaves no dump
    "host_stuck": Truth(1, "missing-rank", (2,)),
    "lost_send": Truth(1, "p2p-unmatched", (1,)),
    "two_groups": Truth(1, "missing-rank", (3,)),
    "without_completion_healthy": Truth(0),
    "without_completion_stuck": Truth(1, "missing-rank", (2,)),
}


def recording(name: str) -> Path:
    return HERE / f"{name}.tar.gz"


def members(name: str) -> dict[str, bytes]:
    with tarfile.open(recording(name)) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        return {m.name.partition("/")[2]: archive.extractfile(m).read() for m in files}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", TRUTHS)
def test_who_is_to_blame(name: str) -> None:
    code, said = report(recording(name))
    accused = causes(said)
    assert {f["kind"] for f in accused} == ({TRUTHS[name].kind} if TRUTHS[name].kind else set()), said["verdict"]
    assert sorted({rank for f in accused for rank in f["culprit_ranks"]}) == list(TRUTHS[name].culprits)
    assert code == TRUTHS[name].code


def test_the_demos_hang_is_told_as_gloo_tells_it() -> None:
    said, bundled = (report(path)[1] for path in (recording("two_groups"), Path("sample_data/two_groups")))
    assert said["verdict"] == bundled["verdict"]
    assert said["ranks"] == {"seen": [0, 1, 2, 3], "missing": []}


def test_there_is_a_truth_for_every_recording_and_each_is_small() -> None:
    paths = sorted(HERE.glob("*.tar.gz"))
    assert {path.name.removesuffix(".tar.gz") for path in paths} == set(RECORDINGS) == set(TRUTHS)
    assert max(path.stat().st_size for path in paths) < 8_000


@pytest.mark.parametrize(
    ("name", "backend", "completion"),
    [("two_groups", "nccl2", True), ("without_completion_healthy", "plugin", False)],
)
def test_the_sidecars_say_who_recorded(name: str, backend: str, completion: bool) -> None:
    files = members(name)
    for rank in range(4):
        card: dict[str, Any] = json.loads(files[f"capture_rank_{rank}.json"])
        dump = f"{backend}_trace_rank_{rank}"
        assert card["backends"] == [{"name": backend, "recorder": "hook", "completion": completion, "dump": dump}]
        assert (card["problems"], card["host"]) == ([], "node0")
        assert {group["backend"] for group in card["groups"]} == {backend}
        assert {dump, f"history/1_{dump}"} <= files.keys()


def test_no_recording_names_a_machine() -> None:
    for name in RECORDINGS:
        for path, data in members(name).items():
            assert b"/tmp" not in data and b"/root" not in data and b"/home" not in data, f"{name}: {path}"
