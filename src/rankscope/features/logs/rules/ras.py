"""Answers of NCCL's RAS and counts of its Inspector: dead or missing peers, ranks that launched fewer operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from rankscope.analysis.model import Culprit, Evidence, Finding
from rankscope.features.logs.rules.log_lines import LogEvidence
from rankscope.schema import Dataset
from rankscope.text.wording import duration, plural, ranks_text

LEAST_APART_NS = 20_000_000_000
"""Least time between two answers that shows a standstill: a step of a job takes less."""
DEAD_STATES = ("DEAD", "PEER_DEAD")
MISSING_STATES = ("UNRESPONSIVE", "TIMEOUT", "NOCOMM", "MISSING", "INCOMPLETE")
LEAVING_STATES = ("FINALIZE", "DESTROY")
RESULTS = {
    "1": "ncclUnhandledCudaError",
    "2": "ncclSystemError",
    "3": "ncclInternalError",
    "4": "ncclInvalidArgument",
    "5": "ncclInvalidUsage",
    "6": "ncclRemoteError",
    "7": "ncclInProgress",
    "8": "ncclTimeout",
}
"""Names of NCCL's results (src/nccl.h.in), which RAS prints as numbers."""
REMOTE_ERRORS = ("6", "ncclRemoteError", "7", "ncclInProgress", "8", "ncclTimeout")
"""Results that another rank causes."""
MOST_EVIDENCE = 8
MOST_PROCESSES = 4
_MOMENTS = "counts differ for moments while a job runs: ask again, and see which ranks stay behind"
_NAMES = {"ras": "RAS", "inspector": "Inspector"}
Row = dict[str, Any]


def find_ras(logs: LogEvidence) -> Iterator[Finding]:
    """Findings on each communicator, roots first."""
    if logs.dataset.ras.is_empty():
        return
    # other facts may show that the job had stopped
    still = logs.waited or bool(logs.roots)
    findings: list[Finding] = []
    answers, stood = RasAnswers(logs.dataset), []
    for (source, comm), rows in _rows_by_comm(answers.newest).items():
        peers = list(_peers_of(rows, answers))
        group = next((row["group"] for row in rows if row["group"] is not None), None)
        earlier = answers.earlier(source, comm)
        report = _CommReport(logs, source, comm, group, peers, _crowds_of(rows), earlier)
        findings += [*report.gone(), *report.faulty(), *report.leaving(), *report.laggards(still)]
        stood += [report.has_stood] if source == "ras" and peers and earlier is not None else []
    if stood and all(stood) and not findings:
        findings.append(_standstill(answers))
    yield from sorted(findings, key=lambda f: (not f.root_cause, -len(f.culprits)))


