"""The sidecar of Kubernetes: its fields, and its script run on dumps."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.recipes.scripts import LONGEST_S, RECIPES, SAMPLES, with_rankscope

CLAIM, SERVICE, JOB = yaml.safe_load_all((RECIPES / "kubernetes" / "sidecar.yaml").read_text())
POD: dict[str, Any] = JOB["spec"]["template"]["spec"]
(SIDECAR,) = POD["initContainers"]
(TRAINER,) = POD["containers"]


def test_it_is_a_sidecar_of_all_pods_with_one_volume() -> None:
    assert SIDECAR["restartPolicy"] == "Always", "that makes a sidecar of a container that runs first"
    assert JOB["spec"]["completionMode"] == "Indexed" and POD["restartPolicy"] == "Never"
    volumes = {volume["name"] for volume in POD["volumes"]}
    mounted = {mount["name"] for one in (SIDECAR, TRAINER) for mount in one["volumeMounts"]}
    assert mounted == volumes and CLAIM["spec"]["accessModes"] == ["ReadWriteMany"]
    (theirs,) = [mount for mount in TRAINER["volumeMounts"] if mount["name"] == "dumps"]
    (ours,) = [mount for mount in SIDECAR["volumeMounts"] if mount["mountPath"] == "/dumps"]
    assert ours == {**theirs, "readOnly": True}, "it only reads what the trainer writes"
    assert POD["terminationGracePeriodSeconds"] > 60
    assert SERVICE["metadata"]["name"] == POD["subdomain"] == JOB["metadata"]["name"]
    assert "--output=/dumps" in TRAINER["args"]


def script(folder: Path) -> str:
    """The script of the sidecar, with the paths of its volumes in a folder."""
    (text,) = SIDECAR["args"]
    for path, name in (("/dumps.out", "report"), ("/dumps", "dumps"), ("/metrics", "metrics"),
                       ("/dev/termination-log", "termination-log")):  # fmt: skip
        text = text.replace(path, str(folder / name))
    assert text.count("sleep 20") == 1
    return str(text.replace("sleep 20", "sleep 0"))


def started(folder: Path, index: int) -> subprocess.Popen[bytes]:
    (folder / "report").mkdir()
    (folder / "metrics").mkdir()
    variables = {**os.environ, "PATH": with_rankscope(folder / "tools"), "JOB_COMPLETION_INDEX": str(index)}
    # a group of its own, as the processes of a container
    return subprocess.Popen(
        ["/bin/sh", "-c", script(folder)], env=variables, stdout=subprocess.DEVNULL, start_new_session=True
    )


@contextlib.contextmanager
def container(folder: Path, index: int) -> Iterator[subprocess.Popen[bytes]]:
    """The sidecar of a pod, all of whose processes end with the block."""
    process = started(folder, index)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_first_pod_follows_and_leaves_a_report(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "early_return", tmp_path / "dumps")
    end = time.monotonic() + LONGEST_S
    with container(tmp_path, 0) as process:
        while not (tmp_path / "metrics" / "train.prom").exists() and time.monotonic() < end:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST_S) == 0
    report = (tmp_path / "report" / "report.md").read_text()
    assert "rank 3" in report.splitlines()[0]
    message = (tmp_path / "termination-log").read_text()
    assert report.startswith(message) and 0 < len(message) <= 4_000
    assert 'rankscope_watching{source="' in (tmp_path / "metrics" / "train.prom").read_text()


def test_other_pods_wait_for_their_end(tmp_path: Path) -> None:
    end = time.monotonic() + LONGEST_S
    with container(tmp_path, 2) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text() and time.monotonic() < end:
            time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST_S) == 0
    assert list((tmp_path / "report").iterdir()) == []
