"""The command, as real processes: several at once, killed ones, a full disk, a cluster."""

from __future__ import annotations

import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from rankscope.cli import run as rankscope
from rankscope.sessions.shares import Share
from rankscope.text.wording import byte_count
from tests.model_writer import model_file, transformer
from tests.sessions.written import SAMPLES

JOB = SAMPLES / "two_groups"
Captured = pytest.CaptureFixture[str]


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "rankscope", *map(str, arguments)]


def _report(path: Path, capsys: Captured) -> str:
    rankscope(["report", str(path), "-f", "json"])
    return capsys.readouterr().out


def test_a_session_opens_like_its_directory(tmp_path: Path, capsys: Captured) -> None:
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s")]) == 0
    told = capsys.readouterr().err
    assert "4 ranks, 93 operations" in told and f"rankscope {tmp_path / 's'} opens it" in told
    assert _report(tmp_path / "s", capsys) == _report(JOB, capsys)


def test_the_size_of_a_small_session_is_told(tmp_path: Path, capsys: Captured) -> None:
    place = tmp_path / "my session"
    assert rankscope(["ingest", str(JOB), "-o", str(place)]) == 0
    size = byte_count(sum(path.stat().st_size for path in place.iterdir()))
    assert f"operations, {size}; rankscope '{place}' opens it" in capsys.readouterr().err


def test_a_session_without_operations_tells_its_files(tmp_path: Path, capsys: Captured) -> None:
    parameters = tmp_path / "model_rank_0.jsonl"
    parameters.write_bytes(model_file(0, transformer(1)))
    assert rankscope(["ingest", str(parameters), "-o", str(tmp_path / "s")]) == 0
    assert re.search(r"s: 1 file, 1 rank, \d+ KiB; ", capsys.readouterr().err)


def test_a_share_that_is_a_path_is_told_where_to_stand(tmp_path: Path, capsys: Captured) -> None:
    assert rankscope(["ingest", "--shard", str(JOB), "-o", str(tmp_path / "s")]) == 2
    assert "the option alone goes behind PATH" in capsys.readouterr().err


def test_a_session_is_not_shared_out_again(tmp_path: Path, capsys: Captured) -> None:
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s"), "--shard", "1/1"]) == 0
    assert rankscope(["ingest", str(tmp_path / "s"), "-o", str(tmp_path / "t"), "--shard", "1/2"]) == 2
    assert "is a session already" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


def test_a_session_is_replaced_only_by_force(tmp_path: Path, capsys: Captured) -> None:
    arguments = ["ingest", str(JOB), "-o", str(tmp_path / "s")]
    assert rankscope(arguments) == 0
    assert rankscope(arguments) == 2
    assert "is a session already; --force replaces it" in capsys.readouterr().err
    assert rankscope([*arguments, "--force"]) == 0


def test_what_is_no_session_is_never_replaced(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path), "--force"]) == 2
    assert "is there, and no session" in capsys.readouterr().err
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path), "--shard", "1/2"]) == 2
    assert "is not empty, and no session" in capsys.readouterr().err
    for more in ([], ["--shard", "1/2"]):
        assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "thesis.tex"), *more]) == 2
        assert "is there, and no session" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_session_below_its_input_is_refused(tmp_path: Path, capsys: Captured) -> None:
    job = shutil.copytree(JOB, tmp_path / "job")
    assert rankscope(["ingest", str(job), "-o", str(job / "s")]) == 2
    assert "choose a place outside of it" in capsys.readouterr().err


def test_a_redacted_session_names_no_path(tmp_path: Path, capsys: Captured) -> None:
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s"), "--redact"]) == 0
    capsys.readouterr()
    assert "/job/make.py" not in _report(tmp_path / "s", capsys)
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "t"), "--redact", "--shard", "1/2"]) == 2


def test_tasks_at_once_give_the_report_of_one(tmp_path: Path, capsys: Captured) -> None:
    shares = [_command("ingest", JOB, "-o", tmp_path / "s", "--shard", f"{number}/2") for number in (1, 2, 2)]
    tasks = [subprocess.Popen(share, stderr=subprocess.PIPE, text=True) for share in shares]
    told = [task.communicate()[1] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0, 0], told
    assert _report(tmp_path / "s", capsys) == _report(JOB, capsys)
    assert not [path for path in (tmp_path / "s").iterdir() if path.name.startswith(".")]


