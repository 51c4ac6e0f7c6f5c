"""`rankscope watch --metrics`: a file that is whole at any time, with the state of the job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rankscope.commands.metrics_file import MetricsFile
from rankscope.watching.update import FollowProgress
from tests.tui.live.drive import job, update_of

LONGEST_S = 600.0
SAMPLE = Path(__file__).parents[2] / "sample_data" / "early_return"


def read(path: Path) -> dict[str, float]:
    """Values by name; of metrics with labels those that are not 0, by name and last label."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            *_, last = sample.labels.items()
            name = sample.name if last[0] == "source" else f"{sample.name} {last[1]}"
            if sample.value or last[0] == "source":
                found[name] = sample.value
    return found


def test_a_followed_job_keeps_its_file(tmp_path: Path) -> None:
    dumps, file = tmp_path / "dumps", tmp_path / "job.prom"
    shutil.copytree(SAMPLE, dumps)
    for path in dumps.iterdir():
        os.utime(path, (path.stat().st_mtime - 7200,) * 2)
    process = subprocess.Popen(
        [sys.executable, "-m", "rankscope", "watch", str(dumps), "--metrics", str(file)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None and "rank 3 never issued" in process.stdout.readline()
    metrics = read(file)
    assert metrics["rankscope_job_status hang"] == metrics["rankscope_watching"] == 1
    assert metrics["rankscope_culprit missing-rank"] == 1 and metrics["rankscope_ranks seen"] == 4
    assert metrics["rankscope_newest_file_age_seconds"] > 7000
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=LONGEST_S)[1] == "" and process.returncode == 1
    assert read(file)["rankscope_watching"] == 0
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["job.prom"], "no temporary file is left"
    assert file.stat().st_mode & 0o444 == 0o444 & ~_umask()


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


@pytest.mark.parametrize(("name", "reason"), [("job.txt", "end in .prom"), ("no/such/job.prom", "no such directory")])
def test_a_file_that_nobody_reads_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    command = [sys.executable, "-m", "rankscope", "watch", str(SAMPLE), "--metrics", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert done.returncode == 2 and reason in done.stderr


def test_ages_grow_without_news_and_trouble_is_told(tmp_path: Path) -> None:
    now = [time.time_ns()]
    file = MetricsFile(tmp_path / "job.prom", "dumps", pytest.fail, lambda: now[0])
    file.publish(FollowProgress(files=4))
    assert not (tmp_path / "job.prom").exists(), "nothing is known yet"
    update = update_of(job(5), "progressing", 1)
    file.publish(replace(update, live=replace(update.live, since_ns=now[0] - 10**9)))
    assert read(tmp_path / "job.prom")["rankscope_progress_age_seconds"] == 1
    now[0] += 40 * 10**9
    file.write()
    after = read(tmp_path / "job.prom")
    assert after["rankscope_progress_age_seconds"] == 41
    assert after["rankscope_updates_total"] == 1 and after["rankscope_follow_trouble"] == 0
    file.publish(FollowProgress(files=4, away="dumps: gone"))
    assert read(tmp_path / "job.prom")["rankscope_follow_trouble"] == 1
    file.close()


def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    folder, said = tmp_path / "metrics", list[str]()
    folder.mkdir()
    file = MetricsFile(folder / "job.prom", "dumps", said.append)
    folder.rmdir()
    file.publish(update_of(job(5), "progressing", 1))
    file.publish(update_of(job(6), "progressing", 2))
    assert said == [f"--metrics: {folder / 'job.prom'}: No such file or directory"]
    folder.mkdir()
    file.close()
    assert read(folder / "job.prom")["rankscope_updates_total"] == 2
