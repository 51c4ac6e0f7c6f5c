"""The updates of a watched job, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, monotonic_ns

from rich.text import Text

from rankscope.analysis.job_state import JobState
from rankscope.analysis.live_state import LiveState
from rankscope.analysis.model import Analysis, Status
from rankscope.report.headlines import short_verdict
from rankscope.text.escaping import plain
from rankscope.text.wording import SECOND_NS, clock, duration, plural, rank_ranges
from rankscope.tui.board import Board
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.job_news import JobNews
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.detail.operation_index import share
from rankscope.tui.filters import Filter, apply
from rankscope.tui.header import room_for_state, title_line
from rankscope.tui.live.anchor import first_finding
from rankscope.tui.live.prepared import changed_ranks
from rankscope.tui.model import Model
from rankscope.tui.times import Times, build_times
from rankscope.tui.worker_messages import Updated
from rankscope.watching.update import FollowProgress, JobUpdate

TOAST_S = 3600.0
"""A toast stays until a key is pressed: nothing disappears without a key."""
TICK_S = 1.0
"""Seconds between updates of the title: it tells how long the job has stood, and the age of the last news."""


class Following(JobNews):
    """Shows updates, keeps them during a pause, and stays at the newest operations or moves to findings."""

    def __init__(
        self, view: MainView, boards: BoardSet, search: SearchWalk, findings: FindingsWalk, first: Updated
    ) -> None:
        super().__init__(view, boards, search, findings)
        self.shown = first
        """The update on the screen."""
        self.following, self.paused = True, False
        self.waiting: Updated | None = None
        """The newest update that is not on the screen yet."""
        self.waiting_count = 0
        self.reading: FollowProgress = first.update.reading
        self._seen = first.marks
        self._held_at = (0, 0)
        self._led = True
        """Whether the view is still at the place that the screen chose."""
        self._lag_s = 0.0
        self._rung = False
        """Whether a toast may lie over the lanes."""
        self._told_of = 0
        """The last update that a toast told of."""
        self._read = ""
        """The message about following at the last key press."""

    def begin(self) -> None:
        """Shows the newest operations, or the first finding."""
        self._measure_lag()
        at = first_finding(self._boards.whole.analysis)
        self._lead(at)
        if at is None:
            self._stick()
        else:
            self._boards.shown.centre(0.6)
        self._view.board_moved()
        self._tell(self.shown)
        self._view.note("")
        self._view.set_interval(TICK_S, self._view.draw_head)

    # Updates

    def take(self, update: Updated) -> None:
        """Shows an update, or keeps it while the screen is paused or another one lies over it."""
        self.reading = update.update.reading
        if self.paused or self._view.is_covered:
            self.waiting, self.waiting_count = update, self.waiting_count + 1
            self._view.draw_head()
            self._tell(update)
            self._view.note("")
        elif self._boards.on_time and self._boards.shown is self._boards.operations:
            wanted = self._boards.wanted
            self._view.work_out(partial(_timed, update, wanted), partial(self._take_timed, update, wanted))
        else:
            self._show(update)

    def take_reading(self, reading: FollowProgress) -> None:
        """Shows the state of following if the job has not changed."""
        self.reading = reading
        self._view.draw_head()
        self._view.note("")

    def _take_timed(self, update: Updated, wanted: Filter, timed: tuple[Model, Times]) -> None:
        if update.update.number < self.shown.update.number:
            return
        if self.paused or self._view.is_covered or wanted != self._boards.wanted:
            self.take(update)
        elif self._boards.on_time:
            model, times = timed
            self._show(update, model, times if len(times.start) else None)
        else:
            self._show(update)

    def _show(self, update: Updated, narrow: Model | None = None, times: Times | None = None) -> None:
        stood = self.shown.update.live.is_stopped or self._boards.whole.analysis.is_critical
        self.shown = update
        share(update.index)
        at_verdict = self._findings.at_verdict
        at = self._boards.take(update.model, update.overview, narrow, times)
        self._findings.unvisited |= at is None
        at = first_finding(update.model.analysis) if at is None else at
        self._boards.blame(at)
        self._findings.stay(at_verdict)
        self._measure_lag()
        self._mark_changed()
        self._search.renew()
        if stood and update.update.live.state == "progressing" and not update.update.analysis.is_critical:
            # the toast about the standstill is out of date
            self._hush()
        if update.update.alarm and self._led:
            self._lead(at)
        elif self.following:
            self._stick()
        self._remember_place()
        self._view.draw_head()
        self._view.show_board()
        self._tell(update)
        self._view.note("")

    def _measure_lag(self) -> None:
        noticed = self.shown.update.noticed_at
        self._lag_s = 0.0 if noticed is None else monotonic() - noticed

    def _tell(self, update: Updated) -> None:
        """Rings once for each freeze, under any screen."""
        if not update.update.alarm or update.update.number <= self._told_of:
            return
        self._told_of = update.update.number
        analysis, live, app = update.update.analysis, update.update.live, self._view.app
        text, title = plain(short_verdict(analysis)), (live.state if live.is_stopped else analysis.status).upper()
        self._rung = True
        app.notify(f"{text}\nany key closes this", title=title, severity="error", timeout=TOAST_S, markup=False)
        if self._view.options.bell:
            app.bell()

    def _hush(self) -> None:
        """Removes toasts over the lanes; this draws even if there are none."""
        if self._rung:
            self._rung = False
            self._view.app.clear_notifications()

    def _lead(self, at: int | None) -> None:
        """Goes to a finding without a key; follows the newest operations only if there is none."""
        self._findings.show(at)
        self.following, self._led = at is None, True
        self._remember_place()

    # Following

    def _stick(self) -> None:
        """Goes to the newest operations."""
        self._boards.shown.go_unit(self._boards.shown.high - 1)
        self._remember_place()

    def _place(self) -> tuple[int, int]:
        board = self._boards.shown
        return board.unit, board.lane if isinstance(board, Board) else board.row

    def _remember_place(self) -> None:
        self._held_at = self._place()

    def moved(self) -> None:
        """Ends following and automatic moves if the cursor has left the place that the screen chose."""
        if self._led and self._place() != self._held_at:
            self._led = False
            if self.following:
                self.following = False
                self._view.note("")

    def follow(self) -> None:
        """Follows the newest operations; while it does, pauses.

        Reading goes on in a pause, and the title tells the state of the job.
        """
        if self.following and not self.paused:
            self.pause()
            return
        self.following, self.paused, self._led = True, False, True
        if not self._catch_up():
            self._stick()
            self._view.board_moved()
        self._view.draw_head()
        self._view.note("")

    def pause(self) -> None:
        """Pauses or resumes the view at its place."""
        self.paused = not self.paused
        self._catch_up()
        self._view.draw_head()
        self._view.note("")

    def _catch_up(self) -> bool:
        """Shows the waiting update; returns whether there was one."""
        update, self.waiting, self.waiting_count = self.waiting, None, 0
        if update is None:
            return False
        self.take(update)
        return True

    def resumed(self) -> None:
        """Shows the updates that came while another screen lay over this one."""
        if not self.paused:
            self._view.call_after_refresh(self._catch_up)

    # Lines

    def pressed(self) -> None:
        """Marks all news as seen, because the user has pressed a key."""
        self._seen = self.shown.marks
        self._mark_changed()
        self._read = _told(self.reading)
        self._hush()

    def _mark_changed(self) -> None:
        changed = changed_ranks(self._seen, self.shown.marks)
        for board in self._boards.all:
            board.fresh = changed if len(changed) < len(self.shown.marks) else frozenset()

    @property
    def analysis(self) -> Analysis:
        """The analysis; its verdict tells the speed of the job."""
        return with_rates(self._boards.whole.analysis, self.shown.update.live)

    def title(self, width: int, finding: int | None = None) -> Text:
        """The line at the top, with the present state of the job."""
        options, dataset = self._view.options, self._boards.whole.dataset
        held = self.shown.update if self.paused else None
        newest = self.waiting.update if self.paused and self.waiting is not None else self.shown.update
        room = room_for_state(dataset, width)
        moment = StateMoment(monotonic_ns(), self._lag_s, room, width >= WIDE, options.ascii_only)
        state = state_text(newest, self.reading, held, moment)
        at = finding if newest is self.shown.update else None
        return title_line(dataset, newest.analysis, width, at, state=state)

    def trouble(self) -> str:
        """Errors of following, until a key is pressed."""
        trouble = _told(self.reading)
        if trouble != self._read and trouble:
            return trouble
        self._read = trouble
        return ""

    def state(self) -> Text:
        """The state of following."""
        fresh = self._boards.shown.fresh
        return following_line(self.following, self.paused, self.waiting_count, self.reading.writing, fresh)


def _timed(update: Updated, wanted: Filter) -> tuple[Model, Times]:
    model = apply(update.model, wanted)
    return model, build_times(model)


def _told(reading: FollowProgress) -> str:
    return plain(reading.said or reading.trouble)


MOST_RATES = 4
"""Most groups that the verdict names."""
OLD_NS = 15_000_000_000
"""Age of the last news from which the screen tells it, in ns."""
WIDE = 110
"""Columns of a wide screen."""


@dataclass(frozen=True)
class StateMoment:
    """Time and room for the text of a job's state."""

    now_ns: int
    """Now, on the monotonic clock."""
    lag_s: float
    """Seconds from the discovery of the update to its display."""
    room: int
    """Columns; the least important pieces are left out if there are too few."""
    wide: bool
    """Whether the screen has room for the time of a freeze beside its duration."""
    ascii_only: bool


