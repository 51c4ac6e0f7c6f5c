"""Stacks of a rank that stands still, crashes or is ended; the clock runs on times that the tests give it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.capture import agent, files
from rankscope.capture.card import SidecarRecord
from rankscope.capture.fault_file import FaultFile
from rankscope.capture.sampler import DumpRequest, Sampler
from rankscope.capture.settings import CaptureSettings, checked_settings
from rankscope.capture.stall_clock import StallClock
from rankscope.capture.thread_stacks import StillMoment, ThreadStacks, take_stacks
from rankscope.features.stacks.captured_stacks import decode_captured
from rankscope.features.stacks.py_spy.model import Snapshot
from rankscope.schema.tables import AT_CRASH, AT_STANDSTILL
from tests.capture.ranks import card as told
from tests.capture.test_sampler import Torch

AFTER = 60.0


class Group:
    """A process group of gloo that counts what it issues, sends and receives as well."""

    issued = 7

    def _get_sequence_number_for_group(self) -> int:
        return self.issued


class Rank:
    """A rank under a clock that the test moves; its writing thread works whenever it is asked."""

    def __init__(self, folder: Path, torch: Torch) -> None:
        self.torch, self.group = torch, Group()
        for table, value in (("pg_names", "0"), ("pg_group_ranks", {0: 0, 1: 1}), ("pg_map", ("gloo", None)),
                             ("pg_backend_config", "gloo")):  # fmt: skip
            setattr(torch.world, table, {self.group: value})
        self.sampler = Sampler(CaptureSettings(str(folder), interval=100_000.0), SidecarRecord())
        self.sampler.faults = FaultFile()
        self.sampler.ask = self.ask  # type: ignore[method-assign]
        self.clock = StallClock(self.sampler, self.sampler.faults, AFTER)
        self.path = folder / "stacks_rank_1.txt"
        self.sampler._serve(DumpRequest("interval", False))
        self.clock.look(0.0)

    def ask(self, reason: str, stacks: bool, wait: float, traceback: str = "", last: bool = False) -> bool:
        """Writes a dump at once."""
        self.sampler._serve(DumpRequest(reason, stacks, traceback, last))
        return wait >= 0

    @property
    def stacks(self) -> Snapshot:
        """The stacks on the disk."""
        return decode_captured(self.path.read_bytes())


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch.module())
    one = Rank(tmp_path, torch)
    yield one
    assert one.sampler.faults is not None
    one.sampler.faults.leave()


def names(snapshot: Snapshot) -> set[str]:
    return {frame.function for frame in snapshot.frames}


def test_a_rank_that_stands_still_leaves_its_stacks_once(rank: Rank) -> None:
    rank.clock.look(AFTER - 1)
    assert rank.stacks.threads == [] and rank.stacks.problem is None
    rank.clock.look(AFTER)
    taken = rank.path.read_bytes()
    head = json.loads(taken.partition(b"\n")[0])
    assert (head["rank"], head["pid"], head["reason"], head["stall_after"]) == (1, os.getpid(), "standstill", AFTER)
    assert "test_a_rank_that_stands_still_leaves_its_stacks_once" in names(rank.stacks)
    rank.clock.look(10 * AFTER)
    assert rank.path.read_bytes() == taken


def test_a_rank_that_sends_moves_though_no_recorder_holds_it(rank: Rank) -> None:
    for look in range(1, 30):
        rank.group.issued += 1
        rank.clock.look(look * AFTER / 2)
    assert rank.stacks.threads == []
    rank.clock.look(16 * AFTER)
    assert rank.stacks.threads != []


def test_a_recorder_that_went_on_unseen_is_asked_before_stacks_are_taken(rank: Rank) -> None:
    rank.torch.entries += 1
    rank.clock.look(AFTER)
    assert rank.stacks.threads == []
    rank.clock.look(2 * AFTER)
    assert rank.stacks.threads != []


def test_stacks_go_once_the_rank_moves_again_and_come_with_the_next_standstill(rank: Rank) -> None:
    rank.clock.look(AFTER)
    rank.group.issued += 1
    rank.clock.look(AFTER + 1)
    # who only cleans up after its error has not gone on
    assert rank.stacks.threads != []
    rank.group.issued += 1
    rank.clock.look(2 * AFTER)
    rank.clock.look(2 * AFTER + 2)
    rank.sampler._serve(DumpRequest("interval", False))
    assert rank.path.exists() and rank.stacks.threads == []
    rank.clock.look(4 * AFTER)
    assert rank.stacks.threads != []


def test_nobody_waits_for_a_rank_that_has_left_its_groups(rank: Rank) -> None:
    rank.clock.look(1.0)
    rank.clock.look(AFTER / 2)
    rank.torch.initialized = False
    rank.clock.look(AFTER / 2 + 1)
    for look in range(2, 9):
        rank.clock.look(look * AFTER)
    assert rank.stacks.threads == []


def test_a_full_disk_is_noted_and_stops_no_clock(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "replace_file", full)
        rank.clock.look(AFTER)
    assert rank.stacks.threads == []
    # they are kept until there is room
    rank.sampler._serve(DumpRequest("interval", False))
    assert rank.stacks.threads != []
    assert told(rank.path.parent, 1)["problems"] == ["cannot write: No space left on device"]


def test_a_directory_that_was_replaced_gets_the_stacks_again(rank: Rank) -> None:
    rank.clock.look(AFTER)
    taken = rank.path.read_bytes()
    rank.path.unlink()
    rank.sampler._serve(DumpRequest("interval", False))
    assert rank.path.read_bytes() == taken


def test_stacks_tell_what_the_main_thread_calls_and_hold_no_values() -> None:
    secret = "hunter2"
    found: list[ThreadStacks] = []
    lock = threading.Lock()

    def look(password: str) -> None:
        found.append(take_stacks("standstill", StillMoment(1.0, 2.0, None)))
        assert password
        lock.release()

    lock.acquire()
    helper = threading.Thread(target=look, args=(secret,))
    helper.start()
    lock.acquire()
    helper.join()
    (stacks,) = found
    assert stacks.facts["calls"] == ("acquire" if sys.version_info >= (3, 11) else None)
    assert b"in look" in stacks.text and secret.encode() not in stacks.text


def test_the_threads_of_the_capture_are_left_out() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait, name=name, daemon=True) for name in ("rankscope-end", "loader")]
    for thread in threads:
        thread.start()
    before = take_stacks("standstill", StillMoment(1.0, 2.0, None)).text
    stop.set()
    shown = [f"0x{thread.ident:016x}".encode() in before for thread in threads]
    assert shown == [False, True]


def test_stall_after_is_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CaptureSettings("dumps").stall_after == AFTER
    with pytest.raises(ValueError, match="stall_after must not be negative"):
        checked_settings(CaptureSettings("dumps", stall_after=-1.0))
    begun: list[CaptureSettings] = []
    monkeypatch.setattr(agent, "_start", begun.append)
    agent.start(tmp_path, stall_after=7.0)
    from rankscope.capture.__main__ import main

    (tmp_path / "train.py").write_text("")
    kept = sys.argv[:], sys.path[0], sys.modules["__main__"]
    main(["-o", str(tmp_path), "--stall-after", "9", str(tmp_path / "train.py")])
    sys.argv[:], sys.path[0], sys.modules["__main__"] = kept
    assert [settings.stall_after for settings in begun] == [7.0, 9.0]


# What happens to the process itself needs a process.

START = "import rankscope.capture\nrankscope.capture.start('dumps', interval=100_000, stall_after={after})\n"
PLACED = """
import ctypes, os, sys, time
def wait(what):
    while not what():
        time.sleep(0.01)
