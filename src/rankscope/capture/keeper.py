"""Runs a command until it ends, or until standard input does: then whoever asked for it is gone, and it goes, too.

    python -m rankscope.capture.keeper PROGRAM ARGUMENT...

It is started in a process group of its own, and ends that group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    """The exit code of the command."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    return subprocess.call(command, stdin=subprocess.DEVNULL)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
