"""Which files are logs: by a line that stands where lines of logs stand, and by nothing less."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.features.logs.read.log_files import looks_like_log
from rankscope.parsers.files.reader import read_file
from tests.features.logs.read.lines import coll, info

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
    "behind a stream": "node-d003.run [stderr] [rank6]:[E909 09:55:35.2 ProcessGroupNCCL.cpp:1515] text",
    "raylet": "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
    "ray": "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "deepspeed": "[2026-04-14 13:11:27,885] [ERROR] [launch.py:434:sigkill] ['python'] exits with return code = -9",
    "exception": "RuntimeError: [/x/gloo/transport/tcp/pair.cc:598] Connection closed by peer [18.25.6.30]:28048",
    "terminate": "  what():  [PG 1 Rank 6] NCCL watchdog thread terminated with exception",
    "vllm": "(EngineCore_0 pid=2) ERROR 08-25 12:24:19 [executor.py:146] Worker proc W-1 died unexpectedly, bye.",
    "sglang": "[2026-03-09 00:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)",
    "a summary's middle": "  exitcode  : 1 (pid: 69812)\n  error_file: <N/A>",
    "store": "Waiting in store based barrier to initialize process group for rank: 0, key: k",
    "kernel": "Nov 22 15:39:14 node-1 kernel: [7488.644138] NVRM: Xid (PCI:0000:02:00): 79, GPU is gone.",
    "behind a bar": "47%|##  | 3169/6811 [30:11<38:27, 1578.58it/s]Traceback (most recent call last):",
    "docker": json.dumps({"log": info("x") + "\n", "stream": "stdout"}),
    "inspector": json.dumps({"header": {"id": "0x1"}, "coll_perf": {"coll": "AllReduce", "coll_sn": 3}}),
    "faulthandler": 'Thread 0x00007f6f0d7fa700 (most recent call first):\n  File "a.py", line 3 in f',
    "faulthandler behind a label": "[trainer3]:Current thread 0x00007f6f0d7fa700 (most recent call first):",
    "one thread": "Stack (most recent call first):",
    "pystack": "Traceback for thread 9042 (python3.11) [] (most recent call last):",
    "a crash": "Fatal Python error: Segmentation fault",
    "stacks of a debug server": "=== Rank 2: http://node2:33029/handler/dump_traceback? ===",
    "ras": "Job summary\n===========\n",
    "ras json": json.dumps({"nccl_version": "2.28.7", "communicators_count": 0, "communicators": []}),
}
OTHERS = {
    "notes": "We saw NCCL WARN in the log of [rank3]:, see Traceback (most recent call last): below",
    "source": f'LINE = "{info(coll())}"\n',
    "trace": json.dumps({"traceEvents": [{"name": "ncclDevKernel", "args": {"Process Group Name": "[rank3]:"}}]}),
    "markdown": f"# A bug\n\n```\n{info(coll())}\n```\n",
    "a note on an end": "The worker died unexpectedly, with a RuntimeError: CUDA error, so we asked the raylet",
    "an exception of anything": "ValueError: no such option",
    "another answer of a debug server": '=== Rank 0: http://n:1/handler/wait_counters? ===\n{"waits":[]}',
    "a note on a stack": "See Thread 0x00007f6f0d7fa700 (most recent call first): it hangs",
    "csv": "step,loss\n1,2.5\n",
    "zeros": info(coll()) + "\0" * 500,
}


@pytest.mark.parametrize("name", LOGS)
def test_logs(tmp_path: Path, name: str) -> None:
    for before in ("", "some output\n" * 500):
        path = tmp_path / "out"
        path.write_text((before if not LOGS[name].startswith("{") else "") + LOGS[name] + "\n")
        (content,) = read_file(str(path), path.stat().st_size)
        assert content.kind == "log"


@pytest.mark.parametrize("name", OTHERS)
def test_other_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out"
    path.write_text(OTHERS[name] + "\n")
    (content,) = read_file(str(path), path.stat().st_size)
    assert content.kind in ("unknown", "damaged")


def test_lines_far_inside_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("loss 1.0\n" * 100_000 + (info(coll()) + "\n") * 2000)
    (content,) = read_file(str(path), path.stat().st_size)
    assert content.kind == "log"
    path.write_text("loss 1.0\n" * 100_000)
    (content,) = read_file(str(path), path.stat().st_size)
    assert content.kind == "unknown"


def test_the_only_line_at_the_end_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("loss 1.0\n" * 300_000 + "Traceback (most recent call last):\n")
    (content,) = read_file(str(path), path.stat().st_size)
    assert content.kind == "log"


def test_this_project_is_no_log() -> None:
    root = Path(__file__).parents[4]
    for path in [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("src/rankscope/**/*.py")]:
        assert not looks_like_log(path.read_bytes()[: 1 << 16]), path