from rankscope.capture.fault_file import fault_file
wait(lambda: fault_file()._path is not None)
"""
CRASH = "\ndef crash():\n    ctypes.string_at(0)\ncrash()\n"


def run(folder: Path, text: str) -> int:
    (folder / "train.py").write_text(text)
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    environment.pop("PYTHONFAULTHANDLER", None)
    done = subprocess.run([sys.executable, "train.py"], cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode


def of(folder: Path) -> Snapshot:
    return decode_captured((folder / "dumps" / "stacks_rank_0.txt").read_bytes())


FORKS = """
pid = os.fork()
if not pid:
    crash_of_child = ctypes.string_at(0)
os.waitpid(pid, 0)
pid = os.fork()
if not pid:
    sys.exit(0)
os.waitpid(pid, 0)
assert open("dumps/stacks_rank_0.txt").read().count("\\n") == 1
"""


def test_a_crash_leaves_stacks_and_that_of_a_child_does_not(tmp_path: Path) -> None:
    assert run(tmp_path, START.format(after=0) + PLACED + FORKS + CRASH) == -signal.SIGSEGV
    (process,) = of(tmp_path).processes
    assert (process.tool, process.rank) == (AT_CRASH, 0)
    assert {"string_at", "crash"} <= names(of(tmp_path))


UNSEEN = """
from rankscope.capture.stall_clock import StallClock
StallClock.look = lambda clock, now: None  # only the timer takes stacks: no file is replaced meanwhile
"""
HELD = """
import threading
clock = next(thread for thread in threading.enumerate() if thread.name == "rankscope-stall")
wait(lambda: clock._ended._cond._waiters)  # the timer runs while the clock waits
def held():
    ctypes.PyDLL(None).usleep(4_000_000)
