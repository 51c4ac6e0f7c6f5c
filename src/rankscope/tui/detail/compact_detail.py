"""A selection in five to seven lines, the most important first, for the pane below the lanes."""

from __future__ import annotations

from collections import Counter

from rankscope.analysis.presence import Absence
from rankscope.schema import Frame
from rankscope.text.escaping import plain
from rankscope.text.tensors import payload
from rankscope.text.wording import byte_count, clock, duration, plural, rank_ranges
from rankscope.tui.detail import operation_text
from rankscope.tui.detail.group_labels import group_label
from rankscope.tui.detail.member_folds import Fold
from rankscope.tui.detail.operation_index import Row
from rankscope.tui.detail.peers import Peers
from rankscope.tui.detail.selection_facts import Detail
from rankscope.tui.detail.stack_tree import one_line
from rankscope.tui.styled_text import BLANK, Line, Role, Span, cut, line, wrap

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
    own = [fold for fold in detail.folds if detail.selection.rank in fold.ranks]
    return ", ".join(operation_text.fold_op(fold) for fold in own[:3]) + (
        f" +{len(own) - 3} more" if len(own) > 3 else ""
    )


def _absence(detail: Detail) -> list[Span]:
    """The missing operation, and how long others have waited for it."""
    selection, peers = detail.selection, detail.peers
    reason = Span(operation_text.absence(selection.absence).upper(), "bad" if _guilty(detail) else "warn")
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
    own = detail.selection.rank
    waiting = next((fold for fold in detail.folds if fold.issued and own not in fold.ranks), None)
    if waiting is None:
        return "no operation"
    side = "recv from" if waiting.op.lower().startswith("send") else "send to"
    return f"{side} rank {waiting.ranks[0]}"


def _guilty(detail: Detail) -> bool:
    return detail.selection.absence == str(Absence.NEVER_ISSUED)


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
    for label, row in (("here", past.last_in_group), ("last", past.last)):
        if row and row["row"] not in said:
            said.append(row["row"])
            lines.append(_row_line(label, row, detail))
    return lines if past.last_in_group else [*filter(None, [_frontier_line(detail)]), *lines]


def _frontier_line(detail: Detail) -> Line:
    """The last collective of the rank in the group, as its dump tells it without a row."""
    if detail.frontier is None or detail.frontier.enqueued is None:
        return BLANK
    done = f", #{detail.frontier.completed} completed" if detail.frontier.completed is not None else ""
    why = {"only-active": "its dump keeps only active operations"}.get(detail.frontier.filtered, "by pg_status")
    return labelled("here", f"issued up to #{detail.frontier.enqueued}{done} ({why})")


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


def _row_line(label: str, row: Row | None, detail: Detail, more: str = "") -> Line:
    """An operation of the rank in a line."""
    if row is None:
        return BLANK
    group = f" in {plain(detail.groups[row['group']])}" if row["group"] in detail.groups else ""
    return labelled(
        label,
        Span(operation_text.op_name(row), "bold"),
        group + "  ",
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
    """What features tell of the cause of the rank's failure, or else of the harm to it."""
    return [labelled(part.label, part.headline) for part in detail.parts if part.headline and part.is_cause == causes]


def _own_line(detail: Detail) -> Line:
    """The operation of most members if this rank issued another one; else how late this rank was."""
    own = next((fold for fold in detail.folds if detail.selection.rank in fold.ranks), None)
    if own is not None and own.late and not own.differs:
        return labelled("late", f"{operation_text.lag(own)} behind the first", role="warn")
    others = Counter[str]()
    for fold in detail.folds:
        if fold.issued and not fold.differs:
            others[operation_text.fold_op(fold)] += len(fold.ranks)
    if own is None or not own.differs or not others:
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
