"""The page of collectives: costs by type and size, waits of ranks, and who sends how much to whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.traces.collectives_section import (
    UNKNOWN,
    group_text,
    load_lines,
    size_rows,
    size_text,
    speed_text,
    wait_lines,
)
from rankscope.features.traces.rules.collective_costs import COLLECTIVE_RESULTS, CollectiveCosts
from rankscope.features.traces.rules.trace_story import group_label
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, digits, duration, plural, ranks_text
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.screens.page import TablePage, Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import GroupFilter, Selection
from rankscope.tui.styled_text import Line, Role, Span, cut, line

Part = Literal["sizes", "ranks", "pairs"]
"""What the rows are: operations by type and size, ranks, or pairs of ranks of all_to_alls."""
PARTS: tuple[Part, ...] = ("sizes", "ranks", "pairs")
Row = dict[str, Any]
_WIDE = 110
TENTHS = 10


def _narrow(few: int, many: int) -> Callable[[int], int]:
    """Cells of a column on narrow and on wide screens."""
    return lambda cells: few if cells < _WIDE else many


def _waited_share(row: Row) -> float:
    return float(100 * row["waited_ns"] / max(row["total_ns"], 1))


SIZE_COLUMNS = Columns[Row](
    Col(title="operation", cell=lambda row: plain(row["op"]), width=_narrow(20, 34), fits=True),
    Col(title="size", cell=size_text, width=10, fits=True, right=True),
    Col(title="of", cell=lambda row: plain(group_text(row)), width=_narrow(10, 26), fits=True),
    Col(title="times", cell=lambda row: f"{row['count']:,}", width=8, fits=True, right=True),
    Col(title="latency", cell=lambda row: duration(row["median_ns"]), width=8, fits=True, right=True),
    Col(title="busbw", cell=lambda row: speed_text(row["busbw"]), width=10, fits=True, right=True),
    Col(title="skew", cell=lambda row: duration(row["skew_ns"]), width=8, fits=True, right=True),
    Col(title="waited", cell=lambda row: duration(row["waited_ns"]), width=8, fits=True, right=True),
    Col(title="most skew", cell=lambda row: duration(row["most_skew_ns"]), width=9, right=True, since=_WIDE),
    Col(title="80 % in", cell=lambda row: speed_text(row["low"], row["high"]), width=18, right=True, since=_WIDE),
    Col(title="type", cell=lambda row: plain(row["dtype"] or UNKNOWN), width=10, right=True, since=_WIDE),
)  # fmt: skip
RANK_COLUMNS = Columns[Row](
    Col(title="rank", cell=lambda row: str(row["rank"]), width=6, right=True),
    Col(title="waited", cell=lambda row: duration(row["waited_ns"]), width=9, right=True),
    Col(title="in all", cell=lambda row: duration(row["total_ns"]), width=9, right=True),
    Col(title="share", cell=lambda row: f"{_waited_share(row):.0f}%", width=6, right=True),
    Col(title="times", cell=lambda row: f"{row['count']:,}", width=8, right=True),
    Col(title="last", cell=lambda row: f"{row['last']:,}", width=8, right=True),
)  # fmt: skip
PAIR_COLUMNS = Columns[Row](
    Col(title="from", cell=lambda row: str(row["rank"]), width=6, right=True),
    Col(title="to", cell=lambda row: str(row["peer"]), width=6, right=True),
    Col(title="bytes", cell=lambda row: byte_count(row["bytes"]), width=9, right=True),
    Col(title="of mean", cell=lambda row: f"{digits(row['ratio'])}x", width=8, right=True),
    Col(title="calls", cell=lambda row: f"{row['count']:,}", width=8, right=True),
    Col(title="of", cell=lambda row: plain(row["of"])),
)


class CollectivesScreen(TablePage[Row]):
    """Costs of collectives; dismisses with a group, or with a rank."""

    WAYS = (Way("m", "part", "sizes, ranks or pairs"),)
    DEFAULT_CSS = "CollectivesScreen #text { height: 11; max-height: 50%; }"
    VIEW = "collectives"
    ENTER = "go there"
    FIND_HINT = "part of an operation or group; of ranks and pairs a rank: 12"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        self.dataset, self.analysis = dataset, analysis
        self.costs = COLLECTIVE_RESULTS.find(analysis) or CollectiveCosts()
        self.part: Part = "sizes"
        self._rows: dict[Part, Sequence[Row]] = {
            "sizes": size_rows(dataset, self.costs).rows(named=True) if not self.costs.sizes.is_empty() else (),
            "ranks": self.costs.ranks.sort(-pl.col("waited_ns"), "rank").rows(named=True),
            "pairs": pair_rows(dataset, self.costs),
        }
        super().__init__(options or ViewOptions())

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether no collective has a time on several ranks."""
        del dataset
        costs = COLLECTIVE_RESULTS.find(analysis)
        return costs is None or costs.sizes.is_empty()

    def table(self) -> Columns[Row]:
        """The columns of the shown part."""
        return {"sizes": SIZE_COLUMNS, "ranks": RANK_COLUMNS, "pairs": PAIR_COLUMNS}[self.part]

    def heading(self) -> list[Line]:
        """The unevenness of loads and waits, else the source of times; then the names of the columns."""
        title = Span(" collectives", "head")
        if not self._rows["sizes"]:
            return [line(title, "  none")]
        told = [*load_lines(self.dataset, self.costs), *wait_lines(self.costs)]
        first = plain(told[0]) if told else f"from {self.costs.origin}; no rank waits much longer than others"
        what = {
            "sizes": "latency: of the fastest rank; waited: by all ranks",
            "ranks": "waited: for the last rank; last: how often it was that",
            "pairs": "bytes of all_to_all, against the mean pair of the group",
        }[self.part]
        head = line(title, Span(f"  {self.part}  ", "bold"), Span(what, "dim"))
        return [cut(line(f" {first}"), self.size.width), cut(head, self.size.width), self.titles("bold")]

    def rows(self) -> Sequence[Row]:
        """The rows of the shown part, those that cost most first."""
        return self._rows[self.part]

    def has(self, row: Row, text: str) -> bool:
        """Whether a row has `text` in its operation or group, or is about a rank."""
        if self.part == "sizes":
            return text in f"{row['op']} {row['of']} {row['dtype']}".lower()
        return text in (str(row["rank"]), str(row.get("peer"))) or text in row.get("of", "").lower()

    def look(self, row: Row) -> Role:
        """A rank to blame stands out."""
        return "bad" if row.get("rank") in self.analysis.culprits else "text"

    def about(self, row: Row, width: int) -> list[Line]:
        """All that is known of a row; of a pair the map of its group."""
        if self.part == "sizes":
            return self._about_size(row)
        if self.part == "ranks":
            told = (
                f"waited {duration(row['waited_ns'])} of {duration(row['total_ns'])} ({_waited_share(row):.0f} %) in "
                f"{plural(row['count'], 'collective')}; came last to {row['last']:,}"
            )
            return [line(Span(f"rank {row['rank']}  ", "head"), told)]
        return [*map(line, load_lines(self.dataset, self.costs)), *pair_map(self.costs.pairs, row["group"], width)]

    def _about_size(self, row: Row) -> list[Line]:
        groups = [self.dataset.group_list[group] for group in row["groups"]]
        members = ranks_text(sorted({rank for group in groups for rank in group.ranks}))
        of = plain(row["of"]) + (f" in {len(groups)} groups" if len(groups) > 1 else "")
        lines = [line(Span(f"{plain(row['op'])} {size_text(row)}  ", "head"), f"{of}: {members}")]
        if row["alike"] > 1:
            lines.append(line(f"{row['alike']} sizes, of which this is the mean"))
        if row["busbw"] is not None:
            lines.append(
                line(
                    Span("speed  ", "dim"),
                    f"algbw {speed_text(row['algbw'])}, busbw {speed_text(row['busbw'])}, 80 % in "
                    f"{speed_text(row['low'], row['high'])}",
                )
            )
        skew = f"first to last start {duration(row['skew_ns'])} (median), at most {duration(row['most_skew_ns'])}"
        waited = "" if row["waited_ns"] is None else f"; all ranks together waited {duration(row['waited_ns'])}"
        lines.append(line(Span("wait   ", "dim"), skew + waited))
        if row["median_ns"] is None:
            lines.append(line(Span("a member may be done before another has come, so this time is no measure", "dim")))
        return lines

    def action_part(self) -> None:
        """Shows the next part that has rows."""
        later = PARTS[PARTS.index(self.part) + 1 :] + PARTS
        self.part = next((part for part in later if self._rows[part]), self.part)
        self.fill()
        self.draw_bars()

    def choose(self, at: int) -> None:
        """Shows only the group of an operation, or goes to a rank."""
        row = self.row(at)
        self.dismiss(GroupFilter(row["groups"][0]) if self.part == "sizes" else Selection(row["rank"]))


