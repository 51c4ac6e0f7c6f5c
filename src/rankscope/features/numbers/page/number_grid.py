"""Operations by ranks, from summaries of tensors, as frozen arrays; their glyphs, and their words.

A line is one operation of the program on all ranks that issue it: a collective with those of twin groups, a send, a
module, a gradient. Its cells are the ranks, and a cell holds all tensors of the operation on the rank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.host_stacks import short_function_name
from rankscope.analysis.model import Analysis, Finding
from rankscope.features.numbers.rules.collective_units import group_kinds
from rankscope.features.numbers.rules.model import RULES, NumberMarks, ReferenceMarks, RowState, number_results
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, rank_ranges, ranks_text
from rankscope.tui.detail.operation_text import group_label
from rankscope.tui.detail.stack_tree import place, user_frames
from rankscope.tui.styled_text import HEAT, Line, Role, Span, line

Codes = NDArray[np.uint8]
NOTHING, OPEN, SAME, NEAR, BEHIND, FOLLOWS, SUSPICIOUS, WRONG = 0, 1, 2, 3, 13, 14, 15, 16
"""Codes of the rules: no tensor; no rule has a limit; right; ten tenths of the limit; after a wrong value; off, which a
wrong value explains; a rule that is no proof does not hold; wrong."""
WITHIN, BEYOND, ODD, FIRST = 17, 27, 37, 38
"""Codes beside a reference: ten sizes of a difference within its limit; ten beyond, or without one; not finite; the
first difference. `OPEN` is not compared, and `SAME` equal bit for bit."""
SIZES = 10
"""Tenths of a limit, or decades of a difference from 1e-9 to 1."""


def rule_codes(marks: NumberMarks) -> Codes:
    """The code of each row of `Dataset.tensors` by the rules."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(marks.limit > 0, np.abs(marks.value) / marks.limit, 0.0)
    tenth = NEAR + np.clip(np.nan_to_num(share, posinf=1.0) * SIZES, 0, SIZES - 1).astype(np.uint8)
    codes: Codes = np.where(marks.limit > 0, tenth, SAME).astype(np.uint8)
    codes[marks.state == RowState.NOT_JUDGED] = OPEN
    codes[marks.after & (marks.state <= RowState.RIGHT)] = BEHIND
    for state, code in ((RowState.FOLLOWS, FOLLOWS), (RowState.SUSPICIOUS, SUSPICIOUS), (RowState.WRONG, WRONG)):
        codes[marks.state == state] = code
    return codes


def reference_codes(marks: ReferenceMarks) -> Codes:
    """The code of each row of `Dataset.tensors` by its difference from the reference."""
    with np.errstate(divide="ignore", invalid="ignore"):
        decade = np.floor(np.log10(marks.off))
    size = np.clip(np.nan_to_num(decade, nan=0.0, posinf=0.0, neginf=-9.0) + SIZES - 1, 0, SIZES - 1).astype(np.uint8)
    # a comparison with NaN is false: without a limit nothing is within it
    sized = np.where(marks.off <= marks.limit, WITHIN, BEYOND) + size
    known = np.where(marks.equal, SAME, np.where(np.isinf(marks.off), ODD, sized))
    compared = np.where(np.isnan(marks.off) & ~marks.equal, OPEN, known)
    return np.where(marks.first, FIRST, compared).astype(np.uint8)


def collectives_off(dataset: Dataset, analysis: Analysis) -> pl.DataFrame:
    """Collectives whose numbers are off on a rank, for marks in the lanes: group, seq, rank."""
    off = np.zeros(dataset.tensors.height, np.bool_)
    results = number_results(analysis)
    if results.marks is not None:
        off |= results.marks.state >= RowState.SUSPICIOUS
    if results.distances is not None:
        off |= results.distances.first
    wrong = dataset.tensors.filter(pl.Series(off) & (pl.col("site") == "collective"))
    return wrong.select("group", "seq", "rank").unique()


_CALM: tuple[Role, ...] = ("good", "text", "bold")
"""The roles of shares of a limit: all of them are right."""


