"""The stacks of many ranks merged into one tree, outermost frame first, drawn in lines of plain characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from rankscope.analysis.host_stacks import kind_of, short_function_name
from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, rank_ranges
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.peers import ISSUED, Peers
from rankscope.tui.styled_text import Line, Role, Span, line

Stacks = Iterable[tuple[Sequence[Frame], Sequence[int]]]
"""Stacks, innermost frame first as the frame has them, each with the ranks that were in it."""
DEEPEST = 500
"""Most frames of one stack that are drawn; a deeper recursion adds nothing."""
_THEN = " > "


@dataclass
class Node:
    """A frame, the ranks in it, and the frames that it called."""

    frame: Frame
    ranks: set[int] = field(default_factory=set)
    children: dict[Frame, Node] = field(default_factory=dict)


class TreeLine(NamedTuple):
    """A line of the drawn tree with the frames on it, outermost first."""

    parts: Line
    frames: tuple[Frame, ...]
    at: tuple[tuple[int, int], ...]
    """For each frame, begin and end of its name in `parts`."""
    ranks: tuple[int, ...]


def merge(stacks: Stacks, internals: bool = False) -> list[Node]:
    """The roots of the tree. Without `internals`, frames of torch, C++ and the interpreter are left out."""
    roots: dict[Frame, Node] = {}
    for stack, ranks in stacks:
        level = roots
        shown = stack if internals else user_frames(stack)
        for frame in reversed(shown[:DEEPEST]):
            node = level.setdefault(frame, Node(frame))
            node.ranks.update(ranks)
            level = node.children
    return list(roots.values())


def draw(roots: Sequence[Node], width: int) -> list[TreeLine]:
    """The tree in lines: a chain without branches on as few lines as `width` cells hold, the largest branch first."""
    lines: list[TreeLine] = []
    waiting = [(node, "", "") for node in reversed(_by_size(roots))]
    while waiting:
        node, lead, rest = waiting.pop()
        chain = _chain(node)
        lines += _chain_lines(chain, lead, rest, width)
        children = _by_size(chain[-1].children.values())
        waiting += reversed([(child, *_branch(rest, child is children[-1])) for child in children])
    return lines


def _by_size(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (-len(node.ranks), min(node.ranks, default=0)))


def _branch(rest: str, last: bool) -> tuple[str, str]:
    """Text before the first line of a branch, and text before its other lines."""
    return (f"{rest}`- ", f"{rest}   ") if last else (f"{rest}|- ", f"{rest}|  ")


def _chain(node: Node) -> list[Node]:
    """A node with its single children in a row that hold the same ranks."""
    chain = [node]
    while len(chain[-1].children) == 1:
        child = next(iter(chain[-1].children.values()))
        if len(child.ranks) != len(chain[-1].ranks):
            break
        chain.append(child)
    return chain


def _chain_lines(chain: Sequence[Node], lead: str, rest: str, width: int) -> list[TreeLine]:
    """The frames of a chain, broken into lines; the first line tells the number of ranks."""
    ranks = tuple(sorted(chain[0].ranks))
    head = [Span(lead, "dim"), Span(f"x{len(ranks)} [{rank_ranges(ranks, 20)}] ", "bold")]
    lines: list[TreeLine] = []
    parts, frames, at = line(*head), list[Frame](), list[tuple[int, int]]()
    for node in chain:
        spans = _frame_spans(node.frame)
        shown = line(Span(_THEN if frames else "", "dim"), *spans)
        if frames and parts.cell_len + shown.cell_len > width:
            lines.append(TreeLine(parts, tuple(frames), tuple(at), ranks))
            parts, frames, at = line(Span(f"{rest}  > ", "dim")), [], []
            shown = line(*spans)
        begin = len(parts) + len(shown) - sum(len(span.text) for span in spans)
        at.append((begin, begin + len(spans[0].text)))
        parts = line(parts, shown)
        frames.append(node.frame)
    return [*lines, TreeLine(parts, tuple(frames), tuple(at), ranks)]


def remark(text: str) -> Frame:
    """A remark about a stack in a tree, in the form of a frame."""
    return Frame(text, "", 0)


def is_remark(frame: Frame) -> bool:
    """Whether a frame is a remark without code."""
    return not frame.file and not frame.line


def _frame_spans(frame: Frame) -> list[Span]:
    if is_remark(frame):
        return [Span(f"({plain(frame.function)})", "warn")]
    role: Role = "text" if kind_of(frame) == "user" else "dim"
    return [Span(plain(short_function_name(frame)) or "?", role), Span(f" {place(frame)}", "dim")]


def forest(index: OpIndex, peers: Peers, width: int, *, internals: bool = False) -> list[TreeLine]:
    """The trees with a line over each, drawn for `width` cells."""
    issued = peers.table.filter(pl.col("presence") == ISSUED)
    lines = _tree("issued it", issued.select("rank", "stack_id"), index.dataset, width, internals)
    absent = peers.table.filter(pl.col("presence") != ISSUED)
    for reason in absent["presence"].unique(maintain_order=True).to_list():
        ranks = absent.filter(pl.col("presence") == reason)["rank"].to_list()
        last = index.last_stacks(ranks)
        if last.height:
            title = f"{reason}; this is what they issued last"
            lines += _tree(title, last, index.dataset, width, internals)
    return lines


def _tree(title: str, table: pl.DataFrame, dataset: Dataset, width: int, internals: bool) -> list[TreeLine]:
    stacks = table.drop_nulls().group_by("stack_id", maintain_order=True).agg("rank")
    without = table.filter(pl.col("stack_id").is_null())["rank"].sort().to_list()
    pairs = [(dataset.stack(stack_id), ranks) for stack_id, ranks in stacks.iter_rows()]
    lines = [_said(f"{plural(table.height, 'rank')} {title}", table["rank"].sort().to_list(), "head")]
    lines += draw(merge(pairs, internals), width)
    return lines + ([_said(f"{plural(len(without), 'rank')} without a stack", without, "dim")] if without else [])


def _said(text: str, ranks: Sequence[int], role: str) -> TreeLine:
    return TreeLine(line(Span(text, "head" if role == "head" else "dim")), (), (), tuple(ranks))


def frame_at(tree_line: TreeLine, at: int) -> Frame | None:
    """The frame under the cursor within a line; None on a line without frames."""
    return tree_line.frames[max(0, min(at, len(tree_line.frames) - 1))] if tree_line.frames else None


def with_mark(tree_line: TreeLine, at: int) -> TreeLine:
    """The line with one of its frames marked."""
    if not tree_line.frames:
        return tree_line
    begin, end = tree_line.at[max(0, min(at, len(tree_line.frames) - 1))]
    parts = tree_line.parts
    return tree_line._replace(parts=line(parts[:begin], Span(parts.plain[begin:end], "mark"), parts[end:]))


_GAP = " < "


def user_frames(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of the job's own code in their order; the whole stack where it has none."""
    frames = tuple(frame for frame in stack if kind_of(frame) == "user")
    return frames or tuple(stack)


