"""What py-spy itself writes of real processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.assemble.load import load
from rankscope.features.stacks.py_spy.model import Snapshot
from rankscope.schema import Dataset
from tests.features.stacks.py_spy.dumps import read

PY_SPY = Path(sys.executable).parent / "py-spy"
CHILD = "import time\ndef read_sample():\n    time.sleep(600)\nread_sample()"
SCRIPT = f"""
import subprocess, sys, threading, time
def idle(password):
    time.sleep(600)
def spin():
    while True:
        pass
threading.Thread(target=idle, args=("hunter2",), name='odd "name" (x)', daemon=True).start()
threading.Thread(target=spin, name="spinner", daemon=True).start()
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
print(child.pid, flush=True)
try:
    child.wait()
finally:
    child.kill()
"""


def sample(pid: int, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Runs py-spy; skips where this user may not look into another process."""
    ran = subprocess.run([PY_SPY, "dump", "--pid", str(pid), *options], capture_output=True, timeout=600, check=False)
    if ran.returncode and (b"ermission" in ran.stderr or b"not permitted" in ran.stderr):
        pytest.skip("ptrace is forbidden here")
    return ran


def dump(pid: int, *options: str) -> bytes:
    """What py-spy says of a process."""
    ran = sample(pid, *options)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The process ids of a script and of its child, both at their places."""
    script = tmp_path_factory.mktemp("job dir (x)") / "train me.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, script, "--rank=3"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            end = time.monotonic() + 600
            # of one that has only begun py-spy says that it is no Python
            while b"read_sample" not in sample(child).stdout and time.monotonic() < end:
                time.sleep(0.05)
            yield process.pid, child
        finally:
            process.terminate()


def functions(snapshot: Snapshot, name: str) -> list[str]:
    """The functions in which a thread is, without classes."""
    thread = next(t for t in snapshot.threads if t.name == name)
    return [snapshot.frames[i].function.rpartition(".")[2] for i in snapshot.stacks[thread.stack]]


@pytest.mark.parametrize("options", [[], ["--locals"], ["--json"], ["--json", "--locals"], ["--nonblocking"]])
def test_threads(victim: tuple[int, int], options: list[str]) -> None:
    snapshot = read(dump(victim[0], *options))
    assert {t.name for t in snapshot.threads} == {"MainThread", 'odd "name" (x)', "spinner"}
    assert functions(snapshot, "spinner")[0] == "spin"
    assert functions(snapshot, 'odd "name" (x)') == ["idle", "run", "_bootstrap_inner", "_bootstrap"]
    assert functions(snapshot, "MainThread")[-1] == "<module>"
    assert "train me.py" in {Path(frame.file).name for frame in snapshot.frames}
    spinner = next(t for t in snapshot.threads if t.name == "spinner")
    assert spinner.active is True
    assert "hunter2" not in repr(snapshot)
    assert snapshot.problem is None


def test_a_family_and_native_frames(victim: tuple[int, int]) -> None:
    snapshot = read(dump(victim[0], "--subprocesses"))
    assert [(p.pid, p.parent_pid) for p in snapshot.processes] == [(victim[0], None), (victim[1], victim[0])]
    assert snapshot.processes[0].command.endswith("train me.py --rank=3")
    assert CHILD.splitlines()[0] in snapshot.processes[1].command
    native = read(dump(victim[0], "--native"))
    assert any(frame.line == 0 and ".so" in frame.file for frame in native.frames)
    assert snapshot.problem is None and native.problem is None


def test_from_files_to_the_table_of_threads(victim: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "spied.txt").write_bytes(dump(victim[0], "--subprocesses"))
    (tmp_path / "rank3.json").write_bytes(dump(victim[0], "--json"))
    dataset: Dataset = load([tmp_path])
    assert dataset.files.select("path", "kind", "rank", "rank_source", "rows", "used", "problem").rows() == [
        ("rank3.json", "py-spy", 3, "name", 3, True, None), ("spied.txt", "py-spy", 3, "content", 4, True, None),
    ]  # fmt: skip
    assert set(dataset.threads["rank"]) == {3}
    served = dataset.threads.filter(dataset.threads["parent_pid"].is_not_null())
    assert served.select("pid", "parent_pid").rows() == [(victim[1], victim[0])]
    assert dataset.stack(served["stack_id"][0])[0].function == "read_sample"
