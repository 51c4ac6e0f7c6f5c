"""Lanes of some ranks around the operation that a root cause is about: who came, who waits, and who never came."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import polars as pl
from htpy import Node

from rankscope.analysis.explanations import operation_name, operation_state
from rankscope.analysis.logical_time import drawn_rows, logical_columns
from rankscope.analysis.model import Analysis, Finding
from rankscope.analysis.presence import Absence, Presence
from rankscope.report.blocks import Picture
from rankscope.report.svg_marks import WIDTH, area, circle, curve, group, px, rule, words
from rankscope.schema import Dataset
from rankscope.text.wording import clipped, duration, group_name, plural

MOST_PICTURES = 3
MOST_CULPRITS, MOST_WAITING, MOST_OTHERS = 4, 4, 2
MOST_COLUMNS = 7
BEHIND = 2
"""Most columns behind the operation in question."""
_LEFT, _TOP, _BOX, _ROW = 92, 34, 50, 62
_WIDEST = 132.0
_CHARACTER = 6.1
"""Width of a character in a box."""

SHAPES: Mapping[str, str] = {
    "completed": "completed", "started": "started, not finished", "pending": "pending", "aborted": "aborted, given up",
    "unknown": "not known", "differs": "another operation than that of most", "never": "never issued",
}  # fmt: skip
"""Kinds of boxes, each with a mark and a frame of its own, and their words in the legend."""
_KINDS = {
    "completed": "completed", "started, not finished": "started", "pending": "pending",
    "aborted after its timeout": "aborted", "given up by its watchdog": "aborted",
}  # fmt: skip


@dataclass(frozen=True)
class LaneBox:
    """An operation of a rank, or its place where the rank has none."""

    column: int
    kind: str
    """One of SHAPES."""
    op: str
    group: str
    state: str


@dataclass(frozen=True)
class Lane:
    """The operations of a rank that are drawn, in their order."""

    rank: int
    role: str
    boxes: tuple[LaneBox, ...]
    note: str = ""
    """Why nothing is drawn of it."""


def lane_pictures(dataset: Dataset, analysis: Analysis) -> Iterator[Picture]:
    """A picture for each of the first root causes whose ranks have operations; causes at one place share one."""
    drawn = set[tuple[Any, ...]]()
    if dataset.ops.is_empty():
        return
    for finding in analysis.findings:
        key = (finding.group.key if finding.group else None, finding.seq, finding.culprit_ranks)
        if finding.root_cause and key not in drawn and len(drawn) < MOST_PICTURES:
            drawn.add(key)
            picture = _picture(dataset, analysis, finding)
            if picture is not None:
                yield picture


def _roles(dataset: Dataset, finding: Finding) -> dict[int, str]:
    """The ranks that are drawn, with their parts: culprits, those that wait, and some others of the group."""
    suspects = finding.culprit_ranks or finding.candidates
    roles = dict.fromkeys(suspects[:MOST_CULPRITS], "culprit" if finding.culprit_ranks else "suspect")
    in_chain = [rank for step in finding.chain for rank in (step.rank, step.for_rank)]
    waiting = [r for r in dict.fromkeys((*reversed(in_chain), *finding.waiting_ranks)) if r not in suspects]
    roles |= dict.fromkeys(waiting[:MOST_WAITING], "waits")
    members = finding.group.ranks if finding.group else ()
    taken = {*suspects, *waiting}
    others = [rank for rank in dict.fromkeys((*members, *dataset.every_rank)) if rank not in taken]
    return roles | dict.fromkeys(others[:MOST_OTHERS], "other") if roles else {}


def _picture(dataset: Dataset, analysis: Analysis, finding: Finding) -> Picture | None:
    roles = _roles(dataset, finding)
    rows = _rows(dataset, roles)
    if rows.is_empty():
        return None
    target, place = _target(dataset, finding, rows)
    columns = _columns(rows, list(roles), target)
    if target is None:
        rows = _with_delays(rows)
    presence = Presence(dataset)
    differing = {
        rank
        for one in analysis.divergences
        if finding.group and (one.group, one.seq) == (finding.group.key, finding.seq)
        for rank in one.differing
    }
    lanes = []
    for rank, role in roles.items():
        own = rows.filter((pl.col("rank") == rank) & pl.col("column").is_in(list(columns)))
        boxes = [_box(dataset, presence, row, target, differing) for row in own.iter_rows(named=True)]
        missing = _missing(presence, finding, rank) if target is not None else None
        if missing and target is not None and target not in {box.column for box in boxes}:
            boxes.append(replace(missing, column=target, group=place))
        note = "" if boxes else "no dump" if rank not in presence.seen else "no operation is known"
        lanes.append(Lane(rank, role, tuple(sorted(boxes, key=lambda box: box.column)), note))
    return _drawn(lanes, columns, target, place, _left_out(dataset, finding, roles))


def _rows(dataset: Dataset, ranks: Collection[int]) -> pl.DataFrame:
    """The operations of these ranks with their `row` in the dataset and their `column`, which members share."""
    wanted = dataset.ops.with_row_index("row").filter(pl.col("rank").is_in(list(ranks)))
    part = replace(dataset, ops=wanted.drop("row"))
    return wanted.with_columns(column=pl.Series(logical_columns(part))).filter(drawn_rows(part.ops))


def _target(dataset: Dataset, finding: Finding, rows: pl.DataFrame) -> tuple[int | None, str]:
    """The column of the operation in question, and its name; (None, "") if no drawn rank issued it."""
    steps = [step.waits_in.row for step in finding.chain]
    near = rows.clear()
    if finding.group is not None and finding.seq is not None and finding.peer is None:
        near = rows.filter((pl.col("group") == finding.group.key) & (pl.col("seq") == finding.seq) & ~pl.col("is_p2p"))
    if near.is_empty():
        near = rows.filter(pl.col("row").is_in([row for row in (finding.row, *steps) if row is not None]))
    if near.is_empty():
        return None, ""
    # a culprit that differs may be in any order: most members tell the place
    first = near.row(near["column"].arg_max() or 0, named=True)
    name = finding.op or first["op"] if not first["is_p2p"] else ""
    label = f"{name} #{first['seq']}" if name else operation_name(first)
    return int(first["column"]), f"{_group(dataset, first)} {label}".strip()


def _with_delays(rows: pl.DataFrame) -> pl.DataFrame:
    """The operations with a `delay_ns` behind the first of the drawn ranks that issued the same collective."""
    first = pl.col("created_ns").min().over("group", "seq")
    shared = ~pl.col("is_p2p") & (pl.len().over("group", "seq") > 1)
    return rows.with_columns(delay_ns=pl.when(shared).then(pl.col("created_ns") - first))


def _columns(rows: pl.DataFrame, ranks: Sequence[int], target: int | None) -> tuple[int, ...]:
    """The columns that are drawn: the latest of each rank up to the target, in turn, and a few behind it."""
    latest = []
    chosen = set[int]() if target is None else {target}
    for rank in ranks:
        own = rows.filter(pl.col("rank") == rank)["column"].unique().sort(descending=True)
        latest.append(own.filter(own <= target).to_list() if target is not None else own.to_list())
    if target is not None:
        chosen |= set(rows.filter(pl.col("column") > target)["column"].unique().sort()[:BEHIND])
    for turn in range(MOST_COLUMNS):
        for places in latest:
            if turn < len(places) and len(chosen) < MOST_COLUMNS:
                chosen.add(places[turn])
    return tuple(sorted(chosen))


def _box(
    dataset: Dataset, presence: Presence, row: Mapping[str, Any], target: int | None, differing: Collection[int]
) -> LaneBox:
    state = operation_state(dict(row))
    frontier = presence.frontiers.get((row["rank"], row["group"]))
    reached = frontier.completed if frontier is not None else None
    if row["library"] != "gloo" and not row["is_p2p"] and None not in (reached, row["seq"]) and row["seq"] <= reached:
        state = "completed"
    kind = "differs" if row["column"] == target and row["rank"] in differing else _KINDS.get(state, "unknown")
    if row.get("delay_ns"):
        state = f"+{duration(row['delay_ns'])}"
    return LaneBox(row["column"], kind, operation_name(dict(row)), _group(dataset, row), state)


def _missing(presence: Presence, finding: Finding, rank: int) -> LaneBox | None:
    """The box of a rank that has no row of the operation in question; None if it takes no part in it."""
    if finding.group is None or finding.seq is None:
        return None
    if finding.peer is not None:
        return LaneBox(0, "never", "\u2013", "", "never posted") if rank in finding.culprit_ranks else None
    if rank not in finding.group.ranks or finding.group.key < 0:
        return None
    reason = presence.absence(rank, finding.group.key, finding.seq)
    kind = "never" if reason is Absence.NEVER_ISSUED else "unknown"
    return LaneBox(0, kind, "\u2013", "", str(reason))


def _group(dataset: Dataset, row: Mapping[str, Any]) -> str:
    if row["group"] is None:
        return ""
    of = dataset.group_list[row["group"]]
    return of.description or group_name(of.name, "")


def _left_out(dataset: Dataset, finding: Finding, roles: Mapping[int, str]) -> str:
    """A sentence on ranks that are not drawn."""
    counts = (
        ("accused", finding.culprit_ranks), ("under suspicion", () if finding.culprit_ranks else finding.candidates),
        ("waiting", [rank for rank in finding.waiting_ranks if rank not in finding.culprit_ranks]),
        ("other", [r for r in dataset.every_rank if r not in {*finding.culprit_ranks, *finding.waiting_ranks}]),
    )  # fmt: skip
    left = [(len([rank for rank in ranks if rank not in roles]), name) for name, ranks in counts]
    parts = [f"{plural(number, 'rank')} {name}" for number, name in left if number]
    return f" Not drawn: {', '.join(parts)}." if parts else ""


# Drawing.


def _drawn(lanes: Sequence[Lane], columns: Sequence[int], target: int | None, place: str, left: str) -> Picture:
    width = min(_WIDEST, (WIDTH - _LEFT - 4) / len(columns))
    at = {column: _LEFT + number * width for number, column in enumerate(columns)}
    bottom = float(_TOP + _ROW * len(lanes))
    marks: list[Node] = []
    if target is not None:
        marks.append(area(at[target] - 3, _TOP - 6, width + 1, bottom - _TOP + 2, "calm"))
        end = at[target] > WIDTH / 2
        marks.append(
            words(
                at[target] + (width - 5 if end else 0), _TOP - 14, f"\u2193 {place}", f"hot{' end' if end else ''}", 70
            )
        )
    for before, after in pairwise(columns):
        if after > before + 1:
            marks.append(rule(at[after] - 3, _TOP - 6, at[after] - 3, bottom - 4, "limit"))
    for number, lane in enumerate(lanes):
        y = float(_TOP + _ROW * number)
        marks += [words(0, y + 20, f"rank {lane.rank}", "strong"), words(0, y + 36, lane.role, _ROLES[lane.role])]
        marks += [_drawn_box(box, at[box.column], y, width - 6) for box in lane.boxes]
        marks.append(words(_LEFT, y + 28, lane.note, "soft") if lane.note else None)
    marks += _legend({box.kind for lane in lanes for box in lane.boxes}, bottom + 10)
    title = f"Lanes around {place}" if place else "The last operations of each rank"
    plus = " A + tells how long after the first of these ranks one came." if target is None else ""
    gap = " Dotted lines: operations between are not drawn." if any(b > a + 1 for a, b in pairwise(columns)) else ""
    return Picture(title, f"{' '.join(map(_sentence, lanes))}{plus}{gap}{left}", bottom + 40, marks)


_ROLES = {"culprit": "hot", "suspect": "hot", "waits": "soft", "other": "soft"}
"""Classes of the words for a rank's part."""


