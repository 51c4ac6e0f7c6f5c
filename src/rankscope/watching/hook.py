"""A command of the user's that is run when a job freezes, with the report on its standard input."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable

from rankscope.parsers.workers.share import of_the_user
from rankscope.report.escape import plain

LONGEST_QUOTE = 200
"""Characters of what a command that failed has said."""


class Hook:
    """Runs the command beside everything else, never twice at a time; `tell` gets what became of it."""

    def __init__(self, command: str, tell: Callable[[str], None]) -> None:
        self._command, self._tell = command, tell
        self._thread: threading.Thread | None = None

    def fire(self, report: bytes) -> None:
        """Starts the command."""
        if self._thread is not None and self._thread.is_alive():
            self._tell("--on-freeze: the command of the last time is still running, it was not started again")
            return
        self._thread = threading.Thread(target=self._run, args=(report,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until the command has ended."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, report: bytes) -> None:
        try:
            done = subprocess.run(
                self._command, shell=True, input=report, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
                start_new_session=True, env=of_the_user(),
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._tell(f"--on-freeze: cannot be run: {plain(str(error), LONGEST_QUOTE)}")
            return
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            why = f": {plain(said[-1], LONGEST_QUOTE)}" if said else ""
            self._tell(f"--on-freeze: the command failed with exit code {done.returncode}{why}")
