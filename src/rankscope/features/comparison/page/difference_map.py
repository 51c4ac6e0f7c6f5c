"""Ranks by steps, or series by steps: how much B differs from A, as a character and a colour for each cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from textual.binding import Binding, BindingType

from rankscope.features.comparison.page.compared_view import ComparedView, TargetPage, shown
from rankscope.features.comparison.rules.series_comparison import VALUE_NAMES, Floats
from rankscope.features.comparison.rules.series_curves import Curves, SeriesKey, curves, series_keys
from rankscope.features.traces.rules.model import TRACE_RESULTS, TraceAnalysis
from rankscope.text.wording import duration, ranks_text
from rankscope.tui.detail.screens.heat_page import LABEL, METRICS, GridPage, HeatRow, fold_rows, row_head
from rankscope.tui.key_hints import Hint
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import HEAT, Line, Role, Span, cut, line, wrapped

Codes = NDArray[np.int8]
NOTHING, EQUAL, FAINTEST, ODD = 0, 1, 2, 12
"""Codes of cells: not comparable; equal; the smallest of ten sizes of a difference; not a number in one run."""
SIZES = 10
FASTER = 16
"""Added to the code of a time that is shorter in B."""
LEAST_TIME = 0.03
"""A smaller change of a time, as a share of the step, counts as equal: runs of one setting differ so much."""
MOST_RANKS = 4096
"""Most ranks of a map of a series."""


@dataclass(frozen=True)
class DifferenceMap:
    """One quantity of both runs, rows x steps."""

    title: str
    rows: tuple[str, ...]
    """Labels of the rows; "" for rows of ranks."""
    ranks: tuple[int | None, ...]
    """The rank of each row; None for a series of the job."""
    steps: tuple[int, ...]
    a: Floats
    b: Floats
    codes: Codes
    is_time: bool = False
    """Whether the values are nanoseconds."""


def value_codes(found: Curves) -> Codes:
    """The code of each step of a series: the decade of the relative difference, from 1e-9 up to 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        decade = np.floor(np.log10(found.relative))
    size = np.clip(np.nan_to_num(decade, nan=0.0, posinf=0.0, neginf=-9.0) + 9, 0, SIZES - 1).astype(np.int8)
    odd = ~np.isfinite(found.a) | ~np.isfinite(found.b)
    codes = np.where(found.differs, np.where(odd, ODD, FAINTEST + size), EQUAL)
    return np.where(found.both, codes, NOTHING).astype(np.int8)