def short_path(path: str, parts: int = 2) -> str:
    """The last parts of a path: "model/attention.py"."""
    return plain("/".join(path.replace("\\", "/").split("/")[-parts:]))


def place(frame: Frame) -> str:
    """The place of a frame: "model/attention.py:211"; for a library without lines, its name."""
    return f"{short_path(frame.file)}:{frame.line}" if frame.line > 0 else short_path(frame.file)


def label(frame: Frame) -> str:
    """A frame with its place: "forward model/attention.py:211"."""
    return f"{plain(frame.function)} {place(frame)}"


def one_line(stack: Sequence[Frame], width: int) -> str:
    """The user's frames of a stack (innermost first) in one line: "forward model.py:88 < step train.py:30 < main".

    If `width` is short, the outer frames lose their place, then they are counted.
    """
    frames = [f for f in user_frames(stack) if f.function != "<module>"] or user_frames(stack)
    if not frames:
        return ""
    for placed in range(len(frames), 0, -1):
        texts = [label(f) if i < placed else plain(f.function) for i, f in enumerate(frames)]
        line = _GAP.join(texts)
        if len(line) <= width:
            return line
    # the innermost texts that fit, and the number of those left out
    texts = [label(frames[0]), *(plain(f.function) for f in frames[1:])]
    for kept in range(len(texts) - 1, 0, -1):
        line = _GAP.join([*texts[:kept], f"+{len(texts) - kept}"])
        if len(line) <= width:
            return line
    return texts[0]


def full_place(frame: Frame) -> str:
    """The place of a frame with its whole path: "/app/model/attention.py:211"."""
    return plain(frame.file) + (f":{frame.line}" if frame.line > 0 else "")
