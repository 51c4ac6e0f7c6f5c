"""All facts about a selection, for a large pane: stack, members, finding, log lines."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.model import Analysis
from rankscope.analysis.stack_frames import kind_of, short_function_name
from rankscope.schema import Frame
from rankscope.text.escaping import plain
from rankscope.text.tensors import payload
from rankscope.text.wording import byte_count, clock, duration, plural, rank_ranges
from rankscope.tui.detail import operation_text
from rankscope.tui.detail.compact_detail import (
    doing_line,
    heading,
    labelled,
    last_lines,
    launched,
    mesh_line,
    waits_line,
)
from rankscope.tui.detail.finding_text import rest_of_card, short_text
from rankscope.tui.detail.group_labels import group_label
from rankscope.tui.detail.member_folds import Fold
from rankscope.tui.detail.operation_index import Row
from rankscope.tui.detail.selection_facts import Detail
from rankscope.tui.detail.stack_tree import place
from rankscope.tui.styled_text import BLANK, Line, Span, cut, line, wrap, wrapped

_MOST_FOLDS = 24
_MOST_FRAMES = 60
_MOST_INNER = 3
"""Most frames of torch and the interpreter in a row that are shown; the rest is counted."""


def expanded(detail: Detail, analysis: Analysis, width: int, *, below_card: bool = False) -> list[Line]:
    """The lines for a pane `width` cells wide, in sections; below the card of the finding only what that leaves out."""
    return _apart(
        _head(detail, width),
        _stack(detail, width),
        _host(detail, width),
        _members(detail, width),
        _finding(detail, analysis, width, below_card=below_card),
        *(part.section(width) for part in detail.parts),
    )


def of_rank(detail: Detail, width: int) -> list[Line]:
    """Facts about a rank without operations: files, place on the mesh, stack of its host, what features tell."""
    about = [mesh_line(detail), *_part_facts(detail), *(_files(detail) if detail.files else [])]
    sections = (part.section(width) for part in detail.parts)
    known = _apart(wrapped(filter(None, about), width, 8), _host(detail, width), *sections)
    return [line(Span(f"rank {detail.selection.rank}", "head")), *known] if known else []


def _apart(*sections: list[Line]) -> list[Line]:
    """The sections that are not empty, with a blank line between two."""
    lines: list[Line] = []
    for section in filter(None, sections):
        lines += [*([BLANK] if lines else []), *section]
    return lines


def _head(detail: Detail, width: int) -> list[Line]:
    lines = wrap(heading(detail, 0), width, 2)
    if detail.row is None:
        extra = [doing_line(detail), *last_lines(detail), waits_line(detail, in_groups=True)]
        extra += [mesh_line(detail), *_part_facts(detail), *_files(detail)]
    else:
        extra = [*_facts(detail, detail.row), waits_line(detail, in_groups=True)]
    return lines + wrapped(filter(None, extra), width, 8)


def _facts(detail: Detail, row: Row) -> list[Line]:
    size = payload(row["in_sizes"], row["in_dtypes"])
    carried = launched(detail) or operation_text.carried(row)
    facts = {
        "group": group_label(detail.group),
        "members": rank_ranges(detail.group.ranks, 60) if detail.group else "",
        "mesh": plain(detail.where),
        **{part.label: part.fact for part in detail.parts},
        "carries": carried + (f", {byte_count(size)}" if size and carried else ""),
        "issued": clock(row["created_ns"]) + (f", started {clock(row['started_ns'])}" if row["started_ns"] else ""),
        "on": ", ".join(plain(text) for text in (row["host"], row["library"], row["thread"]) if text),
        "timeout": duration(row["timeout_ms"] * 1_000_000) if row["timeout_ms"] else "",
        "record": _record(detail, row),
    }
    return [labelled(name, text) for name, text in facts.items() if text]


def _record(detail: Detail, row: Row) -> str:
    """The place of the operation in its file; lines of logs have no number."""
    if not detail.files:
        return ""
    number = "" if row["record_id"] is None else f"{row['record_id']} in "
    return f"{number}{plain(detail.files[0][0])}"


def _part_facts(detail: Detail) -> list[Line]:
    return [labelled(part.label, part.fact) for part in detail.parts if part.fact]


def _files(detail: Detail) -> list[Line]:
    if not detail.files:
        return [labelled("dump", "none was found for this rank", role="warn")]
    return [
        labelled("dump", plain(path) + (f": {plain(problem)}" if problem else "")) for path, problem in detail.files
    ]


def _stack(detail: Detail, width: int) -> list[Line]:
    if not detail.stack:
        return []
    title = "stack" if detail.row else "stack of what it issued last"
    return [line(Span(title, "head")), *(cut(parts, width) for parts in stack_lines(detail.stack))]


def _host(detail: Detail, width: int) -> list[Line]:
    """The state of the host from its stacks, and the thread that holds the interpreter lock if that is another one."""
    host = detail.host
    if host is None:
        return []
    at = f" at {clock(host.written_ns)}" if host.written_ns is not None else ""
    title = line(Span("host", "head"), f"  {plain(host.trains.label)} {plain(host.activity.words)}, by {host.tool}{at}")
    lines = [*wrap(title, width, 2), *stack_lines(host.trains.stack)]
    if host.holder is not None:
        held = line(Span("holds the GIL", "head"), f"  {plain(host.holder.label)} {plain(host.holder.activity.words)}")
        lines += [*wrap(held, width, 2), *stack_lines(host.holder.stack)]
    return [cut(parts, width) for parts in lines]


def stack_lines(stack: Sequence[Frame]) -> list[Line]:
    """The frames, innermost first; many of torch or the interpreter in a row are counted."""
    lines: list[Line] = []
    inner = 0
    for frame in [*stack[:_MOST_FRAMES], None]:
        own = frame is None or kind_of(frame) == "user"
        if own and inner > _MOST_INNER:
            lines[-(inner - _MOST_INNER) :] = [
                line(Span(f"  ({plural(inner - _MOST_INNER, 'frame')} of torch)", "dim"))
            ]
        inner = 0 if own else inner + 1
        if frame is not None:
            lines.append(frame_line(frame))
    left = len(stack) - _MOST_FRAMES
    return [*lines, line(Span(f"  ({plural(left, 'outer frame')} more)", "dim"))] if left > 0 else lines


def frame_line(frame: Frame) -> Line:
    """A frame with its place; frames of other code than the user's are secondary."""
    own = kind_of(frame) == "user"
    return line(
        "  ",
        Span(plain(short_function_name(frame)) or "?", "bold" if own else "dim"),
        Span(f"  {place(frame)}", "text" if own else "dim"),
    )


