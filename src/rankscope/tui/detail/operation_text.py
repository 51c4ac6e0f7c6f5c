"""Operations, groups, members and waits in words, as lines of spans; the pane and the screens share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankscope.analysis.model import ChainStep
from rankscope.analysis.presence import Absence
from rankscope.schema import Group
from rankscope.text.escaping import plain
from rankscope.text.tensors import tensors
from rankscope.text.wording import clock, duration, group_name, rank_ranges
from rankscope.tui.detail.operation_index import Row
from rankscope.tui.detail.peers import NOT_YET, PARTLY, UNFINISHED, Fold
from rankscope.tui.styled_text import Line, Role, Span, line

REASONS: dict[str, str] = {
    Absence.NEVER_ISSUED: "never issued it",
    Absence.NO_DUMP: "no dump of it was read",
    Absence.OVERWRITTEN: "older than what its record holds",
    Absence.FILTERED: "finished it: its dump keeps only active operations",
    Absence.UNKNOWN: "not known: its dump or log ends before, or lacks it",
    PARTLY: "not known: its dump was read only in part",
    NOT_YET: "not yet issued: the job still moves",
}
"""Why a member has no row, for people."""
_OTHER_SIDE = "not pending on its side: never posted, or over"
"""The reason when the other side of a send or receive is not known."""


def reason(presence: str, *, is_p2p: bool = False) -> str:
    """Why a member has no row, for people."""
    return _OTHER_SIDE if is_p2p and presence == Absence.UNKNOWN else REASONS.get(presence, presence)


def absence(presence: str | None) -> str:
    """The state of a rank without a row, in the place of an operation's state."""
    if presence == Absence.FILTERED:
        return "finished, not in this dump"
    return presence or "no operation here"


def state_role(state: str) -> Role:
    """The role for a state of an operation."""
    if state in ("timed out", "aborted"):
        return "bad"
    return "warn" if state in UNFINISHED else "text"


def op_name(row: Row) -> str:
    """An operation with its number and peer: "all_reduce #12", "send to 3"."""
    name = plain(row["op"]) or "?"
    if row["is_p2p"]:
        way = "from" if name == "recv" else "to"
        return name if row["peer"] is None else f"{name} {way} {row['peer']}"
    return name if row["seq"] is None else f"#{row['seq']} {name}"


def took_ns(row: Row) -> int | None:
    """Duration of an operation: measured, or until its end was noticed; None if neither is known."""
    if row["duration_ns"] is not None:
        return int(row["duration_ns"])
    if row["completed_ns"] is None or row["created_ns"] is None:
        return None
    return int(row["completed_ns"] - row["created_ns"])


def progress(row: Row, now_ns: int | None) -> list[Span]:
    """State and times of an operation: "done 14:02:10.113 in 3.2 ms", "PENDING since 14:02:11.113, for 10 min"."""
    state, issued = row["label"], row["created_ns"]
    if state == "done":
        at, took = row["completed_ns"], took_ns(row)
        how = "in" if row["duration_ns"] is not None else "seen after"
        begun = f", issued {clock(issued)}" if issued is not None else ""
        return [Span("done" + (f" {clock(at)} {how} {duration(took)}" if at is not None else begun))]
    word = Span(state.upper(), state_role(state))
    if issued is None:
        return [word]
    since = f" since {clock(issued)}"
    held = f", for {duration(now_ns - issued)}" if now_ns is not None and now_ns > issued else ""
    return [word, Span(since + held)]


def carried(row: Row) -> str:
    """The sizes and types of an operation: "[64,32] f32", "[8] f32 -> [64] f32"."""
    ins = tensors(row["in_sizes"], row["in_dtypes"])
    outs = tensors(row["out_sizes"], row["out_dtypes"])
    return ins if not outs or outs == ins else f"{ins} -> {outs}" if ins else f"-> {outs}"


def lag(fold: Fold) -> str:
    """The delay of members after the first: "first", "+3.2 ms", "+0..3.2 ms"; "" if no time is known."""
    if fold.lag_ns is None:
        return ""
    least, most = (duration(ns) if ns else "0" for ns in fold.lag_ns)
    if len(fold.ranks) == 1 or least == most:
        return "first" if fold.lag_ns[1] == 0 else f"+{most}"
    return f"+{least.removesuffix(most[most.index(' ') :])}..{most}"


def fold_state(fold: Fold) -> Span:
    """The state of members in a word or two."""
    if not fold.issued:
        return Span(fold.presence, "bad" if fold.presence == Absence.NEVER_ISSUED else "warn")
    return Span(fold.state, state_role(fold.state))


def fold_op(fold: Fold) -> str:
    """The operation of members: "all_reduce [64] f32"; "" if they issued none."""
    if not fold.issued:
        return ""
    times = f" x{fold.parts}" if fold.parts > 1 else ""
    return f"{plain(fold.op)}{times} {tensors(fold.sizes, fold.dtypes)}".rstrip()


def who(fold: Fold, width: int = 28) -> str:
    """The ranks of a fold and their number: "0-11,13 x13"."""
    return rank_ranges(fold.ranks, width) + (f" x{len(fold.ranks)}" if len(fold.ranks) > 1 else "")


def chain_line(chain: Sequence[ChainStep], groups: Mapping[str, str] | None = None) -> Line:
    """A chain of waiting ranks: "for rank 13 (#31 all_reduce) -> rank 12 (#1121 all_reduce)".

    With `groups`, descriptions by name, the line names the groups.
    """
    parts: list[Span | str] = []
    for number, step in enumerate(chain):
        where = step.waits_in
        ordinal = "" if where.seq is None else f"#{where.seq} "
        parts += [" -> " if number else "for ", Span(f"rank {step.for_rank}", "bold")]
        inside = "" if groups is None else f" in {plain(groups.get(where.group) or f'group {where.group}')}"
        parts.append(Span(f" ({ordinal}{plain(where.op)}{inside})", "dim"))
    return line(*parts)


def group_label(group: Group | None) -> str:
    """The label of a group for people: "mesh_tp (group 4)", "group 4"; "no group" without one."""
    return "no group" if group is None else plain(group_name(group.name, group.description))


def group_short(group: Group | None) -> str:
    """The description of a group, or its name where it has none."""
    return "no group" if group is None else plain(group.description or f"group {group.name or '?'}")
