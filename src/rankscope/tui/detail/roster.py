"""The list of members of a collective: folds that open, found by rank or by what they issued."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.analysis.presence import Absence
from rankscope.schema import Dataset
from rankscope.tui.detail import words
from rankscope.tui.detail.folds import Fold, fold, members
from rankscope.tui.detail.format import plain, rank_ranges
from rankscope.tui.detail.frames import one_line
from rankscope.tui.detail.line import Line, Span, line
from rankscope.tui.detail.peers import Peers
from rankscope.tui.filters import parse_ranks


@dataclass
class Roster:
    """Folds of members, some of them opened to single members."""

    peers: Peers
    wanted: str = ""
    """Ranks ("0-7,64"), or part of what is written in a line."""
    opened: set[tuple[int, ...]] = field(default_factory=set)
    entries: list[Fold] = field(default_factory=list)
    """What is listed now."""
    usual: str = ""
    """What most members issued."""

    def __post_init__(self) -> None:
        self._folds = fold(self.peers)
        most = max((f for f in self._folds if f.issued), key=lambda f: len(f.ranks), default=None)
        self.usual = words.fold_op(most) if most else ""
        self.list_entries()

    def list_entries(self) -> None:
        """Lists what `wanted` and `opened` call for."""
        ranks = self._ranks()
        if ranks is not None:
            self.entries = members(self.peers, ranks)
            return
        wanted = self.wanted.lower()
        self.entries = []
        for one in self._folds:
            if wanted in searched(one):
                self.entries += [one, *(members(self.peers, one.ranks) if one.ranks in self.opened else [])]

    def toggle(self, at: int) -> int:
        """Opens or closes the fold at an entry, or the one it is in; returns where that fold stands."""
        entry = self.entries[at]
        whole = next((f for f in self._folds if set(entry.ranks) <= set(f.ranks)), entry)
        if len(whole.ranks) < 2:
            return at
        self.opened ^= {whole.ranks}
        self.list_entries()
        return next((i for i, f in enumerate(self.entries) if f.ranks == whole.ranks), at)

    def inside(self, at: int) -> bool:
        """Whether an entry is a member of an opened fold."""
        return len(self.entries[at].ranks) == 1 and any(self.entries[at].ranks[0] in ranks for ranks in self.opened)

    def _ranks(self) -> frozenset[int] | None:
        highest = max(self.peers.table["rank"].to_list(), default=0)
        try:
            return parse_ranks(self.wanted, highest) if self.wanted else None
        except ValueError:
            return None


def searched(one: Fold) -> str:
    """What a search looks at in an entry."""
    return f"{one.presence} {one.state} {words.fold_op(one)} {one.host or ''}".lower()


def columns_of(width: int) -> tuple[int, int, int]:
    """The cells for ranks, state and lag in a list `width` wide."""
    return (20, 12, 13) if width < 100 else (36, 12, 16)


def titles(width: int) -> str:
    """The heads of the columns of `entry_line`, but for the first."""
    _, state, lag = columns_of(width)
    return f"{'state':<{state}} {'behind':<{lag}} where"


def entry_line(
    one: Fold, dataset: Dataset, width: int, *, inside: bool = False, usual: str = "", is_p2p: bool = False
) -> Line:
    """Members in a line: mark, ranks, state, lag; then where they were, and what they issued unless it is `usual`."""
    ranks, state, lag = columns_of(width)
    count = f" x{len(one.ranks)}" if len(one.ranks) > 1 else ""
    label = ("  " if inside else "") + rank_ranges(one.ranks, ranks - len(count) - 2) + count
    said = words.fold_state(one)
    mark = Span(f"{one.mark or ' '} ", "bad" if one.mark in ("!", "*") else "warn")
    head = line(
        mark,
        Span(f"{label:<{ranks}} ", "bold" if one.accused else "text"),
        Span(f"{said.text:<{state}} ", said.role),
        f"{words.lag(one):<{lag}} ",
    )
    return (*head, *_what(one, dataset, width - ranks - state - lag - 6, usual, is_p2p=is_p2p))


def _what(one: Fold, dataset: Dataset, room: int, usual: str, *, is_p2p: bool) -> Line:
    if not one.issued:
        guilty = one.presence == Absence.NEVER_ISSUED
        blame = Span("to blame" if guilty else ", to blame", "bad") if one.accused else ""
        return line("" if guilty else words.reason(one.presence, is_p2p=is_p2p), blame)
    what = words.fold_op(one)
    what = "" if what == usual and not one.differs else f"{what}  "
    where = one_line(dataset.stack(one.stack_id), max(room - len(what), 12))
    return line(Span(what, "bad" if one.differs else "text"), where)


def counts(peers: Peers) -> str:
    """How many members issued it, how many did not and why: "7 of 8 issued it, 1 never issued"."""
    presence = peers.table["presence"].to_list()
    issued = presence.count("issued")
    why = {text: presence.count(text) for text in dict.fromkeys(presence) if text != "issued"}
    return ", ".join([f"{issued} of {len(presence)} issued it", *(f"{n} {plain(text)}" for text, n in why.items())])
