"""How a process ends, as its sidecar says; without torch, for the end is noted without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rankscope.capture.card import SidecarRecord

START = "import rankscope.capture\nrankscope.capture.start('dumps', interval=100_000)\n"
CHILD = """
import multiprocessing, sys

def rank():
    import rankscope.capture
    rankscope.capture.start("dumps", interval=100_000)
{body}

if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=rank)
    process.start()
    process.join()
"""
HIDDEN = "try:\n    int('x')\nexcept ValueError:\n    raise RuntimeError('step failed') from None"
SPAWNED = "try:\n    raise RuntimeError('step failed')\nexcept Exception:\n    sys.exit(1)"


def ended(folder: Path, text: str) -> dict[str, Any]:
    """What the only rank says of its end."""
    (folder / "train.py").write_text(text)
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    subprocess.run([sys.executable, "train.py"], cwd=folder, env=environment, check=False, capture_output=True)
    told = json.loads((folder / "dumps" / "capture_rank_0.json").read_bytes())["ended"]
    assert told["time_ns"] > 0
    return {key: value for key, value in told.items() if key != "time_ns" and value is not None}


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("", {"reason": "exit"}),
        ("raise SystemExit(3)", {"reason": "exit"}),
        ("raise KeyboardInterrupt", {"reason": "interrupted"}),
        (HIDDEN, {"reason": "exception", "error": "RuntimeError: step failed", "cause": "ValueError: invalid literal "
                  "for int() with base 10: 'x'"}),
        (f"import os, time\nos.kill(os.getpid(), {int(signal.SIGTERM)})\ntime.sleep(60)", {"reason": "terminated"}),
    ],
)  # fmt: skip
def test_the_end_of_a_process(tmp_path: Path, then: str, told: dict[str, Any]) -> None:
    assert ended(tmp_path, START + then) == told
    assert (tmp_path / "dumps" / "exception_rank_0.log").exists() == (told["reason"] == "exception")
    stacks = tmp_path / "dumps" / "stacks_rank_0.txt"
    assert stacks.exists() == (told["reason"] == "terminated")
    # the signal comes in the line that sends it, or a moment later
    assert not stacks.exists() or re.search(r'train\.py", line [45] in <module>', stacks.read_text())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(
    ("body", "reason"),
    [("raise RuntimeError('step failed')", "exception"), (SPAWNED, "exception"), ("sys.exit(1)", "exit"),
     ("pass", "exit")],
)  # fmt: skip
def test_the_end_of_a_child_of_multiprocessing(tmp_path: Path, body: str, reason: str, method: str) -> None:
    text = CHILD.format(body="\n".join(f"    {line}" for line in body.splitlines()), method=method)
    told = ended(tmp_path, text)
    error = {"error": "RuntimeError: step failed"} if reason == "exception" else {}
    assert told == {"reason": reason, **error}


@pytest.mark.skipif(sys.version_info < (3, 13), reason="older children tell their exit functions how they end")
def test_a_child_whose_lines_another_tool_follows_says_what_stays_unknown(tmp_path: Path) -> None:
    taken = CHILD.replace("import rankscope", "sys.monitoring.use_tool_id(4, 'other')\n    import rankscope", 1)
    told = ended(tmp_path, taken.format(body="    raise RuntimeError('step failed')", method="fork"))
    problems = json.loads((tmp_path / "dumps" / "capture_rank_0.json").read_bytes())["problems"]
    assert told == {"reason": "exit"} and "ends this process may stay unknown: other" in str(problems)


UNTIL_TOLD = """import os, time
    while not os.path.exists("dumps/exception_rank_0.log"):
        time.sleep(0.05)"""
"""A dump that takes until the end is told."""
OF_DUMPS = """
from rankscope.capture.sampler import Sampler

def dumps(self, files, request):
    {body}

Sampler._dumps = dumps
from rankscope.capture import agent
agent.END_WAIT_S = 120.0
raise ValueError("bad sample")
"""


@pytest.mark.parametrize("body", [UNTIL_TOLD, "raise TypeError('not a recorder')"])
def test_the_end_is_told_though_a_dump_takes_long_or_fails(tmp_path: Path, body: str) -> None:
    assert ended(tmp_path, START + OF_DUMPS.format(body=body))["error"] == "ValueError: bad sample"
    assert "bad sample" in (tmp_path / "dumps" / "exception_rank_0.log").read_text()


LATE = """
import atexit, os, time
atexit.register(time.sleep, 0.5)
import rankscope.capture
from rankscope.capture.sampler import Sampler

def dumps(self, files, request):
    with open("reasons", "a") as file:
        print(request.reason, file=file)

Sampler._dumps = dumps
rankscope.capture.start("dumps", interval=0.02)
while not os.path.exists("reasons") or open("reasons").read().count("interval") < 2:
    time.sleep(0.01)
"""


def test_nothing_is_dumped_after_the_last_dump(tmp_path: Path) -> None:
    ended(tmp_path, LATE)
    reasons = (tmp_path / "reasons").read_text().split()
    assert reasons.count("interval") > 1
    assert reasons[-1] == "exit"


CLEANING = """
import time
from rankscope.capture.card import is_passing
try:
    raise ValueError("bad sample")
except ValueError as error:
    is_passing(error)
    since = time.time_ns()
    time.sleep(0.2)
    open("since", "w").write(str(since))
    raise
"""


def test_an_exception_that_was_on_its_way_has_the_time_at_which_it_was_seen(tmp_path: Path) -> None:
    ended(tmp_path, START + CLEANING)
    told = json.loads((tmp_path / "dumps" / "capture_rank_0.json").read_bytes())["ended"]
    assert told["time_ns"] <= int((tmp_path / "since").read_text())


def test_who_takes_its_groups_down_has_left_then() -> None:
    card = SidecarRecord()
    card.leave()
    since = time.time_ns()
    card.end("exit")
    assert card.ended is not None
    assert card.ended["time_ns"] <= since


def test_who_takes_the_signal_later_is_told(tmp_path: Path) -> None:
    ended(tmp_path, START + "import signal\nsignal.signal(signal.SIGUSR2, print)\n")
    (problem,) = json.loads((tmp_path / "dumps" / "capture_rank_0.json").read_bytes())["problems"]
    assert problem == "no dump at SIGUSR2: other code handles it now"
