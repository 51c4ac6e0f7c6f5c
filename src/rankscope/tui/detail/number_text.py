"""Operations of the page of numbers in words: in a line, and the tensors of one rank with what the rules say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rankscope.analysis.model import Analysis, Finding
from rankscope.analysis.numbers.model import RULES, NumberMarks, ReferenceMarks, RowState
from rankscope.analysis.stack_frames import short_function_name
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, rank_ranges
from rankscope.tui.detail.group_labels import group_label
from rankscope.tui.detail.number_grid import NumberGrid
from rankscope.tui.detail.stack_tree import place, user_frames
from rankscope.tui.styled_text import Line, Role, Span, line

WIDE = 100
"""Columns from which the smallest element is told, too."""
MOST_TENSORS = 12
"""Most tensors of a cell that are listed."""
_RULES = tuple(RULES.values())
_SITES = {"forward": "fwd", "backward": "bwd", "gradient": "grad", "parameter": "param", "optimizer": "optim"}
"""Sites in few characters."""
_STATES: dict[RowState, tuple[str, Role]] = {
    RowState.NOT_JUDGED: ("no limit", "dim"), RowState.RIGHT: ("right", "good"), RowState.FOLLOWS: ("follows", "bad"),
    RowState.SUSPICIOUS: ("ODD", "warn"), RowState.WRONG: ("WRONG", "critical"),
}  # fmt: skip


def line_text(one: dict[str, Any], width: int) -> str:
    """A line of the grid in at most `width` characters: "all_reduce #79 tp x2" of two groups, "fwd layers.0.mlp"."""
    if one["site"] not in ("collective", "p2p"):
        head = _SITES.get(one["site"], plain(one["site"] or "?")) + (" again" if one["again"] else "")
        return _with_tail(head, plain(one["name"] or ""), width)
    number = f"#{one['seq']}" if one["seq"] is not None else f"({one['nth'] + 1})"
    own = f"{plain(one['op'] or '?')} {number}{'' if one['shared_seq'] else '..'}"
    kind = plain(one["kind"] or "")
    twins = f"{re.sub(r'[0-9]+', '', kind)} x{one['groups']}" if one["groups"] > 1 else kind
    return f"{own} {twins}"[:width].rstrip()


def _with_tail(head: str, name: str, width: int) -> str:
    """A name behind a word; a long name keeps its end, which tells most."""
    room = max(width - len(head) - 1, 4)
    return f"{head} {name if len(name) <= room else '..' + name[2 - room :]}"[:width].rstrip()


def cell_text(dataset: Dataset, analysis: Analysis, grid: NumberGrid, cell: int, width: int) -> list[Line]:
    """All that is known of an operation on a rank: where, what the rules say, its tensors, its place in the code."""
    rows = [int(row) for row in grid.tensors_of(cell)]
    told = dataset.tensors[rows].rows(named=True)
    lines = [_title(dataset, told[0])]
    if analysis.number_marks is not None:
        lines += _judgement(analysis.number_marks, rows)
    if analysis.reference_marks is not None:
        lines.append(_distance(analysis.reference_marks, rows))
    places = {(row["rank"], row["line"]) for row in told}
    lines += [line(_note(one)) for one in analysis.findings if _is_about(one, places)][:1]
    lines += [_tensor(row, width) for row in told[:MOST_TENSORS]]
    if len(told) > MOST_TENSORS:
        lines.append(line(Span(f"({plural(len(told) - MOST_TENSORS, 'more tensor')})", "dim")))
    return [*lines, *_stack(dataset, told[0]["stack_id"])]


def _is_about(finding: Finding, places: set[tuple[int, int]]) -> bool:
    """Whether a finding on numbers begins at a tensor with one of these ranks and lines of its file."""
    first = finding.evidence[0] if finding.evidence and finding.limits else None
    return first is not None and (first.rank, first.line) in places


def _note(finding: Finding) -> str:
    """The explanation of a finding without its first two sentences, which name the rule and the limit."""
    return plain(". ".join(finding.explanation.split(". ")[2:])) or plain(finding.title)


def _title(dataset: Dataset, row: dict[str, Any]) -> Line:
    """Rank, step, operation and group."""
    step = "" if row["step"] is None else f"  step {row['step']}"
    head = line(Span(f"rank {row['rank']}", "head"), f"{step}  ")
    if row["site"] == "p2p":
        way = "from" if row["op"] == "recv" else "to"
        return line(head, Span(f"{plain(row['op'] or '?')} {way} rank {row['peer']}", "bold"))
    if row["site"] != "collective":
        again = " (computed again)" if row["recompute"] else ""
        return line(head, Span(f"{row['site']} {plain(row['name'] or '')}".rstrip(), "bold"), again)
    number = "" if row["seq"] is None else f" #{row['seq']}"
    kind = f" ({plain(row['reduce_op'])})" if row["reduce_op"] else ""
    group = dataset.group_list[row["group"]] if row["group"] is not None else None
    ranks = f", ranks {rank_ranges(group.ranks, 30)}" if group is not None else ""
    return line(head, Span(f"{plain(row['op'] or '?')}{number}", "bold"), f"{kind} of {group_label(group)}{ranks}")


def _judgement(marks: NumberMarks, rows: Sequence[int]) -> Iterator[Line]:
    """The worst state of some tensors with its rule and limit, and whether wrong values may have come before."""
    worst = max(rows, key=lambda row: (marks.state[row], marks.limit[row] > 0))
    state = RowState(int(marks.state[worst]))
    word, role = _STATES[state]
    if state == RowState.NOT_JUDGED:
        yield line(Span(word, role), "  no rule has a limit for it; its values are finite, or another place is named")
    else:
        rule = _RULES[int(marks.rule[worst])]
        off = _off(float(marks.value[worst]), float(marks.limit[worst]), is_right=state == RowState.RIGHT)
        yield line(Span(word, role), f"  {rule.name} ({rule.standing}): {rule.statement}{off}")
    if state == RowState.FOLLOWS:
        yield line(Span("an earlier one explains it; n goes to those that nothing explains", "dim"))
    elif marks.after[worst] and state in (RowState.NOT_JUDGED, RowState.RIGHT):
        yield line(Span("after a wrong value: its inputs may be wrong already", "warn"))


def _off(value: float, limit: float, *, is_right: bool) -> str:
    if not value and not limit:
        return ""
    share = f", {value / limit:.2g} of the limit" if is_right and 0 < limit < math.inf else ""
    return f"; off by {value:.4g}, limit {limit:.4g}{share}"


def _distance(marks: ReferenceMarks, rows: Sequence[int]) -> Line:
    """The largest difference of some tensors from the reference."""
    known = [row for row in rows if marks.equal[row] or not math.isnan(marks.off[row])]
    head = Span("reference  ", "dim")
    if not known:
        return line(head, "not compared: the reference has no such tensor")
    worst = max(known, key=lambda row: (bool(marks.first[row]), not marks.equal[row], float(marks.off[row])))
    if marks.equal[worst]:
        return line(head, Span("equal bit for bit", "good"))
    off, limit, norm = (float(one[worst]) for one in (marks.off, marks.limit, marks.norm))
    first = Span("FIRST DIFFERENCE" if marks.first[worst] else "differs", "critical" if marks.first[worst] else "warn")
    size = f" by {off:.3g} of its norm" if off else " in bits that no sample shows"
    beyond = f", limit {limit:.3g}" if not math.isnan(limit) else ""
    there = f"; there the norm is {norm:.4g}" if not math.isnan(norm) else ""
    return line(head, first, f"{size}{beyond}{there}")


def _tensor(row: dict[str, Any], width: int) -> Line:
    """A tensor: "in0 [64,32] f32  norm 0.2147  max 0.012  sum 0.0005  hash 94404dbe735fdb3e"; the least if there is
    room."""
    slot = plain(row["slot"] or "tensor") + ("" if row["slice"] is None else f" slice {row['slice']}")
    shape = "" if row["shape"] is None else f" [{','.join(map(str, row['shape'][:8]))}]"
    parts: list[Span | str] = [Span(slot, "bold"), f"{shape} {plain(row['dtype'] or '')}"]
    for key, name in (("l2", "norm"), ("min", "min"), ("max", "max"), ("sum", "sum")):
        if row[key] is not None and (key != "min" or width >= WIDE):
            parts += [Span(f"  {name} ", "dim"), f"{row[key]:.4g}"]
    parts += [Span(f"  {row[key]:,} {name}", "bad") for key, name in (("nan", "NaN"), ("inf", "infinite")) if row[key]]
    if row["hash"] is not None:
        parts += [Span("  hash ", "dim"), f"{row['hash']:016x}"]
    return line(*parts)


def _stack(dataset: Dataset, stack_id: int | None) -> list[Line]:
    """The frames of the job's own code, innermost first."""
    frames = user_frames(dataset.stack(stack_id))
    if not frames:
        return []
    first, *others = (f"{plain(short_function_name(one)) or '?'} {place(one)}" for one in frames[:8])
    return [line(Span("line ", "dim"), Span(first, "bold"), "".join(f" < {one}" for one in others))]
