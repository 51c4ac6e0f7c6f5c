"""Answers of NCCL's RAS, and of its Inspector, in the order of time: ranks of communicators, and whose they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from rankscope.analysis.model import Evidence
from rankscope.schema import Dataset
from rankscope.text.wording import duration

LEAST_APART_NS = 20_000_000_000
"""Least time between two answers that shows a standstill: a step of a job takes less."""


@dataclass(frozen=True)
class RasPeer:
    """One rank of one communicator, from RAS or Inspector."""

    own: int | None
    """Rank in the communicator."""
    rank: int | None
    """Global rank, if it is known."""
    host: str | None
    pid: int | None
    device: int | None
    status: str
    error: str
    """The result that NCCL returned to it, a number or a name; "" without one."""
    counts: dict[str, int]
    evidence: Evidence

    @property
    def key(self) -> tuple[int | None, str | None, int | None]:
        """Identity in all answers about one communicator."""
        return self.own, self.host, self.pid

    @property
    def process(self) -> str:
        """ "process 902 on 10.1.0.2 (GPU 0)"; "" if nothing is known of it."""
        parts = [f"process {self.pid}" if self.pid is not None else "", f"on {self.host}" if self.host else ""]
        device = f"(GPU {self.device})" if self.device is not None else ""
        return " ".join(part for part in (*parts, device) if part)


Row = dict[str, Any]


class RasAnswers:
    """The answers of RAS in the order of time, and the ranks of processes in the largest communicator."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.paths = dict(dataset.files.select("file", "path").iter_rows())
        rows = list(dataset.ras.iter_rows(named=True))
        self._answers: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        written = dict(dataset.files.select("file", "mtime_ns").iter_rows())
        for row in rows:
            at = row["time_ns"] if row["time_ns"] is not None else written.get(row["file"])
            key = (row["source"] != "ras", at or 0, row["file"], row["answer"] or 0)
            self._answers[key if row["source"] == "ras" else (True,)].append(row)
        self._order = sorted(self._answers, key=lambda key: key if len(key) > 1 else (True, 0, 0, 0))
        self.sizes: dict[tuple[str, str], int] = {}
        for row in rows:
            if row["size"]:
                comm = row["source"], row["comm"]
                self.sizes[comm] = max(self.sizes.get(comm, 0), row["size"])
        self.parts = False
        """Several communicators are the largest, so that none of them is that of the job."""
        self.global_ranks = self._global_ranks(rows)

    @property
    def newest(self) -> list[Row]:
        """The rows of the newest answer, and of the Inspector; of files written at one time, all."""
        told = [key for key in self._order if len(key) > 1]
        last = [key for key in told if told and key[1] == told[-1][1] and (key[2] != told[-1][2] or key == told[-1])]
        return [row for key in (*last, *([(True,)] if (True,) in self._answers else [])) for row in self._answers[key]]

    def earlier(self, source: str, comm: str) -> EarlierAnswer | None:
        """The last older answer about a communicator; None without one."""
        told = [key for key in self._order if len(key) > 1]
        if source != "ras" or len(told) < 2:
            return None
        now = told[-1]
        for key in reversed(told[:-1]):
            rows = [row for row in self._answers[key] if row["comm"] == comm]
            if rows and (key[1] != now[1] or key[2] == now[2]):
                timed = all(row["time_ns"] is not None for row in (rows[0], self._answers[now][0]))
                counts = {peer.key: peer.counts for peer in peers_of(rows, self)}
                return EarlierAnswer(counts, crowds_of(rows), now[1] - key[1] if timed else None)
        return None

    def _global_ranks(self, rows: Sequence[Row]) -> dict[tuple[str, int, int | None], int]:
        """Ranks by host, process and device in the largest communicator: those of the job, if it is the only one of
        its size or all of that size agree."""
        largest = max((size for (source, _), size in self.sizes.items() if source == "ras"), default=0)
        if largest < max(self.dataset.world_size, 2):
            return {}
        found: dict[tuple[str, int, int | None], int] = {}
        unclear = set()
        for row in rows:
            known = row["rank"] is not None and row["pid"] is not None and row["host"]
            if not known or self.sizes.get((row["source"], row["comm"])) != largest:
                continue
            key = row["host"], row["pid"], row["device"]
            if found.setdefault(key, row["rank"]) != row["rank"]:
                unclear.add(key)
        self.parts = bool(unclear) or len(found) > largest
        return {} if self.parts else found