@dataclass(frozen=True)
class _CommReport:
    """The report on one communicator."""

    logs: LogEvidence
    source: str
    comm: str
    group: int | None
    peers: list[RasPeer]
    crowds: dict[str, dict[int, int]]
    earlier: EarlierAnswer | None

    def gone(self) -> Iterator[Finding]:
        """Peers that do not answer."""
        dead = [p for p in self.peers if p.status in DEAD_STATES]
        missing = [p for p in self.peers if p.status in MISSING_STATES]
        if accused := dead or missing:
            verb, words = "is" if len(accused) == 1 else "are", "dead" if dead else "missing"
            yield self._finding(
                accused,
                f"{self._name(accused)} {verb} {words}, according to NCCL's RAS",
                f"RAS could not reach {plural(len(dead) + len(missing), 'peer')} of communicator {self.comm}.",
                "" if dead else "a peer that does not answer in time need not be dead",
                sure=bool(dead),
            )

    def faulty(self) -> Iterator[Finding]:
        """Peers whose communicator returned an error; who only lost another one, or was aborted, is no suspect."""
        failed = [p for p in self.peers if p.status == "ERROR"]
        aborted = [p for p in self.peers if p.status == "ABORT"]
        by_themselves = [p for p in failed if p.error not in REMOTE_ERRORS]
        accused = by_themselves or failed or aborted
        if not accused:
            return
        errors = sorted({RESULTS.get(p.error, p.error) for p in accused if p.error})
        what = f"got {' and '.join(errors)} from NCCL" if errors else "aborted a communicator"
        others = f", {len(aborted):,} aborted" if aborted else ""
        finding = self._finding(
            accused,
            f"{self._name(accused)} {what}, according to NCCL's RAS",
            f"{plural(len(failed), 'rank')} of communicator {self.comm} failed{others}.",
            "RAS does not show which error came first",
            sure=bool(by_themselves),
        )
        yield replace(finding, kind="rank-failed", severity="critical", candidates=())

    def leaving(self) -> Iterator[Finding]:
        """Peers that take the communicator down while most do not."""
        gone = [p for p in self.peers if p.status in LEAVING_STATES]
        if gone and 2 * len(gone) < len(self.peers):
            yield self._finding(
                gone,
                f"{self._name(gone)} took a communicator down that others still use, according to NCCL's RAS",
                f"{plural(len(self.peers) - len(gone), 'rank')} of communicator {self.comm} did not.",
                "ranks that end a little earlier than others look alike",
            )

    def laggards(self, still: bool) -> list[Finding]:
        """The ranks that launched fewer operations than most; not the rest if only a few are ahead."""
        if self.earlier is not None and self.earlier.is_far and self._moved(self.earlier):
            return []
        return self._unnamed() or self._named(still)

    def _moved(self, earlier: EarlierAnswer) -> bool:
        """Whether anybody who is behind launched something since an older answer: the job goes on."""
        for kind in {kind for peer in self.peers for kind in peer.counts} | set(self.crowds):
            now = [*(p.counts[kind] for p in self.peers if kind in p.counts), *self.crowds.get(kind, ())]
            then = [*(c[kind] for c in earlier.counts.values() if kind in c), *earlier.crowds.get(kind, ())]
            if now and then and min(now) > min(then):
                return True
        return False

    @property
    def has_stood(self) -> bool:
        """Whether two answers that are far apart have the same counts."""
        earlier = self.earlier
        if earlier is None or not earlier.is_far:
            return False
        return {p.key: p.counts for p in self.peers} == earlier.counts and self.crowds == earlier.crowds

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
                f"{sum(crowd.values()) - crowd[least]} up to {most}{more}, according to NCCL's RAS"
            )
            text = "RAS names only those that are ahead; the ones behind may be slow, or it was asked in between."
            many = 2 * crowd[least] > sum(crowd.values())
            reason = f"{'most' if many else 'half of them'} are behind: those ahead may be the odd ones"
            steps = ("Ask RAS again after a while, and take stacks of ranks that are behind.",)
            return [replace(self._finding(ahead, title, text, reason), candidates=(), next_steps=steps)]
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
            whole = max(len(counted), sum(crowd.values()))
            few, stood = len(late) * 2 < whole, self.has_stood
            verb = "finished" if self.source == "inspector" else "launched"
            others = "the other one" if whole == 2 else "others up to"
            title = (
                f"{self._name(late)} {verb} {least} {kind}, {others} {most}, according to NCCL's {_NAMES[self.source]}"
            )
            reason = "" if still or stood else self._doubt()
            if not few:
                most_text = "most are" if len(late) * 2 > whole else "one of two is" if whole == 2 else "half are"
                reason = f"{most_text} behind: the rank ahead may be the odd one"
            text = (
                f"In communicator {self.comm}. The ranks that are behind are named here; RAS itself names the "
                "smaller number of ranks."
            )
            if stood and self.earlier is not None:
                text += f" Nobody launched anything in it between {self.earlier.text}: it stands still."
            return [self._finding(late, title, text, reason, sure=(still or stood) and few)]
        return []

    def _doubt(self) -> str:
        """The reason why who is behind need not stay behind."""
        earlier = self.earlier
        if earlier is None or earlier.apart_ns is not None or {p.key: p.counts for p in self.peers} != earlier.counts:
            return _MOMENTS
        return "two answers have the same counts, but the time between them is not known"

    def _name(self, peers: list[RasPeer]) -> str:
        ranks = sorted(p.rank for p in peers if p.rank is not None)
        if len(ranks) == len(peers):
            return ranks_text(ranks)
        inside = sorted(p.inside for p in peers if p.inside is not None)
        if len(inside) == len(peers):
            return f"{ranks_text(inside)} of communicator {self.comm}"
        return plural(len(peers), "process") if len(peers) != 1 else f"process {peers[0].pid} on {peers[0].host}"

    def _finding(self, accused: list[RasPeer], title: str, text: str, reason: str, *, sure: bool = False) -> Finding:
        ranks = tuple(sorted({p.rank for p in accused if p.rank is not None}))
        waiting = tuple(sorted({p.rank for p in self.peers if p.rank is not None} - set(ranks))) if sure else ()
        # where to find these ranks, for a command line
        processes = [p.process for p in accused[:MOST_PROCESSES] if p.process and p.inside is not None]
        more = f" and {len(accused) - MOST_PROCESSES} more" if len(accused) > MOST_PROCESSES else ""
        where = f": {', '.join(processes)}{more}" if processes else ""
        return Finding(
            kind="missing-rank",
            severity="critical" if sure else "warning",
            title=title,
            explanation=text,
            root_cause=sure,
            culprit_ranks=ranks if sure else (),
            culprits=tuple(self._culprit(p) for p in sorted(accused, key=lambda p: p.rank is None)) if sure else (),
            candidates=() if sure else ranks,
            waiting_ranks=waiting,
            blast_radius=len(waiting),
            confidence="medium" if sure else "low",
            confidence_reasons=(reason,) if reason else (),
            group=self.logs.group(self.group),
            evidence=tuple(p.evidence for p in accused[:MOST_EVIDENCE]),
            next_steps=(f"Read the log and take stacks of {self._name(accused)}{where}.",),
        )

    def _culprit(self, peer: RasPeer) -> Culprit:
        """A culprit with what RAS knows of its process."""
        device = None if peer.device is None else f"GPU {peer.device}"
        if peer.rank is None:
            return Culprit(None, peer.host, peer.pid, device)
        known = self.logs.place(peer.rank)
        return Culprit(peer.rank, known.host or peer.host, peer.pid, known.device or device)


