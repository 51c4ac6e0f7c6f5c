"""`init-hang`: communicators that some ranks began to set up and never finished, and the ranks that did not come."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rankscope.analysis.model import Confidence, Culprit, Evidence, Finding, GroupRef
from rankscope.features.logs.rules.log_lines import LogLine, ranks_of, short_path
from rankscope.schema import Dataset
from rankscope.text.wording import plural, rank_ranges, ranks_text

MOST_EVIDENCE = 4
FINISHED_STATES = ("complete", "finalized", "revoked", "aborting", "destroyed", "aborted", "seen")
"""States of a communicator after its setup; "seen" is one whose beginning is not in the log."""
_STEPS = (
    "Look at the stacks and logs of the ranks that did not come: another new_group, an exception, or still starting.",
    "If all came, look at the network of those that wait: firewall, NCCL_SOCKET_IFNAME, NCCL_DEBUG_SUBSYS=INIT,NET.",
)


@dataclass(frozen=True)
class _Comm:
    """One communicator over all processes; ranks are those in the communicator."""

    size: int
    stuck: tuple[int, ...]
    done: tuple[int, ...]
    names: dict[int, int]
    """Known global ranks by rank in the communicator."""
    group: int | None
    lines: tuple[Evidence, ...]
    covered: frozenset[int]
    """Global ranks with any line in the logs."""

    @cached_property
    def absent(self) -> tuple[int, ...]:
        return tuple(sorted(set(range(self.size)) - {*self.stuck, *self.done}))

    def called(self, ranks: Iterable[int]) -> str:
        ranks = list(ranks)
        if all(rank in self.names for rank in ranks):
            return ranks_text(sorted(self.names[rank] for rank in ranks))
        return f"{ranks_text(ranks)} of the communicator"


def find_init_hangs(dataset: Dataset, waited: bool, place: Callable[[int], Culprit]) -> list[Finding]:
    """A finding for each stuck communicator; `waited`: the logs tell of ranks that gave up waiting."""
    table = dataset.comms.filter((pl.col("identity") != "") & pl.col("comm_rank").is_not_null() & (pl.col("size") > 1))
    # ranks that issued collectives had finished the setup: the line that says so got lost
    used = table.filter(pl.col("collectives") > 0)["identity"].unique()
    begun = table.filter((pl.col("state") == "start") & ~pl.col("identity").is_in(used.implode()))["identity"].unique()
    if begun.is_empty():
        return []
    covered = frozenset(
        rank
        for told in (dataset.comms, dataset.messages, dataset.settings)
        for rank in told["rank"].drop_nulls().unique().to_list()
    )
    paths = dict(dataset.files.select("file", "path").iter_rows())
    parts = table.filter(pl.col("identity").is_in(begun.implode())).partition_by("identity", maintain_order=True)
    comms = [_comm(part, dataset, covered, paths) for part in parts]
    return [_finding(comm, dataset, waited, place) for comm in comms]


def _comm(part: pl.DataFrame, dataset: Dataset, covered: frozenset[int], paths: dict[int, str]) -> _Comm:
    size = int(part["size"].max() or 0)  # type: ignore[arg-type]
    done = part.filter(pl.col("state").is_in(FINISHED_STATES))["comm_rank"].unique().sort().to_list()
    stuck = part.filter(pl.col("state") == "start").sort("comm_rank")
    known = dict(part.filter(pl.col("rank").is_not_null()).select("comm_rank", "rank").iter_rows())
    group = part["group"].drop_nulls().to_list()
    members = dataset.group_list[group[0]].ranks if group and group[0] < len(dataset.group_list) else ()
    if len(members) == size:
        known |= dict(enumerate(members))
    elif size == dataset.world_size and all(own == rank for own, rank in known.items()):
        known |= {rank: rank for rank in range(size)}
    lines = tuple(
        Evidence(
            f"rank {own} of {size} began to set it up, and no line says that it finished",
            paths.get(file),
            rank,
            line=line,
        )
        for own, rank, file, line in stuck.select("comm_rank", "rank", "file", "line").head(MOST_EVIDENCE).iter_rows()
    )
    waiting = tuple(sorted(set(stuck["comm_rank"].to_list()) - set(done)))
    return _Comm(size, waiting, tuple(done), known, group[0] if group else None, lines, covered)


def _finding(comm: _Comm, dataset: Dataset, waited: bool, place: Callable[[int], Culprit]) -> Finding:
    late = comm.absent or (comm.stuck if comm.done else ())
    named = tuple(sorted(comm.names[r] for r in late if r in comm.names))
    whole = len(comm.covered) >= dataset.world_size > 0
    seen = bool(named) and len(named) == len(late) and (set(named) <= comm.covered if comm.absent else True)
    few = len(late) * 2 <= comm.size
    sure = seen and few and (waited or whole)
    ranks = named if sure else ()
    waiting = tuple(sorted(comm.names[r] for r in {*comm.stuck, *comm.done} - set(late) if r in comm.names))
    known = dataset.group_list[comm.group] if comm.group is not None else None
    confidence, reasons = _sure(comm, waited, sure)
    return Finding(
        kind="init-hang",
        severity="critical" if sure or waited else "warning",
        title=_title(comm),
        explanation=_explained(comm),
        root_cause=sure or waited,
        culprit_ranks=ranks,
        culprits=tuple(map(place, ranks)),
        candidates=() if sure else named,
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence=confidence,
        confidence_reasons=reasons,
        group=GroupRef(known.name, known.description, known.ranks, key=known.id) if known else None,
        evidence=comm.lines,
        next_steps=_STEPS,
    )


def _title(comm: _Comm) -> str:
    first = comm.lines[0]
    at = f" ({short_path(first.file or '')}:{first.line})" if first.file else ""
    if comm.absent:
        return f"{comm.called(comm.absent)} never came to set up a communicator of {comm.size:,} ranks{at}"
    if comm.done:
        return f"{comm.called(comm.stuck)} never finished setting up a communicator of {comm.size:,} ranks{at}"
    return f"all {comm.size:,} ranks began to set up a communicator, and none finished{at}"


def _explained(comm: _Comm) -> str:
    parts = [f"{comm.called(comm.stuck).capitalize()} printed Init START without Init COMPLETE"]
    parts += [f"{comm.called(comm.done)} finished"] if comm.done else []
    parts += [f"ranks {rank_ranges(comm.absent)} of the communicator printed neither"] if comm.absent else []
    return "; ".join(parts) + "."


def _sure(comm: _Comm, waited: bool, sure: bool) -> tuple[Confidence, tuple[str, ...]]:
    reasons = []
    if comm.absent and not sure:
        reasons.append("the logs may not hold the lines of all ranks")
    if not waited:
        reasons.append("the log does not show how long it had been waiting")
    reasons.append("lines of the standard output may be lost when a process is aborted")
    return ("medium" if sure else "low"), tuple(reasons)


# Ranks that never came to `init_process_group`, and jobs with more processes than ranks.

MOST_LINES = 4


def find_startup(lines: Sequence[LogLine], place: Callable[[int], Culprit]) -> list[Finding]:
    """A finding for each barrier that did not open, or that too many ranks came to."""
    by_key: defaultdict[object, list[LogLine]] = defaultdict(list)
    for line in lines:
        known = line.kind == "store-barrier" and line.rank is not None
        if known and None not in (line.values.get("world_size"), line.values.get("came")):
            by_key[line.values.get("key")].append(line)
    found = [_crowded(own) or _short(own, place) for own in by_key.values()]
    return [finding for finding in found if finding is not None]


def _crowded(own: list[LogLine]) -> Finding | None:
    size, came = own[-1].values["world_size"], max(line.values["came"] for line in own)
    if came <= size:
        return None
    return Finding(
        kind="init-hang",
        severity="critical",
        title=f"{plural(came, 'process')} came to set up a group of {size:,} ({own[0].place})",
        explanation=(
            "Processes of another run, or of a restart, count at the same store, so the job waits for a count that "
            "can no longer match."
        ),
        root_cause=True,
        waiting_ranks=ranks_of(own),
        confidence="medium",
        confidence_reasons=("the log does not show which processes are too many",),
        evidence=tuple(line.evidence() for line in own[:MOST_LINES]),
        next_steps=("End left-over processes, or choose another MASTER_PORT.",),
    )


def _short(own: list[LogLine], place: Callable[[int], Culprit]) -> Finding | None:
    gave_up = [line for line in own if line.values.get("timed_out")]
    if not gave_up:
        return None
    size, came = gave_up[-1].values["world_size"], max(line.values["came"] for line in own)
    waiting = ranks_of(own)
    absent = tuple(sorted(set(range(size)) - set(waiting))) if size <= 1 << 20 else ()
    # the absent ranks are known only if every rank that came has a line
    ranks = absent if len(absent) == size - came and 2 * len(absent) <= size else ()
    who = ranks_text(ranks) if ranks else f"{size - came} of {plural(size, 'rank')}"
    first = gave_up[0]
    return Finding(
        kind="init-hang",
        severity="critical",
        title=f"{who} never reached init_process_group ({first.place})",
        explanation=f"{ranks_text(waiting).capitalize()} waited there until the timeout; {came:,} of {size:,} came.",
        root_cause=True,
        culprit_ranks=ranks,
        culprits=tuple(map(place, ranks)),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="medium" if ranks else "low",
        confidence_reasons=() if ranks else ("the log does not name the ranks that did not come",),
        evidence=tuple(line.evidence() for line in gave_up[:MOST_LINES]),
        next_steps=("See whether these processes started at all, and what they print first.",),
    )


# The counts of parameters that DDP compares before it begins: each rank gathers those of all, in the order of ranks,
# and reports the first that is not its own. A model without parameters is refused before; so a 0 was never received.

PARAMETER_PATTERNS = ("ddp-parameters", "ddp-no-parameters")
MOST_RANKS = 1 << 14
_COUNTS = re.compile(r"Rank (\d{1,7}) has (\d{1,9}) params, while rank (\d{1,7}) has inconsistent (\d{1,9}) params")


@dataclass(frozen=True)
class _Count:
    """A report of one rank about another."""

    line: LogLine
    rank: int
    count: int
    other: int
    others: int


def find_parameter_counts(lines: Sequence[LogLine], place: Callable[[int], Culprit]) -> list[Finding]:
    """Ranks that wrap another number of parameters than most; candidates, if most of the known ranks do not agree."""
    told = [one for one in _read_counts(lines) if one.others]
    counts = _counts_by_rank(told)
    if not counts:
        return []
    (most, times), *_ = Counter(counts.values()).most_common()
    odd = tuple(sorted(rank for rank, count in counts.items() if count != most))
    majority = times > len(odd) and times > 1
    named = odd if majority else ()
    by_count: defaultdict[int, list[int]] = defaultdict(list)
    for rank, count in sorted(counts.items()):
        by_count[count].append(rank)
    rows = sorted(by_count.items(), key=lambda row: (majority and row[0] == most, row[1]))
    said = " and ".join(f"{ranks_text(own)} with {plural(count, 'parameter')}" for count, own in rows)
    reason = "the lines do not tell the counts of all ranks" if majority else "no count is that of most known ranks"
    made = Finding(
        kind="size-mismatch",
        severity="critical",
        title=f"DDP wraps different models: {said} ({told[0].line.place})",
        explanation="DDP counts the parameters that need a gradient on every rank before it begins: they differ.",
        root_cause=True,
        culprit_ranks=named,
        culprits=tuple(map(place, named)),
        candidates=() if majority else tuple(sorted(counts)),
        waiting_ranks=tuple(sorted(set(counts) - set(odd))) if majority else (),
        confidence="medium",
        confidence_reasons=(reason,),
        evidence=tuple(one.line.evidence() for one in told[:MOST_EVIDENCE]),
        next_steps=(str(told[0].line.values.get("next") or ""),),
    )
    return [made]


def _counts_by_rank(told: Sequence[_Count]) -> dict[int, int]:
    """The number of parameters of each known rank; empty if the numbers may be those within several groups."""
    counts: dict[int, int] = {}
    for one in told:
        # it compares in order: all ranks before the first that differs have its own count
        before = dict.fromkeys(range(min(one.other, MOST_RANKS)), one.count)
        for rank, count in {**before, one.rank: one.count, one.other: one.others}.items():
            if counts.setdefault(rank, count) != count:
                return {}
    return {} if any(one.line.rank not in (None, one.rank) for one in told) else counts


def find_uncounted(lines: Sequence[LogLine]) -> Finding | None:
    """The rank whose count of parameters did not arrive at others, and which does not complain itself."""
    told = [one for one in _read_counts(lines) if not one.others and one.other != one.rank]
    silent = {one.other for one in told} - {one.rank for one in told}
    plain = all(one.line.rank in (None, one.rank) for one in told)
    # of an exchange that was broken off the first rank is empty as well: one reader does not tell it apart
    if len(silent) != 1 or not plain or (silent == {0} and len(told) < 2):
        return None
    ranks, readers = tuple(silent), tuple(sorted({one.rank for one in told}))
    return Finding(
        kind="rank-failed",
        severity="critical",
        title=f"rank {ranks[0]} did not tell {ranks_text(readers)} how many parameters it has ({told[0].line.place})",
        explanation=(
            "DDP gathers the counts of all ranks before it begins. It refuses a model without parameters, so the 0 is "
            "memory that was never written: the exchange was broken off, or its data did not come."
        ),
        candidates=ranks,
        waiting_ranks=readers,
        confidence="low",
        confidence_reasons=("it may have died, come late, or sent what the network lost",),
        evidence=tuple(one.line.evidence() for one in told[:MOST_EVIDENCE]),
        next_steps=(f"Read the log of rank {ranks[0]}, and look for an earlier timeout or exit.",),
    )


def _read_counts(lines: Sequence[LogLine]) -> list[_Count]:
    found = ((line, _COUNTS.search(line.text)) for line in lines if line.pattern in PARAMETER_PATTERNS)
    return [_Count(line, *map(int, told.groups())) for line, told in found if told is not None]
