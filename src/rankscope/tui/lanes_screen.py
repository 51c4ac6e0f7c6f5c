"""What the keys of the main screen do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from textual import events, on
from textual.binding import BindingType

from rankscope.text.escaping import plain
from rankscope.text.wording import plural
from rankscope.tui.actions import bindings_for
from rankscope.tui.board import Board
from rankscope.tui.cell_selection import column_of
from rankscope.tui.clipboard import add_to_file, copied_text
from rankscope.tui.filters import STATES, Filter, parse_ranks
from rankscope.tui.footer import Found
from rankscope.tui.letters import LETTERS
from rankscope.tui.order import ORDERINGS, orderings
from rankscope.tui.popups import Prompt
from rankscope.tui.search import search
from rankscope.tui.selection import Moment
from rankscope.tui.target import HINT, Target, parse, place_of_selection, place_of_step
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.traces.trace_selection import kind_of
from rankscope.tui.traces.trace_targets import first_after, goto_on_traces, search_spans
from rankscope.tui.traces.traces_frame import TracesFrame
from rankscope.tui.worker_messages import Asked

if TYPE_CHECKING:
    from rankscope.tui.detail.screens.page import Page, Result


class LanesScreen(TracesFrame):
    """The main screen."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for("screen")

    def on_key(self, event: events.Key) -> None:
        """Takes away the last note once a key is pressed."""
        self.touched = True
        if event.key != "enter" or not self.query(Prompt):
            self.note("")

    # Findings

    def action_next_finding(self) -> None:
        """Next finding, or next hit while searching."""
        self.walk(1)

    def action_previous_finding(self) -> None:
        """Previous finding, or previous hit while searching."""
        self.walk(-1)

    def walk(self, step: int) -> None:
        """Some findings on, or hits while searching."""
        if self.found is not None:
            self._go_hit(self.found.at + step)
            return
        count = len(self.board.model.analysis.findings)
        if count:
            now = self.board.finding
            self.show_finding((0 if now is None else now + step) % count)

    def action_chain(self) -> None:
        """From what waits to what it waits for."""
        selection = self.board.selection
        if selection is None:
            return
        steps = self.whole.analysis.waits.get(selection.rank)
        if not steps:
            guilty = selection.rank in self.whole.analysis.culprits
            self.note(f"rank {selection.rank} waits for nobody" + (": it is a root cause" if guilty else ""))
            return
        step = steps[0]
        place = place_of_step(self.whole, step)
        if place is not None:
            self.go(place)
            wait = step.waits_in
            number = "" if wait.seq is None else f" #{wait.seq}"
            self.note(f"rank {step.rank} waits in {plain(wait.op)}{number} for rank {step.for_rank}")

    # Other screens

    def action_open(self) -> None:
        """Opens all members of the collective under the cursor."""
        selection = self.board.selection
        if selection is None:
            return
        from rankscope.tui.detail.screens.member_page import MemberScreen

        screen = MemberScreen(self.whole.dataset, self.whole.analysis, selection, self.options)
        self.app.push_screen(screen, self._jump)

    def action_why(self) -> None:
        """Says why the rank under the cursor is accused, or why it is not."""
        selection = self.board.selection
        if selection is None:
            return
        from rankscope.tui.detail.screens.why_page import WhyScreen

        screen = WhyScreen(self.whole.dataset, self.whole.analysis, selection.rank, self.options)
        self.app.push_screen(screen, self._jump)

    def action_views(self) -> None:
        """Offers the other views."""
        self.choose("view", [name for name, _ in self._views], self._open_view)

    @cached_property
    def _views(self) -> list[tuple[str, Callable[[], Page]]]:
        """Names of the other views, and what makes them; those of traces come first where there are any."""
        from rankscope.tui.detail.screens import page_registry

        made = [*page_registry.TRACES, *page_registry.VIEWS] if self.traced is not None else page_registry.VIEWS
        return [(name, partial(kind, self.whole.dataset, self.whole.analysis, self.options)) for name, kind in made]

    def _open_view(self, index: int) -> None:
        self.app.push_screen(self._views[index][1](), self._jump)

    def action_heat(self) -> None:
        """Shows the heat map of ranks and steps."""
        if self.traced is None:
            self.note("the heat map is made of profiler traces, and there are none")
            return
        self._open_view(0)

    def _jump(self, result: Result) -> None:
        """Goes to what another screen was closed with."""
        if result is None:
            return
        if isinstance(result, int):
            self.show_finding(result)
        elif isinstance(result, Moment):
            self.go_moment(result)
        elif (place := place_of_selection(self.whole, result)) is not None:
            self.go(place)

    def choose(self, title: str, choices: Sequence[str], then: Callable[[int], None]) -> None:
        """Lets one of these be chosen."""
        from rankscope.tui.popups import ChoiceScreen

        screen = ChoiceScreen(title, choices, ascii_only=self.options.ascii_only)
        self.app.push_screen(screen, lambda index: None if index is None else then(index))

    def action_next_pane(self) -> None:
        """Moves the keys to the other pane."""
        self.focus_next()

    def action_back(self) -> None:
        """Ends the search, then drops the filters."""
        if self.found is not None:
            self.found = self.hits = None
            self.draw_lines()
        elif isinstance(self.board, TraceBoard) and self.board.end_line_up():
            self.lanes.changed()
        elif self.wanted:
            self.set_filter(Filter())

    # Axis and order

    def action_axis(self) -> None:
        """Changes between logical sequence and time, and with traces shows their lanes on the axis of time."""
        board = self.operations
        if self.traced is not None:
            self.change_board(self.traced if self.board is board else board)
        elif board.view.kind == "time":
            board.show_sequence()
            self.lanes.changed()
        elif board.times is not None:
            board.show_time(board.times)
            self.lanes.changed()
        else:
            self.note("bringing the clocks together ...")
            self.compute_times(board.model)

    def action_order(self) -> None:
        """Orders the lanes another way."""
        names = orderings(self.board.model)
        self.board.set_order(names[(names.index(self.board.ordering) + 1) % len(names)])
        self.note(f"lanes {ORDERINGS[self.board.ordering]}")
        self.lanes.changed()

    # What is typed

    def ask(self, kind: str, label: str, hint: str, text: str = "") -> None:
        """Asks for a line of text; `_answered` gets it."""
        if not self.query(Prompt):
            self.mount(Prompt(kind, label, hint, text), after=self.bar("keys"))
            self.bar("keys").display = False

    @on(Prompt.Answered)
    def _answered(self, event: Prompt.Answered) -> None:
        self.bar("keys").display = True
        self.lanes.focus()
        if event.text is None:
            return
        try:
            {"goto": self._goto, "search": self._search, "ranks": self._ranks}[event.kind](event.text)
        except ValueError as error:
            self.note(plain(str(error)))

    def action_goto(self) -> None:
        """Asks where to go."""
        self.ask("goto", ":", HINT)

    def _goto(self, text: str) -> None:
        if isinstance(self.board, TraceBoard):
            goto_on_traces(self.board, parse(text, self.board.moment))
        else:
            self._goto_operation(self.board, text)
        self.lanes.changed()

    def _goto_operation(self, board: Board, text: str) -> None:
        times = board.times if board.view.kind == "time" else None
        day_ns = board.unit if times else int(board.model.items.created.max(initial=0))
        target = parse(text, day_ns, UTC if board.model.dataset.from_logs else None)
        if target.rank is not None:
            if not board.go_rank(target.rank):
                raise ValueError(f"no rank {target.rank} here")
        elif target.step is not None or target.seq is not None:
            self._goto_column(target)
        elif times is None:
            raise ValueError("times can be gone to on the time axis: t")
        else:
            board.go_unit(target.time_ns if target.time_ns is not None else board.unit + (target.span_ns or 0))

    def _goto_column(self, target: Target) -> None:
        if self.board.view.kind == "time":
            raise ValueError("sequence numbers and steps can be gone to on the sequence axis: t")
        if target.step is not None:
            self.board.go_unit(target.step)
            return
        selection = self.board.selection
        group = selection.group if selection is not None else None
        finding = self.board.finding
        if group is None and finding is not None and (ref := self.board.model.analysis.findings[finding].group):
            group = ref.key
        column = None if group is None or target.seq is None else column_of(self.board.model, group, target.seq)
        if column is None:
            raise ValueError(f"no collective #{target.seq} in the group under the cursor")
        self.board.go_unit(column)

    def action_search(self) -> None:
        """Asks what to search for."""
        self.ask("search", "/", "op, group, rank 12, #1121, function, file, message")

    def _search(self, text: str) -> None:
        if not text.strip():
            self.found = self.hits = None
            self.draw_lines()
            return
        board = self.board
        self.hits = search_spans(board.lanes, text) if isinstance(board, TraceBoard) else search(board.model, text)
        self.found = Found(plain(text, 30), 0, len(self.hits.items), self.hits.messages)
        self._go_hit(self._first_hit(self.hits.items.tolist()))

    def _first_hit(self, hits: list[int]) -> int:
        """The hit to begin with: the first one after the cursor."""
        board = self.board
        if isinstance(board, TraceBoard):
            return first_after(board.lanes, np.array(hits, np.int64), board.moment)
        items = board.model.items
        after = [at for at, item in enumerate(hits) if items.col[item] >= board.unit]
        return after[0] if after and board.view.kind == "sequence" else 0

    def _go_hit(self, at: int) -> None:
        if self.hits is None or self.found is None:
            return
        if len(self.hits.items):
            at %= len(self.hits.items)
            self.found = replace(self.found, at=at)
            hit = int(self.hits.items[at])
            if isinstance(self.board, TraceBoard):
                self.board.go_span(hit, kind_of(self.board.lanes, hit))
            else:
                self.board.go_item(hit)
        self.lanes.changed()

    # Filters

    def action_filter_ranks(self) -> None:
        """Asks which ranks to show."""
        self.ask("ranks", "ranks", "0-7,64   8- to the end   0-255/8 each eighth   nothing for all")

    def _ranks(self, text: str) -> None:
        ranks = parse_ranks(text, int(self.whole.ranks.max())) if text.strip() else None
        self.set_filter(replace(self.wanted, ranks=ranks))

    def action_filter_group(self) -> None:
        """Lets a process group be chosen."""
        groups = self.whole.dataset.group_list
        names = [f"{plain(g.description or g.name)}  ({plain(g.name)}, {plural(len(g.ranks), 'rank')})" for g in groups]
        self.choose("process group", ["all groups", *names], self._group)

    def _group(self, index: int) -> None:
        self.set_filter(replace(self.wanted, group=None if index == 0 else index - 1))

    def action_filter_op(self) -> None:
        """Lets an operation or a state be chosen."""
        names = [f"state {state}" for state in STATES] + [f"operation {name}" for _, name, _ in LETTERS]
        self.choose("operation or state", ["all operations and states", *names], self._operation)

    def _operation(self, index: int) -> None:
        states = list(STATES)
        if index == 0:
            self.set_filter(replace(self.wanted, letter=None, state=None))
        elif index <= len(states):
            self.set_filter(replace(self.wanted, state=states[index - 1]))
        else:
            self.set_filter(replace(self.wanted, letter=index - 1 - len(states)))

    # Watching

    def action_follow(self) -> None:
        """Follows a job that is watched."""
        self.note("nothing is followed: start with --watch")

    def action_pause(self) -> None:
        """Pauses a job that is watched."""
        self.note("nothing is followed: start with --watch")

    def action_ask_dumps(self) -> None:
        """Offers to ask the job for dumps."""
        from rankscope.tui.dump_request import ask_for_dumps

        ask_for_dumps(self, self.choose)

    @on(Asked)
    def _asked(self, event: Asked) -> None:
        self.note(event.said)

    # Out

    def action_export(self) -> None:
        """Writes the findings to a file."""
        if self.options.export is None:
            return
        try:
            path = self.options.export(self.whole.dataset, self.whole.analysis, self.options.export_dir)
        except OSError as error:
            self.note(f"not written: {error.strerror or error}")
        else:
            self.note(f"written: {plain(str(path))}")

    def action_copy(self) -> None:
        """Copies what is under the cursor."""
        selection = self.board.selection
        if selection is None:
            return
        text = copied_text(self.whole.dataset, self.whole.analysis, selection)
        self.app.copy_to_clipboard(text)
        try:
            self.note(f"copied, also to {plain(str(add_to_file(self.options.export_dir, text)))}")
        except OSError as error:
            self.note(f"copied, but no file was written: {error.strerror or error}")