# Pairs of ranks as rows, and as a map. No widget, no terminal.


def pair_rows(dataset: Dataset, costs: CollectiveCosts) -> list[Row]:
    """PAIRS with the label `of` of the group, and the `ratio` to the mean pair of it; those with most bytes first."""
    mean = pl.col("bytes").mean().over("group")
    table = costs.pairs.with_columns(ratio=pl.when(mean > 0).then(pl.col("bytes") / mean).otherwise(0.0))
    rows = table.sort(-pl.col("bytes"), "group", "rank", "peer").rows(named=True)
    labels = {row["group"]: group_label(dataset.group_list, row["group"], dataset.world_size) for row in rows}
    return [{**row, "of": labels[row["group"]]} for row in rows]


def pair_map(pairs: pl.DataFrame, group: int, width: int) -> list[Line]:
    """A line for each rank of a group with what it sends to each, in tenths of the largest pair."""
    own = pairs.filter(group=group)
    sent = {(rank, peer): count for rank, peer, count in own.select("rank", "peer", "bytes").iter_rows()}
    ranks = sorted({rank for pair in sent for rank in pair})
    most = max(sent.values(), default=0)
    lead = max(len(str(rank)) for rank in ranks) + 5
    cells = max(1, min(2, (width - lead) // len(ranks)))
    lines = [line(Span(f"tenths of {byte_count(most)}, the largest pair; columns: to {ranks_text(ranks)}", "dim"))]
    for rank in ranks:
        marks = [f"{_tenth(sent.get((rank, peer)), most):>{cells}}" for peer in ranks]
        lines.append(line(Span(f"{f'from {rank}':<{lead}}", "dim"), "".join(marks)))
    return lines


def _tenth(count: int | None, most: int) -> str:
    if count is None:
        return "?"
    return "." if not count else str(min(TENTHS * count // max(most, 1), TENTHS - 1))
