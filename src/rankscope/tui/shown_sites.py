"""Lanes of the call sites of operations: a row for each rank and group, and in each cell the code that issued it.

Ranks that take different branches issue operations from different places: there their rows have other letters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.text.escaping import plain
from rankscope.text.wording import plural, rank_ranges
from rankscope.tui.cell_selection import Place
from rankscope.tui.detail.stack_tree import draw as draw_tree
from rankscope.tui.detail.stack_tree import merge, remark
from rankscope.tui.lane_cells import LABELLED, LaneCells
from rankscope.tui.lane_paint import Gutter
from rankscope.tui.letters import Codes, edges_in, fill_gaps, find, worst
from rankscope.tui.model import Items, Model
from rankscope.tui.order import Hashes, first_seen, stem
from rankscope.tui.overview import Strip, sequence_strip
from rankscope.tui.shown_operations import ShownOperations
from rankscope.tui.site_letters import (
    CHARACTERS,
    STYLES,
    LetteredSites,
    call_sites,
    legend,
    most_frequent,
)
from rankscope.tui.styled_text import Line as StyledLine
from rankscope.tui.styled_text import Span, line, wrapped

Ints = NDArray[np.int64]
MOST_CELLS = 20_000
"""Most selected operations whose stacks are merged into the tree."""
LABEL = 9
"""Most characters of a group left of its ranks."""


class ShownSites(ShownOperations):
    """The lanes of call sites of one model: those of one kind of group, or those of all groups."""

    CARD: ClassVar[bool] = False

    def __init__(self, model: Model, sites: LetteredSites, group: int | None) -> None:
        """Shows the groups like `group`; without one, all groups."""
        self.source, self.sites, self.group = model, sites, group
        """The lanes of operations; their call sites; the group that is shown with those like it, None for all."""
        self._kinds = group_kinds(model)
        lanes, self._worst = site_lanes(model, sites, self._kinds, group)
        super().__init__(lanes)

    def replace_model(self, model: Model, times: object = None) -> None:
        """Shows the call sites of other lanes of operations."""
        del times
        if model.dataset is not self.source.dataset:
            self.sites, self._kinds = call_sites(model.dataset), group_kinds(model)
        self.source = model
        if self.group is not None and self.group >= len(self._kinds):
            self.group = None
        lanes, self._worst = site_lanes(model, self.sites, self._kinds, self.group)
        super().replace_model(lanes)
        self.go_unit(self.unit)

    def change_groups(self) -> None:
        """Changes between the groups like the one under the cursor, and all groups; the cursor stays on its item."""
        selection = self.selection
        under = selection.group if selection is not None else None
        self.show_group(under if self.group is None else None)

    def show_group(self, group: int | None) -> None:
        """Shows the groups like `group`, or all groups; the cursor stays on its item."""
        if group == self.group:
            return
        item, source = self.item, self.source
        before = None if item is None else _identity(self.model, item)
        self.group = group
        self.replace_model(source)
        after = None if before is None else self._item_like(before)
        if after is not None:
            self.go_item(after)

    # Rows

    def settle(self, room: int) -> bool:
        """Makes the order anew for another size; False if it was made for this one."""
        if self._room == (self.width, room):
            return False
        self._room = (self.width, room)
        self._reorder("rank")
        self.top = 0
        self.keep_row_in_view()
        return True

    def _looks(self) -> Hashes:
        kinds = self._kind_of_lane().astype(np.uint64)
        with np.errstate(over="ignore"):
            return super()._looks() ^ ((kinds + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))

    def _ordered(self, looks: Hashes) -> Ints:
        """Kinds of groups in their order; in each, ranks to blame first, then ranks that look alike together."""
        blamed = np.isin(self.model.ranks, list(self.blamed))
        keys = (np.arange(len(looks)), first_seen(looks), ~blamed, self._kind_of_lane())
        return np.lexsort(keys).astype(np.int64)

    def _kind_of_lane(self) -> Ints:
        return self._kinds[self._group_of_lane()]

    def _group_of_lane(self) -> Ints:
        """The group of each lane, of which each has an item; -1 where that has none."""
        model = self.model
        first: Ints = model.items.group[model.bounds[:-1]].astype(np.int64)
        return first

    def group_label(self, row: int) -> str:
        """The group of a row where all groups are shown."""
        if self.group is not None:
            return ""
        groups = {int(group) for group in self._group_of_lane()[self.rows.lanes(row)]}
        names = [self._name_of(group) for group in sorted(groups)]
        name = names[0] if len(names) == 1 else f"{stem(names[0]).rstrip('_')}*"
        return f"{name[:LABEL]:<{min(self._label_width, LABEL)}}"

    @property
    def _label_width(self) -> int:
        return max((len(self._name_of(int(group))) for group in np.unique(self._group_of_lane())), default=1)

    def _name_of(self, group: int) -> str:
        if group < 0:
            return "-"
        known = self.model.dataset.group_list[group]
        return plain(known.description or known.name)

    def gutter(self, width: int) -> Gutter:
        """The gutter for this number of ranks, with a place for the group where all are shown."""
        parts = super().gutter(width)
        return (
            parts if self.group is not None else replace(parts, label=parts.label + min(self._label_width, LABEL) + 1)
        )

    @property
    def row_words(self) -> list[str]:
        """The groups that are shown, how many ranks they have, and how many rows."""
        count = len(set(self.model.ranks.tolist()))
        groups = len(np.unique(self._group_of_lane()))
        if self.group is None:
            shown, other = f"all {plural(groups, 'group')}", "g g one group"
        else:
            name = self._name_of(self.group)
            shown = f"group {name}" if groups < 2 else f"{plural(groups, 'group')} like {name}"
            other = "g g all groups"
        rows = f"{plural(count, 'rank')} in {plural(len(self.rows), 'row')}"
        return [f"call sites of {shown}", f"{other}, esc states", rows]

    # Moves

    def go_rank(self, rank: int) -> bool:
        """Moves to the lane of a rank, in the same kind of group if it has one there."""
        lanes = np.flatnonzero(self.model.ranks == rank)
        if len(lanes):
            kinds = self._kind_of_lane()
            same = lanes[kinds[lanes] == kinds[self.lane]]
            self.lane = int(same[0] if len(same) else lanes[0])
            self.keep_row_in_view()
        return bool(len(lanes))

    def go_place(self, whole: Model, place: Place) -> None:
        """Moves to a place of the whole model, and shows its group."""
        group = None if place.item is None else int(whole.items.group[place.item])
        if self.group is not None and group is not None and self._kinds[group] != self._kinds[self.group]:
            self.show_group(group if group >= 0 else None)
        if not self.go_rank(place.rank) and self.group is not None:
            self.show_group(None)
            self.go_rank(place.rank)
        item = None if place.item is None else self._item_like(_identity(whole, place.item))
        if item is not None:
            self.go_item(item)

    def _item_like(self, identity: tuple[int, int, int, int, bool]) -> int | None:
        """The item with this rank, row, group, number, and whether it is point-to-point."""
        rank, row, group, seq, p2p = identity
        items = self.model.items
        same = (items.row == row) & (items.group == group) & (items.seq == seq) & (items.p2p == p2p)
        same &= (self.model.ranks == rank)[items.lane]
        at = np.flatnonzero(same)
        return int(at[0]) if len(at) else None

    # Cells

    def cells(self, lanes: Ints) -> LaneCells:
        """The letters of call sites; a cell with several operations has the letter of the rarest."""
        model, view = self.model, self.view
        edges = view.edges(self.width)
        positions = edges_in(model.items.col, model.bounds, lanes, edges)
        codes = fill_gaps(worst(model.items.code, positions), model.gap_until[lanes], edges)
        text, styles = CHARACTERS[codes], STYLES[codes]
        if view.chars == 1:
            return LaneCells(text, styles, codes)
        wide = np.full((*codes.shape, view.chars), ord(" "), np.uint8)
        wide[:, :, 0] = text
        if view.chars >= LABELLED:
            for lane, cell in np.argwhere(positions[:, 1:] > positions[:, :-1]).tolist():
                number = int(model.items.seq[positions[lane, cell]])
                label = (str(number) if number >= 0 else "")[: view.chars - 3].encode("ascii")
                wide[lane, cell, 2 : 2 + len(label)] = np.frombuffer(label, np.uint8)
        return LaneCells(
            wide.reshape(len(lanes), codes.shape[1] * view.chars), styles.repeat(view.chars, axis=1), codes
        )

    def legend(self, present: Codes) -> list[str]:
        """Marks, then call sites in view."""
        return legend(self.sites, present)

    def overview(self, whole: Model, worst: Codes) -> tuple[object, Callable[[int], Strip]]:
        """The worst state of each column of the shown groups."""
        del whole, worst
        return self._worst, partial(sequence_strip, self._worst)

    # The pane beside or below the lanes

    def facts(self) -> Callable[[int, int], list[StyledLine]] | None:
        """The cell under the cursor, the call sites in view, and the stacks of the selected cells as one tree."""
        return self._facts

    def _facts(self, width: int, height: int) -> list[StyledLine]:
        del height
        return wrapped([*self._cell_lines(width), *self._site_lines(width), *self._tree_lines(width)], width, 4)

    def _cell_lines(self, width: int) -> list[StyledLine]:
        selection, item = self.selection, self.item
        if selection is None:
            return []
        number = "" if selection.seq is None else f" #{selection.seq}"
        group = "" if selection.group is None else f" of {self._name_of(selection.group)}"
        head = f"rank {selection.rank}{number}{group}"
        if item is None or selection.row is None:
            said = selection.absence or "nothing here"
            return [line(Span(head, "bold"), f"  {said}")]
        site = int(self.sites.of_row[selection.row])
        words = self.sites.words(site, width - len(head) - 4)
        return [line(Span(head, "bold"), "  ", Span(self.sites.letter(site), "bold"), f" {words}")]

    def sites_in_view(self) -> list[tuple[int, int]]:
        """The call sites of the rows in view, each with its operations in the window, the most frequent first."""
        if not len(self.sites.of_row):
            return []
        leads = self.rows.leads(self.top, self.top + self.height)
        ranks = [len(self.rows.lanes(row)) for row in range(self.top, self.top + len(leads))]
        first, last = self.view.first, self.view.first + self.view.span(self.width)
        counts: dict[int, int] = {}
        for rows, weight in zip(self._rows_in(leads, first, last), ranks, strict=True):
            sites, numbers = np.unique(self.sites.of_row[rows], return_counts=True)
            for site, number in zip(sites.tolist(), numbers.tolist(), strict=True):
                counts[site] = counts.get(site, 0) + number * weight
        return most_frequent(list(counts), list(counts.values()))

    def _rows_in(self, lanes: Ints, first: int, last: int) -> list[NDArray[np.int32]]:
        """For each of these lanes, rows of ops in the columns from `first` up to `last`."""
        model = self.model
        low, high = model.bounds[lanes], model.bounds[lanes + 1]
        begin = find(model.items.col, low, high, np.full(len(lanes), first))
        end = find(model.items.col, low, high, np.full(len(lanes), last))
        parts = [model.items.row[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
        return [part[part >= 0] for part in parts]

    def _site_lines(self, width: int) -> list[StyledLine]:
        known = self.sites_in_view()
        if not known:
            return []
        lines = [line(Span(f"{plural(len(known), 'call site')} in view, the most frequent first", "head"))]
        if not self.sites.has_stacks:
            lines = [line(Span("no stack was recorded: a letter is an operation", "warn"))]
        digits = max(len(f"{count:,}") for _, count in known)
        for site, count in known:
            number = f"{count:>{digits},}x"
            words = self.sites.words(site, width - digits - 4)
            lines.append(line(Span(self.sites.letter(site), "bold"), f" {number} {words}"))
        return lines

    def _tree_lines(self, width: int) -> list[StyledLine]:
        """The stacks of the operations in the column of the cursor, or between it and the marker, on all lanes."""
        marker = self.unit if self.marker is None else self.marker
        cell = self.view.unit_of(self.view.cell_of(self.unit))
        first, last = min(marker, cell), max(marker + 1, cell + self.view.per)
        parts = self._rows_in(np.arange(len(self.model.ranks), dtype=np.int64), first, last)
        rows = np.concatenate(parts) if parts else np.zeros(0, np.int32)
        count = len(rows)
        if not count:
            return []
        ranks = np.repeat(self.model.ranks, [len(part) for part in parts])[:MOST_CELLS]
        numbers = self.model.dataset.ops["stack_id"].gather(rows[:MOST_CELLS].astype(np.uint32))
        places = pl.DataFrame({"stack": numbers, "rank": ranks}).group_by("stack", maintain_order=True).agg("rank")
        ranks_of = {number: set(members) for number, members in places.iter_rows()}
        where = "this column" if last - first == 1 else f"{plural(last - first, 'column')}"
        all_ranks = sorted(set().union(*ranks_of.values()))
        head = f"stacks of {where}, {plural(len(all_ranks), 'rank')}"
        more = f", the first {MOST_CELLS:,} operations" if count > MOST_CELLS else ""
        pairs = [
            (self.model.dataset.stack(number) or (remark("no stack recorded"),), sorted(ranks))
            for number, ranks in ranks_of.items()
        ]
        absent = sorted(set(self.model.ranks.tolist()) - set(all_ranks)) if last - first == 1 else []
        lines = [line(Span(head + more, "head")), *(tree.parts for tree in draw_tree(merge(pairs), width))]
        if absent:
            lines.append(line(Span(f"x{len(absent)} [{rank_ranges(absent, 20)}] ", "bold"), "no operation here"))
        return lines


def _identity(model: Model, item: int) -> tuple[int, int, int, int, bool]:
    """Rank, row of ops, group, number, and whether it is point-to-point, of an item."""
    items = model.items
    rank = int(model.ranks[items.lane[item]])
    return rank, int(items.row[item]), int(items.group[item]), int(items.seq[item]), bool(items.p2p[item])


def group_kinds(model: Model) -> Ints:
    """The kind of each group, by its description without the number and by its size, and -1 for no group at the end."""
    groups = model.dataset.group_list
    keys = [(stem(group.description), len(group.ranks)) for group in groups]
    number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    return np.array([*(number[key] for key in keys), -1], np.int64)


def site_lanes(model: Model, sites: LetteredSites, kinds: Ints, group: int | None) -> tuple[Model, Codes]:
    """Lanes with a row for each rank and group, the call site of each item as its code; the worst state of each column.

    With a `group`, only groups like it have lanes, and columns count the operations of such groups alone.
    """
    items = model.items
    codes = sites.codes(items)
    kept = np.arange(len(items.col)) if group is None else np.flatnonzero(kinds[items.group] == kinds[group])
    ranks = model.ranks[items.lane[kept]]
    order = np.lexsort((items.col[kept], items.group[kept], ranks))
    kept, ranks = kept[order], ranks[order]
    groups = items.group[kept]
    begins = (np.diff(ranks, prepend=-1) != 0) | (np.diff(groups, prepend=-2) != 0)
    lane = (np.cumsum(begins) - 1).astype(np.int32)
    whole = model.lane_of
    of_lane = np.array([whole[rank] for rank in ranks[begins].tolist()], np.int64)
    columns: Ints = np.arange(model.width, dtype=np.int64)
    if group is not None:
        columns = np.unique(items.col[kept]).astype(np.int64)
    dense = items.col[kept] if group is None else np.searchsorted(columns, items.col[kept])
    chosen = {name: getattr(items, name)[kept] for name in Items.__dataclass_fields__}
    chosen |= {"lane": lane, "code": codes[kept], "col": dense.astype(np.int32)}
    states = np.zeros(max(len(columns), 1), np.uint8)
    np.maximum.at(states, dense, items.code[kept])
    lanes = replace(
        model,
        ranks=ranks[begins],
        items=Items(**chosen),
        gap_until=np.searchsorted(columns, model.gap_until[of_lane]).astype(np.int64),
        gap_reason=model.gap_reason[of_lane],
        width=len(columns),
        instances=_instances(model.instances, columns, kinds, group),
        timed=None,
    )
    return lanes, states


def _instances(instances: pl.DataFrame, columns: Ints, kinds: Ints, group: int | None) -> pl.DataFrame:
    """The collectives of the shown groups, with their columns there."""
    if group is None:
        return instances
    same = np.flatnonzero(kinds[:-1] == kinds[group]).tolist()
    part = instances.filter(pl.col("group").is_in(same) & pl.col("col").is_in(columns.tolist()))
    places = np.searchsorted(columns, part["col"].to_numpy())
    return part.with_columns(col=pl.Series(places).cast(part["col"].dtype))
