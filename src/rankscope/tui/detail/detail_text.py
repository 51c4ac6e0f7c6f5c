"""A selection in lines: the most important in five to seven for a low pane, all facts for a high one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rankscope.analysis.host_stacks import kind_of, short_function_name
from rankscope.analysis.model import Analysis
from rankscope.analysis.presence import Absence
from rankscope.schema import Frame
from rankscope.text.escaping import plain
from rankscope.text.tensors import payload
from rankscope.text.wording import byte_count, clock, duration, plural, rank_ranges
from rankscope.tui.detail import operation_text
from rankscope.tui.detail.finding_text import rest_of_card, short_text
from rankscope.tui.detail.operation_index import Row
from rankscope.tui.detail.operation_text import group_label
from rankscope.tui.detail.peers import Fold, Peers
from rankscope.tui.detail.selection_facts import Detail
from rankscope.tui.detail.stack_tree import one_line, place
from rankscope.tui.styled_text import BLANK, Line, Role, Span, cut, line, wrap, wrapped

_LABEL = 8
"""Cells of the label before a line."""
_ODD = 3
"""Most kinds of odd members that get a line each."""


def compact(detail: Detail, width: int, height: int = 0) -> list[Line]:
    """The lines for a pane `width` cells wide, the most important first, none wider than that.

    A line is cut, or goes on in the next ones while all of them fit into `height` lines.
    """
    body = _absent(detail, width) if detail.row is None else _present(detail, width)
    lines = [parts for parts in [heading(detail, width), *body] if parts]
    left, out = height - len(lines), list[Line]()
    for parts in lines:
        whole = wrap(parts, width, _LABEL)
        fits = len(whole) - 1 <= left
        left -= len(whole) - 1 if fits else 0
        out += whole if fits else [cut(parts, width)]
    return out


def brief(detail: Detail, width: int) -> list[Line]:
    """Facts about the rank alone, for screens that list its peers anyway."""
    stack = stack_line(detail.stack, width, "stack" if detail.row else "last at")
    if detail.row is not None:
        body = [stack, host_line(detail, width), _own_line(detail), group_line(detail, detail.row)]
    else:
        body = [
            doing_line(detail),
            host_line(detail, width),
            *last_lines(detail),
            stack if detail.history.last else BLANK,
            _files_line(detail),
        ]
    return [cut(parts, width) for parts in [heading(detail, width), *body] if parts]


def labelled(label: str, *parts: Line | Span | str, role: Role = "dim") -> Line:
    """A line with its label before it."""
    return line(Span(f"{label:<{_LABEL}}", role), *parts)


def heading(detail: Detail, width: int) -> Line:
    """The rank, the operation, its state, times and sizes; the group if there is room."""
    rank = Span(f"rank {detail.selection.rank}", "head")
    row = detail.row
    if row is None:
        return line(rank, "  ", *_absence(detail))
    parts = line(
        rank, "  ", Span(operation_text.op_name(row), "bold"), "  ", *operation_text.progress(row, detail.now_ns)
    )
    for more in (launched(detail) or operation_text.carried(row), f"in {group_label(detail.group)}"):
        longer = line(parts, "  " + more)
        if more and longer.cell_len <= width:
            parts = longer
    return parts


def launched(detail: Detail) -> str:
    """Operations that the closer of a coalesced batch launched: "all_reduce x3 [64] f32", "send to 1, recv from 2"."""
    if detail.row is None or detail.row["coalesced"] != "closer":
        return ""
    closed = [fold for fold in detail.folds if detail.selection.rank in fold.ranks]
    return ", ".join(operation_text.fold_op(fold) for fold in closed[:3]) + (
        f" +{len(closed) - 3} more" if len(closed) > 3 else ""
    )


def _absence(detail: Detail) -> list[Span]:
    """The missing operation, and how long others have waited for it."""
    selection, peers = detail.selection, detail.peers
    guilty = selection.absence == str(Absence.NEVER_ISSUED)
    reason = Span(operation_text.absence(selection.absence).upper(), "bad" if guilty else "warn")
    if selection.group is None:
        return [reason]
    if peers is None:
        return [reason, Span(f" in {group_label(detail.group)}")]
    what = [Span(f"{_missing_op(detail, peers)}  ", "bold"), reason]
    if not peers.waited_for or peers.first_ns is None:
        return what
    ago = 0 if detail.now_ns is None else detail.now_ns - peers.first_ns
    held = f" {duration(ago)}," if ago > 0 else ""
    return [*what, Span(f"; others wait{held} since {clock(peers.first_ns)}")]


def _missing_op(detail: Detail, peers: Peers) -> str:
    """The name of the missing operation: the collective, or the other side of a send or receive."""
    if not detail.selection.is_p2p:
        return f"#{peers.seq} {plain(peers.op)}"
    rank = detail.selection.rank
    waiting = next((fold for fold in detail.folds if fold.issued and rank not in fold.ranks), None)
    if waiting is None:
        return "no operation"
    side = "recv from" if waiting.op.lower().startswith("send") else "send to"
    return f"{side} rank {waiting.ranks[0]}"


def _present(detail: Detail, width: int) -> list[Line]:
    row = detail.row
    assert row is not None
    return [
        stack_line(detail.stack, width),
        *headlines(detail, causes=True),
        host_line(detail, width),
        _own_line(detail),
        *odd_lines(detail, width),
        joined_line(detail, width),
        waits_line(detail),
        group_line(detail, row),
        *headlines(detail, causes=False),
    ]


def _absent(detail: Detail, width: int) -> list[Line]:
    past = detail.history
    return [
        doing_line(detail),
        *headlines(detail, causes=True),
        host_line(detail, width),
        stack_line(detail.stack, width, "last at") if past.last else BLANK,
        *last_lines(detail),
        joined_line(detail, width),
        waits_line(detail),
        *odd_lines(detail, width),
        mesh_line(detail),
        *headlines(detail, causes=False),
        _files_line(detail),
    ]


def last_lines(detail: Detail) -> list[Line]:
    """The last operations of the rank, in the group and overall, unless `doing_line` names them already."""
    past = detail.history
    said = [row["row"] for row in (past.waiting_in,) if row]
    lines = []
    for beside, row in (("", past.last_in_group), (", of all groups", past.last)):
        if row and row["row"] not in said:
            said.append(row["row"])
            lines.append(_row_line("last", row, detail, beside=beside))
    return lines if past.last_in_group else [*filter(None, [_frontier_line(detail)]), *lines]


def _frontier_line(detail: Detail) -> Line:
    """The last collective of the rank in the group, as its dump tells it without a row."""
    if detail.frontier is None or detail.frontier.enqueued is None:
        return BLANK
    done = f", #{detail.frontier.completed} completed" if detail.frontier.completed is not None else ""
    why = {"only-active": "its dump keeps only active operations"}.get(detail.frontier.filtered, "by pg_status")
    return labelled("last", f"in this group: issued up to #{detail.frontier.enqueued}{done} ({why})")


def doing_line(detail: Detail) -> Line:
    """The operation that the rank waits in now, or the fact that it waits in none."""
    past = detail.history
    if past.last is None and not detail.has_dump:
        return BLANK
    if past.waiting_in is None and detail.is_cut:
        return labelled("now", Span("not known", "bold"), ": its dump was read only in part")
    if past.waiting_in is None and past.last is not None and past.last["label"] == "unknown":
        return labelled("now", Span("not known", "bold"), ": what it issued last is not seen to end")
    if past.waiting_in is None:
        held_up = detail.peers is not None and detail.peers.waited_for
        why = ": its host is busy or stuck elsewhere, or has ended" if held_up else ""
        return labelled("now", Span("in no collective", "bold"), why)
    more = f" (+{past.pending - 1} more)" if past.pending > 1 else ""
    return _row_line("now in", past.waiting_in, detail, more)


def _row_line(label: str, row: Row | None, detail: Detail, more: str = "", beside: str = "") -> Line:
    """An operation of the rank in a line; `beside` stands behind its group, and `more` at the end."""
    if row is None:
        return BLANK
    group = f" in {plain(detail.groups[row['group']])}" if row["group"] in detail.groups else ""
    return labelled(
        label,
        Span(operation_text.op_name(row), "bold"),
        f"{group}{beside}  ",
        *operation_text.progress(row, detail.now_ns),
        more,
    )


def stack_line(stack: tuple[Frame, ...], width: int, label: str = "stack") -> Line:
    """The user's frames in one line, or a text that there is none."""
    text = one_line(stack, width - _LABEL)
    return labelled(label, text) if text else labelled(label, Span("not recorded", "dim"))


