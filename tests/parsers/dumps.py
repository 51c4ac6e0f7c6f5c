"""Builds dumps operation by operation, in any version of the format, as pickle or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.schema import Dataset
from tests.parsers.torch_pickle import torch_pickle

START_NS = 1_760_000_000_000_000_000
STEP_NS = 1_000_000
FRAMES = [
    {"name": "all_reduce", "filename": "distributed.py", "line": 2500},
    {"name": "train", "filename": "train.py", "line": 88},
]
Groups = dict[str, tuple[str, Sequence[int]]]
"""Name to description and members."""


class Recorder:
    """What one process records.

    >>> recorder = Recorder(0, {"0": ("default_pg", [0, 1])})
    >>> recorder.collective("0")
    >>> data = recorder.pickle()
    """

    def __init__(
        self, rank: int, groups: Groups, library: str = "nccl", start_ns: int = START_NS, thread: str = "140"
    ) -> None:
        self.rank = rank
        self.groups = groups
        self.library = library
        self.clock = start_ns
        self.thread = thread
        self.entries: list[dict[str, Any]] = []
        self.counters = {name: [0, 0, 0] for name in groups}
        self.status: dict[str, list[int]] = {}
        self.frames: list[dict[str, Any]] = FRAMES

    def collective(self, group: str = "0", op: str = "all_reduce", state: str = "completed", **more: Any) -> None:
        """One collective."""
        self.counters[group][0] += 1
        self._record(group, f"{self.library}:{op}", state, False, more)

    def p2p(self, group: str, op: str, peer: int, state: str = "completed", **more: Any) -> None:
        """A send to, or a recv from, the member at place `peer`."""
        self.counters[group][1] += 1
        self._p2p(group, op, peer, state, more)

    def batch(self, group: str, ops: Sequence[tuple[str, int]], state: str = "completed", closed: bool = True) -> None:
        """Sends and receives launched together; only the closer has a state, and says that it is no point-to-point."""
        self.counters[group][1] += 1
        for op, peer in ops:
            self._p2p(group, op, peer, "scheduled", {"retired": False})
        if closed:
            none: list[Any] = []
            empty: dict[str, Any] = {"input_sizes": none, "output_sizes": none}
            empty.update(input_dtypes=none, output_dtypes=none, is_p2p=False)
            self.counters[group][2] -= 1  # a closer is no operation of its own
            self._record(group, f"{self.library}:coalesced", state, True, empty)

    def coalesced(self, dtypes: Sequence[str], op: str = "all_reduce") -> None:
        """Collectives of these types launched as one, and their closer."""
        self.counters["0"][0] += 1
        for dtype in dtypes:
            types = {"input_dtypes": [dtype], "output_dtypes": [dtype], "retired": False}
            self._record("0", f"{self.library}:{op}", "scheduled", False, types)
        nothing: dict[str, Any] = {f"{side}_{what}": [] for side in ("input", "output") for what in ("sizes", "dtypes")}
        self._record("0", f"{self.library}:coalesced", "completed", False, nothing)

    def _p2p(self, group: str, op: str, peer: int, state: str, more: dict[str, Any]) -> None:
        own = list(self.groups[group][1]).index(self.rank)
        self._record(group, f"{self.library}:{op} {own}{'->' if op == 'send' else '<-'}{peer}", state, True, more)

    def _record(self, group: str, name: str, state: str, is_p2p: bool, more: dict[str, Any]) -> None:
        self.clock += STEP_NS
        self.counters[group][2] += 1
        seq, p2p_seq, op_id = self.counters[group]
        done = state == "completed"
        entry = {
            "frames": self.frames, "record_id": len(self.entries), "pg_id": list(self.groups).index(group),
            "process_group": (group, self.groups[group][0]), "thread_name": "python3", "thread_id": self.thread,
            "collective_seq_id": seq, "p2p_seq_id": p2p_seq, "op_id": op_id, "profiling_name": name,
            "time_created_ns": self.clock, "input_sizes": [[64, 32]], "input_dtypes": ["Float"],
            "output_sizes": [[64, 32]], "output_dtypes": ["Float"], "state": state,
            "time_discovered_started_ns": self.clock + 10 if state != "scheduled" else None,
            "time_discovered_completed_ns": self.clock + 20 if done else None, "retired": done,
            "timeout_ms": 600_000, "is_p2p": is_p2p,
        }  # fmt: skip
        entry.update(more)
        self.entries.append(entry)
        counter = p2p_seq if is_p2p else seq
        told = self.status.setdefault(str(entry["pg_id"]), [-1, -1, -1])
        told[0] = counter
        told[1] = counter if state != "scheduled" else told[1]
        told[2] = counter if done else told[2]

    def document(self, version: str = "2.10", ring: int = 2000, only_active: bool = False, stacks: bool = True) -> Any:
        """The dump as the recorder of that version has it."""
        kept = [e for e in self.entries[-ring:] if not only_active or e["time_discovered_completed_ns"] is None]
        document = {
            "version": "2.10",
            "pg_config": {
                name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
                for name, (desc, ranks) in self.groups.items()
            },
            "comm_lib_version": "" if self.library == "gloo" else "2.27.3",
            "pg_status": {
                pg: dict(zip((f"last_{k}_collective" for k in ("enqueued", "started", "completed")), told, strict=True))
                for pg, told in self.status.items()
            },
            "entries": [{k: v for k, v in e.items() if stacks or k != "frames"} for e in kept],
        }  # fmt: skip
        return as_version(document, version)

    def pickle(self, **options: Any) -> bytes:
        """The bytes of `document`."""
        return torch_pickle(self.document(**options))

    def json(self, **options: Any) -> bytes:
        """The same as JSON."""
        return as_json(self.document(**options))


def as_version(document: dict[str, Any], version: str) -> Any:
    """A dump of 2.10 with the keys that an older (or newer) version has. "0" is the bare list."""
    number = tuple(int(part) for part in version.split("."))
    entries = [_entry(dict(e), number) for e in document["entries"]]
    if version == "0":
        return entries
    out = {**document, "version": version, "entries": entries}
    if number < (2, 10):
        out = {"nccl_version" if key == "comm_lib_version" else key: value for key, value in out.items()}
    if number < (2, 6):
        del out["nccl_version"]
    if number < (2, 3):
        del out["pg_status"]
    if number < (1, 5):
        groups = enumerate(out["pg_config"].values())
        out["pg_config"] = {i: orjson.loads(group["ranks"]) for i, group in groups}
    if number < (1, 2):
        del out["pg_config"]
    return out


def _entry(entry: dict[str, Any], number: tuple[int, ...]) -> dict[str, Any]:
    since = {
        (2, 9): ("thread_name", "thread_id"), (2, 2): ("is_p2p", "input_dtypes", "output_dtypes", "timeout_ms"),
        (1, 5): ("process_group", "p2p_seq_id", "collective_seq_id"), (1, 2): ("record_id", "op_id"),
        (1, 1): ("time_discovered_started_ns", "time_discovered_completed_ns", "retired", "duration_ms"),
    }  # fmt: skip
    if number < (1, 5):
        entry["seq_id"] = entry["collective_seq_id"]
    for version, keys in since.items():
        for key in keys if number < version else ():
            entry.pop(key, None)
    return entry


def as_json(document: dict[str, Any]) -> bytes:
    """A dump as the recorder writes it as JSON."""
    out = {**document, "nccl_comm_state": {}}
    out["pg_status"] = {pg: {k: str(v) for k, v in row.items()} for pg, row in document["pg_status"].items()}
    out["entries"] = [_json_entry(e) for e in document["entries"]]
    if not out["entries"]:
        del out["entries"]
    return orjson.dumps(out, option=orjson.OPT_SORT_KEYS)


def _json_entry(entry: dict[str, Any]) -> dict[str, Any]:
    times = ("time_discovered_started_ns", "time_discovered_completed_ns")
    out = {**entry, **{key: entry[key] or 0 for key in times}}
    out.pop("frames", None)
    return out


def dataset_of(files: dict[str, bytes], **options: Any) -> Dataset:
    """What is made of these files, decoded in this process."""
    sources = [
        SourceFile(path, "flight-recorder", len(data), None, None, decode_dump(data))
        for path, data in sorted(files.items())
    ]
    given: dict[str, Any] = {"pattern": None, "world_size": None, "attempt": None, **options}
    return assemble(sources, "dumps", **given)


def job(world: int, groups: Groups | None = None, **options: Any) -> list[Recorder]:
    """A recorder for each rank, each with the groups that it is in."""
    groups = groups or {"0": ("default_pg", list(range(world)))}
    return [Recorder(r, {n: g for n, g in groups.items() if r in g[1]}, **options) for r in range(world)]


def named(recorders: Sequence[Recorder], **options: Any) -> dict[str, bytes]:
    """Their dumps by file name."""
    return {f"nccl_trace_rank_{recorder.rank}": recorder.pickle(**options) for recorder in recorders}
