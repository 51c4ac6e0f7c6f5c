"""Which files are logs: by a line that stands where lines of logs stand, and by nothing less."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.parsers.files.reader import read
from rankscope.parsers.logs.recognise import looks_like_log
from tests.parsers.logs.lines import coll, info

LOGS = {
    "nccl": info("Bootstrap : Using eth0"),
    "coll behind a label": "3: " + info(coll()),
    "headless": coll(),
    "version": "NCCL version 2.20.5+cuda12.4",
    "c10d": "[rank3]:[E ProcessGroupNCCL.cpp:563] [Rank 3] Watchdog caught",
    "glog": "I0527 15:16:57.219646 58629 ProcessGroupNCCL.cpp:2074] [PG 0 Rank 5] text",
    "old c10d": "[E ProcessGroupNCCL.cpp:475] [Rank 3] text",
    "elastic": "[2024-02-09 09:09:15,164] torch.distributed.elastic.multiprocessing.api: [ERROR] failed",
    "traceback": "Traceback (most recent call last):\n  File",
    "ranked": "[rank1]: ValueError: no",
    "docker": json.dumps({"log": info("x") + "\n", "stream": "stdout"}),
    "inspector": json.dumps({"header": {"id": "0x1"}, "coll_perf": {"coll": "AllReduce", "coll_sn": 3}}),
    "ras": "Job summary\n===========\n",
    "ras json": json.dumps({"nccl_version": "2.28.7", "communicators_count": 0, "communicators": []}),
}
OTHERS = {
    "notes": "We saw NCCL WARN in the log of [rank3]:, see Traceback (most recent call last): below",
    "source": f'LINE = "{info(coll())}"\n',
    "trace": json.dumps({"traceEvents": [{"name": "ncclDevKernel", "args": {"Process Group Name": "[rank3]:"}}]}),
    "markdown": f"# A bug\n\n```\n{info(coll())}\n```\n",
    "quoted": f"> {info(coll())}\n",
    "csv": "step,loss\n1,2.5\n",
    "zeros": "\0" * 500 + info(coll()),
}


@pytest.mark.parametrize("name", LOGS)
def test_logs(tmp_path: Path, name: str) -> None:
    for before in ("", "some output\n" * 500):
        path = tmp_path / "out"
        path.write_text((before if not LOGS[name].startswith("{") else "") + LOGS[name] + "\n")
        (content,) = read(str(path), path.stat().st_size)
        assert content.kind == "log"


@pytest.mark.parametrize("name", OTHERS)
def test_other_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out"
    path.write_text(OTHERS[name] + "\n")
    (content,) = read(str(path), path.stat().st_size)
    assert content.kind in ("unknown", "damaged")


def test_lines_far_inside_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("loss 1.0\n" * 100_000 + (info(coll()) + "\n") * 2000)
    (content,) = read(str(path), path.stat().st_size)
    assert content.kind == "log"
    path.write_text("loss 1.0\n" * 100_000)
    (content,) = read(str(path), path.stat().st_size)
    assert content.kind == "unknown"


def test_this_project_is_no_log() -> None:
    root = Path(__file__).parents[3]
    for path in [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("src/rankscope/**/*.py")]:
        assert not looks_like_log(path.read_bytes()[: 1 << 16]), path
