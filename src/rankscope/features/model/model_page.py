"""The page of models: bytes of each rank by coverage, and each parameter with the ranks that hold it alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
from textual import on, work
from textual.binding import Binding, BindingType
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
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, cut, line, wrapped

_NAME = 34
"""Cells of the name of a parameter."""
_HEADS = f"   {'parameter':<{_NAME}} {'coverage':<11} {'least':>8} {'most':>8}  shape"


@dataclass
class Listed(Message):
    """The parameters are summed up over ranks."""

    rows: list[dict[str, Any]]


class ModelScreen(ListPage):
    """The model of each rank; dismisses with a rank."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("m", "part", "ranks or parameters")]
    DEFAULT_CSS = "ModelScreen #text { height: 8; max-height: 50%; }"
    VIEW = "model"
    ENTER = "go to rank"
    FIND_HINT = "a rank: 12; of parameters a part of the name"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        model = MODEL_RESULTS.find(analysis)
        self._ranks = list(shown_rows(model, model.held.height)) if model is not None else []
        self._marks = marked_parameters(model) if model is not None else {}
        self._parameters: list[dict[str, Any]] | None = None
        """None while they are summed up."""
        self.by_rank = True
        self._shown: list[int] = []
        self._sides: dict[str, list[ParameterSide]] = {}

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether there is no record of a model."""
        return dataset.parameters.is_empty() or MODEL_RESULTS.find(analysis) is None

    def on_mount(self) -> None:
        """Starts to sum up the parameters."""
        super().on_mount()
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

    # Drawing

    def heading(self) -> list[Line]:
        """The first finding, and the names of the columns."""
        title = Span(" model", "head")
        if not self._ranks:
            return [line(title, "  none")]
        found = self._findings()
        told = Span(plain(found[0].title), "bad") if found else Span("no rank differs from its peers", "good")
        heads = Span(
            self._row(shown_head(MODEL_RESULTS.of(self.analysis)))
            if MODEL_RESULTS.find(self.analysis) is not None
            else "",
            "bold",
        )
        return [cut(line(" ", told), self.size.width), line(heads if self.by_rank else Span(_HEADS, "bold"))]

    def _findings(self) -> list[Finding]:
        return [finding for finding in self.analysis.findings if FINDINGS[finding.kind].view == self.VIEW]

    def _row(self, cells: tuple[str, ...]) -> str:
        """Cells in columns as wide as their widest."""
        head = shown_head(MODEL_RESULTS.of(self.analysis)) if MODEL_RESULTS.find(self.analysis) is not None else ()
        widths = [max(len(row[at]) for row in (head, *self._ranks)) for at in range(len(head))]
        return " " + " ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))

    def search(self, text: str) -> int:
        """Lists ranks, or parameters with the text in their name."""
        if self.by_rank:
            found = [not text or row[0].rstrip("*") == text for row in self._ranks]
        else:
            found = [text in row["name"].lower() for row in self._parameters or ()]
        self._shown = [at for at, is_found in enumerate(found) if is_found]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A rank with its bytes, or a parameter."""
        if self.by_rank:
            row = self._ranks[self._shown[at]]
            return cut(line(Span(self._row(row), "bad" if row[0].endswith("*") else "text")), width)
        told = self._parameter(at)
        sizes = " ".join(f"{byte_count(told[name]):>8}" for name in ("least", "most"))
        name = clipped(plain(told["name"]), _NAME)
        rest = f" {name:<{_NAME}} {told['coverage']:<11} {sizes}  {_shape(told['shape'])} {plain(told['dtype'])}"
        return cut(line(Span(" !" if told["name"] in self._marks else "  ", "bad"), rest), width)

    def _parameter(self, at: int) -> dict[str, Any]:
        assert self._parameters is not None
        return self._parameters[self._shown[at]]

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The findings on a rank with its largest parameters of each coverage, or the sides of a parameter."""
        if self.by_rank:
            return wrapped(self._rank_text(self._rank(at)), width, 2)
        told = self._parameter(at)
        name = told["name"]
        mark = [Span(f"  {self._marks[name]}", "bad")] if name in self._marks else []
        if name not in self._sides:
            self._sides[name] = sides_of(self.dataset.parameters, name)
        head = line(Span(plain(name), "head"), f"  on {plural(told['ranks'], 'rank')}", *mark)
        return wrapped([head, *(_side_line(side) for side in self._sides[name])], width, 2)

    def _rank(self, at: int) -> int:
        return int(self._ranks[self._shown[at]][0].rstrip("*"))

    def _rank_text(self, rank: int) -> list[Line]:
        own = [finding for finding in self._findings() if rank in finding.about]
        lines = [line(Span(finding.kind, "bad"), f"  {plain(finding.title)}") for finding in own]
        rows = self.dataset.parameters.filter((pl.col("rank") == rank) & ~pl.col("buffer"))
        told = parameter_rows(rows).sort("total", descending=True, maintain_order=True)
        for coverage, part in told.group_by("coverage", maintain_order=True):
            names = ", ".join(plain(name) for name in part["name"].head(3))
            more = f", {part.height - 3:,} more" if part.height > 3 else ""
            lines.append(line(Span(f"{coverage[0]}  ", "dim"), f"{byte_count(int(part['most'].sum()))}: {names}{more}"))
        return lines

    # Keys

    def action_part(self) -> None:
        """Shows parameters instead of ranks, or ranks again."""
        self.by_rank = not self.by_rank
        self.fill()
        self.draw_bars()

    def choose(self, at: int) -> None:
        """Goes to the lanes of the rank, or of the first rank that holds a parameter otherwise than most."""
        name = "" if self.by_rank else self._parameter(at)["name"]
        sides = sides_of(self.dataset.parameters, name) if name else []
        rank = sides[-1].ranks[0] if sides else self._rank(at)
        if self.dataset.ops.is_empty():
            self.note(f"rank {rank} has no lane: give flight recorder dumps or traces, too")
        else:
            self.dismiss(Selection(rank))

    def nothing(self) -> list[Line]:
        """The text for an empty list: how to record a model, or what was looked for."""
        if not self.by_rank and self._parameters is None:
            return [line(Span("summing up the parameters", "dim"))]
        return super().nothing()


def _shape(sizes: list[int]) -> str:
    """A shape without spaces: "[4096,1024]"."""
    return f"[{','.join(map(str, sizes))}]"


def _side_line(side: ParameterSide) -> Line:
    """Ranks, and how they hold a parameter."""
    told = side.values
    words = [_shape(told["local"]), told["dtype"], "trained" if told["requires_grad"] else "frozen", told["device"]]
    words += [told["wrapper"] or "no wrapper", told["placements"]]
    mesh = f" on {told['mesh']}" if told["mesh"] else ""
    sizes = [byte_count(told["bytes"])]
    sizes += [
        f"{name} {byte_count(told[f'{name}_bytes'])} {told[name]}" for name in ("gradient", "state") if told[name]
    ]
    text = f"{' '.join(plain(word) for word in words if word)}{plain(mesh)}: {', '.join(sizes)}"
    return line(Span(f"{ranks_text(side.ranks, 24)}  ", "bold"), text)
