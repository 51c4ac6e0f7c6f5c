"""From the sources that are shown to one update: assembled and analysed, with what earlier updates told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from rankscope.watching.assembly import Assembly, Changes
from rankscope.watching.clock import CLOCK, Clock
from rankscope.watching.kept import rows_kept
from rankscope.watching.pace import Glance, Pace

if TYPE_CHECKING:
    from rankscope.analysis.freeze import Freeze
    from rankscope.analysis.live import Gate, Live
    from rankscope.analysis.model import Analysis
    from rankscope.parsers.assemble.more import Longer
    from rankscope.parsers.assemble.sources import Source
    from rankscope.schema import Dataset

AGES_NS = 10**18
"""No file is older."""
NOW_NS = 2 * 10**9
"""Clocks that are no further apart are taken for one."""
REST_NS = 10 * 10**9
"""A job that does not move is judged no more often, as long as its dumps say the same again and again."""
SHORT_REST_NS = 10**9
"""And one of which that is not known yet."""


class Job:
    """One job that is watched. Memory is that of its files, however many updates there were."""

    def __init__(
        self,
        root: str,
        pattern: re.Pattern[str] | None,
        world_size: int | None,
        freeze_after_ns: int | None,
        errors: str | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        from rankscope.analysis.analyse import Known
        from rankscope.analysis.live import Gate

        self._clock = clock
        self._assembly = Assembly(root, pattern, world_size, errors)
        self._gate: Gate = Gate(freeze_after_ns)
        self._known = Known()
        self._silent: Dataset | None = None
        """What is put together with operations that wait, where nothing is printed any more."""
        self._taken: list[Source] = []
        """What was taken last."""
        self._fresh = False
        """What was put together last was not judged yet."""
        self._judged: tuple[Freeze, Analysis] | None = None
        """Of what is assembled: the standstill as it was taken, and what was said then."""
        self._rests_until_ns = 0
        self._pace = Pace()
        self._shown: Longer | None = None
        """The same as it was shown last, since all was judged."""
        self._ranks: dict[str, frozenset[int]] | None = None
        """By path whose dumps files were when it was judged last; None if that was not needed since."""
        self._alarmed = False
        self._alarmed_since_ns: int | None = None
        """The newest event when somebody was told last."""
        self._known_processes: dict[int, tuple[str | None, int]] = {}
        """By rank, as they were when somebody was told last, or since nothing is wrong."""

    def take(self, sources: Sequence[Source], at_ns: int) -> bool:
        """Takes all sources at a moment of a clock that never goes back; whether it is to be judged at once.

        Where they tell nothing it is not, and where they say the same again of a job that does not move it is later.
        """
        if not any(source.tells for source in sources):
            return False
        before, self._taken = self._taken, self._assembly.take(sources)
        again = len(before) == len(self._taken) and all(map(_says_same, before, self._taken))
        return not again or at_ns >= self._rests_until_ns

    def assemble(self) -> None:
        """Puts together what was taken last, unless that is done."""
        self._assemble(partly=False)
        if not self._assembly.is_whole:
            self._assembly.put_all_together()
            self._judged = None

    def _assemble(self, *, partly: bool) -> None:
        self._silent = None
        if self._assembly.waiting is None:
            return
        if self._assembly.put_together(partly=partly, chatter=partly and self._pace.is_behind):
            self._judged = None
        self._fresh = True

    @property
    def dataset(self) -> Dataset:
        """What was assembled last, with who waits if its logs are silent; RuntimeError before that."""
        if self._assembly.dataset is None:
            raise RuntimeError("nothing is assembled yet")
        return self._silent or self._assembly.dataset

    @property
    def is_there(self) -> bool:
        """Whether there is anything to be judged."""
        return self._assembly.dataset is not None

    @property
    def is_unjudged(self) -> bool:
        """Whether anything that was shown is not judged."""
        return self._pace.judge_at_ns is not None

    def glance(self, at_ns: int) -> Glance | None:
        """What may be said at a moment without judging what was taken; None if it has to be judged."""
        changes, before = self._assembly.changes(), self._assembly.arrived
        self._assemble(partly=self._may_glance_at(changes, at_ns))
        arrived, traces_alone = self._assembly.arrived, bool(changes.traces) and not changes.said
        glance = self._glance_at_traces(at_ns) if arrived and traces_alone else self._glance(at_ns)
        if glance is None or arrived is None or arrived is before:
            return glance
        return self._with_traces(glance, len(changes.traces), at_ns)

    def _may_glance_at(self, changes: Changes, at_ns: int) -> bool:
        if self._silent is not None:
            # the screen shows who waits, which is over when anything comes
            return False
        if not changes.traces:
            return self._may_glance_at_known(changes.paths, at_ns)
        known = not changes.said or self._may_glance_at_known(changes.said, at_ns)
        return known and self._may_show(changes.traces, at_ns)

    def _glance(self, at_ns: int) -> Glance | None:
        """The same of what was written by ranks that are known."""
        from rankscope.analysis.agreed import part_of
        from rankscope.analysis.repeats import Repeats

        ranks, count, longer = self._assembly.news, len(self.dataset.seen_ranks), self._assembly.longer
        if longer is not None:
            return self._glance_at_more(longer, at_ns)
        if ranks is None or not self._pace.may_glance(ranks, count, at_ns):
            return None
        part = part_of(self.dataset, ranks) if ranks else None
        agrees = part is None or (Repeats(part).all_moved and self._agrees(part))
        found = self._pace.glance(ranks, count, at_ns, agrees=agrees)
        if found is None:
            return None
        (self._pace, glance), self._fresh = found, False
        if part is None:
            self._gate, live = self._gate.came(glance.live, at_ns)
        else:
            self._gate, live = self._gate.went_on(part, glance.live, at_ns)
        self._pace = self._pace.with_live(live)
        return replace(glance, live=live)

    def _glance_at_traces(self, at_ns: int) -> Glance | None:
        """The same where nothing but traces came."""
        if self._pace.said is None:
            return None
        analysis, live = self._pace.said
        (self._gate, live), self._fresh = self._gate.came(live, at_ns), False
        self._pace = self._pace.with_live(live)
        return Glance(frozenset(), analysis, live)

    def _with_traces(self, glance: Glance, count: int, at_ns: int) -> Glance:
        """The same with what so many traces that came tell alone."""
        from rankscope.analysis.traces.more import with_windows

        analysis = with_windows(glance.analysis, self.dataset, count, self._known.story)
        self._pace = self._pace.with_traces(analysis, at_ns)
        return replace(glance, analysis=analysis)

    def _glance_at_more(self, longer: Longer, at_ns: int) -> Glance | None:
        """What may be said without judging more operations in logs; None if they have to be judged."""
        part = replace(self.dataset, ops=longer.ops)
        found = self._pace.glance_at_rows(
            longer.ops.height, self.dataset.ops.height, longer.ranks, at_ns, agrees=self._agrees(part)
        )
        if found is None:
            return None
        (self._pace, glance), self._fresh = found, False
        self._gate, live = self._gate.went_on(part, glance.live, at_ns)
        self._pace = self._pace.with_live(live)
        kept, self._shown = rows_kept(self._shown, longer), longer
        return replace(glance, live=live, kept=kept)

    def _agrees(self, part: Dataset) -> bool:
        """Whether all in `part` goes on from what was there, and as the others have."""
        from rankscope.analysis.calls import collect_calls

        before = self._known.agreed
        after = before.take(collect_calls(part)) if before is not None else None
        self._known.agreed = after or before
        return after is not None

    def judge(self, at_ns: int, *, unread: bool) -> tuple[Analysis, Live]:
        """What is to be said of it at a moment. `unread`: there are files of which nothing was read yet."""
        from rankscope.analysis.live import with_state

        self.assemble()
        analysis, live = self._judge(at_ns, unread)
        self._rests_until_ns = at_ns + _rest_ns(live)
        if not self.dataset.from_traces:
            # of these nobody can tell whether the job goes on, but what they say of it stays true
            analysis = with_state(analysis, live, len(self.dataset.seen_ranks), logs=self.dataset.from_logs)
        self._pace, self._ranks, self._shown = Pace((analysis, live)).judged(at_ns, 0), None, None
        return analysis, live

    def may_glance(self, changed: Mapping[str, Sequence[Source]], at_ns: int) -> bool:
        """Whether files at these paths, with what was read of them, are likely to be shown without being judged."""
        came = [source for path, own in changed.items() if path not in self._known_ranks for source in own]
        known = [path for path in changed if path in self._known_ranks or not changed[path]]
        traces = all(source.trace is not None for source in came)
        if not came or not traces:
            return traces and self._may_glance_at_known(known, at_ns)
        return self._may_show(came, at_ns) and (not known or self._may_glance_at_known(known, at_ns))

    @property
    def _known_ranks(self) -> dict[str, frozenset[int]]:
        """By path whose dumps files were when it was judged last."""
        if self._ranks is None:
            self._ranks = self._assembly.memory.ranks()
        return self._ranks

    def _may_glance_at_known(self, changed: Sequence[str], at_ns: int) -> bool:
        if not self.is_there:
            return False
        known = [self._known_ranks.get(path) for path in changed]
        ranks = frozenset[int]().union(*(own for own in known if own is not None))
        return None not in known and self._pace.may_glance(ranks, len(self.dataset.seen_ranks), at_ns)

    def _may_show(self, traces: Sequence[Source], at_ns: int) -> bool:
        """Whether traces that came are few, with those that came before and are not judged yet."""
        arrived = self._assembly.arrived
        came = sum(source.trace.rows for source in traces if source.trace is not None)
        later = arrived.spans if arrived is not None else 0
        return self.is_there and self._pace.may_show_traces(came + later, came + self.dataset.spans.height, at_ns)

    def judged(self, at_ns: int, took_ns: int) -> None:
        """What was judged is shown: all of that took so long."""
        self._pace = self._pace.judged(at_ns, took_ns)

    def _judge(self, at_ns: int, unread: bool) -> tuple[Analysis, Live]:
        from rankscope.analysis import analyse
        from rankscope.analysis.analyse import standstill
        from rankscope.analysis.progress_history import Look

        said: list[tuple[Freeze, Live]] = []
        age_ns = self._age_ns()
        look = Look(at_ns, self._fresh, max(0, age_ns), unread, -age_ns if age_ns < -NOW_NS else 0)
        self._fresh = False

        def settle(freeze: Freeze) -> Freeze:
            self._gate, live, allowed = self._gate.look(self.dataset, freeze, look)
            said.append((allowed, live))
            return allowed

        if self._judged is None:
            analysis = analyse(self.dataset, settle, self._known)
        else:
            # of the same operations the same is said, unless the job is taken for more or less still than before
            (taken, analysis), allowed = self._judged, settle(standstill(self.dataset))
            analysis = analysis if allowed == taken else analyse(self.dataset, lambda _: allowed, self._known)
        allowed, live = said[0]
        self._judged = allowed, analysis
        return self._of_silence(analysis, allowed, live), live

    def _of_silence(self, analysis: Analysis, freeze: Freeze, live: Live) -> Analysis:
        """What is to be said where nothing is printed any more: then who has not come is waited for by the others."""
        from rankscope.analysis import analyse
        from rankscope.analysis.left_waiting import as_waiting, if_it_runs

        if live.state != "silent" or not self.dataset.from_logs or analysis.is_critical:
            return analysis
        waiting = as_waiting(self.dataset)
        if waiting is None:
            return analysis
        self._silent = waiting
        found = analyse(waiting, lambda _: replace(freeze, stopped=True, reason=live.reason))
        return if_it_runs(found, live.reason)

    def resumed(self, at_ns: int) -> None:
        """The files can be seen again after a time in which they could not."""
        self._gate = self._gate.resumed(at_ns)

    def alarm(self, analysis: Analysis, live: Live) -> bool:
        """Whether somebody is to be told: once when it stops or fails, and again after it went on or was restarted."""
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
        """Host and process id of each rank, as far as sidecars tell them; those of the newest one."""
        known = self.dataset.files.filter(pl.col("pid").is_not_null() & pl.col("rank").is_not_null())
        newest = known.sort("mtime_ns", nulls_last=False).select("rank", "host", "pid")
        return {rank: (host, pid) for rank, host, pid in newest.iter_rows()}

    def judge_at_ns(self, *, away: bool = False) -> int | None:
        """When it is to be judged again though nothing new is written; None if never.

        `away`: nothing can be seen, so that only what was read before and is not judged yet has anything to say.
        """
        rests = None if self._assembly.waiting is None else self._rests_until_ns
        times = [self._pace.judge_at_ns, *(() if away else (self._gate.judge_at_ns, rests))]
        return min((at for at in times if at is not None), default=None)

    def _age_ns(self) -> int:
        """How old the newest file is; less than 0 if it is from the future."""
        newest = self.dataset.files.filter(self.dataset.files["used"])["mtime_ns"].max()
        return max(-AGES_NS, min(self._clock.unix_ns() - newest, AGES_NS)) if isinstance(newest, int) else 0


def _says_same(one: Source, other: Source) -> bool:
    """Whether a file says what it said: content that does is the very same object."""
    if one is other:
        return True
    same = one.content is other.content and one.more is other.more
    return same and (one.shown, one.kind, one.problem) == (other.shown, other.kind, other.problem)


def _rest_ns(live: Live) -> int:
    """For how long nothing is missed of a job that says the same again and again."""
    if live.state == "still":
        return min(REST_NS, max(0, live.needed_ns - (live.still_ns or 0)))
    return SHORT_REST_NS if live.state in ("progressing", "waiting") else REST_NS
