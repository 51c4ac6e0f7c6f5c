"""The widget of trees of stacks, with a cursor on one frame of a line, and lines about that frame."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.schema import Frame
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, rank_ranges
from rankscope.tui.detail.line_widgets import CellList
from rankscope.tui.detail.stack_tree import TreeLine, full_place, is_remark, with_mark
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line, wrapped


class FrameTree(CellList):
    """Trees of stacks in lines."""

    def __init__(self, options: ViewOptions) -> None:
        super().__init__(options, id="tree")
        self._trees: Sequence[TreeLine] = ()
        self._at = 0
        """The frame under the cursor within its line."""

    def show_trees(self, trees: Sequence[TreeLine], *, keep: bool) -> None:
        """Shows the lines of trees; the cursor is at the first frames, or with `keep` stays in place."""
        self._trees = trees
        self.show_rows(len(trees), self._tree_line, keep=keep)
        if self.cursor == 0:
            # The first line is a heading: the first frames come after it.
            self.move_to(1)

    def _tree_line(self, at: int, _width: int) -> Line:
        tree = self._trees[at]
        return (with_mark(tree, self._at) if at == self.cursor else tree).parts

    def move_to(self, index: int) -> None:
        """Puts the cursor on the innermost frame of a line."""
        super().move_to(index)
        self._at = max(len(self.current.frames) - 1, 0) if self.current else 0

    def step_frame(self, by: int) -> None:
        """Moves to another frame of the line."""
        if self.current is not None:
            self._at = max(0, min(self._at + by, len(self.current.frames) - 1))
            self.refresh()

    @property
    def current(self) -> TreeLine | None:
        """The line under the cursor; None without trees."""
        return self._trees[self.cursor] if self.cursor < len(self._trees) else None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the line under the cursor."""
        return self.current.ranks if self.current else ()

    @property
    def frame(self) -> Frame | None:
        """The frame under the cursor, or the next outer one where there is a remark."""
        frames = self.current.frames if self.current else ()
        return next((frame for frame in reversed(frames[: self._at + 1]) if not is_remark(frame)), None)

    def about(self, width: int) -> list[Line]:
        """The frame under the cursor with its place, and the ranks of its line."""
        frame, count = self.frame, plural(len(self.ranks), "rank")
        who = line(Span(count, "bold"), f"  {rank_ranges(self.ranks, 2 * width)}")
        where = [line(Span(plain(frame.function), "bold"), f"  {full_place(frame)}")] if frame else []
        return wrapped([*where, who], width, 2)
