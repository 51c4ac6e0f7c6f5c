"""The main screen while the job is watched."""

from __future__ import annotations

from time import monotonic, monotonic_ns

from textual import events, on

from rankscope.text.escaping import plain
from rankscope.tui.board import Board
from rankscope.tui.detail.operation_index import share
from rankscope.tui.filters import apply
from rankscope.tui.footer import key_parts
from rankscope.tui.header import room_for_state, title_parts, verdict_parts
from rankscope.tui.lanes_screen import LanesScreen
from rankscope.tui.live.anchor import carry, first_finding, same_finding
from rankscope.tui.live.live_text import WIDE, Moment, footer_parts, state_text, with_rates
from rankscope.tui.live.prepared import changed_ranks
from rankscope.tui.options import ViewOptions
from rankscope.tui.times import build_times
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.worker_messages import Updated, UpdateTimed
from rankscope.watching.update import FollowProgress

TOAST_S = 3600.0
"""A toast stays until a key is pressed: nothing goes away by itself."""
TICK_S = 1.0
"""The title tells in seconds how long a job has stood, and how old the last news is."""


class LiveScreen(LanesScreen):
    """Takes updates; the rest is that of any job."""

    def __init__(self, first: Updated, options: ViewOptions) -> None:
        super().__init__(first.model, first.overview, options)
        self.shown = first
        """The update that is on the screen."""
        self.following, self.paused = True, False
        self.waiting: Updated | None = None
        """The newest update that is not on the screen yet."""
        self.waiting_count = 0
        self.reading: FollowProgress = first.update.reading
        self._seen = first.marks
        self._held_at = (0, 0)
        self._led = True
        """Nobody has moved away from where the screen went by itself."""
        self._lag_s = 0.0
        self._rung = False
        """Whether something may be told over the lanes."""
        self._told_of = 0
        """The last update of which somebody was told."""
        self._unvisited = False
        """The finding that is told came with an update: nobody has gone there yet."""
        self._read = ""
        """What was said of following when somebody pressed a key last."""

    def on_mount(self) -> None:
        """Shows the newest operations, or what is wrong."""
        self.show_board(self.board)
        self._measure_lag()
        at = first_finding(self.whole.analysis)
        self._lead(at)
        if at is None:
            self._stick()
        else:
            self.board.centre(0.6)
        self.lanes.changed()
        self._tell(self.shown)
        self.note("")
        self.set_interval(TICK_S, self._draw_title)

    # Updates

    def take(self, update: Updated) -> None:
        """Shows an update, or keeps it while the screen is paused or another one lies over it."""
        self.reading = update.update.reading
        if self.paused or self.app.screen is not self:
            self.waiting, self.waiting_count = update, self.waiting_count + 1
            self._draw_head()
            self._tell(update)
            self.note("")
        elif self.operations.view.kind == "time" and self.board is self.operations:
            self._time(update)
        else:
            self._show(update, None)

    def take_reading(self, reading: FollowProgress) -> None:
        """Says how following goes where the job is as it was."""
        self.reading = reading
        self._draw_head()
        self.note("")

    def _time(self, update: Updated) -> None:
        wanted = self.wanted

        def timed() -> UpdateTimed:
            model = apply(update.model, wanted)
            return UpdateTimed(update, wanted, model, build_times(model))

        self.work_out([timed])

    @on(UpdateTimed)
    def _timed(self, event: UpdateTimed) -> None:
        if event.update.update.number < self.shown.update.number:
            return
        if self.paused or self.app.screen is not self or event.wanted != self.wanted:
            self.take(event.update)
        elif self.operations.view.kind == "time":
            self._show(event.update, event)
        else:
            self._show(event.update, None)

    def _show(self, update: Updated, timed: UpdateTimed | None) -> None:
        before, board, finding = self.whole.analysis, self.operations, self.board.finding
        stood = self.shown.update.live.is_stopped or before.is_critical
        self.whole, self._worst, self._strips, self.shown = update.model, update.overview, {}, update
        share(update.index)
        model = timed.model if timed is not None else apply(update.model, self.wanted)
        if not len(model.ranks):
            model = update.model
        carry(board, model, timed.times if timed is not None and len(timed.times.start) else None)
        self._carry_traces(update)
        at = same_finding(before, finding, self.whole.analysis)
        self._unvisited |= at is None
        at = first_finding(self.whole.analysis) if at is None else at
        for each in self.boards:
            each.blame(at)
        self._measure_lag()
        self._mark_changed()
        if self.found is not None:
            self._search(self.found.text)
        if stood and update.update.live.state == "progressing" and not update.update.analysis.is_critical:
            # what was told of the standstill is over
            self._hush()
        if update.update.alarm and self._led:
            self._lead(at)
        elif self.following:
            self._stick()
        self._remember_place()
        self._draw_head()
        self.lanes.show(self.board)
        self._tell(update)
        self.note("")

    def _carry_traces(self, update: Updated) -> None:
        traces, shows = update.model.traces, isinstance(self.board, TraceBoard)
        self._traced_strip = None
        if traces is None:
            self.traced = None
        elif self.traced is None:
            self.traced = TraceBoard(traces, update.model)
        else:
            self.traced.replace_model(update.model)
        if shows:
            self.board = self.traced or self.operations

    def _measure_lag(self) -> None:
        noticed = self.shown.update.noticed_at
        self._lag_s = 0.0 if noticed is None else monotonic() - noticed

    def _tell(self, update: Updated) -> None:
        """Rings once for each freeze, whatever is on the screen."""
        if not update.update.alarm or update.update.number <= self._told_of:
            return
        self._told_of = update.update.number
        analysis, live = update.update.analysis, update.update.live
        text, title = plain(analysis.verdict), (live.state if live.is_stopped else analysis.status).upper()
        self._rung = True
        self.app.notify(text, title=title, severity="error", timeout=TOAST_S, markup=False)
        if self.options.bell:
            self.app.bell()

    def _hush(self) -> None:
        """Takes away what was told over the lanes; that draws, even where there is nothing."""
        if self._rung:
            self._rung = False
            self.app.clear_notifications()

    def show_finding(self, index: int | None) -> None:
        """Moves the lanes to a finding; filters that hide it are dropped."""
        self._unvisited = False
        super().show_finding(index)

    def _lead(self, at: int | None) -> None:
        """Goes to a finding without being asked; the newest operations are followed only where there is none."""
        self.show_finding(at)
        self.following, self._led = at is None, True
        self._remember_place()

    def walk(self, step: int) -> None:
        """To the next finding, or to the one that came by itself."""
        if self._unvisited and self.found is None and self.board.finding is not None:
            self.show_finding(self.board.finding)
        else:
            super().walk(step)

    # Following

    def _stick(self) -> None:
        """Goes to the newest operations."""
        self.board.go_unit(self.board.high - 1)
        self._remember_place()

    def _place(self) -> tuple[int, int]:
        return self.board.unit, self.board.lane if isinstance(self.board, Board) else self.board.row

    def _remember_place(self) -> None:
        self._held_at = self._place()

    def moved(self) -> None:
        """Whoever moves away from the newest operations follows no more, and is led nowhere."""
        super().moved()
        if self._led and self._place() != self._held_at:
            self._led = False
            if self.following:
                self.following = False
                self.note("")

    def action_follow(self) -> None:
        """Goes to the newest operations and stays there."""
        self.following, self.paused, self._led = True, False, True
        if not self._catch_up():
            self._stick()
            self.lanes.changed()
        self._draw_head()
        self.note("")

    def action_pause(self) -> None:
        """Stops what is shown, or goes on; reading goes on in any case, and the title tells how the job is."""
        self.paused = not self.paused
        self._catch_up()
        self._draw_head()
        self.note("")

    def _catch_up(self) -> bool:
        """Shows what waits; whether anything did."""
        update, self.waiting, self.waiting_count = self.waiting, None, 0
        if update is None:
            return False
        self.take(update)
        return True

    @on(events.ScreenResume)
    def _resumed(self) -> None:
        """What came while another screen lay over this one is shown now."""
        if not self.paused:
            self.call_after_refresh(self._catch_up)

    # Lines

    def on_key(self, event: events.Key) -> None:
        """Whoever presses a key has looked."""
        super().on_key(event)
        self._seen = self.shown.marks
        self._mark_changed()
        self._read = _told(self.reading)
        self._hush()
        self.note("")

    def _mark_changed(self) -> None:
        changed = changed_ranks(self._seen, self.shown.marks)
        for board in self.boards:
            board.fresh = changed if len(changed) < len(self.shown.marks) else frozenset()

    def _draw_head(self) -> None:
        self._draw_title()
        analysis = with_rates(self.whole.analysis, self.shown.update.live)
        self.bar("verdict").put(*verdict_parts(analysis, self.board.finding, self.size.width, self.options.palette))

    def _draw_title(self) -> None:
        options, width = self.options, self.size.width
        held = self.shown.update if self.paused else None
        newest = self.waiting.update if self.paused and self.waiting is not None else self.shown.update
        room = room_for_state(self.whole.dataset, width)
        moment = Moment(monotonic_ns(), self._lag_s, room, width >= WIDE, options.ascii_only)
        state = state_text(newest, self.reading, held, moment)
        self.bar("title").put(title_parts(self.whole.dataset, newest.analysis, width, options.palette, state=state))

    def note(self, text: str) -> None:
        """Says something in the bottom line; without text how following goes, and the keys.

        What went wrong with following stays there until a key is pressed.
        """
        told = _told(self.reading)
        if text or (told and told != self._read):
            super().note(text or told)
            return
        self._read = told
        state = footer_parts(self.following, self.paused, self.waiting_count, self.reading.writing, self.board.fresh)
        room = self.size.width - sum(len(part) for part, _ in state)
        self.bar("keys").put([*state, *key_parts(max(room, 1))])


def _told(reading: FollowProgress) -> str:
    return plain(reading.said or reading.trouble)
