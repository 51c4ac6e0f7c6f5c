"""The known facts about the span under the cursor, for the detail pane; looked up when the cursor rests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rankscope.features.traces.page.activity import HOST_KINDS
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.path_section import process_text
from rankscope.features.traces.read.event_names import COPY_BYTES, COPY_SPEED
from rankscope.text.escaping import plain
from rankscope.text.tensors import tensors
from rankscope.text.wording import byte_count, duration, exact_duration, plural, rank_ranges, ranks_text, short_name
from rankscope.tui.detail.detail_text import labelled
from rankscope.tui.styled_text import BLANK, Line, Span, cut, line, wrap


@dataclass(frozen=True)
class Member:
    """One rank in a matched collective."""

    rank: int
    late_ns: int
    """Delay after the first, in ns."""
    took_ns: int


@dataclass(frozen=True)
class Sight:
    """The facts about one place on the lanes."""

    rank: int
    process: str
    """Its rank in words, or that it has none."""
    at_ns: int
    """Time since the begin of the first window."""
    span: int | None
    name: str = ""
    category: str = ""
    start_ns: int = 0
    """Time since the begin of the first window."""
    length_ns: int = 0
    op: dict[str, Any] | None = None
    """The row of `traced` of a collective."""
    group: str = ""
    members: tuple[Member, ...] = ()
    """In the order of arrival; empty if it was not matched."""
    launch: int | None = None
    """The span on the host that started it."""
    launched_ns: int | None = None
    """Time from its launch to its begin."""
    stack: tuple[str, ...] = ()
    """The spans around it on the host, or around its launch, the innermost first."""
    step: dict[str, Any] | None = None
    """Its row of `steps`."""
    copied: str = ""
    """What a copy moves, and how fast."""


def look(board: TraceBoard) -> Sight | None:
    """The facts about the place of the cursor; None if there are no lanes."""
    if not board.rows:
        return None
    lanes, span = board.lanes, board.span
    process = process_text(lanes.dataset, [board.rank])
    moment = board.moment
    if span is None:
        step = _step_at(lanes, board.rank, moment, on_host=False)
        return Sight(
            board.rank, process, moment - lanes.low, None, stack=_host_at(lanes, board.lane, moment), step=step
        )
    spans = lanes.spans
    start, end = spans.times(span)
    row = int(spans.op[span])
    op = _operation(lanes, row) if row >= 0 else None
    on_host = lanes.dataset.spans["category"][span] in ("cpu_op", "python_function", "cuda_runtime", "cuda_driver") or (
        int(spans.activity[span]) in HOST_KINDS
    )
    step = _step_at(lanes, board.rank, moment, on_host=on_host)
    launch = None if on_host else launch_of(lanes, board.lane, span)
    inner = span if on_host else launch
    stack = tuple(_name(lanes, at) for at in spans.around(inner)) if inner is not None else ()
    if launch is not None:
        stack = (_name(lanes, launch), *stack)
    if inner is None:
        # the time when the host issued a collective, aligned
        if op is None or op["created_ns"] is None:
            issued: int | None = None
        else:
            issued = int(op["created_ns"]) + lanes.traces.offsets.get(op["file"], 0)
        stack = _host_at(lanes, board.lane, issued or start)
    groups = lanes.dataset.group_list
    if op is None or op["group"] is None or op["group"] >= len(groups):
        group = ""
    else:
        from rankscope.tui.detail.operation_text import group_label

        group = group_label(groups[op["group"]])
    match = int(lanes.match_of[row]) if row >= 0 else -1
    if match < 0:
        members: tuple[Member, ...] = ()
    else:
        table = lanes.members(match).filter(pl.col("arrived_ns").is_not_null() & pl.col("ended_ns").is_not_null())
        rows = list(table.select("rank", "arrived_ns", "ended_ns").iter_rows())
        first = min((arrived for _, arrived, _ in rows), default=0)
        members = tuple(Member(rank, arrived - first, ended - arrived) for rank, arrived, ended in rows)
    return Sight(
        board.rank, process, moment - lanes.low, span, _name(lanes, span), str(lanes.dataset.spans["category"][span]),
        start - lanes.low, end - start, op, group, members, launch,
        None if launch is None else start - spans.times(launch)[0], stack, step, _copied(lanes, span),
    )  # fmt: skip


def _copied(lanes: TraceLanes, span: int) -> str:
    """The bytes of a copy and its speed; "" where the trace tells neither."""
    values = lanes.dataset.span_values.filter(pl.col("span") == span).select(pl.col("name").cast(pl.String), "value")
    told = dict(values.iter_rows())
    moved, speed = told.get(COPY_BYTES), told.get(COPY_SPEED)
    parts = ("" if moved is None else byte_count(int(moved)), "" if speed is None else f"{speed:.3g} GB/s")
    return " at ".join(filter(None, parts))


def _operation(lanes: TraceLanes, row: int) -> dict[str, Any]:
    """A row of `traced`; if the trace tells no number, with the number in reports and for `:`."""
    op = lanes.dataset.traced.row(row, named=True)
    match = int(lanes.match_of[row])
    if op["seq"] is None and not op["is_p2p"] and match >= 0:
        op["seq"] = lanes.members(match)["seq"][0]
    return op


def _name(lanes: TraceLanes, span: int) -> str:
    return short_name(lanes.spans.name_of(span))


def launch_of(lanes: TraceLanes, lane: int, span: int) -> int | None:
    """The span on the host that started one on a device; None if the trace does not tell it."""
    number = lanes.dataset.spans["correlation"][span]
    if number is None:
        return None
    for track in _host_tracks(lanes, lane):
        low, high = int(lanes.spans.bounds[track]), int(lanes.spans.bounds[track + 1])
        found = (lanes.dataset.spans["correlation"].slice(low, high - low) == number).arg_true()
        if len(found):
            return low + int(found[-1])
    return None


def _host_tracks(lanes: TraceLanes, lane: int) -> list[int]:
    strands = [lanes.strands[s] for s in lanes.strands_of[lane]]
    return [track for strand in strands if strand.kind == "host" for track in strand.tracks]


def _host_at(lanes: TraceLanes, lane: int, moment: int) -> tuple[str, ...]:
    """The spans that run on the host at a moment, the innermost first, from the thread with the deepest stack."""
    active = [lanes.spans.active(track, moment) for track in _host_tracks(lanes, lane)]
    deepest = max(active, key=len, default=[])
    return tuple(_name(lanes, span) for span in deepest)


def _step_at(lanes: TraceLanes, rank: int, moment: int, *, on_host: bool) -> dict[str, Any] | None:
    """The row of `steps` of the step in which a rank is then: its host, which may be a step ahead, or its device."""
    steps = lanes.traces.steps.filter(pl.col("rank") == rank)
    inside = (pl.col("start_ns") <= moment) & (pl.col("end_ns") > moment)
    if on_host and (marks := lanes.host_steps.filter(pl.col("rank") == rank)).height:
        found = steps.join(marks.filter(inside).select("file", "step"), on=["file", "step"], how="semi")
    else:
        found = steps.filter(inside)
    return found.row(0, named=True) if found.height else None


# The span under the cursor as lines: the most important facts first if the pane is low, all if it is high.

ROOMY = 16
"""Lines from which all facts are shown."""
CLOSE_NS = 10_000
"""Arrivals within this many ns count as one."""
_SPENT = (("compute", "compute_ns"), ("exposed comm", "exposed_ns"), ("idle", "idle_ns"), ("late", "late_ns"))


def sight_lines(sight: Sight | None, width: int, height: int) -> list[Line]:
    """The lines for a pane of this size."""
    if sight is None:
        return [line(Span("no lane is shown", "dim"))]
    if sight.span is not None and height >= ROOMY:
        return expanded(sight, width)
    body = [heading(sight), wait_line(sight), arrivals_line(sight), launch_line(sight)]
    rest = [carried_line(sight), step_line(sight)]
    shown = [cut(parts, width) for parts in body if parts]
    after = [cut(parts, width) for parts in rest if parts]
    stack = wrap(stack_line(sight, "stack" if sight.span is not None else "host"), width, 8)
    room = max(height - len(shown) - len(after), 1)
    if len(stack) > room:
        stack = [*stack[: room - 1], cut(line(stack[room - 1], " .."), width)]
    return [*shown, *stack, *after]


def heading(sight: Sight) -> Line:
    """The rank, its activity, duration and start."""
    rank = Span(sight.process, "head")
    if sight.span is None:
        return line(rank, "  ", Span("idle", "bold"), f"  at +{exact_duration(sight.at_ns)}")
    name = Span(op_name(sight.op) if sight.op else plain(sight.name), "bold")
    return line(
        rank,
        "  ",
        name,
        f"  {duration(sight.length_ns)} at +{exact_duration(sight.start_ns)}",
        f"  {sight.copied}" if sight.copied else "",
        Span(f"  {plain(sight.category)}", "dim"),
    )


def op_name(op: dict[str, Any]) -> str:
    """The operation, with its number and peer."""
    name = plain(op["op"]) or "?"
    if op["is_p2p"] and op["peer"] is not None:
        return f"{name} {'from' if name == 'recv' else 'to'} {op['peer']}"
    return name if op["seq"] is None else f"#{op['seq']} {name}"


def wait_line(sight: Sight) -> Line:
    """The waiting time in a collective, and the awaited rank."""
    if sight.span is None or not sight.members:
        return labelled("peers", Span("not matched with the other ranks", "dim")) if sight.op else BLANK
    own = next((m for m in sight.members if m.rank == sight.rank), None)
    last = sight.members[-1]
    if own is None:
        return BLANK
    if own.rank == last.rank:
        others = sight.members[-2].late_ns if len(sight.members) > 1 else 0
        margin = own.late_ns - others
        how = Span("the last to come", "bad" if margin > CLOSE_NS else "text")
        return labelled(
            "waits", how, f", {duration(margin)} after the one before, {duration(own.late_ns)} after the first"
        )
    waited = max(last.late_ns - own.late_ns, 0)
    part = f" ({min(100 * waited // max(sight.length_ns, 1), 100)}% of it)" if sight.length_ns else ""
    return labelled("waits", Span(duration(waited), "bold"), f"{part} for rank {last.rank}, the last to come")


def arrivals_line(sight: Sight) -> Line:
    """The order of arrivals, with equal ones as one."""
    if len(sight.members) < 2:
        return BLANK
    waves: list[list[Member]] = []
    for member in sight.members:
        if waves and member.late_ns - waves[-1][0].late_ns <= CLOSE_NS:
            waves[-1].append(member)
        else:
            waves.append([member])
    parts = [f"{rank_ranges((m.rank for m in wave), 16)} +{duration(wave[0].late_ns)}" for wave in waves]
    if len(parts) > 6:
        parts = [*parts[:3], "..", *parts[-2:]]
    first = ranks_text([m.rank for m in waves[0]], 16)
    return labelled("came", Span(f"{first} first"), *(f", {part}" for part in parts[1:]))


def launch_line(sight: Sight) -> Line:
    """The time of its launch."""
    if sight.launched_ns is None:
        return BLANK
    return labelled("launch", f"{duration(sight.launched_ns)} before it began, by {plain(sight.stack[0])}")


def stack_line(sight: Sight, label: str) -> Line:
    """The spans around it on the host, the innermost first."""
    frames = sight.stack[1:] if sight.launch is not None else sight.stack
    if not frames:
        return labelled(label, Span("nothing recorded around it", "dim"))
    return labelled(label, " < ".join(plain(frame) for frame in frames))


def carried_line(sight: Sight) -> Line:
    """The group, sizes, and the peer of a collective."""
    op = sight.op
    if op is None:
        return BLANK
    size = tensors(op["in_sizes"], op["in_dtypes"]) if op["in_sizes"] else ""
    facts = [sight.group, size, str(op["library"] or "")]
    return labelled("group", ", ".join(plain(fact) for fact in facts if fact))


def step_line(sight: Sight) -> Line:
    """Its step: duration, and the uses of its time."""
    step = sight.step
    if step is None:
        return BLANK
    whole = step["end_ns"] - step["start_ns"]
    parts = [f"{name} {duration(step[column])}" for name, column in _SPENT if step[column]]
    return labelled("step", Span(str(step["step"]), "bold"), f"  {duration(whole)}: {', '.join(parts)}")


def expanded(sight: Sight, width: int) -> list[Line]:
    """All facts."""
    head = [heading(sight), carried_line(sight), wait_line(sight), launch_line(sight), step_line(sight)]
    out = [piece for parts in head if parts for piece in wrap(parts, width, 8)]
    if len(sight.members) > 1:
        out += [BLANK, line(Span(f"came ({plural(len(sight.members), 'rank')})", "head"))]
        out += [cut(_member_line(m, sight), width) for m in sight.members]
    out += [BLANK, line(Span("around it on the host", "head"))]
    frames = sight.stack or ("nothing recorded",)
    out += [cut(line(f"  {plain(frame)}"), width) for frame in frames]
    return out


def _member_line(member: Member, sight: Sight) -> Line:
    mark = ">" if member.rank == sight.rank else " "
    last = member is sight.members[-1] and member.late_ns > CLOSE_NS
    late = Span(f"+{duration(member.late_ns)}", "bad" if last else "text")
    return line(
        f"{mark} rank {member.rank:<5} ",
        late,
        f"  ran {duration(member.took_ns)}",
        Span("  last" if last else "", "bad"),
    )