def _sentence(lane: Lane) -> str:
    """A lane in words: its last operation, and what it lacks."""
    if not lane.boxes:
        return f"Rank {lane.rank} ({lane.role}): {lane.note}."
    parts = [f"{box.group} {box.op} {box.state}".strip() for box in lane.boxes if box.op != "\u2013"][-1:]
    parts += [f"{box.group} {box.state}" for box in lane.boxes if box.op == "\u2013"]
    return f"Rank {lane.rank} ({lane.role}): {'; '.join(parts)}."


def _drawn_box(box: LaneBox, x: float, y: float, width: float) -> Node:
    """A box with operation, group and state; frame and mark tell the state without colour, too."""
    most = max(8, int((width - 8) / _CHARACTER))
    frame = area(x, y, width, _BOX, f"op {box.kind}", f"{box.group} {box.op}, {box.state}".strip())
    op = f"\u2260 {box.op}" if box.kind == "differs" else box.op
    return group[
        frame,
        words(x + 5, y + 15, op, "code strong", most),
        words(x + 5, y + 29, "" if box.op == "\u2013" else box.group, "code soft", most),
        _mark(box.kind, x + 10, y + 40),
        words(x + 19, y + 43, clipped(box.state, most - 2), "code"),
    ]


def _mark(kind: str, x: float, y: float) -> Node:
    """The mark of a state: a disc, a triangle, a ring, a cross, a question mark, a sign of inequality, a bar."""
    match kind:
        case "completed":
            return circle(cx=px(x), cy=px(y), r="4", class_="sign-done")
        case "started":
            return curve(d=f"M{px(x - 3)} {px(y - 4)}L{px(x + 4)} {px(y)}L{px(x - 3)} {px(y + 4)}Z", class_="sign-run")
        case "pending":
            return circle(cx=px(x), cy=px(y), r="3.5", class_="sign-wait")
        case "aborted" | "never":
            return curve(
                d=f"M{px(x - 4)} {px(y - 4)}L{px(x + 4)} {px(y + 4)}M{px(x - 4)} {px(y + 4)}L{px(x + 4)} {px(y - 4)}",
                class_="sign-cross",
            )
    return words(x, y + 4, "\u2260" if kind == "differs" else "?", "middle strong")


def _legend(kinds: Collection[str], y: float) -> Iterator[Node]:
    x = 2.0
    for kind, name in SHAPES.items():
        if kind in kinds:
            yield area(x, y, 22, 14, f"op {kind}")
            yield _mark(kind, x + 11, y + 7)
            yield words(x + 27, y + 11, name, "small soft")
            x += 44 + 6.2 * len(name)
