"""Changes between lanes of operations and lanes on the axis of time, and changes their layout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rankscope.tui.boards import LaneBoard
from rankscope.tui.cell_selection import place_of_selection
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.controllers.search_walk import SearchWalk
from rankscope.tui.controllers.time_axis import TimeAxis
from rankscope.tui.model import Model
from rankscope.tui.order import ORDERINGS, Ordering, orderings
from rankscope.tui.selection import Moment
from rankscope.tui.shown_sites import ShownSites
from rankscope.tui.site_letters import call_sites


class BoardSwitch:
    """Shows one board or the other; the cursor stays on its rank and collective."""

    def __init__(
        self, view: MainView, boards: BoardSet, search: SearchWalk, times: TimeAxis, findings: FindingsWalk
    ) -> None:
        self._view, self._boards, self._search = view, boards, search
        self._times, self._findings = times, findings

    def change_axis(self) -> None:
        """Changes between logical sequence and time; with traces, time shows the lanes of traces."""
        boards = self._boards
        if boards.timed is None:
            self.end_sites()
            self._times.toggle()
        else:
            self._change(boards.operations if boards.shown is boards.timed else boards.timed)

    def change_colours(self) -> None:
        """Changes between the states of operations and their call sites, in the group under the cursor."""
        if self.end_sites():
            return
        model, selection = self._boards.operations.model, self._boards.shown.selection
        if not len(model.items.col):
            self._view.note("no operation has a call site here")
            return
        group = selection.group if selection is not None else None
        self._view.note("telling call sites apart ...")
        self._view.work_out(partial(_sites_of, model, group), partial(self._show_sites, model))

    def _show_sites(self, model: Model, board: ShownSites) -> None:
        if model is not self._boards.operations.model or self._boards.sites is not None:
            return
        board.blame(self._boards.shown.finding)
        if not len(board.model.ranks):
            self._view.note("no operation of this group has a call site here")
            return
        self._change(board)
        board.centre(0.6)
        self._view.board_moved()

    def end_sites(self) -> bool:
        """Goes back from call sites to states; False if they are not on the screen."""
        if self._boards.sites is None:
            return False
        self._change(self._boards.operations)
        return True

    def _change(self, board: LaneBoard) -> None:
        if not len(board.model.ranks):
            self._view.note("the traces hold no operation for the axis of logical time")
            return
        selection = self._boards.shown.selection
        self._search.end()
        self._boards.shown = board
        self._view.show_board()
        place = place_of_selection(self._boards.whole, selection) if selection is not None else None
        if place is not None:
            self._findings.go(place)
        self._view.note("")

    def go_moment(self, moment: Moment) -> None:
        """Moves the lanes of traces to a stretch of time; without traces the lanes of operations to its begin."""
        timed = self._boards.timed
        if timed is None:
            self.end_sites()
            self._times.go_moment(moment)
            return
        if self._boards.shown is not timed:
            self._change(timed)
        timed.end_line_up()
        timed.go_rank(moment.rank)
        timed.go_unit(moment.start_ns)
        timed.zoom_to(moment.start_ns, moment.end_ns)
        self._view.board_moved()

    def line_up(self, step: int) -> None:
        """Lines up the collective under the cursor on all its ranks; a further call goes on by `step` ranks."""
        board = self._boards.shown
        if board is not self._boards.timed:
            self._view.note("collectives are lined up on the axis of time, with traces")
        elif board.line_up(step):
            self._view.board_moved()
        else:
            self._view.note("no collective here that was matched with other ranks")

    def end_line_up(self) -> bool:
        """Goes back to one clock for all ranks; False if nothing is lined up."""
        ended = self._boards.shown.end_line_up()
        if ended:
            self._view.board_moved()
        return ended

    def ways(self) -> list[tuple[str, str, Callable[[], object]]]:
        """Ways to show the lanes, for a menu: a letter, words, and what shows it."""
        board, sites = self._boards.shown, self._boards.sites
        colours = "colours by state" if sites is not None else "colours by call site"
        ways: list[tuple[str, str, Callable[[], object]]] = []
        if sites is not None:
            ways.append(("g", "rows of one group, or of all groups", self._change_groups))
        else:
            orders = [name for name in orderings(board.model) if name != board.ordering]
            ways += [(name[0], f"rows {ORDERINGS[name]}", partial(self._order, name)) for name in orders]
        if len(self._boards.operations.model.ranks):
            ways.append(("c", colours, self.change_colours))
        if board is self._boards.timed:
            ways.append(
                ("l", "this collective lined up on all ranks; again: on the next rank", partial(self.line_up, 1))
            )
        return [*ways, ("u", "each rank in a row of its own, or folded", self._unfold_all)]

    def _unfold_all(self) -> None:
        self._boards.shown.toggle_fold_all()
        self._view.board_moved()

    def _change_groups(self) -> None:
        """Shows the call sites of one group, or of all."""
        if self._boards.sites is not None:
            self._boards.sites.change_groups()
            self._view.board_moved()

    def _order(self, name: Ordering) -> None:
        """Changes the order of the lanes."""
        self._boards.shown.set_order(name)
        self._view.note(f"lanes {ORDERINGS[name]}")
        self._view.board_moved()


def _sites_of(model: Model, group: int | None) -> ShownSites:
    """The lanes of call sites: those of the groups like `group`, or of all."""
    return ShownSites(model, call_sites(model.dataset), group)