def test_a_killed_task_is_run_again_and_the_others_read_nothing(tmp_path: Path, capsys: Captured) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for rank in range(400):
        shutil.copy(JOB / f"comm_lib_trace_rank_{rank % 4}", job / f"comm_lib_trace_rank_{rank}")
    session = tmp_path / "s"
    assert rankscope(["ingest", str(job), "-o", str(session), "--shard", "1/2"]) == 0
    task = subprocess.Popen(_command("ingest", job, "-o", session, "--shard", "2/2"), stderr=subprocess.PIPE)
    time.sleep(0.4)
    task.send_signal(signal.SIGKILL)
    task.communicate()
    capsys.readouterr()
    if not (session / Share(1, 2).file_name).exists():
        rankscope(["report", str(session)])
        assert "part 2 of 2 of the session is missing" in capsys.readouterr().out
    assert rankscope(["ingest", str(job), "-o", str(session), "--shard", "1/2"]) == 0
    assert "part 1 of 2 exists, and its files have not changed: nothing to read" in capsys.readouterr().err
    assert rankscope(["ingest", str(job), "-o", str(session), "--shard", "2/2"]) == 0
    capsys.readouterr()
    assert _report(session, capsys) == _report(job, capsys)


def test_a_part_of_files_that_changed_is_written_anew(tmp_path: Path, capsys: Captured) -> None:
    job = Path(shutil.copytree(JOB, tmp_path / "job"))
    arguments = ["ingest", str(job), "-o", str(tmp_path / "s"), "--shard", "1/1"]
    assert rankscope(arguments) == 0
    shutil.copy(SAMPLES / "healthy" / "comm_lib_trace_rank_0", job)
    assert rankscope(arguments) == 0
    assert "part 1 of 1 written" in capsys.readouterr().err
    assert _report(tmp_path / "s", capsys) == _report(job, capsys)


def test_tasks_read_a_part_of_the_job_with_the_same_options(tmp_path: Path, capsys: Captured) -> None:
    last = ["--last", "5"]
    for number in (1, 2):
        share = ["--shard", f"{number}/2"]
        assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s"), *share, *last]) == 0
    capsys.readouterr()
    rankscope(["report", str(JOB), "-f", "json", *last])
    assert capsys.readouterr().out == _report(tmp_path / "s", capsys)
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s"), "--shard", "1/2"]) == 2
    assert "a session read with other options" in capsys.readouterr().err
    assert rankscope(["report", str(tmp_path / "s"), *last]) == 2


def test_another_number_of_parts_is_refused(tmp_path: Path, capsys: Captured) -> None:
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s"), "--shard", "1/2"]) == 0
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s"), "--shard", "1/3"]) == 2
    assert "a session of 2 parts, not of 3" in capsys.readouterr().err


@pytest.mark.parametrize("shard", [[], ["--shard", "1/1"]])
def test_a_full_disk_is_told_and_leaves_no_half_session(shard: list[str], tmp_path: Path) -> None:
    # a file beyond the limit fails with an error of the file system, as on a full disk
    job = tmp_path / "job"
    job.mkdir()
    for rank in range(40):
        shutil.copy(JOB / f"comm_lib_trace_rank_{rank % 4}", job / f"comm_lib_trace_rank_{rank}")
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (900, 900))
    task = subprocess.run(
        _command("ingest", job, "-o", tmp_path / "s", *shard), capture_output=True, text=True, preexec_fn=limit,
        check=False,
    )  # fmt: skip
    assert task.returncode == 2, task.stderr
    assert "File too large" in task.stderr
    left = [path.name for path in tmp_path.rglob("*") if not path.is_relative_to(job) and path != job]
    assert left in ([], ["s", "rankscope-session.json"])


def test_a_cluster_of_dask_writes_all_parts(tmp_path: Path, capsys: Captured) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s"), "--dask", address]) == 0
    assert "part 2 of 2 written" in capsys.readouterr().err
    assert _report(tmp_path / "s", capsys) == _report(JOB, capsys)


@pytest.mark.parametrize("shard", ["1/3", "/0", "/123456789"])
def test_dask_is_told_only_the_number_of_shares(shard: str, tmp_path: Path, capsys: Captured) -> None:
    pytest.importorskip("dask.distributed")
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s"), "--dask", "local", "--shard", shard]) == 2
    assert "with --dask, --shard tells only how many: /N" in capsys.readouterr().err


def test_a_session_is_opened_alone_and_not_followed(tmp_path: Path, capsys: Captured) -> None:
    assert rankscope(["ingest", str(JOB), "-o", str(tmp_path / "s")]) == 0
    assert rankscope(["report", str(tmp_path / "s"), str(JOB)]) == 2
    assert "a session is opened alone" in capsys.readouterr().err
    assert rankscope(["watch", str(tmp_path / "s")]) == 2
    assert "is a session, which does not change" in capsys.readouterr().err