def _standstill(answers: RasAnswers) -> Finding:
    """All communicators stood still, and nobody is behind."""
    evidence = [
        Evidence(_row_text({**row, "counts": orjson.loads(row["counts"] or "{}")}), answers.paths.get(row["file"]))
        for row in answers.newest
        if row["rank"] is not None
    ]
    return Finding(
        kind="stuck-in-collective",
        severity="warning",
        title="nobody launched anything in any communicator between two answers of NCCL's RAS, and no rank is behind",
        explanation="All ranks launched the same operations, and none since: the job stands still, inside a "
        "collective or outside. RAS counts only launches, so it does not show which.",
        confidence="low",
        confidence_reasons=("RAS does not show whether the last operation has finished",),
        evidence=tuple(evidence[:MOST_EVIDENCE]),
        next_steps=("Take stacks of all ranks (py-spy dump), and the flight recorder dumps.",),
    )


@dataclass(frozen=True)
class RasPeer:
    """One rank of one communicator, from RAS or Inspector."""

    inside: int | None
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
        return self.inside, self.host, self.pid

    @property
    def process(self) -> str:
        """ "process 902 on 10.1.0.2 (GPU 0)"; "" if nothing is known of it."""
        parts = [f"process {self.pid}" if self.pid is not None else "", f"on {self.host}" if self.host else ""]
        device = f"(GPU {self.device})" if self.device is not None else ""
        return " ".join(part for part in (*parts, device) if part)


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
        of_ras = [key for key in self._order if len(key) > 1]
        last = [key for key in of_ras if key[1] == of_ras[-1][1] and (key[2] != of_ras[-1][2] or key == of_ras[-1])]
        return [row for key in (*last, *([(True,)] if (True,) in self._answers else [])) for row in self._answers[key]]

    def earlier(self, source: str, comm: str) -> EarlierAnswer | None:
        """The last older answer about a communicator; None without one."""
        of_ras = [key for key in self._order if len(key) > 1]
        if source != "ras" or len(of_ras) < 2:
            return None
        now = of_ras[-1]
        for key in reversed(of_ras[:-1]):
            rows = [row for row in self._answers[key] if row["comm"] == comm]
            if rows and (key[1] != now[1] or key[2] == now[2]):
                timed = all(row["time_ns"] is not None for row in (rows[0], self._answers[now][0]))
                counts = {peer.key: peer.counts for peer in _peers_of(rows, self)}
                return EarlierAnswer(counts, _crowds_of(rows), now[1] - key[1] if timed else None)
        return None

    def _global_ranks(self, rows: Sequence[Row]) -> dict[tuple[str, int, int | None], int]:
        """Ranks by host, process and device in the largest communicator: those of the job, if it is the only one of
        its size or all of that size agree."""
        largest = max((size for (source, _), size in self.sizes.items() if source == "ras"), default=0)
        if largest < max(self.dataset.world_size, 2):
            return {}
        ranks: dict[tuple[str, int, int | None], int] = {}
        unclear = set()
        for row in rows:
            known = row["rank"] is not None and row["pid"] is not None and row["host"]
            if not known or self.sizes.get((row["source"], row["comm"])) != largest:
                continue
            key = row["host"], row["pid"], row["device"]
            if ranks.setdefault(key, row["rank"]) != row["rank"]:
                unclear.add(key)
        self.parts = bool(unclear) or len(ranks) > largest
        return {} if self.parts else ranks


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


