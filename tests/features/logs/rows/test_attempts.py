"""Logs of several attempts, and those that stand beside all of them."""

from __future__ import annotations

from tests.features.logs.rows.job import MTIME_NS, init, job, source


def test_what_stands_outside_of_all_attempts_is_of_the_newest() -> None:
    outer = source("launcher.out", ["NCCL version 2.27.3+cuda12.9"])
    outer.mtime_ns = MTIME_NS + 10**9
    logs = [source(f"attempt_{run}/{rank}/stderr.log", [init(rank)]) for run in (0, 1) for rank in range(4)]
    dataset = job(outer, *logs)
    used = {row["path"]: row["used"] for row in dataset.files.iter_rows(named=True)}
    assert {path for path, is_used in used.items() if not is_used} == {f"attempt_0/{r}/stderr.log" for r in range(4)}
    assert dataset.world_size == 4


def test_one_attempt_and_what_its_launcher_printed() -> None:
    logs = [source(f"attempt_0/{rank}/stderr.log", [init(rank)]) for rank in range(4)]
    dataset = job(*logs, source("zz.log", ["NCCL version 2.27.3+cuda12.9"]))
    assert dataset.files["used"].all()
