"""Writes the dumps the speed is measured on: `python -m benchmarks.make_dumps FOLDER RANKS`.

A job is simulated in which two replicas train, tensor and pipeline parallel. What a rank of it leaves is then written
for every replica of a large job, with the names, the members and the clock that the rank has there.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.parsers.torch_pickle import torch_pickle
from tests.simulator.dump import View
from tests.simulator.files import content
from tests.simulator.instructions import P2P, Batch, Collective, Host
from tests.simulator.job import START, Outcome, plan, run
from tests.simulator.options import DumpOptions
from tests.simulator.programs import Style
from tests.simulator.topology import Layout, Topology, build

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser

ENTRIES = 2000
"""Entries of each rank, as the recorder keeps by default."""
WRITERS = {
    "legacy": DumpOptions(torch_pickled=True),
    "nccl2": DumpOptions(timing=False, recorder="hook", backend="nccl2", torch_pickled=True),
}
"""NCCL's own recorder, and the hook of torch 2.15 over nccl2."""
STEPS = 2
JITTER_NS = 2_000_000
"""How far the clocks of two hosts are apart at most."""
DAY_NS = 86_400_000_000_000
_LONG = b"\x8a\x08"
"""How the recorder begins an integer of eight bytes: all of them are times."""


@dataclass(frozen=True)
class RankTemplate:
    """The dump of a rank of the simulated job; groups are named by their kind, as `@dp`."""

    data: bytes
    times: npt.NDArray[np.int64]
    """Places of the times in `data`."""
    written_ns: int

    def stamped(self, names: dict[bytes, bytes], shift_ns: int) -> bytes:
        """The dump with other texts and another clock."""
        raw = np.frombuffer(self.data, np.uint8).copy()
        words: npt.NDArray[np.int64] = np.ndarray((len(raw) - 7,), "<i8", raw, strides=(1,))
        words[self.times] += shift_ns
        data = raw.tobytes()
        for mark, text in names.items():
            data = data.replace(_text(mark), _text(text))
        return data


def _text(value: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value


def layout_of(ranks: int, tp: int = 8) -> Layout:
    """A job that is tensor, data and pipeline parallel; fewer than 64 ranks have smaller dimensions of each."""
    tp, pp = (min(tp, 8), 4) if ranks >= 64 else (2, 2) if ranks >= 8 else (1, 1)
    if ranks % (tp * pp) or ranks // (tp * pp) < 2:
        raise SystemExit(f"{ranks} ranks are not at least two replicas of {tp} x {pp}")
    return Layout(tp=tp, dp=ranks // (tp * pp), pp=pp)


def make(folder: Path, ranks: int, entries: int = ENTRIES, writer: str = "legacy", tp: int = 8) -> None:
    """Dumps of a job whose rings are full of `entries`, in which the host of the last rank stopped."""
    layout, rng = layout_of(ranks, tp), random.Random(ranks)
    topology, known = build(layout), templates(layout, entries, writer)
    skews = [rng.randint(-JITTER_NS, JITTER_NS) for _ in range(topology.host(ranks - 1) + 1)]
    members = {name: str(list(of)).encode() for name, of in topology.groups.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        tensor, replica, stage = layout.coordinates(rank)
        template, skew = known[tensor, stage, replica == layout.dp - 1], skews[topology.host(rank)]
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(template.stamped(_names(topology, rank, members), skew))
        os.utime(path, ns=(template.written_ns + skew,) * 2)


def _names(topology: Topology, rank: int, members: dict[str, bytes]) -> dict[bytes, bytes]:
    kinds = topology.of[rank].items()
    named = {f"@{kind}".encode(): name.encode() for kind, name in kinds}
    return named | {f"@{kind} ranks".encode(): members[name] for kind, name in kinds}


def templates(layout: Layout, entries: int, writer: str) -> dict[tuple[int, int, bool], RankTemplate]:
    """What is left at each place of the tensor and the pipeline, in the last replica and in any other."""
    outcome = _simulated(Layout(tp=layout.tp, dp=2, pp=layout.pp), entries)
    options = DumpOptions(**{**WRITERS[writer].__dict__, "ring": entries})
    times = outcome.dump_times("timeout", options)
    found = {}
    for rank, at in times.items():
        tensor, replica, stage = outcome.topology.layout.coordinates(rank)
        records = [r for r in outcome.records[rank] if r.created <= at]
        view = View(outcome.topology, rank, records, outcome.watchdogs[rank], at, 0, options)
        data = torch_pickle(_marked(content(view), outcome.topology.of[rank]))
        found[tensor, stage, replica == 1] = RankTemplate(data, _times(data), at)
    return found


def _times(data: bytes) -> npt.NDArray[np.int64]:
    """The places of all times; the two bytes before them may also be a part of another number."""
    raw = np.frombuffer(data, np.uint8)
    places = np.flatnonzero((raw[:-9] == _LONG[0]) & (raw[1:-8] == _LONG[1])) + len(_LONG)
    words: npt.NDArray[np.int64] = np.ndarray((len(data) - 7,), "<i8", data, strides=(1,))
    return places[np.abs(words[places] - START) < DAY_NS]


def _simulated(layout: Layout, entries: int) -> Outcome:
    job = plan(layout, Style("megatron", layers=4), STEPS)
    job.past = entries // min(_recorded(steps[0]) for steps in job.steps.values()) + 1
    last = layout.world - 1
    job.replace(last, STEPS - 1, [Host(None), *job.steps[last][STEPS - 1]])
    return run(job, seed=entries, skew_ns=0)


def _recorded(program: list[Any]) -> int:
    return sum(isinstance(one, Collective | P2P | Batch) for one in program)


def _marked(document: dict[str, Any], kinds: dict[str, str]) -> dict[str, Any]:
    """The dump with a mark for each group and for its members."""
    marks = {name: f"@{kind}" for kind, name in kinds.items()}
    for entry in document["entries"]:
        name, description = entry["process_group"]
        entry["process_group"] = (marks[name], description)
    return {**document, "pg_config": dict(_marked_groups(document["pg_config"], marks))}


def _marked_groups(config: dict[str, Any], marks: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    for name, group in config.items():
        yield marks[name], {**group, "name": marks[name], "ranks": f"{marks[name]} ranks"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the dumps of a job."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ranks", type=int, help="at least two replicas of 8 x 4 ranks, of 2 x 2 for fewer than 64")
    parser.add_argument("entries", type=int, nargs="?", default=ENTRIES, help=f"of each rank (default: {ENTRIES})")
    parser.add_argument("writer", nargs="?", default="legacy", choices=WRITERS)
    parser.add_argument("tp", type=int, nargs="?", default=8, help="size of the tensor parallel groups (default: 8)")
    given = parser.parse_args(arguments)
    make(given.folder, given.ranks, given.entries, given.writer, given.tp)


if __name__ == "__main__":
    run_program(main)