def host_line(detail: Detail, width: int) -> Line:
    """The state of the host from py-spy, and the thread that holds the interpreter lock if that is another one."""
    host = detail.host
    if host is None:
        return BLANK
    held = f", GIL held by {plain(host.holder.label)}" if host.holder is not None else ""
    doing = f"{plain(host.activity.words)}{held}"
    where = one_line(host.trains.own, width - _LABEL - len(doing) - 2)
    return labelled("host", Span(doing, "bold"), f"  {where}" if where else "")


def headlines(detail: Detail, *, causes: bool) -> list[Line]:
    """Lines of features about the cause of the rank's failure, or else of the harm to it."""
    return [labelled(part.label, part.headline) for part in detail.parts if part.headline and part.is_cause == causes]


def _own_line(detail: Detail) -> Line:
    """The operation of most members if this rank issued another one; else how late this rank was."""
    mine = next((fold for fold in detail.folds if detail.selection.rank in fold.ranks), None)
    if mine is not None and mine.late and not mine.differs:
        return labelled("late", f"{operation_text.lag(mine)} behind the first", role="warn")
    others = Counter[str]()
    for fold in detail.folds:
        if fold.issued and not fold.differs:
            others[operation_text.fold_op(fold)] += len(fold.ranks)
    if mine is None or not mine.differs or not others:
        return BLANK
    what, number = others.most_common(1)[0]
    return labelled("DIFFERS", f"{plural(number, 'other')} issued {what}", role="bad")