def time_codes(a: Floats, b: Floats, step_a: Floats) -> Codes:
    """The code of each cell: the change of a time as tenths of A's step; a shorter time counts as faster."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = (b - a) / step_a
    size = np.clip(np.nan_to_num(np.abs(change), nan=0.0, posinf=1.0) * SIZES, 0, SIZES - 1).astype(np.int8)
    codes = np.where(np.abs(change) < LEAST_TIME, EQUAL, FAINTEST + size + np.where(change < 0, FASTER, 0))
    return np.where(np.isfinite(change), codes, NOTHING).astype(np.int8)


def look_of(code: int, *, is_time: bool) -> Span:
    """The character and the role of a cell. Values: the exponent of the relative difference, so 3 is 1e-3 and more.
    Times: tenths of the step, as digits where B is slower and as letters where it is faster.
    """
    if code == NOTHING:
        return Span(" ")
    if code == EQUAL:
        return Span(".", "dim")
    if code == ODD:
        return Span("N", HEAT[-1])
    size = (code - FAINTEST) % FASTER
    if is_time:
        faster = code >= FAINTEST + FASTER
        return Span(chr(ord("a") + size) if faster else str(size), "good" if faster else HEAT[size // 2])
    return Span(str(SIZES - 1 - size), HEAT[size // 2])


# The maps of a comparison.


def difference_maps(view: ComparedView) -> list[DifferenceMap]:
    """All series by step, each series by rank and step, and times of steps by rank, as far as both runs have them."""
    keys, whole = _mapped(view), view.whole
    own: dict[str, list[Curves]] = {}
    for name in dict.fromkeys(key.name for key in keys):
        ranks = sorted((key for key in keys if key.name == name), key=lambda key: -1 if key.rank is None else key.rank)
        own[name] = curves(whole.series.tables, ranks[:MOST_RANKS], whole.baselines)
    maps = [_of_names(own)] if own else []
    maps += [_of_ranks(name, found) for name, found in own.items() if len(found) > 1]
    return [*maps, *_of_times(view)]


def _mapped(view: ComparedView) -> list[SeriesKey]:
    """The series that are compared; speeds and sizes of memory differ in each step."""
    keys = series_keys(view.whole.series.tables, view.whole.grounds.series)
    return [key for key in keys if key.name in VALUE_NAMES]


def _traced_steps(view: ComparedView) -> list[pl.DataFrame]:
    """The steps of the profiler traces of both runs."""
    return [(TRACE_RESULTS.find(run.analysis) or TraceAnalysis()).steps for run in view.whole.pair]


def _on_steps(found: Sequence[Curves]) -> tuple[tuple[int, ...], Floats, Floats, Codes]:
    """Some series on the steps of all of them: both values and the codes, series x steps."""
    steps = np.unique(np.concatenate([one.steps for one in found]))
    a, b = np.full((len(found), len(steps)), np.nan), np.full((len(found), len(steps)), np.nan)
    codes = np.zeros(a.shape, np.int8)
    for row, one in enumerate(found):
        at = np.searchsorted(steps, one.steps)
        a[row, at], b[row, at], codes[row, at] = one.a, one.b, value_codes(one)
    return tuple(steps.tolist()), a, b, codes


def _of_ranks(name: str, found: Sequence[Curves]) -> DifferenceMap:
    steps, a, b, codes = _on_steps(found)
    ranks = tuple(one.key.rank for one in found)
    return DifferenceMap(f"{name} by rank", ("",) * len(found), ranks, steps, a, b, codes)


def _of_names(named: dict[str, list[Curves]]) -> DifferenceMap:
    """A row for each name: the rank that differs most stands for all."""
    parts = [_on_steps(found) for found in named.values()]
    steps = np.unique(np.concatenate([np.array(part[0]) for part in parts]))
    a = np.full((len(parts), len(steps)), np.nan)
    b, codes = a.copy(), np.zeros(a.shape, np.int8)
    for row, (own, values_a, values_b, own_codes) in enumerate(parts):
        worst, column = own_codes.argmax(axis=0), np.arange(len(own))
        at = np.searchsorted(steps, np.array(own))
        a[row, at], b[row, at] = values_a[worst, column], values_b[worst, column]
        codes[row, at] = own_codes[worst, column]
    return DifferenceMap("all series", tuple(named), (None,) * len(named), tuple(steps.tolist()), a, b, codes)


def _of_times(view: ComparedView) -> Iterator[DifferenceMap]:
    """Metrics of the steps of profiler traces that both runs have, by rank and step."""
    both = _traced_steps(view)
    if any(steps.is_empty() for steps in both):
        return
    keys = ["rank", "step"]
    for metric in METRICS:
        step_time = (pl.col("end_ns") - pl.col("start_ns")).max().alias("length")
        one, other = (
            steps.drop_nulls(keys).group_by(keys).agg(metric.column.max().cast(pl.Float64).alias("value"), step_time)
            for steps in both
        )
        pairs = one.join(other, on=keys, suffix="_b").drop_nulls(["value", "value_b"]).sort(keys)
        if pairs.is_empty():
            continue
        ranks, steps = (np.unique(pairs[name].to_numpy()) for name in keys)
        at = np.searchsorted(ranks, pairs["rank"].to_numpy()), np.searchsorted(steps, pairs["step"].to_numpy())
        a, b, length = (np.full((len(ranks), len(steps)), np.nan) for _ in range(3))
        a[at], b[at], length[at] = (pairs[name].to_numpy() for name in ("value", "value_b", "length"))
        codes = time_codes(a, b, length)
        told = tuple(ranks.tolist()), tuple(steps.tolist())
        yield DifferenceMap(f"{metric.name} by rank", ("",) * len(ranks), *told, a, b, codes, is_time=True)


class Binned(NamedTuple):
    """A map with several steps in a column: the one that differs most stands for all."""

    codes: Codes
    picked: NDArray[np.int64]
    """The step of each cell, as its place in `DifferenceMap.steps`."""
    steps: tuple[int, ...]
    """The first step of each column."""


def binned(found: DifferenceMap, per: int) -> Binned:
    """The map with `per` steps in a column."""
    rows, count = found.codes.shape
    columns = -(-count // per)
    padded = np.zeros((rows, columns * per), np.int8)
    # a faster time weighs as much as a slower one
    padded[:, :count] = found.codes % FASTER
    picked = padded.reshape(rows, columns, per).argmax(axis=2) + np.arange(columns) * per
    return Binned(np.take_along_axis(found.codes, picked, axis=1), picked, found.steps[::per])


class DifferencePage(TargetPage, GridPage):
    """The maps of a comparison."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m,right_square_bracket", "map(1)", "next map", key_display="m M"),
        Binding("M,left_square_bracket", "map(-1)", "previous map", show=False),
        Binding("n", "difference(1)", "next step that differs"),
        Binding("N", "difference(-1)", "previous step that differs"),
        Binding("w,plus,equals_sign", "zoom(-1)", "zoom in and out, all", key_display="w s 0"),
        Binding("s,minus", "zoom(1)", "zoom out", show=False),
        Binding("0", "zoom(0)", "all steps", show=False),
        Binding("u", "unfold", "unfold or fold equal ranks"),
        Binding("x", "greatest", "the greatest difference"),
        Binding("escape", "back", "back"),
    ]
    DEFAULT_CSS = "DifferencePage #text { height: 4; }"
    TITLE = "map"
    CANNOT = frozenset({"other_pane"})
    FIND_HINT = "a rank: 12, or a series"
    OWN = (
        Hint("m", "m", "map"), Hint("n", "n", "next"), Hint("x", "x", "greatest"), Hint("w", "w s", "zoom"),
        Hint("escape", "esc", "back"),
    )  # fmt: skip

    def __init__(self, view: ComparedView, options: ViewOptions, target: str = "") -> None:
        super().__init__(view, options, target)
        self.maps = difference_maps(view)
        self.map = self.maps[0]
        self._per = 1
        self._folded = True
        self._shown: list[HeatRow] = []
        self._binned = binned(self.map, 1)

    @classmethod
    def missing(cls, view: ComparedView) -> str:
        """Why there is no map."""
        if _mapped(view) or not any(steps.is_empty() for steps in _traced_steps(view)):
            return ""
        return "no map: it needs series, or profiler traces with steps, of both runs"

    @property
    def columns(self) -> Sequence[int]:
        """The first step of each column."""
        return self._binned.steps

    def heading(self) -> list[Line]:
        """The runs, the map with its legend, and the numbers of steps."""
        number = f"  {self.maps.index(self.map) + 1} of {len(self.maps)}" if len(self.maps) > 1 else ""
        per = f"  {self._per} steps a cell" if self._per > 1 else ""
        name, count = Span(shown(self.map.title), "bold"), Span(f"{number}{per}  ", "dim")
        title = cut(line(" ", name, count, *legend(self.map.is_time)), self.size.width)
        return [self.title_line(), title, self._ruler()]

    def search(self, text: str) -> int:
        """Lists the rows with a rank or a series."""
        ranks = [rank if rank is not None else -1 - at for at, rank in enumerate(self.map.ranks)]
        apart = frozenset() if self._folded else frozenset(ranks)
        rows = fold_rows(ranks, self._binned.codes, apart | frozenset(rank for rank in ranks if rank < 0))
        rank = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        named = [text in self.map.rows[row.at] for row in rows]
        self._shown = [row for row, fits in zip(rows, named, strict=True) if fits or rank in row.ranks]
        return len(self._shown)

    def head(self, at: int) -> Span:
        """The ranks of a row, or the name of its series."""
        row = self._shown[at]
        name = shown(self.map.rows[row.at])
        return Span(f" {name[: LABEL - 1]:<{LABEL}} ") if name else row_head(row.ranks, " ", "text")

    def look(self, at: int, column: int) -> Span:
        """The character of a cell."""
        return look_of(int(self._binned.codes[self._shown[at].at, column]), is_time=self.map.is_time)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """Both values of the cell under the cursor."""
        row = self._shown[at]
        step = int(self._binned.picked[row.at, self._cell])
        a, b = float(self.map.a[row.at, step]), float(self.map.b[row.at, step])
        name = shown(self.map.rows[row.at]) or ranks_text(row.ranks, 30)
        parts: list[Span | str] = [Span(name, "head"), f"  step {self.map.steps[step]:,}  "]
        code = int(self.map.codes[row.at, step])
        if code == NOTHING:
            return wrapped([line(*parts, Span("not comparable", "dim"))], width, 2)
        told = [duration(round(value)) if self.map.is_time else f"{value:.9g}" for value in (a, b)]
        parts += [f"A {told[0]}  B {told[1]}  ", _words(a, b, code)]
        return wrapped([line(*parts)], width, 2)

    def copied(self) -> str:
        """Both values of the cell under the cursor."""
        words = self.entry_text(self.listing.cursor, 400)[0].plain if self._shown else ""
        return f"{self.map.title}: {words}"

    def on_mount(self) -> None:
        """Shows all steps, with the cursor on the first difference."""
        super().on_mount()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.action_zoom(0)
        self._cell = -1
        self.action_difference(1)
        self._cell = max(self._cell, 0)

    def choose(self, at: int) -> None:
        """Nothing lies behind a cell."""

    # Keys

    def action_map(self, by: int) -> None:
        """Shows the next map."""
        self.map = self.maps[(self.maps.index(self.map) + by) % len(self.maps)]
        self._begin()

    def action_zoom(self, by: int) -> None:
        """Puts half or twice as many steps into a cell; 0 shows all steps."""
        step = int(self._binned.picked[0, self._cell]) if self._binned.picked.size else 0
        room = max(self._room, 1)
        self._per = -(-len(self.map.steps) // room) if not by else max(self._per * 2 if by > 0 else self._per // 2, 1)
        self._rebin(step)

    def _rebin(self, step: int) -> None:
        self._per = min(self._per, max(len(self.map.steps), 1))
        self._binned = binned(self.map, self._per)
        self.fill()
        self.go_step(step // self._per)

    def action_unfold(self) -> None:
        """Gives each rank a row, or folds ranks with equal cells."""
        self._folded = not self._folded
        self.fill()

    def action_difference(self, by: int) -> None:
        """Goes to the next or the previous column in which a row differs, and to that row."""
        shown_rows = [row.at for row in self._shown]
        sizes = self._binned.codes[shown_rows] % FASTER if shown_rows else np.zeros((0, 0), np.int8)
        places = np.flatnonzero((sizes > EQUAL).any(axis=0)) if sizes.size else np.zeros(0, np.int64)
        ahead = places[places > self._cell] if by > 0 else places[places < self._cell][::-1]
        if not len(ahead):
            self.note("no further difference" if by > 0 else "no earlier difference")
            return
        self.go_step(int(ahead[0]))
        self.listing.move_to(int(sizes[:, ahead[0]].argmax()))

    def action_greatest(self) -> None:
        """Goes to the greatest difference."""
        if not self._shown or not self._binned.codes.size:
            return
        sizes = self._binned.codes[[row.at for row in self._shown]] % FASTER
        row, column = np.unravel_index(int(sizes.argmax()), sizes.shape)
        self.listing.move_to(int(row))
        self.go_step(int(column))


def legend(is_time: bool) -> list[Span]:
    """The meaning of the characters."""
    if is_time:
        return [
            Span(". equal  ", "dim"), Span("1", HEAT[1]), Span("..9 slower, "), Span("b", "good"),
            Span("..j faster, tenths of a step"),
        ]  # fmt: skip
    return [Span(". equal  ", "dim"), Span("6", HEAT[1]), Span(" 1e-6  "), Span("2", HEAT[3]), Span(" 1e-2  "),
            Span("N", HEAT[-1]), Span(" no number")]  # fmt: skip


def _words(a: float, b: float, code: int) -> Span:
    """How the values of a cell compare."""
    role: Role = "warn"
    if code == EQUAL:
        return Span("equal", "good")
    if code == ODD:
        return Span("not a number in one run", role)
    return Span(f"{(b / a - 1) * 100:+.3g} %" if a else "A is 0", role)
