"""Two processes that write the files of one rank: each keeps its own, and a process that has ended makes room."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rankscope.capture import identity
from rankscope.capture.lineage import process_ticks
from rankscope.capture.sampler import INTERVAL_REASON, DumpRequest, Sampler
from rankscope.capture.writers import choose_place
from tests.capture.test_sampler import Torch, made, serve

HOUR_S = 3600.0
PARENT = os.getppid()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    fake = Torch()
    monkeypatch.setitem(sys.modules, "torch", fake.module())
    return fake


def facts(**more: Any) -> dict[str, Any]:
    """The facts of a live process of this machine, the parent of this one."""
    live = {"pid": PARENT, "process_ticks": process_ticks(PARENT), "started_ns": 1, "interval_s": 10.0}
    return {"rank": 1, **identity.environment(), "groups": [{"name": "0"}], **live, **more}


def write(folder: Path, told: dict[str, Any], name: str = "capture_rank_1.json", age_s: float = 0.0) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(told) + "\n")
    os.utime(folder / name, (time.time() - age_s,) * 2)


def place(folder: Path, joined: bool = True, **mine: Any) -> str:
    chosen = choose_place(str(folder), 1, {**identity.environment(), **mine}, joined, anew=True)
    return chosen.directory.name if chosen.directory != folder else ""


ELSEWHERE = {"host": "node07", "machine": "other"}
FIRST, SECOND = {"job": "4711", "attempt": 0}, {"job": "4711", "attempt": 1}


@pytest.mark.parametrize(
    ("told", "age_s", "mine", "found"),
    [
        ({}, HOUR_S, {}, "job_2"),
        ({"process_ticks": 1}, 0, {}, ""),  # its id is that of another process now
        ({"pid": 2**22 + 1}, 0, {}, ""),
        ({"ended": {"reason": "exit"}}, 0, {}, ""),
        ({"pid": os.getpid(), "process_ticks": process_ticks(os.getpid())}, 0, {}, ""),  # this process, started anew
        (ELSEWHERE, 0, {}, "job_2"),
        (ELSEWHERE, HOUR_S, {}, ""),
        ({**ELSEWHERE, "interval_s": HOUR_S}, HOUR_S, {}, "job_2"),
        ({**ELSEWHERE, **FIRST}, 0, SECOND, ""),  # its launcher has ended it
        ({**ELSEWHERE, **FIRST}, 0, FIRST, "job_2"),
        ({**ELSEWHERE, **FIRST, "groups": []}, 0, FIRST, ""),  # it is the task of a node whose children are the ranks
        ({**ELSEWHERE, "groups": []}, 0, FIRST, "job_2"),
        ({"machine": ""}, 0, {}, "job_2"),
        ({"machine": "", "pid": 2**22 + 1}, 0, {}, ""),
    ],
)
def test_a_live_writer_keeps_its_place(
    tmp_path: Path, told: dict[str, Any], age_s: float, mine: dict[str, Any], found: str
) -> None:
    write(tmp_path, facts(**told), age_s=age_s)
    assert place(tmp_path, **mine) == found


def test_a_third_job_has_a_place_too(tmp_path: Path) -> None:
    write(tmp_path, facts())
    write(tmp_path / "job_2", facts())
    assert place(tmp_path) == "job_3"


def test_a_process_that_only_records_numbers_counts(tmp_path: Path) -> None:
    told = {"rankscope_numbers": 1, **facts(**ELSEWHERE, interval_s=None)}
    write(tmp_path, told, "numbers_rank_1.jsonl")
    assert place(tmp_path) == "job_2"
    with (tmp_path / "numbers_rank_1.jsonl").open("a") as file:
        file.write('{"end":true,"dropped":0,"unwaited":0}\n')
    assert place(tmp_path) == ""


def served(one: Sampler) -> None:
    one._serve(DumpRequest(INTERVAL_REASON, False))


def test_the_second_job_says_whose_files_these_are(
    torch: Torch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, facts(job="4711", host="node07"))
    before = (tmp_path / "capture_rank_1.json").read_text()
    served(made(tmp_path))
    assert (tmp_path / "capture_rank_1.json").read_text() == before
    assert not (tmp_path / "fr_trace_rank_1").exists() and (tmp_path / "job_2" / "fr_trace_rank_1").exists()
    text = f"another job writes rank 1 here: pid {PARENT} on node07, job 4711; this one writes to "
    assert caplog.messages == [f"rankscope.capture: {text}{tmp_path / 'job_2'}"]
    assert json.loads((tmp_path / "job_2" / "capture_rank_1.json").read_text())["problems"][0] == f"{text}job_2"


def test_who_loses_its_place_goes_beside(torch: Torch, tmp_path: Path) -> None:
    one = made(tmp_path)
    serve(one)
    write(tmp_path, facts())
    torch.entries += 1
    serve(one)
    assert (tmp_path / "job_2" / "fr_trace_rank_1").read_bytes() != (tmp_path / "fr_trace_rank_1").read_bytes()
    memory = (tmp_path / "job_2" / "memory_rank_1.jsonl").read_text() if one.settings.memory else ""
    assert memory.startswith('{"rankscope_memory"')
    assert json.loads((tmp_path / "capture_rank_1.json").read_text())["pid"] == PARENT


def test_a_task_whose_children_are_the_ranks_makes_room_for_them(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_PROCID", "1")
    torch.initialized = False
    task = made(tmp_path)
    serve(task)
    assert json.loads((tmp_path / "capture_rank_1.json").read_text())["groups"] == []
    (tmp_path / "capture_rank_1.json").unlink()
    write(tmp_path, facts(job="4711"))
    serve(task)
    assert sorted(path.name for path in tmp_path.iterdir() if "memory" not in path.name) == ["capture_rank_1.json"]
    assert json.loads((tmp_path / "capture_rank_1.json").read_text())["pid"] == PARENT


def test_a_rank_takes_the_place_of_the_task_that_started_it(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    write(
        tmp_path, facts(groups=[], **identity.environment() | {"pid": PARENT, "process_ticks": process_ticks(PARENT)})
    )
    serve(made(tmp_path))
    assert json.loads((tmp_path / "capture_rank_1.json").read_text())["pid"] == os.getpid()
    assert list(tmp_path.glob("earlier_*")) == list(tmp_path.glob("job_*")) == []
