"""Ways to read what a job left behind, each run as a process of its own: `python -m benchmarks.scale_ways WAY FOLDER`.

Each prints a JSON object: seconds on the clock and of all processors, by stage.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.results import program_parser

Stages = dict[str, list[float]]
"""By stage: seconds on the clock, and of processors."""


def _now() -> list[float]:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return [time.perf_counter(), own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime]


@contextmanager
def _stage(stages: Stages, name: str) -> Iterator[None]:
    begin = _now()
    yield
    stages[name] = [after - before for after, before in zip(_now(), begin, strict=True)]


def bare_pickle(folder: Path) -> Stages:
    """Nothing but `pickle.loads` of all files, one after the other, without the garbage collector."""
    stages: Stages = {}
    gc.disable()
    with _stage(stages, "pickle.loads"):
        for path in sorted(folder.iterdir()):
            pickle.loads(path.read_bytes())
    return stages


def expression(folder: Path) -> Stages:
    """Every match of one regular expression over all files, and nothing done with it."""
    from benchmarks.log_speed import PLAIN

    pattern: re.Pattern[bytes] = PLAIN
    stages: Stages = {}
    with _stage(stages, "re.finditer"):
        for path in sorted(folder.iterdir()):
            sum(1 for _ in pattern.finditer(path.read_bytes()))
    return stages


def staged(folder: Path) -> Stages:
    """Loads and analyses: import, read, assemble, analyse."""
    stages: Stages = {}
    with _stage(stages, "import"):
        from rankscope.analysis import analyse
        from rankscope.assemble import assembly
        from rankscope.assemble.load import load
    begin, marks, assemble = _now(), [], assembly.assemble

    def timed(*arguments: Any, **named: Any) -> Any:
        # the workers have ended and are counted
        marks.append(_now())
        return assemble(*arguments, **named)

    with patch.object(assembly, "assemble", timed):
        dataset = load([folder])
    end = _now()
    for name, first, last in (("read", begin, marks[0]), ("assemble", marks[0], end)):
        stages[name] = [after - before for after, before in zip(last, first, strict=True)]
    with _stage(stages, "analyse"):
        analysis = analyse(dataset)
    print(analysis.verdict, file=sys.stderr)
    return stages


WAYS: dict[str, Callable[[Path], Stages]] = {"pickle": bare_pickle, "finditer": expression, "stages": staged}


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads a folder in one way."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    print(json.dumps(WAYS[given.way](given.folder)), flush=True)


if __name__ == "__main__":
    main()
    # as rankscope's commands end: giving memory back is not measured
    os._exit(0)
