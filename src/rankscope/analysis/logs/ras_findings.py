"""Counts of NCCL's RAS and Inspector: dead or missing peers, and ranks that launched fewer operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from rankscope.analysis.model import Culprit, Evidence, Finding, GroupRef
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

DEAD_STATES = ("DEAD", "PEER_DEAD")
MISSING_STATES = ("UNRESPONSIVE", "TIMEOUT", "NOCOMM", "MISSING", "INCOMPLETE")
MOST_EVIDENCE = 8


@dataclass(frozen=True)
class _Peer:
    """One rank of one communicator, from RAS or Inspector."""

    own: int | None
    """Rank in the communicator."""
    rank: int | None
    """Global rank, if it is known."""
    host: str | None
    pid: int | None
    status: str
    counts: dict[str, int]
    evidence: Evidence


def find_ras(dataset: Dataset, still: bool, place: Callable[[int], Culprit]) -> list[Finding]:
    """Findings of each communicator; `still`: other facts show that the job had stopped."""
    found: list[Finding] = []
    for (source, comm), rows in _by_comm(dataset).items():
        peers = list(_peers(rows, dataset))
        group = next((row["group"] for row in rows if row["group"] is not None), None)
        told = _CommReport(dataset, source, comm, group, peers, place, _crowds(rows))
        found += [*told.gone(), *told.laggards(still)]
    return sorted(found, key=lambda f: (not f.root_cause, -len(f.culprits)))


def _by_comm(dataset: Dataset) -> dict[tuple[str, str], list[dict[str, Any]]]:
    out: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in dataset.ras.iter_rows(named=True):
        if row["rank"] is not None or row["pid"] is not None or _crowds([row]):
            out[row["source"], row["comm"]].append(row)
    return dict(out)


def _crowds(rows: list[dict[str, Any]]) -> dict[str, dict[int, int]]:
    """By kind of operation and number: how many ranks are at it, of whom the text of RAS names only some."""
    out: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        if row["rank"] is None and row["pid"] is None and row["present"] is not None and row["missing"] is None:
            for kind, count in orjson.loads(row["counts"] or "{}").items():
                out[kind][count] = row["present"]
    return dict(out)


def _peers(rows: list[dict[str, Any]], dataset: Dataset) -> Iterator[_Peer]:
    """The peers of a communicator; several rows of one rank, as Inspector writes for its kinds of operations, are
    merged."""
    paths = dict(dataset.files.select("file", "path").iter_rows())
    merged: dict[Any, dict[str, Any]] = {}
    for row in (row for row in rows if row["rank"] is not None or row["pid"] is not None):
        key = (row["rank"], row["host"] or "", row["pid"])
        known = merged.setdefault(key, {**row, "counts": {}})
        known["counts"] |= orjson.loads(row["counts"] or "{}")
        known["status"] = row["status"] or known["status"]
    size = max((row["size"] for row in rows if row["size"]), default=None)
    for row in merged.values():
        yield _Peer(
            row["rank"], _global(row, dataset, size), row["host"] or None, row["pid"],
            (row["status"] or "").split(" ")[0], row["counts"],
            Evidence(row["text"] or f"{row['source']}: {row['status']}", paths.get(row["file"]), line=row["line"]),
        )  # fmt: skip


def _global(row: dict[str, Any], dataset: Dataset, size: int | None) -> int | None:
    own, group = row["rank"], row["group"]
    if own is None:
        return None
    if group is not None and group < len(dataset.group_list):
        members = dataset.group_list[group].ranks
        return members[own] if own < len(members) else None
    return own if size is not None and size == dataset.world_size else None


@dataclass(frozen=True)
class _CommReport:
    """The report on one communicator."""

    dataset: Dataset
    source: str
    comm: str
    group: int | None
    peers: list[_Peer]
    place: Callable[[int], Culprit]
    crowds: dict[str, dict[int, int]]

    def gone(self) -> list[Finding]:
        """Peers that do not answer."""
        dead = [p for p in self.peers if p.status in DEAD_STATES]
        gone = [p for p in self.peers if p.status in MISSING_STATES]
        if not dead and not gone:
            return []
        accused = dead or gone
        words = "dead" if dead else "missing"
        return [
            self._finding(
                accused, f"{self._name(accused)} {'is' if len(accused) == 1 else 'are'} {words}, by NCCL's RAS",
                f"RAS could not reach {plural(len(dead) + len(gone), 'peer')} of communicator {self.comm}.",
                sure=bool(dead), reason="" if dead else "a peer that does not answer in time need not be dead",
            )
        ]  # fmt: skip

    def laggards(self, still: bool) -> list[Finding]:
        """The ranks that launched fewer operations than most; not the rest if only a few are ahead."""
        return self._unnamed() or self._named(still)

    def _unnamed(self) -> list[Finding]:
        """The count of ranks behind in the text of RAS, which names only the few ahead if most are behind."""
        for kind, crowd in sorted(self.crowds.items()):
            least, most = min(crowd), max(crowd)
            if least == most or any(p.counts.get(kind) == least for p in self.peers):
                continue
            ahead = [p for p in self.peers if p.counts.get(kind) not in (None, least)]
            more = f" ({self._name(ahead)})" if ahead else ""
            title = (
                f"{plural(crowd[least], 'rank')} of communicator {self.comm} launched {least} {kind}, "
                f"{sum(crowd.values()) - crowd[least]} up to {most}{more}, by NCCL's RAS"
            )
            text = "RAS names only those that are ahead; the ones behind may be slow, or it was asked in between."
            reason = "most are behind: the few ahead may be the odd ones"
            told = self._finding(ahead, title, text, sure=False, reason=reason)
            steps = ("Ask RAS again after a while, and take stacks of ranks that are behind.",)
            return [replace(told, candidates=(), next_steps=steps)]
        return []

    def _named(self, still: bool) -> list[Finding]:
        for kind in sorted({kind for peer in self.peers for kind in peer.counts}):
            counted = [p for p in self.peers if kind in p.counts]
            crowd = self.crowds.get(kind, {})
            least = min((p.counts[kind] for p in counted), default=0)
            most = max((*(p.counts[kind] for p in counted), *crowd), default=0)
            late = [p for p in counted if p.counts[kind] == least]
            if least == most or not late:
                continue
            few = len(late) * 2 < max(len(counted), sum(crowd.values()))
            verb = "finished" if self.source == "inspector" else "launched"
            title = f"{self._name(late)} {verb} {least} {kind}, others up to {most}, by NCCL's {_NAMES[self.source]}"
            reason = "" if still else "counts differ for moments while a job runs: ask again, and see who stays behind"
            if not few:
                reason = "most are behind: the few ahead may be the odd ones"
            text = f"Of communicator {self.comm}. Those behind are named, not the few ahead, as RAS itself does."
            return [self._finding(late, title, text, sure=still and few, reason=reason)]
        return []

    def _name(self, peers: list[_Peer]) -> str:
        ranks = sorted(p.rank for p in peers if p.rank is not None)
        if len(ranks) == len(peers):
            return ranks_text(ranks)
        own = sorted(p.own for p in peers if p.own is not None)
        if len(own) == len(peers):
            return f"{ranks_text(own)} of communicator {self.comm}"
        return plural(len(peers), "process") if len(peers) != 1 else f"process {peers[0].pid} on {peers[0].host}"

    def _finding(self, accused: list[_Peer], title: str, text: str, sure: bool, reason: str) -> Finding:
        ranks = tuple(sorted({p.rank for p in accused if p.rank is not None}))
        known = self.dataset.group_list[self.group] if self.group is not None else None
        unknown = tuple(Culprit(None, p.host, p.pid) for p in accused if p.rank is None)
        waiting = tuple(sorted({p.rank for p in self.peers if p.rank is not None} - set(ranks))) if sure else ()
        return Finding(
            kind="missing-rank",
            severity="critical" if sure else "warning",
            title=title,
            explanation=text,
            root_cause=sure,
            culprit_ranks=ranks if sure else (),
            culprits=(*map(self.place, ranks), *unknown) if sure else (),
            candidates=() if sure else ranks,
            waiting_ranks=waiting,
            blast_radius=len(waiting),
            confidence="medium" if sure else "low",
            confidence_reasons=(reason,) if reason else (),
            group=GroupRef(known.name, known.description, known.ranks, key=known.id) if known else None,
            evidence=tuple(p.evidence for p in accused[:MOST_EVIDENCE]),
            next_steps=(f"Read the log and take stacks of {self._name(accused)}.",),
        )


_NAMES = {"ras": "RAS", "inspector": "Inspector"}
