"""Real jobs with the capture in them: what they leave when they hang, fail, are killed, or find no room."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import rankscope
from tests.capture.ranks import LONGEST_S, START, card, ended, entries, running, script, wait_for
from tests.jobs.scenarios import causes, report
from tests.torch_forks import RankProcess

pytestmark = pytest.mark.torch

NEVER = 100_000.0
"""Seconds between dumps, where only a signal or the end may bring one."""
HANG = "if rank == 1:\n    time.sleep(3600)"


def test_a_rank_that_hangs_in_c_writes_a_dump_at_a_signal(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    job = script(tmp_path / "train.py", HANG, START.format(directory=str(dumps), interval=NEVER))
    with running([str(job)], tmp_path) as ranks:
        pids = wait_for(
            lambda: [card(dumps, r).get("pid") for r in range(2) if card(dumps, r).get("groups")][1:], tmp_path
        )
        assert pids == [ranks[1].pid]
        # rank 0 is in the last all_reduce by the time a dump shows it: before, it is asked again
        wait_for(lambda: _asked(ranks, dumps), tmp_path)
        assert all(process.poll() is None for process in ranks)
    assert [len(entries(dumps, rank)) for rank in range(2)] == [11, 10]
    assert any(frame["name"] == "main" for frame in entries(dumps, 0)[-1]["frames"])


def _asked(ranks: list[RankProcess], dumps: Path) -> bool:
    for process in ranks:
        process.send_signal(signal.SIGUSR2)
    newest = [entries(dumps, rank)[-1:] for rank in range(2)]
    return len(entries(dumps, 0)) == 11 and all(entry and "frames" in entry[0] for entry in newest)


def test_a_hang_is_told_with_its_groups_and_hosts(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    job = script(tmp_path / "train.py", HANG, START.format(directory=str(dumps), interval=0.3))
    with running([str(job)], tmp_path):
        said = wait_for(lambda: _hang(dumps), tmp_path)
    cause = causes(said)[0]
    assert (cause["kind"], cause["culprit_ranks"], cause["seq"]) == ("missing-rank", [1], 6)
    assert cause["culprits"][0]["host"] == card(dumps, 1)["host"]
    assert cause["group"]["ranks"] == [0, 1]
    assert {row["rank"] for row in said["inputs"] if row["kind"] == "sidecar"} == {0, 1}


def _hang(dumps: Path) -> dict[str, object] | None:
    if not all(entries(dumps, rank) for rank in range(2)):
        return None
    said = report(dumps)[1]
    return said if said.get("status") == "hang" else None


PIPELINE = """if rank == 1:
    time.sleep(3600)
