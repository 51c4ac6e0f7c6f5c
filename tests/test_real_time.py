"""Tests that sleep, or wait for a duration instead of a state: few, and each with its reason."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
SHORTEST_BOUND_S = 120.0
"""Who waits for a state gives it minutes: a machine may be busy."""
SLEEPS = re.compile(r"\bsleep\(|time\.sleep\b|\bsleep \d|\bpause\([^)\s]|\bread\(\d")
BOUNDS = re.compile(
    r"(?:\bwait\(|\bjoin\(|timeout=|settimeout\(|monotonic\(\) \+ |_(?:S|SECONDS) = |until\([^()]*, )(\d+(?:\.\d+)?)\b"
)
LOOKS = "looks again and again for a state, which has minutes to come"
HANGS = "is what hangs in a job, until it is killed"
JOB = "is a job, which takes the time it takes; nothing is judged by how long that is"
ALLOWED = {
    "capture/ranks.py": LOOKS,
    "capture/test_code_record.py": LOOKS,
    "capture/test_ends.py": "what must not come after the last dump has the time to come; an event has its own time",
    "capture/test_jobs.py": HANGS,
    "capture/test_keeper.py": LOOKS,
    "capture/test_lineage.py": "children that live as long as their parent looks at them",
    "capture/test_signals.py": HANGS,
    "capture/test_stalls.py": f"{LOOKS}; the trainer's own timer goes off meanwhile",
    "commands/test_follower_process.py": LOOKS,
    "commands/test_demo.py": LOOKS,
    "commands/test_watch.py": LOOKS,
    "house/test_programs.py": f"{HANGS}, and {LOOKS}",
    "jobs/hooked/record.py": JOB,
    "jobs/hooked/steps.py": HANGS,
    "jobs/hooked/test_live.py": LOOKS,
    "features/logs/read/c10d/job.py": JOB,
    "features/logs/read/c10d/test_thread_dumps.py": HANGS,
    "features/stacks/py_spy/test_real.py": f"{HANGS}, and {LOOKS}",
    "parsers/workers/test_pool.py": HANGS,
    "recipes/test_kubernetes.py": LOOKS,
    "recipes/test_slurm.py": "a command that takes too long, and is ended",
    "sessions/test_ingest.py": "a task is killed at any moment: each outcome is right",
    "triggers/served.py": LOOKS,
    "triggers/test_hooked_server.py": HANGS,
    "triggers/test_real_server.py": HANGS,
    "tui/drive.py": LOOKS,
    "tui/test_app_typed.py": "gives what must not come the time to come: a slow machine cannot fail it",
    "tui/live/test_pty.py": f"{JOB}: its dumps show the same for as long as it needs to be called frozen",
    "tui/terminal.py": LOOKS,
    "tui/test_pty.py": "the editor stays for a moment; the others look again and again for a state",
    "watching/following.py": LOOKS,
    "watching/ranks.py": JOB,
    "watching/test_hook.py": "a command that takes a while, and one that looks for a file",
}
"""By file, why it sleeps."""
SHORT = {
    "jobs/hooked/record.py": "a recording's own times",
    "watching/test_again.py": "by a clock that the test turns",
    "watching/test_clocks.py": "by a clock that the test turns",
    "watching/test_hanging.py": "by a clock that the test turns",
    "watching/ranks.py": JOB,
    "watching/test_wake.py": "comes back of itself, whenever that is",
    "watching/test_prompt.py": "how often a file is written to",
}
"""By file, why a bound in it is shorter than minutes."""


def found(pattern: re.Pattern[str]) -> dict[str, list[re.Match[str]]]:
    """Matches by file."""
    files = {path.relative_to(TESTS).as_posix(): path.read_text() for path in TESTS.rglob("*.py")}
    del files[Path(__file__).relative_to(TESTS).as_posix()]
    return {name: list(pattern.finditer(text)) for name, text in files.items() if pattern.search(text)}


def test_whoever_sleeps_says_why() -> None:
    assert sorted(found(SLEEPS)) == sorted(ALLOWED)


def test_whoever_waits_for_a_state_gives_it_minutes() -> None:
    short = {
        name: [match[0] for match in matches if 0.0 < float(match[1]) < SHORTEST_BOUND_S]
        for name, matches in found(BOUNDS).items()
    }
    assert sorted(name for name, bounds in short.items() if bounds) == sorted(SHORT), short
