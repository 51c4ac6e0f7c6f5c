"""Links out of what the user named: not followed unless asked for, counted, and nobody is accused because of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rankscope.cli import run
from rankscope.commands.output import default_output, export_directory
from rankscope.commands.stacks import _from_cards
from rankscope.sessions.manifest import Manifest, read_manifest
from rankscope.watching.observer import FileObserver
from tests.commands.conftest import every_command
from tests.parsers.dumps import Recorder, job

Captured = pytest.CaptureFixture[str]


def stuck_job(world: int, missing: int) -> list[Recorder]:
    """A job in which one rank never issues the last collective."""
    recorders = job(world)
    for recorder in recorders:
        for _ in range(3):
            recorder.collective()
        if recorder.rank != missing:
            recorder.collective(state="scheduled", retired=False)
    return recorders


@pytest.fixture
def farm(tmp_path: Path) -> Path:
    """Dumps of eight ranks on the mounts of two nodes, and a directory of links to the nodes."""
    for recorder in stuck_job(8, missing=6):
        node = tmp_path / "mnt" / f"node{recorder.rank // 4}" / "dumps"
        node.mkdir(parents=True, exist_ok=True)
        if recorder.rank != 6:
            (node / f"rank_{recorder.rank}").write_bytes(recorder.pickle())
    links = tmp_path / "dumps"
    links.mkdir()
    for name in ("node0", "node1"):
        (links / name).symlink_to(tmp_path / "mnt" / name / "dumps")
    return links


def told(capsys: Captured, *args: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a report, and its JSON."""
    code = run(["report", *args, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_farm_of_links_is_named_with_the_option_that_reads_it(farm: Path, capsys: Captured) -> None:
    for command in ("report", "numbers", "memory", "next", "view"):
        assert run([command, str(farm)]) == 2
        said = capsys.readouterr().err
        assert f"2 links lead out of {farm} and are not followed: --follow-links reads them" in said, command
        assert f"node1: a link out, to {farm.parent}/mnt/node1/dumps: not followed" in said
    code, report = told(capsys, str(farm), "--follow-links")
    assert (code, report["ranks"]["seen"]) == (1, [0, 1, 2, 3, 4, 5, 7])


def test_a_part_that_was_not_read_accuses_nobody(farm: Path, capsys: Captured) -> None:
    for node in ("node0", "node1"):
        (farm / node).unlink()
        shutil.copytree(farm.parent / "mnt" / node / "dumps", farm / node)
    _, report = told(capsys, str(farm))
    assert report["findings"][0]["culprit_ranks"] == [6], "without anything unread the rank without a dump is named"
    (farm / "more").symlink_to(farm.parent / "mnt")
    _, report = told(capsys, str(farm))
    first = report["findings"][0]
    assert (first["kind"], first["culprit_ranks"], first["candidates"]) == ("missing-rank", [], [6])
    assert any(
        "a directory that was not read may hold a dump (more:" in reason for reason in first["confidence_reasons"]
    )
    notes = [one for one in report["findings"] if one["kind"] == "links-not-followed"]
    assert [one["title"] for one in notes] == [
        f"1 link leads out of {farm} and is not followed: --follow-links reads it"
    ]
    rows = {row["path"]: row for row in report["inputs"]}
    assert rows["more"]["kind"] == "directory-link-out" and f"{farm.parent}/mnt" in rows["more"]["problem"]


def test_nothing_of_the_reader_is_shown(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    for recorder in job(2):
        (tmp_path / f"rank_{recorder.rank}").write_bytes(recorder.pickle())
    environ = tmp_path.parent / f"{tmp_path.name}_environ"
    environ.write_bytes(b"NCCL_DEBUG=probe\0RANK=1\0NCCL_IB_HCA=mlx5_probe\0")
    (tmp_path / "rank_1.env").symlink_to(environ)
    run(["report", str(tmp_path), "--format", "json"])
    assert "probe" not in capsys.readouterr().out
    run(["report", str(tmp_path), "--format", "json", "--follow-links"])
    assert [row["kind"] for row in json.loads(capsys.readouterr().out)["inputs"]].count("environ") == 1
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").symlink_to("/proc/self/environ")
    run(["report", "."])
    out = capsys.readouterr().out
    assert "2 links lead out of ." in out and "train.log: a link out, to /proc/self/environ: not followed" in out


def test_a_foreign_log_is_no_verdict(tmp_path: Path, capsys: Captured) -> None:
    job_directory, other = tmp_path / "job", tmp_path / "other"
    job_directory.mkdir()
    other.mkdir()
    (other / "old.log").write_text("[rank0]: Traceback (most recent call last):\n[rank0]: AssertionError: foreign\n")
    for recorder in stuck_job(4, missing=2):
        (job_directory / f"rank_{recorder.rank}").write_bytes(recorder.pickle())
    (job_directory / "logs").symlink_to(other)
    _, report = told(capsys, str(job_directory))
    assert report["status"] == "hang" and "AssertionError" not in json.dumps(report)


def test_one_option_for_every_command_that_reads_paths() -> None:
    having = {
        name for name, command in every_command()
        if any("--follow-links" in option.opts for option in command.params)
    }  # fmt: skip
    assert having == {
        "view", "report", "watch", "diff", "stacks", "export", "ingest", "repro script", "repro fork"
    }  # fmt: skip


def test_the_watch_polls_where_notices_would_stray(farm: Path) -> None:
    observer = FileObserver([farm], None, lambda: None)
    sight = observer.look()
    assert (sight.polled_s, sight.why_polled) == (2.0, "a link leads out of it")
    assert {one.kind for changes in sight.changes for one in changes.changed} == {"directory-link-out"}
    observer.close()
    following = FileObserver([farm], 1.0, lambda: None, follow_links=True)
    assert {one.shown for changes in following.look().changes for one in changes.changed} > {"node0/rank_0"}
    following.close()


def test_sessions_hold_to_the_same_rule(farm: Path, tmp_path: Path, capsys: Captured) -> None:
    session = tmp_path / "session"
    assert run(["ingest", str(farm), "-o", str(session)]) == 2
    assert run(["ingest", str(farm), "-o", str(session), "--follow-links"]) == 0
    assert run(["report", str(session)]) == 1
    table = session / "ops.parquet"
    table.rename(tmp_path / "elsewhere.parquet")
    table.symlink_to(tmp_path / "elsewhere.parquet")
    capsys.readouterr()
    assert run(["report", str(session)]) == 2
    assert "ops.parquet is a link out, to " in capsys.readouterr().err
    assert run(["report", str(session), "--follow-links"]) == 1


def test_shards_of_other_links_are_another_session(farm: Path, tmp_path: Path, capsys: Captured) -> None:
    session = str(tmp_path / "session")
    assert run(["ingest", str(farm), "-o", session, "--shard", "1/2"]) == 0
    assert run(["ingest", str(farm), "-o", session, "--shard", "2/2", "--follow-links"]) == 2
    assert "a session read with other options" in capsys.readouterr().err
    assert read_manifest(Path(session)) == Manifest(format=1, parts=2)


def test_a_card_of_the_capture_that_leads_out_is_no_process(tmp_path: Path) -> None:
    (tmp_path / "capture_rank_0.json").symlink_to("/proc/self/status")
    assert _from_cards(tmp_path) == {}


def test_exports_never_go_into_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    read, below, beside = tmp_path / "dumps", tmp_path / "dumps" / "node0", tmp_path / "work"
    below.mkdir(parents=True)
    beside.mkdir()
    for recorder in stuck_job(4, missing=2):
        (below / f"rank_{recorder.rank}").write_bytes(recorder.pickle())
    home = tmp_path / "home" / "rankscope"
    (beside / "alias").symlink_to(read)
    for here, path in ((read, "."), (read, str(read)), (below, ".."), (below, str(beside / "alias"))):
        monkeypatch.chdir(here)
        assert export_directory((path,)) == home and home.is_dir()
        assert run(["repro", path, "--force"]) == 0
        assert capsys.readouterr().err.startswith(f"{home}/repro.py: ")
    monkeypatch.chdir(beside)
    assert export_directory((str(read),)) == beside
    assert default_output("repro.py", (str(read),)) == "repro.py"
    assert sorted(path.name for path in read.rglob("*")) == ["node0", "rank_0", "rank_1", "rank_2", "rank_3"]
