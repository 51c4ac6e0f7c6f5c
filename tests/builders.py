"""Builds a Dataset row by row, for tests that need no file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rankscope.features.logs.read.c10d.known_errors import packaged_table
from rankscope.schema import Dataset
from rankscope.schema.tables import COMMS, FILES, FRONTIERS, GROUPS, MESSAGES, OPS, RAS, SETTINGS, STACKS, THREADS

START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000


class JobBuilder:
    """Collects operations of ranks and makes the tables of a Dataset of them.

    >>> job = JobBuilder(world_size=2)
    >>> job.collective("0", ranks=[0, 1], op="all_reduce")
    >>> dataset = job.build()
    """

    def __init__(self, world_size: int, groups: Mapping[str, Sequence[int]] | None = None) -> None:
        self.world_size = world_size
        self.group_ranks: dict[str, list[int]] = {"0": list(range(world_size))}
        self.group_ranks.update({name: list(ranks) for name, ranks in (groups or {}).items()})
        self.descriptions = {"0": "default_pg"}
        self.rows: list[dict[str, Any]] = []
        self.stacks: dict[tuple[tuple[str, str, int], ...], int] = {}
        self.seqs: dict[tuple[int, str], int] = {}
        self.clock: dict[int, int] = {}
        self.no_dump: set[int] = set()
        self.threads: list[dict[str, Any]] = []
        self.logs: dict[str, list[dict[str, Any]]] = {name: [] for name in ("messages", "settings", "comms", "ras")}
        self.log_files: dict[str, int] = {}

    def collective(
        self,
        group: str = "0",
        ranks: Sequence[int] | None = None,
        op: str = "all_reduce",
        state: str = "completed",
        sizes: str = "[[64]]",
        stack: Sequence[tuple[str, str, int]] = (("train", "train.py", 10),),
        delay_ns: int = 0,
        **more: Any,
    ) -> None:
        """Adds one collective to each of `ranks` (all members if None), with the next seq of each."""
        for rank in self.group_ranks[group] if ranks is None else ranks:
            self._row(rank, group, op, state, sizes, tuple(stack), delay_ns, False, None, more)

    def p2p(self, group: str, rank: int, peer: int, op: str, state: str = "completed", **more: Any) -> None:
        """Adds a send to `peer` or a recv from it (global ranks)."""
        self._row(rank, group, op, state, "[[8]]", (("pipe", "pipe.py", 5),), 0, True, peer, more)

    def thread(
        self, rank: int | None, stack: Sequence[tuple[str, str, int]], name: str = "MainThread", **more: Any
    ) -> None:
        """Adds a thread that py-spy saw in the process of `rank`, its stack innermost first."""
        stack_id = self.stacks.setdefault(tuple(stack), len(self.stacks))
        number = len(self.threads)
        row = {
            "file": 1000 + (rank or 0), "rank": rank, "pid": 4000 + (rank or 0), "parent_pid": None,
            "command": "python train.py", "thread": name, "thread_id": number, "is_main": name == "MainThread",
            "active": True, "gil": False, "stack_id": stack_id, "written_ns": None,
        }  # fmt: skip
        self.threads.append({**row, **more})

    def message(self, kind: str, rank: int | None = None, log: str = "train.log", text: str = "", **more: Any) -> None:
        """Adds a line to a log; what is no column of `messages` is one of its values.

        `seconds` after the start is its time; without it the line has none.
        """
        columns = {k: more.pop(k) for k in tuple(more) if k in MESSAGES and k != "pid"}
        seconds = more.pop("seconds", None)
        number = 1 + sum(row["file"] == self._log(log) for row in self.logs["messages"])
        row = {
            "time_ns": None if seconds is None else START_NS + int(seconds * 1e9),
            "resolution_ns": None if seconds is None else 1, "rank": rank, "pid": more.get("pid"),
            "file": self._log(log), "offset": 100 * number,
            "line": number, "severity": "error", "kind": kind, "role": "", "pattern": "", "text": text or kind,
            "values": json.dumps(more), "torn": False,
        }  # fmt: skip
        self.logs["messages"].append({**row, **columns})

    def known(self, pattern: str, rank: int | None = None, role: str = "victim", text: str = "", **more: Any) -> None:
        """Adds a line that the table of known errors has; a root accuses who prints it."""
        accuses = more.pop("accuses", "self" if role == "root" else "nobody")
        entry = next((error for error in packaged_table() if error.id == pattern), None)
        said = {} if entry is None else {"traits": entry.traits, "title": entry.name}
        self.message(
            "known-error", rank, text=text or pattern, role=role, pattern=pattern, accuses=accuses, **{**said, **more}
        )

    def setting(self, rank: int | None, name: str, value: str, **more: Any) -> None:
        """Adds a setting or version that a process told of."""
        row = {"rank": rank, "host": "", "pid": rank, "name": name, "value": value, "source": "nccl",
               "file": self._log("train.log"), "line": 1}  # fmt: skip
        self.logs["settings"].append({**row, **more})

    def comm(
        self, rank: int | None, state: str = "complete", size: int = 0, group: int | None = 0, **more: Any
    ) -> None:
        """Adds a communicator of a process."""
        row = {"group": group, "rank": rank, "host": "", "pid": rank, "comm_rank": rank, "device": rank,
               "size": size or self.world_size, "state": state, "identity": "0x1", "file": self._log("train.log"),
               "line": 1}  # fmt: skip
        self.logs["comms"].append({**row, **more})

    def ras(
        self, rank: int | None = None, comm: str = "0x1", counts: Mapping[str, int] | None = None, **more: Any
    ) -> None:
        """Adds what RAS says of a rank in a communicator, or of the communicator itself without one."""
        row = {"comm": comm, "group": 0, "rank": rank, "host": "", "pid": rank, "status": "", "line": 1, "text": "",
               "counts": json.dumps(counts or {}), "source": "ras", "file": self._log("train.log")}  # fmt: skip
        self.logs["ras"].append({**row, **more})

    def _log(self, name: str) -> int:
        return self.log_files.setdefault(name, 2000 + len(self.log_files))

    def _row(
        self, rank: int, group: str, op: str, state: str, sizes: str, stack: tuple[tuple[str, str, int], ...],
        delay_ns: int, is_p2p: bool, peer: int | None, more: dict[str, Any],
    ) -> None:  # fmt: skip
        created = self.clock.get(rank, START_NS) + STEP_NS + delay_ns
        self.clock[rank] = created
        key = (rank, group)
        if not is_p2p:
            self.seqs[key] = self.seqs.get(key, 0) + 1
        p2p_seq = sum(1 for r in self.rows if r["rank"] == rank and r["group"] == group and r["is_p2p"]) + int(is_p2p)
        done = state == "completed"
        row = {
            "source": "flight-recorder", "file": rank, "attempt": 0, "rank": rank, "host": f"node{rank // 8:02d}",
            "group": group, "seq": self.seqs.get(key, 0), "p2p_seq": p2p_seq, "op_id": len(self.rows),
            "is_p2p": is_p2p, "library": "nccl", "op": op, "peer": peer, "coalesced": "none", "state": state,
            "retired": done, "created_ns": created, "started_ns": created if state != "scheduled" else None,
            "completed_ns": created + STEP_NS // 2 if done else None, "duration_ns": None, "in_sizes": sizes,
            "out_sizes": sizes, "in_dtypes": '["Float"]', "out_dtypes": '["Float"]',
            "stack_id": self.stacks.setdefault(stack, len(self.stacks)) if stack else None,
            "thread": "python", "timeout_ms": 600_000,
            "record_id": sum(1 for r in self.rows if r["rank"] == rank),
        }  # fmt: skip
        row.update(more)
        self.rows.append(row)

    def build(self) -> Dataset:
        """The Dataset of what was added; ranks in `no_dump` have no file and no rows."""
        names = list(self.group_ranks)
        rows = [dict(r, group=names.index(r["group"])) for r in self.rows if r["rank"] not in self.no_dump]
        ops = pl.DataFrame(rows, schema=OPS).sort("rank", "record_id", maintain_order=True)
        p2p = {r["group"] for r in rows if r["is_p2p"]}
        groups = pl.DataFrame(
            [
                {"group": i, "name": n, "description": self.descriptions.get(n, f"mesh_{n}"), "ranks": ranks,
                 "membership": "config", "has_p2p": i in p2p}
                for i, (n, ranks) in enumerate(self.group_ranks.items())
            ],
            schema=GROUPS,
        )  # fmt: skip
        return Dataset(
            messages=self._told("messages", MESSAGES), settings=self._told("settings", SETTINGS),
            comms=self._told("comms", COMMS), ras=self._told("ras", RAS),
            ops=ops, groups=groups, stacks=self._stacks(), frontiers=self._frontiers(ops, names),
            threads=pl.DataFrame(self.threads, schema=THREADS), files=self._files(ops),
            world_size=self.world_size, root="dumps",
        )  # fmt: skip

    def _told(self, name: str, columns: Mapping[str, Any]) -> pl.DataFrame:
        return pl.DataFrame(self.logs[name], schema=dict(columns))

    def _stacks(self) -> pl.DataFrame:
        rows = [
            {"stack_id": i, "depth": d, "function": f, "file": p, "line": n}
            for stack, i in self.stacks.items()
            for d, (f, p, n) in enumerate(stack)
        ]
        return pl.DataFrame(rows, schema=STACKS)

    def _frontiers(self, ops: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        rows: list[dict[str, Any]] = []
        for name, ranks in self.group_ranks.items():
            for rank in set(ranks) - self.no_dump:
                own = ops.filter((pl.col("rank") == rank) & (pl.col("group") == names.index(name)) & ~pl.col("is_p2p"))
                done = own.filter(pl.col("state") == "completed")
                first, last, completed = own["seq"].min(), own["seq"].max(), done["seq"].max()
                rows.append(
                    {"rank": rank, "group": names.index(name), "last_enqueued": last or 0, "last_started": None,
                     "last_completed": completed or 0, "status_enqueued": last or 0, "status_started": -1,
                     "status_completed": completed or 0, "first_kept": first, "last_kept": last, "wrapped": False,
                     "filtered": "none"}
                )  # fmt: skip
        return pl.DataFrame(rows, schema=FRONTIERS)

    def _files(self, ops: pl.DataFrame) -> pl.DataFrame:
        rows = [
            {"file": r, "path": f"nccl_trace_rank_{r}", "kind": "flight-recorder", "rank": r, "rank_source": "name",
             "attempt": 0, "host": None, "rows": ops.filter(pl.col("rank") == r).height, "version": "2.10",
             "library_version": "2.27.3", "mtime_ns": None, "size": 1000, "wrapped": False, "filtered": "none",
             "has_stacks": True, "has_timing": False, "has_status": True, "problem": None, "used": True}
            for r in range(self.world_size) if r not in self.no_dump
        ]  # fmt: skip
        rows += [
            {"file": t["file"], "path": f"py-spy_rank_{t['rank']}.txt", "kind": "py-spy", "rank": t["rank"],
             "rank_source": "name", "attempt": 0, "rows": 0, "used": True}
            for t in {t["file"]: t for t in self.threads}.values()
        ]  # fmt: skip
        rows += [{"file": i, "path": name, "kind": "log", "used": True} for name, i in self.log_files.items()]
        return pl.DataFrame(rows, schema=FILES)