@dataclass(frozen=True)
class EarlierAnswer:
    """An older answer about one communicator."""

    counts: dict[Any, dict[str, int]]
    crowds: dict[str, dict[int, int]]
    apart_ns: int | None
    """Time until the newest answer; None if it is not printed."""

    @property
    def is_far(self) -> bool:
        """Whether the answers are so far apart that a running job launches something between them."""
        return self.apart_ns is not None and self.apart_ns >= LEAST_APART_NS

    @property
    def text(self) -> str:
        """ "two answers 5 min apart"."""
        return "two answers" + (f" {duration(self.apart_ns)} apart" if self.apart_ns is not None else "")


def rows_by_comm(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    out: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["rank"] is not None or row["pid"] is not None or crowds_of([row]):
            out[row["source"], row["comm"]].append(row)
    return dict(out)


def crowds_of(rows: Sequence[Row]) -> dict[str, dict[int, int]]:
    """By kind of operation and number: how many ranks are at it, of whom the text of RAS names only some."""
    out: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        if row["rank"] is None and row["pid"] is None and row["present"] is not None and row["missing"] is None:
            for kind, count in orjson.loads(row["counts"] or "{}").items():
                out[kind][count] = row["present"]
    return dict(out)


def peers_of(rows: Sequence[Row], answers: RasAnswers) -> Iterator[RasPeer]:
    """The peers of a communicator; several rows of one rank, as Inspector writes for its kinds of operations, are
    merged."""
    merged: dict[Any, Row] = {}
    for row in (row for row in rows if row["rank"] is not None or row["pid"] is not None):
        key = (row["rank"], row["host"] or "", row["pid"])
        known = merged.setdefault(key, {**row, "counts": {}})
        known["counts"] |= orjson.loads(row["counts"] or "{}")
        known["status"] = row["status"] or known["status"]
    for row in merged.values():
        size = answers.sizes.get((row["source"], row["comm"]))
        status, _, error = (row["status"] or "").partition(" ")
        yield RasPeer(
            row["rank"], _global(row, answers, size), row["host"] or None, row["pid"], row["device"],
            status, error if status == "ERROR" else "", row["counts"],
            Evidence(row_text(row), answers.paths.get(row["file"]), line=row["line"]),
        )  # fmt: skip


def row_text(row: Row) -> str:
    """The words of a row; for a row of JSON its values."""
    if row["text"]:
        return str(row["text"])
    who = f"rank {row['rank']} of communicator {row['comm']}" if row["rank"] is not None else str(row["comm"])
    where = f", process {row['pid']} on {row['host'] or 'an unnamed host'}" if row["pid"] is not None else ""
    device = f", GPU {row['device']}" if row["device"] is not None else ""
    counts = ", ".join(f"{kind} {count}" for kind, count in row["counts"].items() if count)
    return f"{who}{where}{device}: {row['status']}{f', launched {counts}' if counts else ''}"


def _global(row: Row, answers: RasAnswers, size: int | None) -> int | None:
    own, group, dataset = row["rank"], row["group"], answers.dataset
    if row["host"] and row["pid"] is not None:
        told = answers.global_ranks.get((row["host"], row["pid"], row["device"]))
        if told is not None:
            return told
    if own is None:
        return None
    if group is not None and group < len(dataset.group_list):
        members = dataset.group_list[group].ranks
        return members[own] if own < len(members) else None
    return own if size is not None and size == dataset.world_size and not answers.parts else None
