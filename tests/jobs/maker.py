"""Makes the jobs of `sample_data`, one after another in one process: importing torch takes longer than most jobs.

Run as a process it reads lines of JSON, a scenario, a directory and how many times as long as usual everything takes
that a verdict is made of, and answers each with a line: why it failed, or "".
"""

from __future__ import annotations

import contextlib
import importlib
import json
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType

SAMPLES = Path(__file__).parents[2] / "sample_data"
LONGEST_S = 600.0


class Maker:
    """The process, which is started with the first job and runs until the block ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Maker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def make(self, scenario: str, out: Path, slower: int = 1) -> None:
        """Runs a job, which leaves its dumps in a directory of its name. Raises RuntimeError or TimeoutError.

        Where it is `slower`, it stands still and is late for so many times as long: a busy machine holds up all alike.
        """
        if self._process is None:
            self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ask, answer = self._process.stdin, self._process.stdout
        assert ask is not None and answer is not None
        ask.write(json.dumps([scenario, str(out), slower]).encode() + b"\n")
        ask.flush()
        if not select.select([answer], [], [], LONGEST_S)[0]:
            self._end()
            raise TimeoutError(f"{scenario} is not made within {LONGEST_S:g} s")
        line = answer.readline()
        if not line:
            self._end()
            raise RuntimeError(f"{scenario}: the process that makes it has ended")
        if problem := json.loads(line):
            raise RuntimeError(problem)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def main() -> None:
    """Makes what it is asked for."""
    sys.path.insert(0, str(SAMPLES))
    samples = importlib.import_module("make")
    samples.warm_up()
    still_s, late_s, longest_s = samples.STILL_S, samples.traced.SLOW_S, samples.LONGEST_S
    for line in sys.stdin:
        scenario, out, slower = json.loads(line)
        # the ranks are forks of this process
        vars(samples).update(STILL_S=still_s * slower, LONGEST_S=longest_s * slower)
        samples.traced.SLOW_S = late_s * slower
        problem = ""
        with contextlib.redirect_stdout(sys.stderr):
            try:
                samples.make(scenario, Path(out, scenario))
            except SystemExit as error:
                problem = str(error)
        print(json.dumps(problem), flush=True)


if __name__ == "__main__":
    main()
