"""The updates of a watched job, one after the other."""

from __future__ import annotations

from functools import partial
from time import monotonic, monotonic_ns

from rich.text import Text

from rankscope.analysis.model import Analysis
from rankscope.text.escaping import plain
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
from rankscope.tui.live.live_text import WIDE, StateMoment, following_line, state_text, with_rates
from rankscope.tui.live.prepared import changed_ranks
from rankscope.tui.model import Model
from rankscope.tui.times import Times, build_times
from rankscope.tui.worker_messages import Updated
from rankscope.watching.update import FollowProgress

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
        at = self._boards.take(update.model, update.overview, narrow, times)
        self._findings.unvisited |= at is None
        at = first_finding(update.model.analysis) if at is None else at
        self._boards.blame(at)
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
        text, title = plain(analysis.verdict), (live.state if live.is_stopped else analysis.status).upper()
        self._rung = True
        app.notify(text, title=title, severity="error", timeout=TOAST_S, markup=False)
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
        """Goes to the newest operations and stays there."""
        self.following, self.paused, self._led = True, False, True
        if not self._catch_up():
            self._stick()
            self._view.board_moved()
        self._view.draw_head()
        self._view.note("")

    def pause(self) -> None:
        """Pauses or resumes the view; reading goes on in any case, and the title tells the state of the job."""
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

    def title(self, width: int) -> Text:
        """The line at the top, with the present state of the job."""
        options, dataset = self._view.options, self._boards.whole.dataset
        held = self.shown.update if self.paused else None
        newest = self.waiting.update if self.paused and self.waiting is not None else self.shown.update
        room = room_for_state(dataset, width)
        moment = StateMoment(monotonic_ns(), self._lag_s, room, width >= WIDE, options.ascii_only)
        state = state_text(newest, self.reading, held, moment)
        return title_line(dataset, newest.analysis, width, state=state)

    def trouble(self) -> str:
        """Errors of following, until a key is pressed."""
        told = _told(self.reading)
        if told != self._read and told:
            return told
        self._read = told
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
