"""An update with all that the screen shows of it: worked out where no key has to wait for it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from rankscope.schema import Dataset
from rankscope.tui.live.progress import marks_of
from rankscope.tui.model import build_model
from rankscope.tui.overview import worst_by_column
from rankscope.watching.same import TIMES

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.tui.letters import Codes
    from rankscope.tui.live.progress import Marks
    from rankscope.tui.live.spliced import Spliced
    from rankscope.tui.model import Model
    from rankscope.watching.update import Update


@dataclass(frozen=True)
class Prepared:
    """A job that is watched is now like this."""

    update: Update
    model: Model
    overview: Codes
    marks: Marks
    spliced: tuple[Spliced, ...] = ()
    """What of it is known to be as before but for some stretches."""


def prepare(update: Update, before: Prepared | None = None) -> Prepared:
    """Makes what the screen shows of an update; with the one before it, what is still the same is taken from there."""
    known = None
    if before is not None and _looks_same(before.update, update):
        known = _as_it_was(before, update)
    elif before is not None and update.ranks is not None:
        known = _glanced(before, update)
    if known is not None:
        return known
    model = build_model(update.dataset, update.analysis, before.model if before is not None else None)
    return Prepared(update, model, worst_by_column(model), marks_of(update.dataset))


def _as_it_was(before: Prepared, update: Update) -> Prepared | None:
    """The lanes of operations, of which none is another one, and those of traces, of which some may have come."""
    return _with_traces(replace(before, update=update, model=_beside(before.model, update), spliced=()))


def _glanced(before: Prepared, update: Update) -> Prepared | None:
    """An update of a few ranks; None if what was before it is not known, or the whole has to be laid out."""
    from rankscope.tui.live.again import lanes_again

    ranks, dataset, analysis = update.ranks or frozenset(), update.dataset, update.analysis
    if before.update.number + 1 != update.number:
        return None
    if not ranks:
        return _as_it_was(before, update)
    again = lanes_again(before.model, dataset, analysis, ranks, update.kept)
    if again is None:
        return None
    marks = before.marks | marks_of(dataset, ranks)
    return _with_traces(Prepared(update, again.model, worst_by_column(again.model), marks, again.spliced))


def _beside(model: Model, update: Update) -> Model:
    from rankscope.tui.traces.run import TracedRun, with_traces_of

    if isinstance(model.dataset, TracedRun):
        return replace(model, dataset=with_traces_of(model.dataset, update.dataset), analysis=update.analysis)
    return replace(model, dataset=update.dataset, analysis=update.analysis)


def _with_traces(prepared: Prepared) -> Prepared | None:
    """The same with the lanes of traces that came; None if all have to be laid out."""
    before, update = prepared.model.traces, prepared.update
    if before is None:
        return None if update.dataset.has_traces else prepared
    from rankscope.tui.traces.more import with_more

    more = with_more(before, update.dataset, update.analysis)
    if more is None or not all(rank in prepared.model.lane_of for rank in more.lanes.lane_of):
        return None
    model, spliced = replace(prepared.model, traces=more.lanes), (*prepared.spliced, *more.spliced)
    came = update.dataset.traces[before.dataset.traces.height :]["rank"].to_list()
    marks = prepared.marks | marks_of(update.dataset, came) if came else prepared.marks
    return replace(prepared, model=model, marks=marks, spliced=spliced)


def _looks_same(before: Update, now: Update) -> bool:
    """Whether nothing is new in the lanes: files may have other times, and the verdict other words.

    Lanes of a few ranks that were put beside the others are laid out anew with all the rest once that is judged.
    """
    if before.ranks is not None and now.ranks is None:
        return False
    return _same_tables(before.dataset, now.dataset) and _same_findings(before.analysis, now.analysis)


def _same_tables(one: Dataset, other: Dataset) -> bool:
    names = [field.name for field in fields(Dataset) if field.name != "files"]
    if any(getattr(one, name) is not getattr(other, name) for name in names):
        return False
    return one.files is other.files or one.files.drop(TIMES).equals(other.files.drop(TIMES))


def _same_findings(one: Analysis, other: Analysis) -> bool:
    names = ("findings", "divergences", "traces")
    return one.status == other.status and all(getattr(one, name) is getattr(other, name) for name in names)
