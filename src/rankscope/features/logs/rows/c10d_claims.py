"""Claims of c10d's lines about operations: from the watchdog, its counters and the desync report.

A watchdog names each operation that timed out; the counters of its group hold the last enqueued and completed one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.rows import log_processes
from rankscope.features.logs.rows.log_groups import DEFAULT_GROUP, GroupMention, LogGroups, mentioned_group
from rankscope.features.logs.rows.log_processes import LogScene, int64_or_none, print_time, valid_size
from rankscope.parsers.safe_values import RANK_LIMIT

_MILLISECOND = 1_000_000


class ClaimedOperation(NamedTuple):
    """One operation that a line names."""

    seq: int
    op: str | None
    state: str
    retired: bool | None = None
    in_sizes: str | None = None
    out_sizes: str | None = None
    dtypes: str | None = None
    created_ns: int | None = None
    timeout_ms: int | None = None
    library: str = "nccl"
    file: int = 0
    line: int = 0
    attempt: int | None = None
    is_p2p: bool = False
    """A send, a receive or a batch of them; then `seq` is the group's counter."""


@dataclass
class Claim:
    """The claims about one rank in one group, in sequence numbers."""

    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    whole: bool = False
    """All operations from the first on are in `rows`."""
    rows: dict[int, ClaimedOperation] = field(default_factory=dict)
    p2p: dict[int, ClaimedOperation] = field(default_factory=dict)

    def add(self, row: ClaimedOperation) -> None:
        """Adds a row; joins two rows of one operation."""
        rows = self.p2p if row.is_p2p else self.rows
        known = rows.get(row.seq)
        if int64_or_none(row.seq) is None:
            return
        if known is None:
            rows[row.seq] = row
            return
        filled = {name: new for name, new in row._asdict().items() if getattr(known, name) is None and new is not None}
        if known.state == "unknown":
            filled["state"] = row.state
        rows[row.seq] = known._replace(**filled)

    def without_counters(self) -> Claim:
        """The claim without counters, for a group with sends and receives: there they count the last operation of any
        sort."""
        return replace(self, enqueued=None, started=None, completed=None)


Claims = dict[tuple[int, int], Claim]
"""Claims by rank and group."""


def highest_rank(scene: LogScene) -> int:
    """The highest global rank in any line; -1 without one."""
    highest = -1
    for log in scene.logs:
        default = any(_of_default(event) for event in log.content.events)
        ranked = any(event.rank is not None for event in log.content.events)
        counts = [valid_size(row.size) for row in log.content.ras] + [
            valid_size(row.nranks) for row in log.content.inspected
        ]
        highest = max([highest, *(count - 1 for count in counts if count is not None)])
        for event in log.content.events:
            counts = _ranks(event, default, ranked)
            highest = max([highest, *(rank for rank in counts if isinstance(rank, int) and rank < RANK_LIMIT)])
    return highest


def _ranks(event: Event, default: bool, ranked: bool) -> list[int | None]:
    """Global ranks in a line. `default`: reports of its log are of the default group; `ranked`: prefixes hold ranks."""
    values = event.values
    ranks = [event.rank]
    if not ranked and values.get("pg_rank") is None:
        ranks.append(values.get("rank_in_group"))
    if event.kind == "init-env" and values.get("pg_name") in (None, "0", DEFAULT_GROUP):
        ranks.append((values.get("size") or 0) - 1)
    if event.kind == "desync" and default:
        ranks += [rank for state in values["states"] for rank in state[3]]
    if event.kind == "fingerprint-mismatch":
        ranks += values["ranks"]
    if event.kind == "nccl-diagnosis":
        ranks.append((values["size"] or 0) - 1)
    if event.kind == "pg-seat" and values["name"] == "0":
        ranks.append(values["place"])
    return ranks


def _of_default(event: Event) -> bool:
    values = event.values
    return values.get("pg_desc") == DEFAULT_GROUP or (values.get("pg_guid") in (None, "0") and values.get("pg_id") == 0)


