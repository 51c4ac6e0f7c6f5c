"""`rankscope stacks`: real py-spy on real stacks, told apart by their environments."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rankscope.assemble.load import load
from rankscope.cli import run
from rankscope.commands import stacks
from rankscope.commands.stacks import HostProcess, ranks_here

Captured = pytest.CaptureFixture[str]
STUCK = """
import subprocess, sys, time
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "worker"])
def load_batch():
    print("stuck", flush=True)
    sys.stdin.read()
load_batch()
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[int]]:
    """Two processes that are ranks of a job, each with a worker that has inherited its environment."""
    (tmp_path / "train.py").write_text(STUCK)
    made = []
    for rank in (4, 5):
        environment = {**os.environ, "RANK": str(rank), "MASTER_ADDR": str(tmp_path)}
        made.append(
            subprocess.Popen(
                [sys.executable, str(tmp_path / "train.py")], env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )  # fmt: skip
    for process in made:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"stuck\n"] * 2
    yield [process.pid for process in made]
    for process in made:
        process.communicate()


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_stacks_of_ranks_are_written_so_that_they_are_read(
    ranks: list[int], form: str, tmp_path: Path, capsys: Captured
) -> None:
    flags = ["--json"] if form == "json" else []
    chosen = [word for pid in ranks for word in ("--pid", str(pid))]
    out = tmp_path / "out"
    assert run(["stacks", "-o", str(out), *chosen, *flags]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert re.findall(r"rank (\d), process (\d+)", said.out) == [("4", str(ranks[0])), ("5", str(ranks[1]))]
    found = load([out])
    assert found.files.select("rank", "kind", "used").rows() == [(4, "py-spy", True), (5, "py-spy", True)]
    main = found.threads.filter(found.threads["is_main"])
    assert main["pid"].to_list() == ranks
    assert [found.stack(stack)[0].function for stack in main["stack_id"]] == ["load_batch"] * 2


def test_stacks_over_time_are_recorded_and_shown(ranks: list[int], tmp_path: Path, capsys: Captured) -> None:
    out, export = tmp_path / "out", tmp_path / "all.folded"
    chosen = [word for pid in ranks for word in ("--pid", str(pid))]
    assert run(["stacks", "-o", str(out), "--record", "1", *chosen]) == 0
    capsys.readouterr()
    assert run(["stacks", str(out), "--rank", "5", "--export", str(export)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("stacks over time of ranks 4,5: ") and "load_batch train.py:" in shown
    assert "rank 5 does what the others do" in shown and "rank 4;<module> (train.py:" in export.read_text()


def test_workers_of_a_rank_are_not_the_rank(ranks: list[int], tmp_path: Path) -> None:
    found = stacks._processes(stacks.PROC)
    workers = [p.pid for p in found.values() if p.parent in ranks]
    assert len(workers) == 2
    mine = {pid: p for pid, p in found.items() if p.environment.get("MASTER_ADDR") == str(tmp_path)}
    assert stacks._from_environment(mine, set()) == {ranks[0]: 4, ranks[1]: 5}


def test_the_sidecars_tell_where_the_environment_does_not(ranks: list[int], tmp_path: Path) -> None:
    told = {"rankscope_capture": 1, "rank": 7, "world_size": 8, "host": platform.node(), "pid": ranks[0]}
    (tmp_path / "capture_rank_7.json").write_text(json.dumps(told))
    (tmp_path / "capture_rank_6.json").write_text(json.dumps({**told, "rank": 6, "host": "elsewhere", "pid": ranks[1]}))
    (tmp_path / "capture_rank_5.json").write_text("{")
    assert ranks_here(tmp_path, ranks) == {ranks[0]: 7, ranks[1]: 5}


def process(pid: int, parent: int, program: str = "/usr/bin/python3", command: str = "", **names: str) -> HostProcess:
    return HostProcess(pid, parent, command or f"python train.py {pid}", program, names)


def by_pid(*made: HostProcess) -> dict[int, HostProcess]:
    return {one.pid: one for one in made}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        # torchrun in a pod that has a RANK of its own starts ranks, and is none
        ([process(1, 0, command="python /venv/bin/torchrun train.py", RANK="0"), process(2, 1, RANK="0")], {2: 0}),
        # a shell that srun started hands its environment on
        ([process(1, 0, "/bin/bash", SLURM_PROCID="3"), process(2, 1, SLURM_PROCID="3")], {2: 3}),
        # what Slurm says counts nodes where ranks have names of their own
        ([process(1, 0, SLURM_PROCID="1"), process(2, 1, SLURM_PROCID="1", RANK="9")], {2: 9}),
        ([process(1, 0, RANK="x"), process(2, 0)], {}),
    ],
)
def test_who_is_a_rank(made: list[HostProcess], expected: dict[int, int]) -> None:
    assert stacks._from_environment(by_pid(*made), set()) == expected


def test_two_jobs_are_not_mixed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    two = by_pid(process(1, 0, RANK="0", MASTER_PORT="1"), process(2, 0, RANK="0", MASTER_PORT="2"))
    monkeypatch.setattr(stacks, "_processes", lambda _: two)
    with pytest.raises(click.ClickException, match=r"several processes are rank 0: 1 .*, 2 .*; choose with --pid"):
        ranks_here(tmp_path, [])
    assert ranks_here(tmp_path, [2, 3]) == {2: 0, 3: None}


def test_where_sidecars_tell_the_job_another_one_on_the_host_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs = [(10, 0, "29500"), (11, 1, "29500"), (20, 0, "29400"), (21, 1, "29400")]
    made = [process(pid, 1, RANK=str(rank), MASTER_PORT=port) for pid, rank, port in jobs]
    monkeypatch.setattr(stacks, "_processes", lambda _: {one.pid: one for one in made})
    told = {"rankscope_capture": 1, "rank": 0, "world_size": 2, "host": platform.node(), "pid": 10}
    (tmp_path / "capture_rank_0.json").write_text(json.dumps(told))
    assert ranks_here(tmp_path, []) == {10: 0, 11: 1}
    assert ranks_here(tmp_path, [20]) == {20: 0}


def test_no_rank_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    monkeypatch.setattr(stacks, "_processes", lambda _: {})
    assert run(["stacks", "-o", str(tmp_path)]) == 2
    assert "no process of this host is a rank" in capsys.readouterr().err


def test_how_to_get_py_spy_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Captured) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert run(["stacks", "-o", str(tmp_path)]) == 2
    assert "pip install py-spy" in capsys.readouterr().err


def test_why_a_process_cannot_be_dumped_is_said(tmp_path: Path, capsys: Captured) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert run(["stacks", "-o", str(tmp_path), "--pid", str(gone.pid)]) == 2
    said = capsys.readouterr().err
    assert f"process {gone.pid}: py-spy: " in said and "backtrace" not in said
    assert list(tmp_path.iterdir()) == []
    assert "SYS_PTRACE" in stacks._explained("Error: Permission Denied: Try running again with sudo")
