"""Nothing that was started stays when whoever started it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from rankscope.parsers.workers.machine_share import module_command
from tests.watching.hand_clock import PATIENCE_S

CHILD = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)"
COMMAND = f"{CHILD}; print(p.pid, flush=True); p.wait()"


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kept(code: str) -> subprocess.Popen[str]:
    command = module_command("rankscope.capture.keeper", sys.executable, "-c", code)
    return subprocess.Popen(command, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_command_and_what_it_started_end_with_the_standard_input() -> None:
    keeper = kept(COMMAND)
    assert keeper.stdin is not None and keeper.stdout is not None
    grandchild = int(keeper.stdout.readline())
    assert is_there(grandchild)
    # as if whoever holds the other end was killed
    keeper.stdin.close()
    keeper.wait(PATIENCE_S)
    end = time.monotonic() + PATIENCE_S
    while is_there(grandchild):
        assert time.monotonic() < end
        time.sleep(0.02)
    keeper.stdout.close()


def test_the_exit_code_is_that_of_the_command() -> None:
    with kept("raise SystemExit(7)") as keeper:
        assert keeper.wait(PATIENCE_S) == 7