else:
    dist.recv(loss, 1)"""
STANDING = "import rankscope.capture; rankscope.capture.start({directory!r}, interval={interval}, stall_after=1.5)"


def test_a_pipeline_whose_sends_nobody_records_is_decided_by_stacks(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    job = script(tmp_path / "train.py", PIPELINE, STANDING.format(directory=str(dumps), interval=NEVER))
    with running([str(job)], tmp_path):
        stuck = wait_for(lambda: _cause_of_stacks(dumps), tmp_path)
    assert (stuck["kind"], stuck["culprit_ranks"], stuck["waiting_ranks"]) == ("missing-rank", [1], [0])
    assert "rank 1 is sleeping, at main" in stuck["title"]


def _cause_of_stacks(dumps: Path) -> dict[str, Any] | None:
    """The cause once both ranks have left their stacks in that call, and not those of their start."""
    taken = [dumps / f"stacks_rank_{rank}.txt" for rank in range(2)]
    if not all(path.exists() and "in main" in path.read_text() for path in taken):
        return None
    return next(iter(causes(report(dumps)[1])), None)


def test_an_exception_is_noted_and_still_printed(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    job = script(
        tmp_path / "train.py",
        "if rank == 1:\n    raise ValueError('loss is nan')",
        START.format(directory=str(dumps), interval=NEVER),
    )
    with running([str(job)], tmp_path) as ranks:
        assert ranks[1].wait(LONGEST_S) == 1
        ranks[0].send_signal(signal.SIGTERM)
        assert ranks[0].wait(LONGEST_S) in (-signal.SIGTERM, 1)
    assert card(dumps, 1)["ended"]["error"] == "ValueError: loss is nan"
    assert "ValueError: loss is nan" in (tmp_path / "output_1").read_text()
    assert len(entries(dumps, 1)) == 10
    assert "ValueError: loss is nan" in (dumps / "exception_rank_1.log").read_text()
    failed = [(f["kind"], f["culprit_ranks"]) for f in causes(report(dumps)[1])]
    assert failed == [("rank-failed", [1])]


def test_who_is_gone_without_a_word_is_named_by_how_the_other_ended(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    start = START.format(directory=str(dumps), interval=NEVER)
    job = script(tmp_path / "train.py", "if rank == 1:\n    os._exit(0)", start)
    with running([str(job)], tmp_path) as ranks:
        assert ended(ranks) == [1, 0]
    assert card(dumps, 0)["ended"]["reason"] == "exception"
    failed = [(f["kind"], f["culprit_ranks"]) for f in causes(report(dumps)[1])]
    assert failed == [("rank-failed", [1])]


def test_sigterm_kills_a_rank_that_hangs_after_a_last_dump(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    job = script(tmp_path / "train.py", HANG, START.format(directory=str(dumps), interval=NEVER))
    with running([str(job)], tmp_path) as ranks:
        wait_for(lambda: card(dumps, 1).get("groups") and card(dumps, 0).get("groups"), tmp_path)
        for process in ranks:
            process.send_signal(signal.SIGTERM)
        assert ended(ranks) == [-signal.SIGTERM] * 2
    assert [card(dumps, rank)["ended"]["reason"] for rank in range(2)] == ["terminated"] * 2
    assert entries(dumps, 0)


def test_a_script_that_nobody_edits_ends_as_ever_and_leaves_its_last_state(tmp_path: Path) -> None:
    job = script(tmp_path / "train.py", "print(sys.argv[1:], __name__)")
    options = ["-o", "dumps", "--interval", "0.2", "--numbers", "every=1"]
    arguments = ["-m", "rankscope.capture", *options, str(job), "--lr", "1"]
    with running(arguments, tmp_path, anew=True) as ranks:
        assert ended(ranks) == [0, 0]
    dumps = tmp_path / "dumps"
    assert "['--lr', '1'] __main__" in (tmp_path / "output_0").read_text()
    assert [len(entries(dumps, rank)) for rank in range(2)] == [11, 11]
    told = card(dumps, 1)
    assert (told["rank"], told["world_size"], told["job"], told["ended"]["reason"]) == (1, 2, "4711", "exit")
    assert {g["description"]: g["ranks"] for g in told["groups"]} == {"default_pg": [0, 1], "pair": [0, 1]}
    assert {e["process_group"][0] for e in entries(dumps, 1)} == {g["name"] for g in told["groups"]}
    assert [path.name for path in dumps.rglob(".*")] == []
    numbers = [json.loads(line) for line in (dumps / "numbers_rank_1.jsonl").read_text().splitlines()]
    outputs = [(row["group"], row["seq"], row["sum"]) for row in numbers if row.get("slot") == "out0"]
    assert outputs[-1] == (told["groups"][0]["name"], 6, 8.0 * 2**11)
    assert len(outputs) == 11


def test_a_full_disk_is_none_of_the_jobs_business(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    limit = 1_200
    # the dumps are larger; the file that says who wrote them is not
    start = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    job = script(tmp_path / "train.py", "", start + START.format(directory=str(dumps), interval=0.1))
    store = resource.getrlimit(resource.RLIMIT_FSIZE)
    with running([str(job)], tmp_path) as ranks:
        assert ended(ranks) == [0, 0], (tmp_path / "output_0").read_text()
    assert store == resource.getrlimit(resource.RLIMIT_FSIZE)
    # what was written while there was room is whole
    assert len(entries(dumps, 0)) < 11
    assert card(dumps, 0)["problems"] == ["cannot write: File too large"]
    assert "dumps: cannot write: File too large" in (tmp_path / "output_0").read_text()


ALONE = """
import sys
sys.path[:] = [{here!r}, *[p for p in sys.path if "site-packages" not in p], {packages!r}]
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import capture
capture.start({dumps!r}, interval=0.2)
"""
ABSENT = ("rankscope", "polars", "textual", "click", "orjson", "numpy", "watchfiles", "zstandard", "platformdirs")


def test_the_package_alone_works_in_a_container_that_has_nothing_else(tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(Path(rankscope.__file__).parent / "capture", site / "capture")
    packages = next(p for p in sys.path if p.endswith("site-packages"))
    start = ALONE.format(here=str(site), packages=packages, absent=ABSENT, dumps=str(tmp_path / "dumps"))
    job = script(tmp_path / "train.py", "", start)
    with running(["-S", "-I", str(job)], tmp_path, anew=True) as ranks:
        assert ended(ranks) == [0, 0], (tmp_path / "output_0").read_text()
    assert [len(entries(tmp_path / "dumps", rank)) for rank in range(2)] == [11, 11]