def state_text(update: JobUpdate, reading: FollowProgress, held: JobUpdate | None, moment: StateMoment) -> str:
    """The state of the job and its age: "WATCHING . progressing 12.3/s . 400 ms lag".

    A paused screen shows the update `held`, while `update` is still the newest: "PAUSED . now HANG, FROZEN for 34 s".
    """
    live = update.live
    # while the files cannot be seen, the age of the last news has no meaning
    news_ns = moment.now_ns - live.news_at_ns if live.news_at_ns is not None and reading.away is None else None
    job = _awaited_text(live, moment.now_ns) or _job_text(update.analysis, live, news_ns, wide=moment.wide)
    other = held is not None and _kind(held) != _kind(update)
    pieces = ["WATCHING" if held is None else "PAUSED", f"now {job}" if other else job]
    if reading.away is not None:
        pieces.append("AWAY")
    lag = f"{_seconds(moment.lag_s)} lag" if moment.lag_s >= 0.05 and held is None else ""
    old = news_ns is not None and news_ns >= OLD_NS and not live.is_stopped
    news = f"news {_coarse(news_ns)} old" if news_ns is not None and old else ""
    polled = f"every {_seconds(reading.polled_s)}" if reading.polled_s is not None and reading.away is None else ""
    return _joined(pieces, [lag, news, polled], moment)


