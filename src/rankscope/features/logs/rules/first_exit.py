"""The rank that ended first and made the others end, from the notes of the capture on how and when each process ends,
and from the exit codes that launchers saw.

A killed process notes nothing. So the rank either ended in another way before the harmed ranks, or is one whose end is
not noted. A rank that gave up waiting waited for a living rank, which came too late or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

import polars as pl

from rankscope.analysis.collective_calls import IS_PENDING
from rankscope.analysis.host_stacks import HostStack, host_stacks, own_frames
from rankscope.analysis.model import Confidence, Evidence, Finding
from rankscope.features.logs.rules.end_timeline import STOP_REASONS, JobEnds, RankEnd, read_ends
from rankscope.features.logs.rules.failures import split_timely
from rankscope.features.logs.rules.log_lines import LogEvidence, apart_ns
from rankscope.kinds.event_kinds import EVENTS
from rankscope.schema import Frame
from rankscope.schema.tables import AT_CRASH, AT_STANDSTILL
from rankscope.text.wording import ranks_text

MOST_EVIDENCE = 4
TERMINATED = "terminated"
LAST_COLLECTIVES = 64
"""A rank that crashed is at most so many collectives behind the others, which may launch some and wait for none."""
ALIVE_NS = 2_000_000_000
"""A dump this long after the end of the others shows that a rank was still alive."""
_KILLED_NOTE = "A process that is killed (SIGKILL, out of memory), aborts or calls os._exit cannot note that it ends."
_LOG_STEP = "Read the end of its log, and dmesg of its host (out of memory, signals)."


def job_ends(logs: LogEvidence) -> JobEnds:
    """The ends that ranks noted, and which ranks failed by themselves."""
    failed = frozenset(f.rank for f in logs.once(split_timely)[0] if f.rank is not None)
    hurt = frozenset(
        line.rank
        for line in logs.lines
        if line.rank is not None
        and (line.role == "victim" or EVENTS[line.kind].waited or EVENTS[line.kind].by_watchdog)
    )
    explained = frozenset(
        line.rank
        for line in logs.lines
        if line.rank is not None
        and not EVENTS[line.kind].exit_of
        and (line.role in ("root", "victim") or EVENTS[line.kind].severity == "error")
    )
    return JobEnds(read_ends(logs.lines), logs.world, failed, hurt, explained)


def find_ended(logs: LogEvidence) -> Iterator[Finding]:
    """The rank that made the others end; a finding without culprits if there are only candidates."""
    scene = logs.once(job_ends)
    judge = _FirstExitJudge(logs, scene)
    ended = None
    if scene.harmed:
        ended = judge.of_waiting() if scene.waited else judge.of_closing()
    elif scene.hurt and not logs.waited:
        ended = judge.of_code()
    if ended is None and not logs.moves:
        ended = _unheard(logs, scene)
    if ended is not None:
        yield ended


def _unheard(logs: LogEvidence, scene: JobEnds) -> Finding | None:
    """The few ranks without a noted end if SIGTERM ended all others, as a launcher does when one rank ends.

    Without ranks that dumped afterwards, because they were still alive.
    """
    ends = [end.line.time_ns or 0 for end in scene.ends.values()]
    if not ends or not scene.silent or any(end.reason != TERMINATED for end in scene.ends.values()):
        return None
    newest = logs.dataset.dumps.filter(pl.col("rank").is_in(list(scene.silent)))["mtime_ns"].max()
    alive = isinstance(newest, int) and newest > max(ends) + ALIVE_NS
    if alive or 2 * len(scene.silent) >= len(ends):
        return None
    ranks = tuple(sorted(scene.silent))
    who = ranks_text(ranks)
    return Finding(
        kind="rank-failed",
        severity="critical",
        title=f"{who} left no record of how it ended; the others were ended by SIGTERM",
        explanation=f"A launcher ends all ranks when one of them has ended. {_KILLED_NOTE}",
        candidates=ranks,
        waiting_ranks=tuple(sorted(scene.ends)),
        confidence="low",
        confidence_reasons=("the order is not proven: somebody may have ended the job",),
        evidence=tuple(end.line.evidence() for end in [*scene.ends.values()][:MOST_EVIDENCE]),
        next_steps=(f"Read the end of the log of {who}, and dmesg of its host (out of memory, signals).",),
    )


@dataclass(frozen=True)
class _FirstExitJudge:
    """Judge of who made the others end.

    Suspects are ranks that reached the end of their program (`left`), that a signal or a person ended (`stopped`), that
    have no noted end and may be alive (`silent`), or that came after the others had given up (`late`).
    """

    logs: LogEvidence
    scene: JobEnds

    def of_closing(self) -> Finding | None:
        """The finding if connections of the harmed ranks were closed: some process had ended before."""
        scene, harmed = self.scene, [end.rank for end in self.scene.harmed]
        over = {end.rank for end in scene.after((*STOP_REASONS, "exit"))}
        stopped = [e.rank for e in scene.ends.values() if e.reason in STOP_REASONS and e.rank not in over]
        if len(stopped) > 1:
            # a person or a signal ended the job
            return None
        exits = [e.rank for e in scene.ends.values() if e.reason == "exit" and e.rank not in over]
        left = tuple(rank for rank in exits if self._behind(rank) is not False)
        silent = tuple(sorted(scene.silent))
        suspects = tuple(sorted({*left, *stopped, *silent}))
        if not suspects and (by_code := self.of_code()) is not None:
            return by_code
        before = {end.rank for end in scene.before(("exit",))}
        sure = all(rank in before and self._behind(rank) for rank in left) and list(left) == exits
        if left and not stopped and not silent and len(left) >= len(harmed):
            return self._went_on_alone(left) if len(left) > len(harmed) else self._open(tuple(sorted([*left, *harmed])))
        if not suspects or len(silent) > len(harmed):
            return None
        if left and suspects == left and sure:
            return self._left(left)
        if len(suspects) > 1 or not sure or any(map(self._may_have_waited, silent)):
            return self._open(suspects)
        if not stopped and (stack := self._crash_of(silent[0])) is not None:
            return self._crashed(silent[0], stack)
        if not stopped:
            return self._named(
                silent,
                "rank-failed",
                f"rank {silent[0]} left no record of how it ended, and the others lost their connection to it",
                f"Every other rank recorded how it ended. {_KILLED_NOTE}",
                _LOG_STEP,
                "medium",
                "no record shows why it ended",
            )
        rank, how = stopped[0], scene.ends[stopped[0]].line.text
        return self._named(
            (rank,),
            "rank-failed",
            f"rank {rank} {how} while the others went on ({self._place(rank)})",
            f"Rank {rank} alone {how}; after that the others lost their connection.",
            f"Who sent that signal to rank {rank}? The scheduler, a health check, or a person.",
        )

    def _crash_of(self, rank: int) -> HostStack | None:
        """The stacks that a process took when it crashed."""
        stack = self._stack_of(rank)
        return stack if stack is not None and stack.tool == AT_CRASH else None

    def _crashed(self, rank: int, stack: HostStack) -> Finding:
        """The finding of a rank that crashed. gloo aborts a process that gets more data than it expects, so a rank that
        crashed in a collective of gloo is at fault only if it came there from another line than the others."""
        title = f"rank {rank} crashed, and the others lost their connection to it"
        took = "Its process took the stacks of its threads when a signal of a crash (SIGABRT, SIGSEGV, SIGBUS) came."
        libraries = self.logs.dataset.ops.filter(pl.col("rank") == rank)["library"].unique().to_list()
        if not stack.communicates or libraries != ["gloo"]:
            return self._named(
                (rank,), "rank-failed", title, took, "Read its stack at the crash, and the end of its log."
            )
        aborts = f"{took} gloo aborts a process that gets more data than it expects from another rank."
        here, there = _line_of(stack.trains.own), self._last_lines
        if here and there and None not in there and here not in there:
            line = there[-1]
            text = f"{aborts} Rank {rank} came to this collective from {here}, and the others from {line}."
            step = f"Find out why rank {rank} was at {here} there, and the others at {line}."
            return self._named((rank,), "rank-failed", title, text, step)
        return self._named(
            (rank,),
            "rank-failed",
            title,
            aborts,
            "Compare the sizes, splits and types that this rank and the others pass to this operation.",
            "medium",
            "the rank at the other end may be the one whose size is wrong",
        )

    @cached_property
    def _last_lines(self) -> list[str | None]:
        """The job's own lines of the newest collectives of the harmed ranks, the newest last; None where it is unknown.

        Some of them: a rank that crashed may be some collectives behind the others."""
        dataset = self.logs.dataset
        ops = dataset.ops.filter(~pl.col("is_p2p") & pl.col("rank").is_in([end.rank for end in self.scene.harmed]))
        newest = (
            ops.group_by("rank", maintain_order=True).tail(LAST_COLLECTIVES).sort("created_ns", maintain_order=True)
        )
        stacks = newest["stack_id"].unique(maintain_order=True).to_list()
        return [None if at is None else _line_of(own_frames(dataset.stack(at))) for at in stacks]

    def of_code(self) -> Finding | None:
        """The finding if one rank ended by an exit code or a signal that nothing explains, and others were harmed.

        No end of another rank may be without a reason: a victim, or a process that the launcher ended.
        """
        if len(self.scene.unexplained) != 1:
            return None
        end = self.scene.unexplained[0]
        return self._named(
            (end.rank,),
            "rank-failed",
            f"rank {end.rank} {end.how}, and the others lost their connection to it ({end.line.place})",
            f"The launcher ended the other ranks, or lines show that another rank harmed them. No line shows why rank "
            f"{end.rank} ended.",
            "Read what it printed last; look for os._exit, an abort in a library, and dmesg of its host.",
            "medium",
            "no line shows why it ended",
        )

    def of_waiting(self) -> Finding | None:
        """The finding if the first harmed rank gave up waiting: some rank came too late or not at all."""
        scene = self.scene
        stopped = [end.rank for end in scene.ends.values() if end.reason in STOP_REASONS]
        exits = [end.rank for end in scene.ends.values() if end.reason == "exit"]
        silent = [
            rank
            for rank in (*exits, *stopped, *scene.silent, *scene.own)
            if self._behind(rank) is not False or self._stood_away(self._stack_of(rank))
        ]
        # harmed ranks that issued an operation only after another had given up waiting
        gave_up = [end for end in scene.harmed if end.gave_up and end.line.time_ns is not None]
        newest = dict(self.logs.dataset.ops.group_by("rank").agg(pl.col("created_ns").max()).iter_rows())
        late = {
            end.rank
            for end in scene.harmed
            if any(_after(newest.get(end.rank), end, o) for o in gave_up if o.rank != end.rank)
        }
        suspects = tuple(sorted({*silent, *late}))
        if len(suspects) != 1 or len(silent) > len(scene.harmed):
            return self._open(suspects) if 1 < len(suspects) < len(scene.harmed) else None
        rank, end = suspects[0], scene.ends.get(suspects[0])
        stack = self._stack_of(rank)
        if stack is not None and stack.communicates:
            # it waited, too: for a connection, or in a call to others
            return self._open(suspects)
        came = "came too late" if late else "did not come"
        then = f" After that it {end.line.text}." if end is not None and not late else ""
        title = f"rank {rank} {came}: the others gave up waiting"
        text = f"Every other rank waited until its timeout, or lost its connection to one that had.{then}"
        if stack is not None and self._stood_away(stack):
            doing = f"Its stack, taken while it stood still, shows it {stack.activity.words}."
            step = f"Find out why rank {rank} stays there."
            return self._named((rank,), "missing-rank", title, f"{text} {doing}", step)
        return self._named(
            (rank,),
            "missing-rank",
            title,
            text,
            f"Look at the stack of rank {rank}, or read the end of its log: that is where it stayed.",
            "medium",
            "no record shows what it did meanwhile",
        )

    def _stack_of(self, rank: int) -> HostStack | None:
        """The newest stacks of a rank."""
        return host_stacks(self.logs.dataset, [rank]).get(rank)

    @staticmethod
    def _stood_away(stack: HostStack | None) -> bool:
        """Whether a rank stood still outside of any communication."""
        return stack is not None and stack.tool == AT_STANDSTILL and stack.is_away

    def _behind(self, rank: int) -> bool | None:
        """Whether a rank never issued an operation of a harmed rank in a group of both; None if it is unknown."""
        end = self.scene.ends.get(rank)
        if end is not None and self._written_ns.get(rank, 0) < (end.line.time_ns or 0):
            # its last dump was not completed
            return None
        fronts = self.logs.facts.presence.frontiers
        harmed = [end.rank for end in self.scene.harmed]
        issued = [
            (front.enqueued, other.enqueued)
            for (member, group), front in fronts.items()
            if member == rank and front.enqueued is not None
            for victim in harmed
            if (other := fronts.get((victim, group))) is not None and other.enqueued is not None
        ]
        # where no collective was recorded, they waited for what no recorder holds, such as a send of gloo
        return any(last < other for last, other in issued) if any(map(any, issued)) else None

    @cached_property
    def _written_ns(self) -> dict[int, int]:
        """When the newest dump of each rank was written."""
        dumps = self.logs.dataset.dumps.drop_nulls(["rank", "mtime_ns"])
        return dict(dumps.group_by("rank").agg(pl.col("mtime_ns").max()).iter_rows())

    def _may_have_waited(self, rank: int) -> bool:
        """Whether a rank was last seen waiting, where a watchdog aborts ranks that wait too long."""
        ops = self.logs.dataset.ops.filter((pl.col("rank") == rank) & (pl.col("library") != "gloo"))
        return bool(ops.select(IS_PENDING.any()).item())

    def _left(self, ranks: tuple[int, ...]) -> Finding:
        who, whose = ranks_text(ranks), "its" if len(ranks) == 1 else "their"
        codes = {self.scene.ends[rank].code for rank in ranks} - {None}
        code = f" with exit code {codes.pop()}" if len(codes) == 1 else ""
        return self._named(
            ranks,
            "rank-failed",
            f"{who} came to the end of {whose} program{code} while the others went on ({self._place(ranks[0])})",
            f"{who.capitalize()} exited without an exception; after that the others lost their connection.",
            f"Find out why {who} left the loop early: fewer batches than the others, a return or sys.exit on one rank "
            "only, or an exception that was caught.",
        )

    def _went_on_alone(self, left: tuple[int, ...]) -> Finding | None:
        """If most ranks reached their end: the few that went on are the odd ones, if they communicated at all."""
        if any(self._behind(rank) is not True for rank in left):
            return None
        ranks = tuple(sorted(end.rank for end in self.scene.harmed))
        who, others = ranks_text(ranks), ranks_text(left)
        named = self._named(
            ranks,
            "extra-collective",
            f"{who} went on communicating after {others} came to the end of the program ({self._place(ranks[0])})",
            f"Only {who} issued more operations: most likely a collective on a branch that few ranks take.",
            f"Look at the traceback of {who}: is this collective meant for all ranks?",
            "medium",
            f"or {others} left too early, for one common reason",
        )
        return replace(named, candidates=left)

    def _open(self, ranks: tuple[int, ...]) -> Finding:
        who = f"{'one of ' if len(ranks) > 1 else ''}{ranks_text(ranks)}"
        return Finding(
            kind="rank-failed",
            severity="critical",
            title=f"{who} may have ended or stayed away first; the others ended because of that",
            explanation=f"The way and the time of their ends do not prove it. {_KILLED_NOTE}",
            candidates=ranks,
            waiting_ranks=self._harmed(ranks),
            confidence="low",
            confidence_reasons=("the order is not proven",),
            evidence=self._evidence(ranks),
            next_steps=(f"Read the ends of the logs of {ranks_text(ranks)}.",),
        )

    def _named(
        self,
        ranks: tuple[int, ...],
        kind: str,
        title: str,
        explanation: str,
        step: str,
        confidence: Confidence = "high",
        *reasons: str,
    ) -> Finding:
        waiting = self._harmed(ranks)
        finding = Finding(
            kind=kind,
            severity="critical",
            title=title,
            explanation=explanation,
            root_cause=True,
            culprit_ranks=ranks,
            culprits=tuple(map(self.logs.place, ranks)),
            waiting_ranks=waiting,
            blast_radius=len(waiting),
            confidence=confidence,
            confidence_reasons=reasons,
            evidence=self._evidence(ranks),
            next_steps=(step,),
        )
        if any(self._behind(rank) is False for rank in ranks):
            # they waited for something else than a recorded collective
            return finding
        # the collective in which the first harmed rank waited for the culprit
        ops = self.logs.dataset.ops.with_row_index("row").filter(~pl.col("is_p2p") & pl.col("seq").is_not_null())
        newest = ops.group_by("rank", maintain_order=True).last().select("rank", "group", "seq", "op", "row")
        last = {rank: rest for rank, *rest in newest.iter_rows()}
        for end in sorted(self.scene.harmed, key=lambda end: end.line.time_ns or 0):
            at, seq, op, row = last.get(end.rank, (None, None, "", None))
            group = self.logs.facts.groups[at] if at is not None else None
            if group is not None and set(ranks) <= set(group.ranks):
                where = f"Rank {end.rank} was in {op} #{seq} of {self.logs.facts.label(group.id)} then."
                text = f"{explanation} {where}"
                return replace(finding, explanation=text, group=self.logs.group(at), seq=seq, op=op, row=row)
        return finding

    def _harmed(self, without: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({*(end.rank for end in self.scene.harmed), *self.scene.hurt} - set(without)))

    def _place(self, rank: int) -> str:
        return self.scene.ends[rank].line.place

    def _evidence(self, ranks: Sequence[int]) -> tuple[Evidence, ...]:
        """The ends of these ranks, and the first of the others."""
        ends = [end for rank in ranks if (end := self.scene.ends.get(rank)) is not None]
        others = sorted((e for e in self.scene.harmed if e not in ends), key=lambda e: e.line.time_ns or 0)
        return tuple(end.line.evidence() for end in (*ends, *others[:MOST_EVIDENCE]))


def _line_of(frames: Sequence[Frame]) -> str | None:
    """ "train.py:9", the innermost of these frames."""
    return f"{PurePath(frames[0].file).name}:{frames[0].line}" if frames else None


def _after(issued_ns: int | None, end: RankEnd, other: RankEnd) -> bool:
    """Whether a rank issued an operation after the end of another, with clocks of two hosts apart."""
    return issued_ns is not None and issued_ns > (other.line.time_ns or 0) + apart_ns(end.line, other.line)
