"""The span under the cursor as lines: the most important facts first if the pane is low, all if it is high."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankscope.text.escaping import plain
from rankscope.text.tensors import tensors
from rankscope.text.wording import duration, exact_duration, plural, rank_ranges, ranks_text
from rankscope.tui.detail.compact_detail import labelled
from rankscope.tui.styled_text import BLANK, Line, Span, cut, line, wrap
from rankscope.tui.traces.span_facts import Member, Sight

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
    rank = Span(f"rank {sight.rank}", "head")
    if sight.span is None:
        return line(rank, "  ", Span("idle", "bold"), f"  at +{exact_duration(sight.at_ns)}")
    name = Span(op_name(sight.op) if sight.op else plain(sight.name), "bold")
    return line(
        rank,
        "  ",
        name,
        f"  {duration(sight.length_ns)} at +{exact_duration(sight.start_ns)}",
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
    waves = _waves(sight.members)
    parts = [f"{rank_ranges((m.rank for m in wave), 16)} +{duration(wave[0].late_ns)}" for wave in waves]
    if len(parts) > 6:
        parts = [*parts[:3], "..", *parts[-2:]]
    first = ranks_text([m.rank for m in waves[0]], 16)
    return labelled("came", Span(f"{first} first"), *(f", {part}" for part in parts[1:]))


def _waves(members: Sequence[Member]) -> list[list[Member]]:
    out: list[list[Member]] = []
    for member in members:
        if out and member.late_ns - out[-1][0].late_ns <= CLOSE_NS:
            out[-1].append(member)
        else:
            out.append([member])
    return out


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