def _members(detail: Detail, width: int) -> list[Line]:
    if detail.peers is None:
        return []
    issued = sum(len(fold.ranks) for fold in detail.folds if fold.issued)
    title = line(Span("members", "head"), f"  {issued:,} of {detail.peers.table.height:,} issued it")
    shown = [cut(member_line(fold, width), width) for fold in detail.folds[:_MOST_FOLDS]]
    left = sum(len(fold.ranks) for fold in detail.folds[_MOST_FOLDS:])
    return [title, *shown, *([line(Span(f"  ({plural(left, 'member')} more)", "dim"))] if left else [])]


def member_line(fold: Fold, width: int) -> Line:
    """A fold of members in a line: mark, ranks, state, lag, and their operation if it differs from most."""
    ranks = operation_text.who(fold, max(width // 3, 10))
    column = max(width // 3 + 4, 14)
    said = operation_text.fold_state(fold)
    odd = f"  {operation_text.fold_op(fold)}" if fold.differs else ""
    mark = Span(f"{fold.mark or ' '} ", "bad" if fold.mark in ("!", "*") else "warn")
    return line(
        mark,
        Span(f"{ranks:<{column}} ", "bold" if fold.accused else "text"),
        said,
        f"  {operation_text.lag(fold)}".rstrip(),
        odd,
    )


def _finding(detail: Detail, analysis: Analysis, width: int, *, below_card: bool) -> list[Line]:
    if detail.finding is None:
        return []
    if below_card:
        return rest_of_card(detail.finding, width)
    return [line(Span("finding", "head")), *short_text(analysis, detail.finding, width)]
