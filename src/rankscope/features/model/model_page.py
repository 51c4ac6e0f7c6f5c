"""The page of models: bytes of each rank by coverage, and each parameter with the ranks that hold it alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import polars as pl
from textual import on, work
from textual.message import Message

from rankscope.analysis.model import Analysis, Finding
from rankscope.features.model.model import MODEL_RESULTS
from rankscope.features.model.model_section import shown_head, shown_rows
from rankscope.features.model.parameter_sides import (
    ParameterSide,
    marked_parameters,
    parameter_rows,
    sides_of,
)
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import byte_count, clipped, plural, ranks_text
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.screens.page import TablePage, Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Role, Span, cut, line

RankRow = tuple[str, ...]
"""The texts of a rank below those of `shown_head`; an outlier has a star behind its number."""
ParameterRow = dict[str, Any]
"""A parameter, summed up over ranks."""


@dataclass
class Listed(Message):
    """The parameters are summed up over ranks."""

    rows: list[ParameterRow]


class ModelScreen(TablePage[RankRow | ParameterRow]):
    """The model of each rank; dismisses with a rank."""

    WAYS = (Way("m", "part", "ranks or parameters"),)
    DEFAULT_CSS = "ModelScreen #text { height: 8; max-height: 50%; }"
    VIEW = "model"
    ENTER = "go to rank"
    FIND_HINT = "a rank: 12; of parameters a part of the name"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        self.dataset, self.analysis = dataset, analysis
        model = MODEL_RESULTS.find(analysis)
        self._head = shown_head(model) if model is not None else ()
        self._ranks: list[RankRow] = list(shown_rows(model, model.held.height)) if model is not None else []
        self._marks = marked_parameters(model) if model is not None else {}
        self._parameters: list[ParameterRow] | None = None
        """None while they are summed up."""
        self.by_rank = True
        self._sides: dict[str, list[ParameterSide]] = {}
        super().__init__(options or ViewOptions())

    def table(self) -> Columns[Any]:
        """The columns of ranks, or those of parameters."""
        if self.by_rank:
            columns = (
                Col[RankRow](title=name, cell=itemgetter(at), fits=True, right=True)
                for at, name in enumerate(self._head)
            )
            return Columns(*columns)
        return Columns[ParameterRow](
            Col(title="", cell=lambda row: Span("!" if row["name"] in self._marks else "", "bad"), width=1),
            Col(title="parameter", cell=lambda row: partial(clipped, plain(row["name"])), width=34),
            Col(title="coverage", cell=lambda row: row["coverage"], width=11),
            Col(title="least", cell=lambda row: byte_count(row["least"]), width=8, right=True),
            Col(title="most", cell=lambda row: byte_count(row["most"]), width=8, right=True),
            Col(title="shape", cell=lambda row: f"{_shape(row['shape'])} {plain(row['dtype'])}"),
        )

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether there is no record of a model."""
        return dataset.parameters.is_empty() or MODEL_RESULTS.find(analysis) is None

    def begin(self) -> None:
        """Starts to sum up the parameters."""
        super().begin()
        if self._ranks:
            self._sum_up()

    @work(thread=True)
    def _sum_up(self) -> None:
        """Sums up the parameters: a second for millions, for which no key should wait."""
        rows = parameter_rows(self.dataset.parameters).rows(named=True)
        self.post_message(Listed(sorted(rows, key=lambda row: (row["name"] not in self._marks, -row["total"]))))

    @on(Listed)
    def _listed(self, event: Listed) -> None:
        self._parameters = event.rows
        if not self.by_rank:
            self.fill()
            self.draw_bars()

    def heading(self) -> list[Line]:
        """The first finding, and the names of the columns."""
        title = Span(" model", "head")
        if not self._ranks:
            return [line(title, "  none")]
        findings = self._findings()
        first = Span(plain(findings[0].title), "bad") if findings else Span("no rank differs from its peers", "good")
        return [cut(line(" ", first), self.size.width), self.titles("bold")]

    def _findings(self) -> list[Finding]:
        return [finding for finding in self.analysis.findings if FINDINGS[finding.kind].view == self.VIEW]

    def rows(self) -> Sequence[RankRow | ParameterRow]:
        """Ranks, or parameters."""
        return self._ranks if self.by_rank else self._parameters or []

    def has(self, row: RankRow | ParameterRow, text: str) -> bool:
        """Whether it is the rank `text`, or a parameter with it in its name."""
        return text in row["name"].lower() if isinstance(row, dict) else row[0].rstrip("*") == text

    def look(self, row: RankRow | ParameterRow) -> Role:
        """Marks outliers."""
        return "bad" if not isinstance(row, dict) and row[0].endswith("*") else "text"

    def about(self, row: RankRow | ParameterRow, width: int) -> list[Line]:
        """The findings on a rank with its largest parameters of each coverage, or the sides of a parameter."""
        del width
        if not isinstance(row, dict):
            rank = _rank(row)
            findings = [finding for finding in self._findings() if rank in finding.about]
            lines = [line(Span(finding.kind, "bad"), f"  {plain(finding.title)}") for finding in findings]
            rows = self.dataset.parameters.filter((pl.col("rank") == rank) & ~pl.col("buffer"))
            largest_first = parameter_rows(rows).sort("total", descending=True, maintain_order=True)
            for coverage, part in largest_first.group_by("coverage", maintain_order=True):
                names = ", ".join(plain(name) for name in part["name"].head(3))
                more = f", {part.height - 3:,} more" if part.height > 3 else ""
                lines.append(
                    line(Span(f"{coverage[0]}  ", "dim"), f"{byte_count(int(part['most'].sum()))}: {names}{more}")
                )
            return lines
        name = row["name"]
        mark = [Span(f"  {self._marks[name]}", "bad")] if name in self._marks else []
        if name not in self._sides:
            self._sides[name] = sides_of(self.dataset.parameters, name)
        head = line(Span(plain(name), "head"), f"  on {plural(row['ranks'], 'rank')}", *mark)
        return [head, *map(_side_line, self._sides[name])]

    def action_part(self) -> None:
        """Shows parameters instead of ranks, or ranks again."""
        self.by_rank = not self.by_rank
        self.fill()
        self.draw_bars()

    def choose(self, at: int) -> None:
        """Goes to the lanes of the rank, or of the first rank that holds a parameter otherwise than most."""
        row = self.row(at)
        rank = sides_of(self.dataset.parameters, row["name"])[-1].ranks[0] if isinstance(row, dict) else _rank(row)
        if self.dataset.ops.is_empty():
            self.note(f"rank {rank} has no lane: give flight recorder dumps or traces, too")
        else:
            self.dismiss(Selection(rank))

    def nothing(self) -> list[Line]:
        """The text for an empty list: how to record a model, or what was looked for."""
        if not self.by_rank and self._parameters is None:
            return [line(Span("summing up the parameters", "dim"))]
        return super().nothing()


def _rank(row: RankRow) -> int:
    return int(row[0].rstrip("*"))


def _shape(sizes: list[int]) -> str:
    """A shape without spaces: "[4096,1024]"."""
    return f"[{','.join(map(str, sizes))}]"


def _side_line(side: ParameterSide) -> Line:
    """Ranks, and how they hold a parameter."""
    held = side.values
    words = [_shape(held["local"]), held["dtype"], "trained" if held["requires_grad"] else "frozen", held["device"]]
    words += [held["wrapper"] or "no wrapper", held["placements"]]
    mesh = f" on {held['mesh']}" if held["mesh"] else ""
    sizes = [byte_count(held["bytes"])]
    sizes += [
        f"{name} {byte_count(held[f'{name}_bytes'])} {held[name]}" for name in ("gradient", "state") if held[name]
    ]
    text = f"{' '.join(plain(word) for word in words if word)}{plain(mesh)}: {', '.join(sizes)}"
    return line(Span(f"{ranks_text(side.ranks, 24)}  ", "bold"), text)
