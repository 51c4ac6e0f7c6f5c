"""Worker processes: what a file that kills or stops one costs is that file."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path
from typing import IO, Any

import pytest

from rankscope.parsers.files.directory_walk import FoundPath, walk_paths
from rankscope.parsers.workers import pool, protocol
from rankscope.parsers.workers.pool import Now, Pool, Result, WorkerError, workers_for
from tests.parsers.dumps import Recorder

MINUTES = 600.0

# a worker in which a file named "killer" ends the process, "babbler" sends what is no message, and so on
SABOTAGED = """
import sys; sys.path[:] = sys.argv[1:]
import os, signal, time
from rankscope.parsers.workers import worker
read = worker.read_file
def harm(path, *rest):
    if path.endswith("killer"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if path.endswith("leaver"):
        os._exit(3)
    if path.endswith("babbler"):
        os.write(3, bytes(range(200)) * 9)
    if path.endswith("sleeper"):
        with open(path + ".asleep", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(3600)
    return read(path, *rest)
worker.read_file = harm
worker.main()
"""


def folder(tmp_path: Path, names: list[str]) -> list[FoundPath]:
    made = Recorder(0, {"0": ("default_pg", [0])})
    made.collective()
    for name in names:
        (tmp_path / name).write_bytes(made.pickle())
    return walk_paths([tmp_path])


def results(found: list[FoundPath], jobs: int, now: Now = time.monotonic) -> dict[str, Result]:
    return {r.task.found.shown: r for r in Pool(found, jobs, now=now).run() if r.kind is not None}


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_file_comes_back(tmp_path: Path, jobs: int) -> None:
    found = folder(tmp_path, [f"rank_{i}" for i in range(9)])
    got = results(found, jobs)
    assert sorted(got) == [f"rank_{i}" for i in range(9)]
    assert all(r.decoded is not None and r.decoded.rows == 1 for r in got.values())


def test_one_that_dies_or_hangs_costs_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_START", SABOTAGED)
    monkeypatch.setattr(pool, "FAREWELL_SECONDS", MINUTES)
    found, hours = folder(tmp_path, ["a", "killer", "leaver", "sleeper", "z"]), count(step=3600)
    asleep, passed = tmp_path / "sleeper.asleep", [0.0]

    def now() -> float:
        """An hour passes with each look at the clock while the sleeper sleeps, and no time else."""
        if asleep.exists() and Path("/proc", asleep.read_text() or "0").exists():
            passed[0] = next(hours)
        return passed[0]

    problems = {name: r.problem for name, r in results(found, 1, now).items()}
    assert problems == {
        "a": None,
        "killer": "decoding it ended the process (SIGSEGV): refused",
        "leaver": "decoding it ended the process (exit 3): refused",
        "sleeper": "takes too long to decode: given up",
        "z": None,
    }


def test_one_that_talks_nonsense_costs_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_START", SABOTAGED)
    # it never ends by itself, so this may be short
    monkeypatch.setattr(pool, "FAREWELL_SECONDS", 0.0)
    problems = {name: r.problem for name, r in results(folder(tmp_path, ["a", "babbler", "z"]), 1).items()}
    assert problems == {"a": None, "babbler": "its reader returned an invalid result: refused", "z": None}


def test_workers_that_cannot_start_are_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_START", "raise SystemExit(1)")
    with pytest.raises(WorkerError):
        results(folder(tmp_path, ["a"]), 1)


def test_what_is_left_of_a_pool_is_ended(tmp_path: Path) -> None:
    many = Pool(folder(tmp_path, [f"rank_{i}" for i in range(20)]), 2)
    running = many.run()
    next(running)
    running.close()
    assert all(thread.process.poll() is not None for thread in many._threads)


def test_a_worker_reads_what_its_name_says_and_prints_nothing_of_it(tmp_path: Path) -> None:
    strange = os.fsdecode(b"rank_0\n\xff")
    assert list(results(folder(tmp_path, [strange]), 1)) == ["rank_0\n\ufffd"]


def test_as_many_workers_as_the_files_are_worth() -> None:
    def files(count: int, size: int) -> list[FoundPath]:
        return [FoundPath(f"rank_{i}", f"rank_{i}", size) for i in range(count)]

    assert workers_for(files(4, 30_000), 16) == 1
    assert workers_for(files(256, 600_000), 16) == 16
    assert workers_for(files(256, 600_000), 1) == 1
    assert workers_for(files(1, 30 << 20), 16) == 1
    assert workers_for(files(1, 1 << 30), 16) == 16
    assert workers_for([FoundPath("dumps.tar.gz", "dumps.tar.gz", 1 << 30)], 16) == 16
    assert workers_for([], 16) == 1


def test_files_of_a_batch_come_back_once_whatever_one_of_them_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_START", SABOTAGED)
    monkeypatch.setattr(pool, "FAREWELL_SECONDS", MINUTES)
    names = [f"rank_{i}" for i in range(150)]
    found = folder(tmp_path, [*names, "killer", "leaver"])
    for name in names[::3]:
        (tmp_path / f"{name}.npy").write_bytes(b"\x93NUMPY" + bytes(100))
    found = walk_paths([tmp_path])
    got = list(Pool(found, 1).run())
    assert sorted(r.task.found.shown for r in got if r.last) == [one.shown for one in found]
    told = {r.task.found.shown: (r.kind, r.problem) for r in got if r.kind is not None}
    assert len(told) == len(found) == sum(r.kind is not None for r in got)
    assert [name for name, (kind, _) in told.items() if kind == "unreadable"] == ["killer", "leaver"]
    assert {told[f"{name}.npy"][0] for name in names[::3]} == {"unknown"}
    assert all(told[name] == ("flight-recorder", None) for name in names)


def test_small_files_share_messages_and_large_ones_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    send = protocol.send_message

    def noted(stream: IO[bytes], header: dict[str, Any]) -> None:
        asked.append([file["size"] for file in header["files"]])
        send(stream, header)

    monkeypatch.setattr(pool, "send_message", noted)
    for number in range(1000):
        (tmp_path / f"sample_{number}").write_bytes(bytes(100))
    for number in range(20):
        (tmp_path / f"large_{number}").write_bytes(bytes(pool.BATCH_BYTES))
    list(Pool(walk_paths([tmp_path]), 1).run())
    assert [len(sizes) for sizes in asked[:20]] == [1] * 20
    assert sum(map(len, asked)) == 1020 and len(asked) < 150
    assert asked[-1] == [100], "the last ones are shared between processes"
    assert max(map(sum, asked)) <= pool.BATCH_BYTES
