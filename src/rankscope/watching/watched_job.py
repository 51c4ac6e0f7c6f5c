"""From the shown sources to an update: assembled and analysed, with the history of earlier updates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from rankscope.assemble.repeats import first_version, next_version
from rankscope.assemble.sources import SourceFile
from rankscope.kinds.input_kinds import DUPLICATE
from rankscope.parsers.files.directory_walk import printable_text
from rankscope.watching.clock import CLOCK, Clock

if TYPE_CHECKING:
    from rankscope.analysis.freeze import Freeze
    from rankscope.analysis.live_state import LiveState, VerdictGate
    from rankscope.analysis.model import Analysis
    from rankscope.report.redact import Redaction
    from rankscope.schema import Dataset

OLDEST_NS = 10**18
"""Largest possible age of a file."""
CLOCK_SKEW_NS = 2 * 10**9
"""Clocks closer than this count as one."""
REST_NS = 10 * 10**9
"""Interval between two judgements of a job that does not move and whose dumps repeat themselves."""
SHORT_REST_NS = 10**9
"""The same interval while it is not known whether the job moves."""


class WatchedJob:
    """One watched job. Memory depends on its files, not on the number of updates."""

    def __init__(
        self,
        root: str,
        pattern: re.Pattern[str] | None,
        world_size: int | None,
        freeze_after_ns: int | None,
        errors: str | None = None,
        clock: Clock = CLOCK,
        redaction: Redaction | None = None,
    ) -> None:
        from rankscope.analysis.live_state import VerdictGate

        self._root, self._pattern, self._world_size, self._errors = printable_text(root), pattern, world_size, errors
        self._clock, self._redaction = clock, redaction
        self._gate: VerdictGate = VerdictGate(freeze_after_ns)
        self._history = DumpHistory()
        self._recall: dict[str, Any] = {}
        """Results of earlier assemblies that later ones need, by kind of input."""
        self._taken: list[SourceFile] = []
        """All sources as taken last."""
        self._waits = False
        """Whether they still have to be assembled."""
        self._dataset: Dataset | None = None
        self._silent: Dataset | None = None
        """The dataset with pending operations of logs that have fallen silent."""
        self._fresh = False
        """Whether the dataset was not judged yet."""
        self._judged: tuple[Freeze, Analysis] | None = None
        """The corrected standstill of the dataset, and its analysis."""
        self._rests_until_ns = 0
        self._alarmed = False
        self._alarmed_since_ns: int | None = None
        """The newest event at the last alarm."""
        self._known_processes: dict[int, tuple[str | None, int]] = {}
        """By rank, at the last alarm or since nothing is wrong."""

    def take(self, sources: Sequence[SourceFile], at_ns: int) -> bool:
        """Takes all sources at a monotonic time; returns whether they must be judged at once.

        Not if they hold nothing. If they repeat the state of a job that does not move, they are judged later.
        """
        if not any(source.tells for source in sources):
            return False
        before, self._taken, self._waits = self._taken, list(sources), True
        again = len(before) == len(self._taken) and all(map(_says_same, before, self._taken))
        return not again or at_ns >= self._rests_until_ns

    def assemble(self) -> None:
        """Assembles the sources taken last, unless that is done."""
        if not self._waits:
            return
        self._dataset, self._silent, self._judged = self._assembled(), None, None
        self._waits, self._fresh = False, True

    def _assembled(self) -> Dataset:
        from rankscope.assemble.assembly import assemble
        from rankscope.assemble.repeats import repeat_table

        asked = self._root, self._pattern, self._world_size, None, self._errors, self._recall
        sources = [source.renewed() for source in self._taken]
        dataset = assemble(sources, *asked)
        if self._history.link(sources):
            sources = self._history.without_former(sources)
            dataset = assemble(sources, *asked)
            self._history.link(sources)
        dataset = replace(dataset, repeats=repeat_table(sources))
        return self._redaction.dataset(dataset) if self._redaction else dataset

    @property
    def dataset(self) -> Dataset:
        """The dataset assembled last, with pending operations if its logs are silent; RuntimeError before that."""
        if self._dataset is None:
            raise RuntimeError("nothing is assembled yet")
        return self._silent or self._dataset

    @property
    def is_there(self) -> bool:
        """Whether there is anything to judge."""
        return self._dataset is not None

    def judge(self, at_ns: int, *, unread: bool) -> tuple[Analysis, LiveState]:
        """The analysis of the job at a time. `unread`: some files were never read."""
        from rankscope.analysis.live_state import with_awaited, with_state

        self.assemble()
        self._silent = None
        analysis, live = self._judge(at_ns, unread)
        self._rests_until_ns = at_ns + _rest_ns(live)
        if not self.dataset.from_traces:
            # these inputs do not show whether the job goes on, but their findings stay true
            ranks, logs = len(self.dataset.seen_ranks), self.dataset.from_logs
            awaited = self.dataset.missing_ranks if live.so_far else ()
            analysis = (
                with_awaited(analysis, live, awaited) if awaited else with_state(analysis, live, ranks, logs=logs)
            )
        return analysis, live

    def _judge(self, at_ns: int, unread: bool) -> tuple[Analysis, LiveState]:
        from rankscope.analysis.live_state import JobProgress
        from rankscope.analysis.root_cause import analyse, standstill

        said: list[tuple[Freeze, LiveState]] = []
        age_ns = self._age_ns()
        ahead_ns = -age_ns if age_ns < -CLOCK_SKEW_NS else 0
        look = JobProgress(at_ns, self._fresh, max(0, age_ns), unread, ahead_ns, self._clock.unix_ns())
        self._fresh = False

        def settle(freeze: Freeze) -> Freeze:
            self._gate, live, allowed = self._gate.look(self.dataset, freeze, look)
            said.append((allowed, live))
            return allowed

        if self._judged is None:
            analysis = analyse(self.dataset, settle)
        else:
            # the analysis of the same operations stays, unless the standstill is judged differently
            (taken, analysis), allowed = self._judged, settle(standstill(self.dataset))
            analysis = analysis if allowed == taken else analyse(self.dataset, lambda _: allowed)
        allowed, live = said[0]
        self._judged = allowed, analysis
        return self._of_silence(analysis, allowed, live), live

    def _of_silence(self, analysis: Analysis, freeze: Freeze, live: LiveState) -> Analysis:
        """The analysis if nothing is printed any more: then ranks that did not come hold up the others."""
        from rankscope.analysis import analyse
        from rankscope.analysis.freeze import as_waiting
        from rankscope.analysis.live_state import if_it_runs

        if live.state != "silent" or not self.dataset.from_logs or analysis.is_critical:
            return analysis
        waiting = as_waiting(self.dataset)
        if waiting is None:
            return analysis
        self._silent = waiting
        found = analyse(waiting, lambda _: replace(freeze, stopped=True, reason=live.reason))
        return if_it_runs(found, live.reason)

    def resumed(self, at_ns: int) -> None:
        """Continues after a time in which the files could not be seen."""
        self._gate = self._gate.resumed(at_ns)

    def alarm(self, analysis: Analysis, live: LiveState) -> bool:
        """Whether to raise an alarm: once when the job stops or fails, and again after it went on or was restarted."""
        silent = live.state == "silent" and live.came and analysis.status != "healthy"
        # a profiler that has done its steps writes no more
        silent = silent and not self.dataset.from_traces
        bad = live.state == "frozen" or silent or analysis.is_critical
        processes = self._processes()
        others = [rank for rank, process in processes.items() if self._known_processes.get(rank, process) != process]
        restarted = bool(others) and 2 * len(others) >= len(processes)
        alarm = bad and (restarted or not self._alarmed)
        if restarted:
            # the others will be replaced as well
            self._known_processes = {rank: processes[rank] for rank in others}
        elif not self._alarmed:
            self._known_processes = processes
        went_on = live.state == "progressing" and live.since_ns != self._alarmed_since_ns
        self._alarmed = bad or (self._alarmed and not went_on and not restarted)
        self._alarmed_since_ns = live.since_ns if alarm else self._alarmed_since_ns
        return alarm

    def _processes(self) -> dict[int, tuple[str | None, int]]:
        """Host and process id of each rank, from its newest sidecar."""
        known = self.dataset.files.filter(pl.col("pid").is_not_null() & pl.col("rank").is_not_null())
        newest = known.sort("mtime_ns", nulls_last=False).select("rank", "host", "pid")
        return {rank: (host, pid) for rank, host, pid in newest.iter_rows()}

    def judge_at_ns(self, *, away: bool = False) -> int | None:
        """The time of the next judgement without new files; None if there is none.

        `away`: nothing can be seen, so there is nothing to judge.
        """
        rests = self._rests_until_ns if self._waits else None
        return None if away else min((at for at in (self._gate.judge_at_ns, rests) if at is not None), default=None)

    def _age_ns(self) -> int:
        """The age of the newest file; negative if it is from the future."""
        newest = self.dataset.files.filter(self.dataset.files["used"])["mtime_ns"].max()
        return max(-OLDEST_NS, min(self._clock.unix_ns() - newest, OLDEST_NS)) if isinstance(newest, int) else 0


def _says_same(one: SourceFile, other: SourceFile) -> bool:
    """Whether a file is unchanged: then its content is the identical object."""
    if one is other:
        return True
    told = (one.shown, one.kind, one.problem), (other.shown, other.kind, other.problem)
    return one.content is other.content and told[0] == told[1]


def _rest_ns(live: LiveState) -> int:
    """The time that judging may rest for a job that repeats itself."""
    if live.state == "still":
        return min(REST_NS, max(0, live.needed_ns - (live.still_ns or 0)))
    return SHORT_REST_NS if live.state in ("progressing", "waiting") else REST_NS


# Overwritten versions of dumps: the standstill of each rank, and restarts.

CERTAIN_RANK_SOURCES = ("option", "name", "content")
"""Ways of knowing the rank of a dump that are sure enough to compare versions."""


class DumpHistory:
    """Keeps the newest dump of each rank's recorders, and the facts of the time before it."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], SourceFile] = {}
        self._began_ns = 0
        """Begin of the newest attempt that replaced another one."""

    def link(self, sources: Sequence[SourceFile]) -> bool:
        """Adds to each used dump the facts of its versions; returns whether some are of an earlier attempt."""
        dumps = [s for s in sources if s.used and s.dump is not None and s.rank is not None]
        for source in dumps:
            if source.rank_source in CERTAIN_RANK_SOURCES:
                self._link(source, (source.rank or 0, min(source.libraries, default="")))
        return any(map(self.is_former, dumps))

    def _link(self, source: SourceFile, key: tuple[int, str]) -> None:
        last = self._last.get(key)
        if last is not None and last.content is source.content and last.mtime_ns == source.mtime_ns:
            source.versions = last.versions
        else:
            source.versions = first_version(source) if last is None else next_version(last, source)
            if source.versions is not None and source.versions.restarted and source.span is not None:
                self._began_ns = max(self._began_ns, source.span[0])
        self._last[key] = source

    def is_former(self, source: SourceFile) -> bool:
        """Whether a dump ends before the newest attempt began, so that its rank has not written any of that yet."""
        return source.dump is not None and source.span is not None and source.span[1] < self._began_ns

    def without_former(self, sources: Sequence[SourceFile]) -> list[SourceFile]:
        """The sources without rows of earlier attempts, for a new assembly."""
        return [_set_aside(s) if self.is_former(s) else s.renewed() for s in sources]


def _set_aside(source: SourceFile) -> SourceFile:
    note = "of an earlier attempt: the job was started again"
    return SourceFile(source.shown, DUPLICATE.name, source.size, source.mtime_ns, note)