def _joined(pieces: Sequence[str], more: Sequence[str], moment: StateMoment) -> str:
    """The pieces in one line, and as many of `more` as fit; the first of these is the most important."""
    dot = " - " if moment.ascii_only else " \u00b7 "
    room, fitting = moment.room - len(dot.join(pieces)), []
    for piece in more:
        if piece and len(dot) + len(piece) <= room:
            room -= len(dot) + len(piece)
            fitting.append(piece)
    return dot.join([*pieces, *reversed(fitting)])


def _kind(update: JobUpdate) -> tuple[JobState, Status | None]:
    """The state of a job, and its status if that is bad."""
    return update.live.state, update.analysis.status if _is_bad(update.analysis) else None


def _is_bad(analysis: Analysis) -> bool:
    return analysis.status in ("hang", "mismatch", "failed", "slow")


def _job_text(analysis: Analysis, live: LiveState, news_ns: int | None, *, wide: bool) -> str:
    """The state in a few words; `news_ns` is the time since the last news, None if it has no meaning."""
    if live.state == "progressing" and analysis.is_critical:
        # what waits for the cause stands, and the rest may go on
        text = f"others go on {live.per_s:.3g}/s" if live.rates else ""
    elif live.state == "progressing":
        text = f"progressing {live.per_s:.3g}/s" if live.rates else "progressing"
    elif live.state == "frozen":
        text = _frozen_text(live, news_ns, wide=wide)
    elif live.state == "silent" and news_ns is not None:
        text = f"silent for {_whole(news_ns)}"
    elif live.state == "still" and live.still_ns is not None:
        text = f"still {duration(live.still_ns)}"
    else:
        text = live.state
    return ", ".join(piece for piece in (analysis.status.upper() if _is_bad(analysis) else "", text) if piece)


def _awaited_text(live: LiveState, now_ns: int) -> str:
    """The dumps that are there and the time until the job is judged without the others; "" if none are awaited."""
    if not live.so_far or live.judged_at_ns is None:
        return live.so_far
    return f"{live.so_far}, verdict in {_whole(live.judged_at_ns - now_ns)}"


def _frozen_text(live: LiveState, news_ns: int | None, *, wide: bool) -> str:
    since = f"since {clock(live.since_ns, digits=0)}" if live.since_ns is not None else ""
    if news_ns is None:
        return f"FROZEN {since}".rstrip()
    lasts = f"FROZEN for {_whole(news_ns + (live.still_ns or 0))}"
    return f"{lasts}, {since}" if wide and since else lasts


def _whole(ns: int) -> str:
    """A duration in whole seconds, at least one: a counter."""
    return duration(max(ns // SECOND_NS, 1) * SECOND_NS)


def _seconds(seconds: float) -> str:
    return duration(round(seconds * SECOND_NS))


def _coarse(ns: int) -> str:
    """A duration in its largest unit."""
    return " ".join(_whole(ns).split()[:2])


def with_rates(analysis: Analysis, live: LiveState) -> Analysis:
    """The analysis of a moving job; its verdict tells the speeds of its groups, the fastest first."""
    if analysis.status != "progressing" or live.state != "progressing" or not live.rates:
        return analysis
    speeds = ", ".join(f"{rate.description or rate.group} {rate.per_s:.3g}/s" for rate in live.rates[:MOST_RATES])
    left = len(live.rates) - MOST_RATES
    more = f", and {plural(left, 'more group')}" if left > 0 else ""
    return replace(analysis, verdict=f"{analysis.verdict}: {speeds}{more}")


def following_line(following: bool, paused: bool, waiting: int, writing: int, changed: Collection[int]) -> Text:
    """The text before the keys: following or not, waiting updates, and ranks that changed since the last key."""
    line = Text(" ")
    if paused:
        text = f"PAUSED, {plural(waiting, 'update')} waiting" if waiting else "PAUSED"
        line.append(f" {text} ", "reverse").append(" ").append("F", "key").append(" go on  ", "dim")
    elif following:
        line.append(" FOLLOWING ", "reverse").append(" ").append("F", "key").append(" pause  ", "dim")
    else:
        line.append("F", "key").append(" follow  ", "dim")
    if writing:
        line.append(f"{plural(writing, 'file')} being written  ", "dim")
    if changed:
        line.append(f"* changed: {rank_ranges(sorted(changed), 14)}  ", "dim")
    return line
