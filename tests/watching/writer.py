"""A process that writes files as a job does: `python -m tests.watching.writer STEPS`, a list of steps as JSON.

It waits for a line on its standard input before each step, and writes one when it is done.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


def part(source: str, target: str, share: str) -> None:
    """Writes only the beginning of a file."""
    data = Path(source).read_bytes()
    Path(target).write_bytes(data[: int(len(data) * float(share))])


def append(source: str, target: str) -> None:
    """Writes to the end of a file."""
    with Path(target).open("ab") as file:
        file.write(Path(source).read_bytes())


def write_at(source: str, target: str, offset: str) -> None:
    """Writes where the writer of a file believes to be, which does not append."""
    with Path(target).open("r+b") as file:
        file.seek(int(offset))
        file.write(Path(source).read_bytes())


def replace(source: str, target: str) -> None:
    """Writes under another name, and renames; it has the time of what it is written from."""
    name = Path(target).with_name("." + Path(target).name + ".tmp")
    shutil.copy2(source, name)
    name.rename(target)


STEPS: dict[str, Callable[..., object]] = {
    "part": part,
    "append": append,
    "write-at": write_at,
    "replace": replace,
    "copy": shutil.copyfile,
    "truncate": lambda target: Path(target).write_bytes(b""),
    "rename": lambda source, target: Path(source).rename(target),
    "delete": lambda target: Path(target).unlink(),
    "remove": shutil.rmtree,
    "make": lambda target: Path(target).mkdir(),
}


class Writer:
    """The process, for tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.watching.writer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def do(self, step: str, *arguments: object) -> None:
        """Has a step done, and waits for it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([step, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


def main() -> None:
    """Does what it is told."""
    for line in sys.stdin:
        step, *arguments = json.loads(line)
        STEPS[step](*arguments)
        print("done", flush=True)


if __name__ == "__main__":
    main()
