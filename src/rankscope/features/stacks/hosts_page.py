"""The stacks of the hosts of all ranks, merged to trees."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from rankscope.analysis.host_stacks import HostStack, HostThread, host_stacks
from rankscope.analysis.model import Analysis
from rankscope.features.stacks.stack_text import find_pattern, tools_of
from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain
from rankscope.text.wording import clock, plural
from rankscope.tui.actions import bound
from rankscope.tui.detail.frame_tree import FrameTree
from rankscope.tui.detail.line_widgets import LineList, Lines
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.screens.page import Page, Way
from rankscope.tui.detail.stack_tree import TreeLine, draw, merge, remark
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line


class HostsScreen(Page):
    """The trees; dismisses with the last operation of a rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("source", "edit"),
        bound("right", "frame(1)"),
        bound("left", "frame(-1)"),
    ]
    WAYS = (
        Way("a", "everything", "all threads, or those that train"),
        Way("i", "internals", "frames of torch and libraries, or without"),
        Way("r", "rank", "go to the lane of the rank"),
    )
    DEFAULT_CSS = """
    HostsScreen #tree { height: 1fr; }
    HostsScreen #text { height: 4; border-top: solid $secondary; }
    HostsScreen.-ascii #text { border-top: ascii $secondary; }
    """
    VIEW = "stacks"
    ENTER = "source"
    FIND_HINT = "a rank, or part of a function or of a file"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        del analysis
        self.dataset = dataset
        self.hosts = host_stacks(dataset)
        self.pattern = find_pattern(self.hosts)
        self.everything = self.internals = False
        self._shown = list(self.hosts.values())

    def body(self) -> Iterable[Widget]:
        """The trees, and the known facts of the frame under the cursor."""
        yield Container(FrameTree(self.options), Lines(self.options, id="text"), id="body")

    @property
    def _tree(self) -> FrameTree:
        return self.query_one("#tree", FrameTree)

    def heading(self) -> list[Line]:
        """The number of ranks, the time of their stacks, and how these fit each other."""
        if not self.hosts:
            return [line(Span(" stacks", "head"), "  none")]
        times = sorted({clock(host.written_ns) for host in self.hosts.values() if host.written_ns is not None})
        when = f", {' to '.join(dict.fromkeys((times[0], times[-1])))}" if times else ""
        what = f"  of {plural(len(self.hosts), 'rank')} by {tools_of(self.hosts.values())}{when}"
        said = f"pattern {self.pattern.letter}: {self.pattern.text}" if self.pattern else ""
        return [line(Span(" stacks", "head"), what), line(" ", Span(plain(said), "bold"))]

    def fill(self) -> None:
        """Shows the hosts that match the search."""
        wanted = self.wanted.lower()
        self._shown = [host for host in self.hosts.values() if not wanted or _has(host, wanted)]
        self._grow(keep=False)

    def on_resize(self) -> None:
        """Writes everything anew for the new width."""
        self.draw_bars()
        self.call_after_refresh(self._grow)

    def _grow(self, *, keep: bool = True) -> None:
        """Draws the trees for the width there is."""
        trees = host_forest(self._shown, self.size.width - 1, everything=self.everything, internals=self.internals)
        self.set_class(not trees, "-empty")
        self._tree.show_trees(trees, keep=keep)

    @on(LineList.Moved)
    def _draw_text(self) -> None:
        text = self.query_one("#text", Lines)
        has_frames = self._tree.current is not None and text.size.width
        text.show_lines(self._tree.about(text.size.width) if has_frames else self.nothing())

    @on(LineList.Chosen)
    def action_edit(self) -> None:
        """Opens the source of the frame under the cursor."""
        self.open_source(self._tree.frame)

    def action_rank(self) -> None:
        """Goes to the last operation of the first rank under the cursor."""
        if self._tree.ranks:
            self.dismiss(index_of(self.dataset).last_operation(self._tree.ranks[0]))
        else:
            self.note("no rank here")

    def action_frame(self, by: int) -> None:
        """Moves to another frame of the line."""
        self._tree.step_frame(by)
        self._draw_text()

    def action_everything(self) -> None:
        """Shows all threads, or only training threads."""
        self.everything = not self.everything
        self._grow(keep=False)

    def action_internals(self) -> None:
        """Shows or hides the frames of torch, of libraries and of the interpreter."""
        self.internals = not self.internals
        self._grow(keep=False)


def _has(host: HostStack, wanted: str) -> bool:
    if wanted.isdigit():
        return host.rank == int(wanted)
    texts = (f"{thread.label} {frame.function} {frame.file}" for thread in host.threads for frame in thread.stack)
    return wanted in host.activity.words or any(wanted in text.lower() for text in texts)


_NUMBER = re.compile(r"\d+")
_LONGEST = 60
HOLDER = "another thread, which holds the GIL"


def host_forest(
    hosts: Iterable[HostStack], width: int, *, everything: bool = False, internals: bool = False
) -> list[TreeLine]:
    """The trees with a line over each, for `width` cells: of training threads, or of all threads."""
    kinds: dict[str, list[tuple[int, HostThread]]] = {}
    for host in hosts:
        for thread in host.threads if everything else filter(None, (host.trains, host.holder)):
            kind = HOLDER if thread is host.holder and not everything else _kind(thread)
            kinds.setdefault(kind, []).append((host.rank, thread))
    lines: list[TreeLine] = []
    for kind, threads in kinds.items():
        lines += _tree(kind, threads, width, internals)
    return lines


def _kind(thread: HostThread) -> str:
    """The name of the thread without numbers, which differ between ranks."""
    return "main thread" if thread.is_main else plain(_NUMBER.sub("#", thread.label[:_LONGEST]))


def _tree(kind: str, threads: Sequence[tuple[int, HostThread]], width: int, internals: bool) -> list[TreeLine]:
    by_stack: dict[tuple[Frame, ...], list[int]] = {}
    for rank, thread in threads:
        by_stack.setdefault(shown_frames(thread, internals), []).append(rank)
    ranks = tuple(sorted({rank for rank, _ in threads}))
    return [
        TreeLine(line(Span(f"{plural(len(ranks), 'rank')}, {kind}", "head")), (), (), ranks),
        *draw(merge(by_stack.items(), internals=True), width),
    ]


def shown_frames(thread: HostThread, internals: bool) -> tuple[Frame, ...]:
    """The frames of a stack in the tree, innermost first: GIL holder, activity, and frames of the job."""
    held = (remark("holds the GIL"),) if thread.gil else ()
    if internals or not thread.own:
        return (*held, *(thread.stack or (remark("no frame"),)))
    return (*held, remark(thread.activity.words), *thread.own)
