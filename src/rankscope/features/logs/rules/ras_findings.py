"""Counts of NCCL's RAS and Inspector: dead or missing peers, and ranks that launched fewer operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import orjson

from rankscope.analysis.model import Culprit, Evidence, Finding, GroupRef
from rankscope.features.logs.rules.ras_answers import (
    EarlierAnswer,
    RasAnswers,
    RasPeer,
    crowds_of,
    peers_of,
    row_text,
    rows_by_comm,
)
from rankscope.schema import Dataset
from rankscope.text.wording import plural, ranks_text

DEAD_STATES = ("DEAD", "PEER_DEAD")
MISSING_STATES = ("UNRESPONSIVE", "TIMEOUT", "NOCOMM", "MISSING", "INCOMPLETE")
LEAVING_STATES = ("FINALIZE", "DESTROY")
RESULTS = {
    "1": "ncclUnhandledCudaError", "2": "ncclSystemError", "3": "ncclInternalError", "4": "ncclInvalidArgument",
    "5": "ncclInvalidUsage", "6": "ncclRemoteError", "7": "ncclInProgress", "8": "ncclTimeout",
}  # fmt: skip
"""Names of NCCL's results (src/nccl.h.in), which RAS prints as numbers."""
REMOTE_ERRORS = ("6", "ncclRemoteError", "7", "ncclInProgress", "8", "ncclTimeout")
"""Results that another rank causes."""
MOST_EVIDENCE = 8
MOST_PROCESSES = 4
_MOMENTS = "counts differ for moments while a job runs: ask again, and see which ranks stay behind"


def find_ras(dataset: Dataset, still: bool, place: Callable[[int], Culprit]) -> list[Finding]:
    """Findings of each communicator; `still`: other facts show that the job had stopped."""
    if dataset.ras.is_empty():
        return []
    found: list[Finding] = []
    answers, stood = RasAnswers(dataset), []
    for (source, comm), rows in rows_by_comm(answers.newest).items():
        peers = list(peers_of(rows, answers))
        group = next((row["group"] for row in rows if row["group"] is not None), None)
        earlier = answers.earlier(source, comm)
        told = _CommReport(dataset, source, comm, group, peers, place, crowds_of(rows), earlier)
        found += [*told.gone(), *told.faulty(), *told.leaving(), *told.laggards(still)]
        stood += [told.has_stood] if source == "ras" and peers and earlier is not None else []
    if stood and all(stood) and not found:
        found.append(_standstill(answers))
    return sorted(found, key=lambda f: (not f.root_cause, -len(f.culprits)))


@dataclass(frozen=True)
class _CommReport:
    """The report on one communicator."""

    dataset: Dataset
    source: str
    comm: str
    group: int | None
    peers: list[RasPeer]
    place: Callable[[int], Culprit]
    crowds: dict[str, dict[int, int]]
    earlier: EarlierAnswer | None

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
                accused, (
                    f"{self._name(accused)} {'is' if len(accused) == 1 else 'are'} {words}, according to NCCL's RAS"
                ),
                f"RAS could not reach {plural(len(dead) + len(gone), 'peer')} of communicator {self.comm}.",
                sure=bool(dead), reason="" if dead else "a peer that does not answer in time need not be dead",
            )
        ]  # fmt: skip

    def faulty(self) -> list[Finding]:
        """Peers whose communicator returned an error; who only lost another one, or was aborted, is no suspect."""
        failed = [p for p in self.peers if p.status == "ERROR"]
        aborted = [p for p in self.peers if p.status == "ABORT"]
        own = [p for p in failed if p.error not in REMOTE_ERRORS]
        accused = own or failed or aborted
        if not accused:
            return []
        errors = sorted({RESULTS.get(p.error, p.error) for p in accused if p.error})
        what = f"got {' and '.join(errors)} from NCCL" if errors else "aborted a communicator"
        others = f", {len(aborted):,} aborted" if aborted else ""
        told = self._finding(
            accused, f"{self._name(accused)} {what}, according to NCCL's RAS",
            f"{plural(len(failed), 'rank')} of communicator {self.comm} failed{others}.",
            sure=bool(own), reason="RAS does not show which error came first",
        )  # fmt: skip
        return [replace(told, kind="rank-failed", severity="critical", candidates=())]

    def leaving(self) -> list[Finding]:
        """Peers that take the communicator down while most do not."""
        gone = [p for p in self.peers if p.status in LEAVING_STATES]
        if not gone or 2 * len(gone) >= len(self.peers):
            return []
        return [
            self._finding(
                gone, f"{self._name(gone)} took a communicator down that others still use, according to NCCL's RAS",
                f"{plural(len(self.peers) - len(gone), 'rank')} of communicator {self.comm} did not.",
                sure=False, reason="ranks that end a little earlier than others look alike",
            )
        ]  # fmt: skip

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
            return [self._finding(late, title, text, sure=(still or stood) and few, reason=reason)]
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
        own = sorted(p.own for p in peers if p.own is not None)
        if len(own) == len(peers):
            return f"{ranks_text(own)} of communicator {self.comm}"
        return plural(len(peers), "process") if len(peers) != 1 else f"process {peers[0].pid} on {peers[0].host}"

    def _finding(self, accused: list[RasPeer], title: str, text: str, sure: bool, reason: str) -> Finding:
        ranks = tuple(sorted({p.rank for p in accused if p.rank is not None}))
        known = self.dataset.group_list[self.group] if self.group is not None else None
        unknown = tuple(Culprit(None, p.host, p.pid, _device(p)) for p in accused if p.rank is None)
        waiting = tuple(sorted({p.rank for p in self.peers if p.rank is not None} - set(ranks))) if sure else ()
        return Finding(
            kind="missing-rank",
            severity="critical" if sure else "warning",
            title=title,
            explanation=text,
            root_cause=sure,
            culprit_ranks=ranks if sure else (),
            culprits=(*(self._known(p) for p in accused if p.rank is not None), *unknown) if sure else (),
            candidates=() if sure else ranks,
            waiting_ranks=waiting,
            blast_radius=len(waiting),
            confidence="medium" if sure else "low",
            confidence_reasons=(reason,) if reason else (),
            group=GroupRef(known.name, known.description, known.ranks, key=known.id) if known else None,
            evidence=tuple(p.evidence for p in accused[:MOST_EVIDENCE]),
            next_steps=(f"Read the log and take stacks of {self._name(accused)}{self._processes(accused)}.",),
        )

    def _known(self, peer: RasPeer) -> Culprit:
        """A culprit with what RAS knows of its process."""
        known = self.place(peer.rank if peer.rank is not None else -1)
        return Culprit(peer.rank, known.host or peer.host, peer.pid, known.device or _device(peer))

    @staticmethod
    def _processes(peers: list[RasPeer]) -> str:
        """Where to find these ranks, for a command line."""
        told = [peer.process for peer in peers[:MOST_PROCESSES] if peer.process and peer.own is not None]
        more = f" and {len(peers) - MOST_PROCESSES} more" if len(peers) > MOST_PROCESSES else ""
        return f": {', '.join(told)}{more}" if told else ""


def _device(peer: RasPeer) -> str | None:
    return None if peer.device is None else f"GPU {peer.device}"


def _standstill(answers: RasAnswers) -> Finding:
    """All communicators stood still, and nobody is behind."""
    evidence = [
        Evidence(row_text({**row, "counts": orjson.loads(row["counts"] or "{}")}), answers.paths.get(row["file"]))
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


_NAMES = {"ras": "RAS", "inspector": "Inspector"}