def _looks() -> list[Span]:
    """The glyph and the role of each code."""
    looks = [Span(" "), Span(".", "dim"), Span("=", "good")]
    looks += [Span(str(tenth), _CALM[tenth // 4]) for tenth in range(SIZES)]
    looks += [Span("~", "warn"), Span("x", "bad"), Span("?", HEAT[3]), Span("X", "critical")]
    looks += [Span("-", "good")] * SIZES
    looks += [Span(str(SIZES - 1 - size), HEAT[2 + size // 5]) for size in range(SIZES)]
    return [*looks, Span("N", HEAT[4]), Span("X", "critical")]


LOOKS: tuple[Span, ...] = tuple(_looks())
"""The look of each code."""
OFF: NDArray[np.bool_] = np.isin(np.arange(len(LOOKS)), (SUSPICIOUS, WRONG, FIRST))
"""Codes of cells to look at: those to which keys jump."""


def legend(*, is_reference: bool) -> list[Span | str]:
    """The meaning of the glyphs, the most important first."""
    chosen: tuple[tuple[int, str], ...] = (
        (FIRST, "first"), (BEYOND + 6, "differs by 1e-3"), (WITHIN, "within limit"),
        (SAME, "equal"), (OPEN, "not compared"),
    ) if is_reference else (
        (WRONG, "wrong"), (SUSPICIOUS, "odd"), (FOLLOWS, "follows"), (BEHIND, "after"), (SAME, "right"),
        (NEAR + 3, "tenths of limit"), (OPEN, "no limit"),
    )  # fmt: skip
    parts: list[Span | str] = []
    for code, words in chosen:
        parts += [LOOKS[code], Span(f" {words}  ", "dim")]
    return parts


Ints = NDArray[np.int64]
_LINE = ["step", "micro", "site", "op", "name", "again", "kind"]
"""Columns that tell operations of a rank apart, but for how often they came before."""


@dataclass(frozen=True, eq=False)
class NumberGrid:
    """The operations of a run in program order, and its ranks."""

    lines: pl.DataFrame
    """A row for each line: step, micro, site, op, name, again, kind, group and seq of the first rank, groups (how many
    share the line), shared_seq (whether it is one number), `nth` of its kind in the step, `words` for the search."""
    ranks: Ints
    """The rank of each column, rising."""
    ends: Ints
    """The cells of line i are `ends[i]` up to `ends[i + 1]`."""
    columns: Ints
    """The column of each cell, rising within a line."""
    begins: Ints
    """The tensors of cell c are `rows[begins[c]:begins[c + 1]]`."""
    rows: Ints
    """Rows of `Dataset.tensors`, by cell and in program order."""

    def cells(self, codes: Codes) -> Codes:
        """The highest code of the tensors of each cell; `codes` has one for each row of `Dataset.tensors`."""
        if not len(self.rows):
            return np.zeros(0, np.uint8)
        highest: Codes = np.maximum.reduceat(codes[self.rows], self.begins[:-1])
        return highest

    def tensors_of(self, cell: int) -> Ints:
        """Rows of the tensors of a cell."""
        return self.rows[self.begins[cell] : self.begins[cell + 1]]

    def place_of(self, row: int) -> tuple[int, int] | None:
        """Line and cell of a row of `Dataset.tensors`; None if it is not in the grid."""
        at = np.flatnonzero(self.rows == row)
        if not len(at):
            return None
        cell = int(np.searchsorted(self.begins, at[0], "right")) - 1
        return int(np.searchsorted(self.ends, cell, "right")) - 1, cell


def binned_line(grid: NumberGrid, cells: Codes, at: int, per: int) -> Codes:
    """The highest code of each `per` columns of a line; 0 where no rank has a cell."""
    out = np.zeros(-(-len(grid.ranks) // per), np.uint8)
    of_line = slice(int(grid.ends[at]), int(grid.ends[at + 1]))
    np.maximum.at(out, grid.columns[of_line] // per, cells[of_line])
    return out


def worst_cell(grid: NumberGrid, cells: Codes, at: int, bin_: int, per: int) -> int | None:
    """The cell with the highest code in some columns of a line, the first one of several; None without any."""
    first, last = int(grid.ends[at]), int(grid.ends[at + 1])
    low, high = first + np.searchsorted(grid.columns[first:last], [bin_ * per, (bin_ + 1) * per])
    return int(low + cells[low:high].argmax()) if low < high else None


def lines_off(grid: NumberGrid, cells: Codes) -> Ints:
    """Lines that hold a cell that is off."""
    if not len(cells):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.logical_or.reduceat(OFF[cells], grid.ends[:-1])).astype(np.int64)


def number_grid(dataset: Dataset) -> NumberGrid:
    """The operations of all recorded steps."""
    rows = _numbered(_tensors(dataset))
    key = [*_LINE, "nth"]
    begun = rows.group_by(key).agg(pl.col("issued").min(), pl.col("row").min())
    order = begun.sort("step", "issued", "row", nulls_last=False).with_row_index("line").select(*key, "line")
    rows = rows.join(order, on=key, how="left", nulls_equal=True, maintain_order="left")
    ranks = np.unique(rows["rank"].to_numpy()).astype(np.int64)
    rows = rows.with_columns(column=pl.Series(np.searchsorted(ranks, rows["rank"].to_numpy())))
    rows = rows.sort("line", "column", "order", "row", nulls_last=False)
    line, column = (rows[name].to_numpy().astype(np.int64) for name in ("line", "column"))
    first = np.flatnonzero((np.diff(line, prepend=-1) != 0) | (np.diff(column, prepend=-1) != 0))
    ends = np.append(np.flatnonzero(np.diff(line[first], prepend=-1)), len(first))
    begins = np.append(first, len(line))
    # the table of lines; texts come back from a tensor of each
    facts = rows.group_by("line", maintain_order=True).agg(
        pl.col("row", "step", "micro", "again", "group", "seq", "nth").first(),
        groups=pl.col("group").n_unique(),
        shared_seq=pl.col("seq").n_unique() == 1,
    )
    told = dataset.tensors[facts["row"].to_numpy()].select(pl.col("site", "op", "name").cast(pl.String))
    groups = dataset.groups.select("group", kind=pl.coalesce(pl.col("description").replace("", None), "name"))
    lines = pl.concat([facts.drop("line", "row"), told], how="horizontal")
    lines = lines.join(groups, on="group", how="left", maintain_order="left")
    words = pl.concat_str("site", "op", "name", "kind", pl.format("step {}", "step"), separator=" ", ignore_nulls=True)
    lines = lines.with_columns(words=words.str.to_lowercase())
    return NumberGrid(
        lines,
        ranks,
        ends.astype(np.int64),
        column[first],
        begins.astype(np.int64),
        rows["row"].to_numpy().astype(np.int64),
    )


def _tensors(dataset: Dataset) -> pl.DataFrame:
    """All tensors with the columns that place them, texts as numbers of their categories."""
    texts = [pl.col(name).to_physical().fill_null(-1 if name == "site" else 0) for name in ("site", "op", "name")]
    return (
        dataset.tensors.with_row_index("row")
        .filter(pl.col("rank").is_not_null())
        .join(group_kinds(dataset), on="group", how="left", maintain_order="left")
        .select(
            "row",
            "rank",
            pl.col("step").fill_null(-1),
            pl.col("micro").fill_null(-1),
            pl.col("order").fill_null(-1),
            *texts,
            again=pl.col("recompute").fill_null(value=False),
            kind=pl.col("kind").cast(pl.Categorical).to_physical(),
            group="group",
            seq="seq",
            peer=pl.col("peer").fill_null(-1),
            occurrence=pl.col("occurrence").fill_null(-1),
        )
    )


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """The tensors with `nth`: how many operations of the line came before on the rank; and when it was issued."""
    call = [*_LINE, "rank", "group", "seq", "peer", "occurrence"]
    calls = rows.group_by(call, maintain_order=True).agg(issued=pl.col("order").min(), row=pl.col("row").min())
    calls = calls.sort("rank", "issued", "row").with_columns(nth=pl.int_range(pl.len()).over([*_LINE, "rank"]))
    return rows.join(calls.drop("row"), on=call, how="left", nulls_equal=True, maintain_order="left")


WIDE = 100
"""Columns from which the smallest element is told, too."""
MOST_TENSORS = 12
"""Most tensors of a cell that are listed."""
_RULES = tuple(RULES.values())
_SITES = {"forward": "fwd", "backward": "bwd", "gradient": "grad", "parameter": "param", "optimizer": "optim"}
"""Sites in few characters."""
_STATES: dict[RowState, tuple[str, Role]] = {
    RowState.NOT_JUDGED: ("no limit", "dim"),
    RowState.RIGHT: ("right", "good"),
    RowState.FOLLOWS: ("follows", "bad"),
    RowState.SUSPICIOUS: ("ODD", "warn"),
    RowState.WRONG: ("WRONG", "critical"),
}


def line_text(operation: dict[str, Any], width: int) -> str:
    """A line of the grid in at most `width` characters: "all_reduce #79 tp x2" of two groups, "fwd layers.0.mlp"."""
    if operation["site"] not in ("collective", "p2p"):
        head = _SITES.get(operation["site"], plain(operation["site"] or "?")) + (" again" if operation["again"] else "")
        name = plain(operation["name"] or "")
        room = max(width - len(head) - 1, 4)
        return f"{head} {name if len(name) <= room else '..' + name[2 - room :]}"[:width].rstrip()
    number = f"#{operation['seq']}" if operation["seq"] is not None else f"({operation['nth'] + 1})"
    head = f"{plain(operation['op'] or '?')} {number}{'' if operation['shared_seq'] else '..'}"
    kind = plain(operation["kind"] or "")
    twins = f"{re.sub(r'[0-9]+', '', kind)} x{operation['groups']}" if operation["groups"] > 1 else kind
    return f"{head} {twins}"[:width].rstrip()


def cell_text(dataset: Dataset, analysis: Analysis, grid: NumberGrid, cell: int, width: int) -> list[Line]:
    """All that is known of an operation on a rank: where, what the rules say, its tensors, its place in the code."""
    rows = [int(row) for row in grid.tensors_of(cell)]
    tensors = dataset.tensors[rows].rows(named=True)
    lines = [_title(dataset, tensors[0])]
    results = number_results(analysis)
    lines += _judgement(dataset, results.marks, rows) if results.marks is not None else []
    lines += [_distance(results.distances, rows)] if results.distances is not None else []
    places = {(row["rank"], row["line"]) for row in tensors}
    lines += [
        line(plain(". ".join(finding.explanation.split(". ")[2:])) or plain(finding.title))
        for finding in analysis.findings
        if _is_about(finding, places)
    ][:1]
    lines += [_tensor(row, width) for row in tensors[:MOST_TENSORS]]
    if len(tensors) > MOST_TENSORS:
        lines.append(line(Span(f"({plural(len(tensors) - MOST_TENSORS, 'more tensor')})", "dim")))
    return [*lines, *_stack(dataset, tensors[0]["stack_id"])]


def _is_about(finding: Finding, places: set[tuple[int, int]]) -> bool:
    """Whether a finding on numbers begins at a tensor with one of these ranks and lines of its file."""
    first = finding.evidence[0] if finding.evidence and finding.limits else None
    return first is not None and (first.rank, first.line) in places


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


def _unequal_members(dataset: Dataset, row: int) -> str:
    """The members of a collective by their bits: "ranks 0,1 hold different bits after all_reduce #12"."""
    one = dataset.tensors.row(row, named=True)
    place = pl.all_horizontal(pl.col(name).eq_missing(one[name]) for name in ("group", "seq", "step", "slot", "op"))
    sides = dataset.tensors.filter(place & pl.col("hash").is_not_null()).group_by("hash").agg("rank")["rank"].to_list()
    if len(sides) < 2:
        return ""
    sides.sort(key=lambda ranks: (len(ranks), min(ranks)))
    ranks = sorted({rank for side in sides for rank in side})
    where = plain(one["op"] or "?") + ("" if one["seq"] is None else f" #{one['seq']}")
    odd, others = sides[0], sides[-1]
    if len(sides) == 2 and len(odd) < len(others):
        verb = "holds" if len(odd) == 1 else "hold"
        return f"{ranks_text(odd)} {verb} other bits than {ranks_text(others)} after {where}"
    return f"{ranks_text(ranks)} hold different bits after {where}"


def _judgement(dataset: Dataset, marks: NumberMarks, rows: Sequence[int]) -> Iterator[Line]:
    """The worst state of some tensors with its rule and limit, and whether wrong values may have come before."""
    worst = max(rows, key=lambda row: (marks.state[row], marks.limit[row] > 0))
    state = RowState(int(marks.state[worst]))
    word, role = _STATES[state]
    if state == RowState.NOT_JUDGED:
        yield line(Span(word, role), "  no rule has a limit for it; its values are finite, or another place is named")
    else:
        rule = _RULES[int(marks.rule[worst])]
        off = _off(float(marks.value[worst]), float(marks.limit[worst]), is_right=state == RowState.RIGHT)
        if state == RowState.RIGHT:
            yield line(Span(word, role), f"  {rule.name} ({rule.standing}): {rule.statement}{off}")
        else:
            fault = _unequal_members(dataset, worst) if rule.name == "E1" else ""
            yield line(Span(word, role), f"  {fault or rule.fault} (rule {rule.name}, {rule.standing}){off}")
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
    off, limit, norm = (float(values[worst]) for values in (marks.off, marks.limit, marks.norm))
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
    first, *others = (f"{plain(short_function_name(frame)) or '?'} {place(frame)}" for frame in frames[:8])
    return [line(Span("line ", "dim"), Span(first, "bold"), "".join(f" < {frame}" for frame in others))]