held()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the timer is one of Linux")
def test_a_call_that_holds_the_lock_of_the_interpreter_hides_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, UNSEEN + START.format(after=0.3) + PLACED + HELD + "os._exit(0)") == 0
    snapshot = of(tmp_path)
    (process,) = [place for place, one in enumerate(snapshot.processes) if one.taken_ns is None]
    threads = [one for one in snapshot.threads if one.process == process]
    functions = [[snapshot.frames[i].function for i in snapshot.stacks[one.stack]] for one in threads]
    assert snapshot.processes[process].tool == AT_STANDSTILL
    # on a busy machine the thread of the clock may stand in it, too, and may be the one with the lock in that moment
    thread = threads[functions.index(["held", "<module>"])]
    assert (thread.active, thread.gil) in ((True, True), (None, None))


OWN = "import faulthandler\nfaulthandler.enable(open('own', 'w'))\n"


@pytest.mark.parametrize("before", [True, False])
def test_a_trainer_that_has_faulthandler_keeps_it(tmp_path: Path, before: bool) -> None:
    parts = [OWN, START.format(after=0)] if before else [START.format(after=0), OWN]
    later = "faulthandler.dump_traceback_later(0.1)\ntime.sleep(0.5)\n"
    assert run(tmp_path, "".join(parts) + PLACED + later + CRASH) == -signal.SIGSEGV
    assert "in crash" in (tmp_path / "own").read_text()
    assert of(tmp_path).threads == []
    given_way = [text for text in told(tmp_path / "dumps", 0)["problems"] if "faulthandler is on already" in text]
    assert len(given_way) == before


def test_a_process_that_ends_leaves_no_empty_file(tmp_path: Path) -> None:
    assert run(tmp_path, START.format(after=AFTER) + PLACED) == 0
    assert not (tmp_path / "dumps" / "stacks_rank_0.txt").exists()


def test_the_clock_is_a_thread_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    monkeypatch.setattr(threading.Thread, "start", lambda self: begun.append(self.name))
    monkeypatch.setattr("atexit.register", lambda *_: None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for after in (AFTER, 0.0):
        one = agent.Agent(CaptureSettings("dumps", signal=None, stall_after=after))
        one.start()
        if one.signals is not None:
            one.signals.restore()
    assert begun.count("rankscope-stall") == 1