def odd_lines(detail: Detail, width: int) -> list[Line]:
    """Members that differ: absent, with another operation, or late; a line for each kind."""
    odd = [fold for fold in detail.folds if fold.mark not in ("", "~") and detail.selection.rank not in fold.ranks]
    lines = [_odd_line(fold, width, is_p2p=detail.selection.is_p2p) for fold in odd[:_ODD]]
    left = sum(len(fold.ranks) for fold in odd[_ODD:])
    return [*lines, labelled("", Span(f"and {plural(left, 'member')} more, enter shows all", "dim"))] if left else lines


def _odd_line(fold: Fold, width: int, *, is_p2p: bool) -> Line:
    ranks = Span(operation_text.who(fold, max(width // 3, 12)), "bold")
    if not fold.issued:
        reason = " " + operation_text.reason(fold.presence, is_p2p=is_p2p)
        if fold.presence == Absence.NEVER_ISSUED:
            return labelled("ABSENT", ranks, reason, role="bad")
        if fold.presence == Absence.FILTERED:
            return labelled("done", ranks, reason)
        return labelled("unknown", ranks, reason, role="warn")
    if fold.differs:
        return labelled("DIFFERS", ranks, f" issued {operation_text.fold_op(fold)}", role="bad")
    return labelled("late", ranks, f" {operation_text.lag(fold)}", role="warn")


def joined_line(detail: Detail, width: int) -> Line:
    """How many members issued it, and how many are done."""
    if detail.peers is None:
        return BLANK
    table = detail.peers.table
    left_out = (Absence.FILTERED, Absence.OVERWRITTEN)
    issued = [rank for fold in detail.folds if fold.issued or fold.presence in left_out for rank in fold.ranks]
    over = [fold for fold in detail.folds if fold.state == "done" or fold.presence == Absence.FILTERED]
    done = sum(len(fold.ranks) for fold in over)
    states = "all done" if done == table.height else f"{done or 'none'} done"
    return labelled(
        "joined", f"{len(issued):,} of {table.height:,}: {rank_ranges(issued, max(width // 3, 12))}; {states}"
    )


def waits_line(detail: Detail, *, in_groups: bool = False) -> Line:
    """The chain of waiting ranks, from the rank to the root; "now" if the selected operation is over."""
    over = detail.row is not None and detail.row["label"] == "done"
    chain = operation_text.chain_line(detail.chain, detail.descriptions if in_groups else None)
    return labelled("now" if over else "waits", "waits " if over else "", chain) if chain else BLANK


def group_line(detail: Detail, row: Row) -> Line:
    """The group, and the known details of the operation."""
    size = payload(row["in_sizes"], row["in_dtypes"])
    facts = [
        group_label(detail.group),
        plain(detail.where),
        byte_count(size) if size else "",
        plain(row["host"]),
        f"thread {plain(row['thread'])}" if row["thread"] else "",
        f"timeout {duration(row['timeout_ms'] * 1_000_000)}" if row["timeout_ms"] else "",
        f"record {row['record_id']}" if row["record_id"] is not None else "",
    ]
    return labelled("group", ", ".join(fact for fact in facts if fact))


def mesh_line(detail: Detail) -> Line:
    """The place of the rank on the mesh."""
    return labelled("mesh", plain(detail.where)) if detail.where else BLANK


def _files_line(detail: Detail) -> Line:
    """The dump of the rank, or a text that there is none."""
    if not detail.files:
        return labelled("dump", "none was found for this rank", role="warn")
    path, problem = detail.files[0]
    return labelled("dump", plain(path), Span(f"  {plain(problem)}" if problem else "", "warn"))


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


def in_columns(detail: Detail, analysis: Analysis, width: int) -> list[Line]:
    """The same sections in two columns over `width` cells: facts on the left, stack and members on the right."""
    left_width, right_width = column_widths(width)
    left = _apart(
        _head(detail, left_width),
        _finding(detail, analysis, left_width, below_card=False),
        *(part.section(left_width) for part in detail.parts),
    )
    return side_by_side(left, beside_card(detail, right_width), width)


def beside_card(detail: Detail, width: int) -> list[Line]:
    """The sections beside a card: the stack, the host, and the members."""
    return _apart(_stack(detail, width), _host(detail, width), _members(detail, width))


_BETWEEN = 3
"""Cells between two columns."""


def column_widths(width: int) -> tuple[int, int]:
    """The cells of the left and of the right column of a pane."""
    left = (width - _BETWEEN) * 11 // 20
    return left, width - _BETWEEN - left


def side_by_side(left: Sequence[Line], right: Sequence[Line], width: int) -> list[Line]:
    """Two columns of lines; the right one begins at the same cell in each line."""
    left_width, _ = column_widths(width)
    rows = max(len(left), len(right))
    pairs = zip([*left, *[BLANK] * (rows - len(left))], [*right, *[BLANK] * (rows - len(right))], strict=True)
    return [line(one, " " * (left_width + _BETWEEN - one.cell_len), other) if other else one for one, other in pairs]


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
    # lines of logs have no number
    number = "" if row["record_id"] is None else f"{row['record_id']} in "
    record = f"{number}{plain(detail.files[0][0])}" if detail.files else ""
    facts = {
        "group": group_label(detail.group),
        "members": rank_ranges(detail.group.ranks, 60) if detail.group else "",
        "mesh": plain(detail.where),
        **{part.label: part.fact for part in detail.parts},
        "carries": carried + (f", {byte_count(size)}" if size and carried else ""),
        "issued": clock(row["created_ns"]) + (f", started {clock(row['started_ns'])}" if row["started_ns"] else ""),
        "on": ", ".join(plain(text) for text in (row["host"], row["library"], row["thread"]) if text),
        "timeout": duration(row["timeout_ms"] * 1_000_000) if row["timeout_ms"] else "",
        "record": record,
    }
    return [labelled(name, text) for name, text in facts.items() if text]


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
        is_user = frame is None or kind_of(frame) == "user"
        if is_user and inner > _MOST_INNER:
            lines[-(inner - _MOST_INNER) :] = [
                line(Span(f"  ({plural(inner - _MOST_INNER, 'frame')} of torch)", "dim"))
            ]
        inner = 0 if is_user else inner + 1
        if frame is not None:
            lines.append(frame_line(frame))
    left = len(stack) - _MOST_FRAMES
    return [*lines, line(Span(f"  ({plural(left, 'outer frame')} more)", "dim"))] if left > 0 else lines


def frame_line(frame: Frame) -> Line:
    """A frame with its place; frames of other code than the user's are secondary."""
    is_user = kind_of(frame) == "user"
    return line(
        "  ",
        Span(plain(short_function_name(frame)) or "?", "bold" if is_user else "dim"),
        Span(f"  {place(frame)}", "text" if is_user else "dim"),
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
