"""Maps of a comparison: how much B differs from A by rank or series and step, and two metrics of each rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.text import Text
from textual.binding import BindingType
from textual.widget import Widget
from textual_plotext.plot import Plot

from rankscope.features.comparison.page.compared_view import ComparedView, TargetPage, shown
from rankscope.features.comparison.page.series_page import Drawing, recoloured
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.run_sides import WholeComparison
from rankscope.features.comparison.rules.series_comparison import (
    VALUE_NAMES,
    Curves,
    Floats,
    SeriesKey,
    curves,
    series_keys,
)
from rankscope.features.traces.rules.model import METRICS, TRACE_RESULTS, TraceAnalysis
from rankscope.text.wording import duration, ranks_text
from rankscope.tui.actions import Hint, bound
from rankscope.tui.detail.screens.grid_page import LABEL, GridPage, RankRow, fold_ranks, row_head
from rankscope.tui.detail.screens.page import Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import HEAT, Line, Role, Span, cut, line, wrap, wrapped
from rankscope.tui.text_bars import TextBar

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


def difference_maps(view: ComparedView) -> list[DifferenceMap]:
    """All series by step, each series by rank and step, and times of steps by rank, as far as both runs have them."""
    keys, whole = _mapped(view), view.whole
    by_name: dict[str, list[Curves]] = {}
    for name in dict.fromkeys(key.name for key in keys):
        ranks = sorted((key for key in keys if key.name == name), key=lambda key: -1 if key.rank is None else key.rank)
        by_name[name] = curves(whole.series.tables, ranks[:MOST_RANKS], whole.baselines)
    maps = [_of_names(by_name)] if by_name else []
    maps += [_of_ranks(name, curves_of_name) for name, curves_of_name in by_name.items() if len(curves_of_name) > 1]
    return [*maps, *_of_times(view)]


def _mapped(view: ComparedView) -> list[SeriesKey]:
    """The series that are compared; speeds and sizes of memory differ in each step."""
    keys = series_keys(view.whole.series.tables, view.whole.grounds.series)
    return [key for key in keys if key.name in VALUE_NAMES]


def _traced_steps(view: ComparedView) -> list[pl.DataFrame]:
    """The steps of the profiler traces of both runs."""
    return [(TRACE_RESULTS.find(run.analysis) or TraceAnalysis()).steps for run in view.whole.pair]


def _on_steps(curves_of_rows: Sequence[Curves]) -> tuple[tuple[int, ...], Floats, Floats, Codes]:
    """Some series on the steps of all of them: both values and the codes, series x steps."""
    steps = np.unique(np.concatenate([curve.steps for curve in curves_of_rows]))
    a, b = np.full((len(curves_of_rows), len(steps)), np.nan), np.full((len(curves_of_rows), len(steps)), np.nan)
    codes = np.zeros(a.shape, np.int8)
    for row, curve in enumerate(curves_of_rows):
        at = np.searchsorted(steps, curve.steps)
        a[row, at], b[row, at], codes[row, at] = curve.a, curve.b, value_codes(curve)
    return tuple(steps.tolist()), a, b, codes


def _of_ranks(name: str, curves_of_ranks: Sequence[Curves]) -> DifferenceMap:
    steps, a, b, codes = _on_steps(curves_of_ranks)
    ranks = tuple(curve.key.rank for curve in curves_of_ranks)
    return DifferenceMap(f"{name} by rank", ("",) * len(curves_of_ranks), ranks, steps, a, b, codes)


def _of_names(named: dict[str, list[Curves]]) -> DifferenceMap:
    """A row for each name: the rank that differs most stands for all."""
    parts = [_on_steps(curves_of_name) for curves_of_name in named.values()]
    steps = np.unique(np.concatenate([np.array(part[0]) for part in parts]))
    a = np.full((len(parts), len(steps)), np.nan)
    b, codes = a.copy(), np.zeros(a.shape, np.int8)
    for row, (steps_of_name, values_a, values_b, own_codes) in enumerate(parts):
        worst, column = own_codes.argmax(axis=0), np.arange(len(steps_of_name))
        at = np.searchsorted(steps, np.array(steps_of_name))
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
        ours, other = (
            steps.drop_nulls(keys).group_by(keys).agg(metric.column.max().cast(pl.Float64).alias("value"), step_time)
            for steps in both
        )
        pairs = ours.join(other, on=keys, suffix="_b").drop_nulls(["value", "value_b"]).sort(keys)
        if pairs.is_empty():
            continue
        ranks, steps = (np.unique(pairs[name].to_numpy()) for name in keys)
        at = np.searchsorted(ranks, pairs["rank"].to_numpy()), np.searchsorted(steps, pairs["step"].to_numpy())
        a, b, length = (np.full((len(ranks), len(steps)), np.nan) for _ in range(3))
        a[at], b[at], length[at] = (pairs[name].to_numpy() for name in ("value", "value_b", "length"))
        codes = time_codes(a, b, length)
        axes = tuple(ranks.tolist()), tuple(steps.tolist())
        yield DifferenceMap(f"{metric.name} by rank", ("",) * len(ranks), *axes, a, b, codes, is_time=True)


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
        bound("next_finding", "difference(1)", "next step that differs"),
        bound("previous_finding", "difference(-1)", "previous step that differs"),
        bound("zoom_in", "zoom(-1)", "zoom in and out, all", "+ - 0"),
        bound("zoom_out", "zoom(1)"),
        bound("zoom_fit", "zoom(0)"),
        bound("unfold", "unfold", "unfold or fold equal ranks"),
        bound("back", "back", "back"),
    ]
    WAYS = (
        Way("m", "map(1)", "the next map"),
        Way("p", "map(-1)", "the map before"),
        Way("x", "greatest", "the greatest difference"),
    )
    DEFAULT_CSS = "DifferencePage #text { height: 4; }"
    TITLE = "map"
    CANNOT = frozenset({"other_pane"})
    FIND_HINT = "a rank: 12, or a series"
    OWN = (
        Hint("n", "n", "next"),
        Hint("g", "g", "show"),
        Hint("plus", "+ - 0", "zoom"),
        Hint("escape", "esc", "back"),
    )

    def __init__(self, view: ComparedView, options: ViewOptions, target: str = "") -> None:
        super().__init__(view, options, target)
        self.maps = difference_maps(view)
        self.map = self.maps[0]
        self._per = 1
        self._folded = True
        self._shown: list[RankRow] = []
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
        rows = fold_ranks(ranks, self._binned.codes, apart | frozenset(rank for rank in ranks if rank < 0))
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
        texts = [duration(round(value)) if self.map.is_time else f"{value:.9g}" for value in (a, b)]
        parts += [f"A {texts[0]}  B {texts[1]}  ", _words(a, b, code)]
        return wrapped([line(*parts)], width, 2)

    def copied(self) -> str:
        """Both values of the cell under the cursor."""
        words = self.entry_text(self.listing.cursor, 400)[0].plain if self._shown else ""
        return f"{self.map.title}: {words}"

    def begin(self) -> None:
        """Shows all steps, with the cursor on the first difference."""
        super().begin()
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
            Span(". equal  ", "dim"),
            Span("1", HEAT[1]),
            Span("..9 slower, "),
            Span("b", "good"),
            Span("..j faster, tenths of a step"),
        ]
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


LEAST_RANKS = 3
"""Fewest ranks that make a scatter."""
FAR = 5.0
"""Distance from the median, in median absolute deviations scaled to a normal distribution, from which a rank is an
outlier (Iglewicz and Hoaglin 1993 take 3.5; of thousands of ranks some reach that by chance)."""
LEAST_SHARE = 0.05
"""Least distance of an outlier from the median, as a share of it."""
_NORMAL = 1.4826
MOST_LABELS = 8
_TEXT_LINES = 2


class ScatterMetric(NamedTuple):
    """A number of each rank of both runs."""

    name: str
    is_time: bool
    """Whether it is nanoseconds."""
    values: tuple[dict[int, float], dict[int, float]]
    """The values of A and of B by rank."""

    def shown(self, value: float | None) -> str:
        """A value in words."""
        if value is None:
            return "unknown"
        return duration(round(value)) if self.is_time else f"{value:.4g}"

    @property
    def varies(self) -> bool:
        """Whether ranks of a run have other values."""
        return any(len(set(values.values())) > 1 for values in self.values)


def rank_metrics(whole: WholeComparison) -> list[ScatterMetric]:
    """The metrics that at least `LEAST_RANKS` ranks of both runs have, those of traces first."""
    series = whole.series.tables[0], whole.series.tables[whole.baselines]
    tables = [_metrics(run, table) for run, table in zip(whole.pair, series, strict=True)]
    both = [
        ScatterMetric(name, is_time, (values, tables[1][name, is_time]))
        for (name, is_time), values in tables[0].items()
        if (name, is_time) in tables[1]
    ]
    return [one for one in both if one.varies and min(map(len, one.values)) >= LEAST_RANKS]


def _metrics(run: ComparedRun, series: pl.DataFrame) -> dict[tuple[str, bool], dict[int, float]]:
    """The value of each rank by name, and whether it is a time."""
    found: dict[tuple[str, bool], dict[int, float]] = {}
    if TRACE_RESULTS.find(run.analysis) is not None and not TRACE_RESULTS.of(run.analysis).steps.is_empty():
        for metric in METRICS:
            found[metric.name, True] = _by_rank(TRACE_RESULTS.of(run.analysis).steps, metric.column)
    found |= _operation_times(run.dataset.ops)
    if not series.is_empty():
        for name in sorted(series["name"].unique().to_list()):
            finite = series.filter(pl.col("name") == name, pl.col("value").is_finite())
            found[f"median {name}", False] = _by_rank(finite, pl.col("value"))
    return found


def _by_rank(table: pl.DataFrame, column: pl.Expr) -> dict[int, float]:
    medians = table.drop_nulls("rank").group_by("rank").agg(column.median().cast(pl.Float64).alias("value"))
    return dict(medians.drop_nulls().select("rank", "value").iter_rows())


def _operation_times(ops: pl.DataFrame) -> dict[tuple[str, bool], dict[int, float]]:
    """Medians of the time in operations, and of the time from one to the next; clocks of other ranks do not matter."""
    timed = ops.filter(pl.col("rank").is_not_null()).select("rank", "created_ns", "completed_ns", "duration_ns")
    took = pl.col("duration_ns").fill_null(pl.col("completed_ns") - pl.col("created_ns"))
    gap = (pl.col("created_ns").shift(-1) - pl.col("completed_ns")).clip(0)
    return {
        ("time in an operation", True): _by_rank(timed, took),
        ("time between operations", True): _by_rank(timed.with_columns(gap.over("rank").alias("gap")), pl.col("gap")),
    }


def outliers(values: dict[int, float]) -> dict[int, float]:
    """The ranks far from the median of all, each with its value as a share of the median."""
    numbers = np.array(list(values.values()))
    if len(numbers) < LEAST_RANKS:
        return {}
    middle = float(np.median(numbers))
    spread = _NORMAL * float(np.median(np.abs(numbers - middle)))
    least = max(FAR * spread, LEAST_SHARE * abs(middle))
    return {rank: value / middle for rank, value in values.items() if middle and abs(value - middle) > least}


class OddRank(NamedTuple):
    """A rank that lies apart in one run."""

    label: str
    """"A" or "B"."""
    rank: int
    distance: float
    """The larger change against the median of its metric, as a share of it."""


def scatter_outliers(x: ScatterMetric, y: ScatterMetric) -> list[OddRank]:
    """The outliers of both runs on either axis, the farthest first."""
    distances: dict[tuple[str, int], float] = {}
    for number, label in enumerate("AB"):
        for metric in (x, y):
            for rank, share in outliers(metric.values[number]).items():
                distances[label, rank] = max(distances.get((label, rank), 0.0), abs(share - 1))
    rows = [OddRank(label, rank, far) for (label, rank), far in distances.items()]
    return sorted(rows, key=lambda odd: (-odd.distance, odd.label, odd.rank))


class RankPoint(NamedTuple):
    """The place of a rank in a scatter."""

    label: str
    rank: int
    x: float
    y: float


def points(x: ScatterMetric, y: ScatterMetric) -> list[RankPoint]:
    """The ranks of both runs that have both metrics."""
    return [
        RankPoint(label, rank, x.values[number][rank], y.values[number][rank])
        for number, label in enumerate("AB")
        for rank in sorted(x.values[number].keys() & y.values[number].keys())
    ]


def draw_points(
    known: Sequence[RankPoint],
    named: Sequence[OddRank],
    size: tuple[int, int],
    axes: tuple[ScatterMetric, ScatterMetric],
    *,
    ascii_only: bool,
) -> Drawing:
    """The points as letters, with the numbers of outliers beside them; plotext draws them."""
    plot = Plot()
    plot.plotsize(*size)
    plot.theme("clear")
    for mark, colour, points in _marked(known, size):
        plot.scatter([point.x for point in points], [point.y for point in points], marker=mark, color=colour)
    places = {(point.label, point.rank): point for point in known}
    for outlier in named[:MOST_LABELS]:
        point = places.get((outlier.label, outlier.rank))
        if point is not None:
            plot.text(f"{outlier.label}{outlier.rank}", point.x, point.y, color=3, alignment="left")
    for metric, values, ticks in (
        (axes[0], [point.x for point in known], plot.xticks),
        (axes[1], [point.y for point in known], plot.yticks),
    ):
        at = np.unique(np.linspace(min(values), max(values), 3)).tolist()
        ticks(at, [metric.shown(value) for value in at])
    return recoloured(Text.from_ansi(plot.build()), ascii_only=ascii_only)


def _marked(known: Sequence[RankPoint], size: tuple[int, int]) -> Iterator[tuple[str, int, list[RankPoint]]]:
    """Points by mark, with the number of its colour: A, B, or = where both have one; one point for each cell."""
    x, y = np.array([point.x for point in known]), np.array([point.y for point in known])
    cells = [
        np.round((values - values.min()) / (np.ptp(values) or 1.0) * cells).astype(np.int64)
        for values, cells in ((x, size[0]), (y, size[1]))
    ]
    at: dict[tuple[int, int], dict[str, RankPoint]] = {}
    for point, column, row in zip(known, *(column_cells.tolist() for column_cells in cells), strict=True):
        at.setdefault((column, row), {}).setdefault(point.label, point)
    for mark, colour, labels in (("A", 1, {"A"}), ("B", 2, {"B"}), ("=", 3, {"A", "B"})):
        points = [next(iter(here.values())) for here in at.values() if set(here) == labels]
        if points:
            yield mark, colour, points


class ScatterPage(TargetPage):
    """The scatter of two metrics over ranks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("next_finding", "rank(1)", "next outlier"),
        bound("previous_finding", "rank(-1)", "previous outlier"),
        *(bound(name, "rank(1)") for name in ("right", "down")),
        *(bound(name, "rank(-1)") for name in ("left", "up")),
        bound("back", "back", "back"),
    ]
    WAYS = (
        Way("u", "metric(1,1)", "the next metric upwards"),
        Way("d", "metric(1,-1)", "the metric before, upwards"),
        Way("r", "metric(0,1)", "the next metric to the right"),
        Way("l", "metric(0,-1)", "the metric before, to the right"),
    )
    TITLE = "scatter"
    OWN = (Hint("n", "n", "outlier"), Hint("g", "g", "metrics"), Hint("escape", "esc", "back"))

    def __init__(self, view: ComparedView, options: ViewOptions, target: str = "") -> None:
        super().__init__(view, options, target)
        self.metrics = rank_metrics(view.whole)
        self._axes = [0, min(1, len(self.metrics) - 1)]
        self._at = 0
        """The outlier in the text."""

    @classmethod
    def missing(cls, view: ComparedView) -> str:
        """Why there is no scatter."""
        if rank_metrics(view.whole):
            return ""
        return f"no scatter: it needs traces, dumps with times, or series of {LEAST_RANKS} ranks or more"

    @property
    def axes(self) -> tuple[ScatterMetric, ScatterMetric]:
        """The metrics to the right and upwards."""
        return self.metrics[self._axes[0]], self.metrics[self._axes[1]]

    def body(self) -> Iterable[Widget]:
        """The plot, and the outlier."""
        yield TextBar("plot", self.options)
        yield TextBar("values", self.options)

    def fill(self) -> None:
        """Nothing: everything is drawn for the size."""

    def heading(self) -> list[Line]:
        """The runs, and the metrics."""
        x, y = self.axes
        axes = line(" up: ", Span(shown(y.name), "bold"), "   right: ", Span(shown(x.name), "bold"))
        legend = line(
            "   ", Span("A", "head"), " ", Span("B", "warn"), " = both", Span("   (median of all ranks)", "dim")
        )
        return [self.title_line(), cut(line(axes, legend), self.size.width)]

    def draw_bars(self) -> None:
        """Draws plot, text and keys."""
        super().draw_bars()
        width, height = self.size.width - 1, max(self.size.height - 3 - _TEXT_LINES, 4)
        known, named = points(*self.axes), scatter_outliers(*self.axes)
        if known:
            drawing = draw_points(known, named, (width, height), self.axes, ascii_only=self.options.ascii_only)
            self.query_one("#plot", TextBar).put(*drawing.lines[:height])
        else:
            self.query_one("#plot", TextBar).put(line(Span(" no rank has both metrics", "dim")))
        words = wrap(self._values(named), width, 1)[:_TEXT_LINES]
        self.query_one("#values", TextBar).put(*[cut(one, width) for one in words])

    def _values(self, named: Sequence[OddRank]) -> Line:
        """The outlier with its values in both runs."""
        if not named:
            return line(Span(" no outlier: all ranks are near the medians of their runs", "dim"))
        outlier = named[self._at % len(named)]
        head = f" outlier {self._at % len(named) + 1}/{len(named)} "
        parts: list[Span | str] = [Span(head, "dim"), Span(f"rank {outlier.rank} of {outlier.label}", "warn")]
        for metric in self.axes:
            texts = [metric.shown(values.get(outlier.rank)) for values in metric.values]
            middles = [metric.shown(float(np.median(list(values.values())))) for values in metric.values]
            parts.append(f"   {shown(metric.name)} A {texts[0]} ({middles[0]}), B {texts[1]} ({middles[1]})")
        return line(*parts)

    def copied(self) -> str:
        """The outlier in the text."""
        return self._values(scatter_outliers(*self.axes)).plain.strip()

    def action_metric(self, axis: int, by: int) -> None:
        """Shows another metric to the right (0) or upwards (1)."""
        self._axes[axis] = (self._axes[axis] + by) % len(self.metrics)
        self._at = 0
        self.draw_bars()

    def action_rank(self, by: int) -> None:
        """Shows the values of the next outlier."""
        count = len(scatter_outliers(*self.axes))
        self._at = (self._at + by) % max(count, 1)
        self.draw_bars()