def read_reports(scene: LogScene, groups: LogGroups) -> Claims:
    """All claims; adds their groups to `groups`."""
    claims: Claims = defaultdict(Claim)
    named = _NamedWorks()
    readers = [_ClaimReader(number, scene, groups, claims, named) for number in range(len(scene.logs))]
    for reader in readers:
        reader.read()
    return dict(claims)


def printing_rank(scene: LogScene, number: int, event: Event) -> int | None:
    """Global rank of the process that printed an event of the log of that number.

    torch 2.1 and older print only the rank in the first group that logged, mostly the default group.
    """
    rank = event.rank if event.rank is not None else scene.logs[number].source.rank
    if rank is None and not scene.ranked(number) and event.values.get("pg_rank") is None:
        rank = event.values.get("rank_in_group")
    return rank if isinstance(rank, int) and 0 <= rank < min(scene.world, RANK_LIMIT) else None


_ANOTHER = ("", "another")
"""A group in which a rank has another place than that of its number."""
FEWEST_WORKS = 64
"""Lowest number of a work that hardly two groups reach at once."""


@dataclass
class _NamedWorks:
    """Works of which lines of any log name the group."""

    by_work: dict[tuple[Any, ...], set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    """Name and description of the group of a work (number, operation, sizes)."""
    by_number: dict[int, set[tuple[str, str]]] = field(default_factory=lambda: defaultdict(set))
    """Those of the groups of which a rank failed at a number."""
    at: dict[tuple[int, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    """By rank and name of the group the numbers at which it failed."""

    @property
    def names(self) -> set[str]:
        """The names of all groups with such a work."""
        return {name for _, name in self.at}

    def note(self, rank: int, number: int, place: GroupMention) -> None:
        """Notes that a rank failed at a number of a group."""
        fits = place.rank in (None, rank)
        self.by_number[number].add((place.name, place.description) if fits else _ANOTHER)
        self.at[rank, place.name].add(number)

    def of_number(self, rank: int, number: int) -> GroupMention | None:
        """The only group at that number, if the rank is not known to be elsewhere in it, for a work without a group."""
        named = self.by_number.get(number, set())
        if len(named) != 1 or (len(self.names) > 1 and number < FEWEST_WORKS):
            return None
        name, description = next(iter(named))
        known = self.at.get((rank, name), {number})
        return GroupMention(name, description, rank) if number in known and (name, description) != _ANOTHER else None


class _ClaimReader:
    """Reader of the events of one log."""

    def __init__(self, number: int, scene: LogScene, groups: LogGroups, claims: Claims, named: _NamedWorks) -> None:
        log = scene.logs[number]
        self._scene, self._number = scene, number
        self._log, self._world, self._groups, self._claims = log, scene.world, groups, claims
        # events before the last run belong to an earlier one
        since = scene.since.get(number, 0)
        self._events = [event for event in log.content.events if event.offset >= since]
        self._places = [mentioned_group(event) for event in self._events]
        self._ranks = [printing_rank(scene, number, event) for event in self._events]
        self._works = self._named_works()
        self._named = named
        self._note_named()
        self._unplaced: dict[tuple[int | None, int | None], list[tuple[Any, ...] | None]] = defaultdict(list)
        self._first = self._first_timeouts()
        self._turns: dict[tuple[int, int], list[GroupMention]] = {}

    def read(self) -> None:
        """Reads all events."""
        readers = {
            "watchdog-timeout": self._timeout,
            "pg-status": self._status,
            "desync": self._desync,
        }
        for event in self._events:
            reader = readers.get(event.kind)
            if reader is not None:
                reader(event)

    def rank_of(self, event: Event) -> int | None:
        """The global rank of an event."""
        return printing_rank(self._scene, self._number, event)

    def _named_works(self) -> dict[tuple[int, int], set[GroupMention]]:
        """By rank and sequence number, the groups that lines name together with it."""
        works: dict[tuple[int, int], set[GroupMention]] = defaultdict(set)
        for event, place, rank in zip(self._events, self._places, self._ranks, strict=True):
            if place is None or rank is None:
                continue
            for seq in (event.values.get(name) for name in ("seq", "at_work", "last_enqueued")):
                if isinstance(seq, int):
                    works[rank, seq].add(place)
        return works

    def _note_named(self) -> None:
        """Notes the works of which this log names the group."""
        for event, place, rank in zip(self._events, self._places, self._ranks, strict=True):
            at, key = event.values.get("at_work"), claimed_work(event)
            if rank is None:
                continue
            if place is not None and isinstance(at, int):
                self._named.note(rank, at, place)
            for there in self._works.get((rank, key[0]), ()) if key is not None else ():
                fits = there.rank in (None, rank)
                self._named.by_work[key or ()].add((there.name, there.description) if fits else _ANOTHER)

    def _first_timeouts(self) -> dict[tuple[Any, ...], int]:
        """The first time of each timeout: the line is printed again when the thread ends, with the same run time."""
        first: dict[tuple[Any, ...], int] = {}
        for event, place, rank in zip(self._events, self._places, self._ranks, strict=True):
            if event.kind != "watchdog-timeout":
                continue
            printed = print_time(event.stamp, self._log.source.mtime_ns)
            if place is None:
                self._unplaced[rank, event.values.get("seq")].append(claimed_work(event))
            if printed is not None:
                key = (rank, event.values.get("ran_ms"), claimed_work(event))
                first[key] = min(printed, first.get(key, printed))
        return first

    def _group(self, event: Event, rank: int, seq: int | None) -> int | None:
        """The row of the group of an event: named in it, or in another line about the same work.

        None if several groups of the rank have a work of that number and no line decides, and for a work whose group no
        line names, in a log that names some. A log without any names, as of torch 2.2 and older, has all lines in one
        group without a name.
        """
        place = mentioned_group(event)
        if place is None:
            others = self._works.get((rank, seq), set()) if seq is not None else set()
            place = self._in_turn(rank, seq, others) if others else self._as_others(event, rank)
            if not others and not self._works:
                place = place or GroupMention("", "", None)
        if place is None:
            return None
        return self._groups.of_report(place.name, place.description, rank, place.rank, self._world)

    def _in_turn(self, rank: int, seq: int | None, places: set[GroupMention]) -> GroupMention | None:
        """The only mention; of several that wait in equal works one after the other, the next, as their order is
        irrelevant."""
        if len({(place.name, place.rank) for place in places}) == 1:
            return next(iter(places))
        works = self._unplaced.get((rank, seq), [])
        if len(works) != len(places) or len(set(works)) != 1 or seq is None:
            return None
        return self._turns.setdefault((rank, seq), sorted(places, key=str)).pop(0)

    def _as_others(self, event: Event, rank: int) -> GroupMention | None:
        """The one group in which every rank has the place of its own number, if other ranks name it for this work, or
        for another one of the same number."""
        key = claimed_work(event)
        if key is None or event.values.get("rank_in_group") != rank:
            return None
        named = self._named.by_work.get(key, set())
        if len(named) == 1:
            return GroupMention(*next(iter(named)), rank)
        return None if named else self._named.of_number(rank, key[0])

    def _row(self, event: Event, seq: int, op: str | None, state: str, **more: Any) -> ClaimedOperation:
        return ClaimedOperation(
            seq,
            op,
            state,
            file=self._log.place,
            line=event.line,
            attempt=self._log.source.attempt,
            **more,
        )

    def _timeout(self, event: Event) -> None:
        rank, seq, values = self.rank_of(event), int64_or_none(event.values.get("seq")), event.values
        if rank is None or seq is None:
            return
        at = self._group(event, rank, seq)
        if at is None:
            return
        printed, ran = (
            self._first.get((rank, values.get("ran_ms"), claimed_work(event))),
            int64_or_none(values.get("ran_ms")),
        )
        op, sent, received = log_processes.c10d_op(values.get("op")), values.get("numel_in"), values.get("numel_out")
        if op == "coalesced" and event.torn and None in (sent, received):
            # its number may be that of sends and receives
            return
        # a batch of sends and receives has no elements; a group of collectives without any is rarer
        is_p2p = op in ("send", "recv") or (op == "coalesced" and not sent and not received)
        op = log_processes.coalesced_op(op, sent, received)
        self._groups.has_p2p[at] |= is_p2p
        self._claims[rank, at].add(
            self._row(
                event,
                seq,
                op,
                "scheduled",
                retired=True,
                in_sizes=sizes_text(sent, values.get("shape")),
                out_sizes=sizes_text(received),
                timeout_ms=int64_or_none(values.get("timeout_ms")),
                is_p2p=is_p2p,
                created_ns=None if printed is None or ran is None else int64_or_none(printed - ran * _MILLISECOND),
            )
        )
        members = member_ratio(op, sent, received)
        if members is not None:
            self._groups.widen(at, members)

    def _status(self, event: Event) -> None:
        rank, values = self.rank_of(event), event.values
        if rank is None:
            return
        at = self._group(event, rank, values.get("at_work"))
        if at is None:
            return
        claim = self._claims[rank, at]
        enqueued, completed = values.get("last_enqueued"), values.get("last_completed")
        if enqueued is not None:
            claim.enqueued = max(0, enqueued, claim.enqueued or 0)
        if completed is not None:
            claim.completed = max(0, completed, claim.completed or 0)

    def _desync(self, event: Event) -> None:
        rank, values = self.rank_of(event), event.values
        if rank is None:
            return
        at = self._group(event, rank, values["seq"])
        if at is None or not self._groups.stated[at]:
            return
        members = self._groups.members[at]
        for seq, state, op, places in values["states"]:
            if int64_or_none(seq) is None:
                continue
            for member in (members[p] for p in places if p < len(members)):
                claim = self._claims[member, at]
                done = state == "finished"
                claim.enqueued = max(seq, claim.enqueued or 0)
                claim.started = max(seq, claim.started or 0)
                claim.completed = max(seq, claim.completed or 0) if done else claim.completed
                claim.add(self._row(event, seq, log_processes.c10d_op(op), "completed" if done else "started"))


_SECOND = 1_000_000_000
MOST_ELEMENTS = 1 << 62


def not_before(printed: int | None, before: int | None) -> int | None:
    """A time that is not before the time of the line above: torch reads second and fraction separately, and may be one
    off."""
    if printed is None or before is None:
        return printed
    return printed + _SECOND if 0 < before - printed < _SECOND else printed


def claimed_work(event: Event) -> tuple[Any, ...] | None:
    """Number, operation and elements of a timeout; None for another event."""
    values = event.values
    if event.kind != "watchdog-timeout" or values.get("seq") is None:
        return None
    return values["seq"], values.get("op"), values.get("numel_in"), values.get("numel_out")


def sizes_text(elements: int | None, shape: Sequence[int] | None = None) -> str | None:
    """JSON text of the sizes of one tensor; None if they are unknown or impossible."""
    if shape:
        return f"[{list(shape)}]"
    return None if elements is None or elements > MOST_ELEMENTS else f"[[{elements}]]"


def member_ratio(op: str | None, sent: int | None, received: int | None) -> int | None:
    """The number of members of a gather or scatter."""
    scatters = op in ("_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
    gathers = op in ("_all_gather_base", "all_gather", "all_gather_into_tensor_coalesced")
    if not sent or not received or not (scatters or gathers):
        return None
    large, small = (sent, received) if scatters else (received, sent)
    return large // small if large % small == 0 and 1 < large // small < RANK_LIMIT else None