def _rows_by_comm(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    by_comm: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["rank"] is not None or row["pid"] is not None or _crowds_of([row]):
            by_comm[row["source"], row["comm"]].append(row)
    return dict(by_comm)


def _crowds_of(rows: Sequence[Row]) -> dict[str, dict[int, int]]:
    """By kind of operation and number: how many ranks are at it, of whom the text of RAS names only some."""
    crowds: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        if row["rank"] is None and row["pid"] is None and row["present"] is not None and row["missing"] is None:
            for kind, count in orjson.loads(row["counts"] or "{}").items():
                crowds[kind][count] = row["present"]
    return dict(crowds)


def _peers_of(rows: Sequence[Row], answers: RasAnswers) -> Iterator[RasPeer]:
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
            row["rank"],
            _global(row, answers, size),
            row["host"] or None,
            row["pid"],
            row["device"],
            status,
            error if status == "ERROR" else "",
            row["counts"],
            Evidence(_row_text(row), answers.paths.get(row["file"]), line=row["line"]),
        )


def _row_text(row: Row) -> str:
    """The words of a row; for a row of JSON its values."""
    if row["text"]:
        return str(row["text"])
    who = f"rank {row['rank']} of communicator {row['comm']}" if row["rank"] is not None else str(row["comm"])
    where = f", process {row['pid']} on {row['host'] or 'an unnamed host'}" if row["pid"] is not None else ""
    device = f", GPU {row['device']}" if row["device"] is not None else ""
    counts = ", ".join(f"{kind} {count}" for kind, count in row["counts"].items() if count)
    return f"{who}{where}{device}: {row['status']}{f', launched {counts}' if counts else ''}"


def _global(row: Row, answers: RasAnswers, size: int | None) -> int | None:
    inside, group, dataset = row["rank"], row["group"], answers.dataset
    if row["host"] and row["pid"] is not None:
        rank = answers.global_ranks.get((row["host"], row["pid"], row["device"]))
        if rank is not None:
            return rank
    if inside is None:
        return None
    if group is not None and group < len(dataset.group_list):
        members = dataset.group_list[group].ranks
        return members[inside] if inside < len(members) else None
    return inside if size is not None and size == dataset.world_size and not answers.parts else None
