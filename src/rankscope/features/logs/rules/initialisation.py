"""Jobs that did not start: communicators that some ranks never finished setting up, ranks that never came to
`init_process_group`, and models of DDP that differ."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import Evidence, Finding
from rankscope.features.logs.rules.log_lines import LogEvidence, LogLine, ranks_of, short_path
from rankscope.text.wording import plural, rank_ranges, ranks_text

PARAMETER_PATTERNS = ("ddp-parameters", "ddp-no-parameters")
MOST_LINES = 4
MOST_RANKS = 1 << 14
FINISHED_STATES = ("complete", "finalized", "revoked", "aborting", "destroyed", "aborted", "seen")
"""States of a communicator after its setup; "seen" is one whose beginning is not in the log."""
_COUNTS = re.compile(r"Rank (\d{1,7}) has (\d{1,9}) params, while rank (\d{1,7}) has inconsistent (\d{1,9}) params")
_STEPS = (
    "Look at the stacks and logs of the ranks that did not come: another new_group, an exception, or still starting.",
    "If all came, look at the network of those that wait: firewall, NCCL_SOCKET_IFNAME, NCCL_DEBUG_SUBSYS=INIT,NET.",
)


def find_init_hangs(logs: LogEvidence) -> Iterator[Finding]:
    """A finding for each stuck communicator."""
    dataset = logs.dataset
    table = dataset.comms.filter((pl.col("identity") != "") & pl.col("comm_rank").is_not_null() & (pl.col("size") > 1))
    # ranks that issued collectives had finished the setup: the line that says so got lost
    used = table.filter(pl.col("collectives") > 0)["identity"].unique()
    begun = table.filter((pl.col("state") == "start") & ~pl.col("identity").is_in(used.implode()))["identity"].unique()
    if begun.is_empty():
        return
    covered = frozenset(
        rank
        for rows in (dataset.comms, dataset.messages, dataset.settings)
        for rank in rows["rank"].drop_nulls().unique().to_list()
    )
    for part in table.filter(pl.col("identity").is_in(begun.implode())).partition_by("identity", maintain_order=True):
        yield _init_hang(part, logs, covered)


def _init_hang(part: pl.DataFrame, logs: LogEvidence, covered: frozenset[int]) -> Finding:
    """The finding on one communicator, of whose ranks the `part` has rows; `covered` ranks have any line."""
    dataset = logs.dataset
    size = int(part["size"].max() or 0)  # type: ignore[arg-type]
    begun = part.filter(pl.col("state") == "start").sort("comm_rank")
    done = part.filter(pl.col("state").is_in(FINISHED_STATES))["comm_rank"].unique().sort().to_list()
    stuck = sorted(set(begun["comm_rank"].to_list()) - set(done))
    absent = sorted(set(range(size)) - {*stuck, *done})
    at = next(iter(part["group"].drop_nulls().to_list()), None)
    # global ranks by rank in the communicator
    names = dict(part.filter(pl.col("rank").is_not_null()).select("comm_rank", "rank").iter_rows())
    members = dataset.group_list[at].ranks if at is not None and at < len(dataset.group_list) else ()
    if len(members) == size:
        names |= dict(enumerate(members))
    elif size == dataset.world_size and all(inside == rank for inside, rank in names.items()):
        names |= {rank: rank for rank in range(size)}

    def called(ranks: Sequence[int]) -> str:
        if all(rank in names for rank in ranks):
            return ranks_text(sorted(names[rank] for rank in ranks))
        return f"{ranks_text(ranks)} of the communicator"

    paths = dict(dataset.files.select("file", "path").iter_rows())
    evidence = tuple(
        Evidence(
            f"rank {inside} of {size} began to set it up, and no line says that it finished",
            paths.get(file),
            rank,
            line=line,
        )
        for inside, rank, file, line in begun.select("comm_rank", "rank", "file", "line").head(MOST_LINES).iter_rows()
    )
    place = f" ({short_path(evidence[0].file)}:{evidence[0].line})" if evidence[0].file else ""
    late = absent or (stuck if done else [])
    named = tuple(sorted(names[rank] for rank in late if rank in names))
    whole = len(covered) >= dataset.world_size > 0
    seen = bool(named) and len(named) == len(late) and (set(named) <= covered if absent else True)
    is_cut = bool(logs.cut_files & {*begun["file"].to_list()})
    sure = seen and len(late) * 2 <= size and (logs.waited or whole) and not is_cut
    ranks = named if sure else ()
    waiting = tuple(sorted(names[rank] for rank in {*stuck, *done} - set(late) if rank in names))
    title = f"all {size:,} ranks began to set up a communicator, and none finished{place}"
    unseen = bool(absent) and not sure and not logs.waited and (is_cut or not covered & {*named})
    if unseen:
        title = (
            f"{called([*stuck, *done])} began to set up a communicator of {plural(size, 'rank')}, and no line tells "
        )
        title += f"that it is ready; there is no line of {called(absent)}{place}"
    elif absent:
        title = f"{called(absent)} never came to set up a communicator of {size:,} ranks{place}"
    elif done:
        title = f"{called(stuck)} never finished setting up a communicator of {size:,} ranks{place}"
    parts = [f"{called(stuck).capitalize()} printed Init START without Init COMPLETE"]
    parts += [f"{called(done)} finished"] if done else []
    parts += [f"ranks {rank_ranges(absent)} of the communicator printed neither"] if absent else []
    return Finding(
        kind="init-hang",
        severity="critical" if sure or logs.waited else "warning",
        title=title,
        explanation="; ".join(parts) + ".",
        root_cause=sure or logs.waited,
        culprit_ranks=ranks,
        culprits=tuple(map(logs.place, ranks)),
        candidates=() if sure or unseen else named,
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="medium" if sure else "low",
        confidence_reasons=(
            *(("the text is cut: lines of other ranks may have stood there",) if is_cut else ()),
            *(("the logs may not hold the lines of all ranks",) if absent and not sure else ()),
            *(("the log does not show how long it had been waiting",) if not logs.waited else ()),
            "lines of the standard output may be lost when a process is aborted",
        ),
        group=logs.group(at),
        evidence=evidence,
        next_steps=_STEPS,
    )


def find_startup(logs: LogEvidence) -> Iterator[Finding]:
    """A finding for each barrier of `init_process_group` that did not open, or that too many processes came to."""
    by_key: defaultdict[object, list[LogLine]] = defaultdict(list)
    for line in logs.lines:
        known = line.kind == "store-barrier" and line.rank is not None
        if known and None not in (line.values.get("world_size"), line.values.get("came")):
            by_key[line.values.get("key")].append(line)
    for lines in by_key.values():
        gave_up = [line for line in lines if line.values.get("timed_out")]
        came = max(line.values["came"] for line in lines)
        if came > lines[-1].values["world_size"]:
            yield _crowded(lines, came)
        elif gave_up:
            yield _short(logs, lines, gave_up, came)


def _crowded(lines: list[LogLine], came: int) -> Finding:
    return Finding(
        kind="init-hang",
        severity="critical",
        title=f"{plural(came, 'process')} came to set up a group of {lines[-1].values['world_size']:,} "
        f"({lines[0].place})",
        explanation=(
            "Processes of another run, or of a restart, count at the same store, so the job waits for a count that "
            "can no longer match."
        ),
        root_cause=True,
        waiting_ranks=ranks_of(lines),
        confidence="medium",
        confidence_reasons=("the log does not show which processes are too many",),
        evidence=tuple(line.evidence() for line in lines[:MOST_LINES]),
        next_steps=("End left-over processes, or choose another MASTER_PORT.",),
    )


def _short(logs: LogEvidence, lines: list[LogLine], gave_up: list[LogLine], came: int) -> Finding:
    size, waiting = gave_up[-1].values["world_size"], ranks_of(lines)
    absent = tuple(sorted(set(range(size)) - set(waiting))) if size <= 1 << 20 else ()
    # the absent ranks are known only if every rank that came has a line
    is_cut = logs.is_cut(lines)
    ranks = absent if len(absent) == size - came and 2 * len(absent) <= size and not is_cut else ()
    who = ranks_text(ranks) if ranks else f"{size - came} of {plural(size, 'rank')}"
    return Finding(
        kind="init-hang",
        severity="critical",
        title=f"{who} never reached init_process_group ({gave_up[0].place})",
        explanation=f"{ranks_text(waiting).capitalize()} waited there until the timeout; {came:,} of {size:,} came.",
        root_cause=True,
        culprit_ranks=ranks,
        culprits=tuple(map(logs.place, ranks)),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="medium" if ranks else "low",
        confidence_reasons=()
        if ranks
        else ("the text is cut: lines of other ranks may have stood there",)
        if is_cut
        else ("the log does not name the ranks that did not come",),
        evidence=tuple(line.evidence() for line in gave_up[:MOST_LINES]),
        next_steps=("See whether these processes started at all, and what they print first.",),
    )


class _Count(NamedTuple):
    """A report of one rank about another, by DDP: each rank gathers the counts of parameters of all, in the order of
    ranks, and reports the first that is not its own. A model without parameters is refused before; so a 0 was never
    received."""

    line: LogLine
    rank: int
    parameters: int
    other: int
    of_other: int


def find_parameter_counts(logs: LogEvidence) -> Iterator[Finding]:
    """Ranks that wrap another number of parameters than most; candidates, if most of the known ranks do not agree."""
    reports = [report for report in _read_counts(logs) if report.of_other]
    counts = _counts_by_rank(reports)
    if not counts:
        return
    (most, times), *_ = Counter(counts.values()).most_common()
    odd = tuple(sorted(rank for rank, count in counts.items() if count != most))
    majority = times > len(odd) and times > 1
    named = odd if majority else ()
    by_count: defaultdict[int, list[int]] = defaultdict(list)
    for rank, count in sorted(counts.items()):
        by_count[count].append(rank)
    rows = sorted(by_count.items(), key=lambda row: (majority and row[0] == most, row[1]))
    models = " and ".join(f"{ranks_text(ranks)} with {plural(count, 'parameter')}" for count, ranks in rows)
    reason = "the lines do not tell the counts of all ranks" if majority else "no count is that of most known ranks"
    yield Finding(
        kind="size-mismatch",
        severity="critical",
        title=f"DDP wraps different models: {models} ({reports[0].line.place})",
        explanation="DDP counts the parameters that need a gradient on every rank before it begins: they differ.",
        root_cause=True,
        culprit_ranks=named,
        culprits=tuple(map(logs.place, named)),
        candidates=() if majority else tuple(sorted(counts)),
        waiting_ranks=tuple(sorted(set(counts) - set(odd))) if majority else (),
        confidence="medium",
        confidence_reasons=(reason,),
        evidence=tuple(report.line.evidence() for report in reports[:MOST_LINES]),
        next_steps=(str(reports[0].line.values.get("next") or ""),),
    )


def _counts_by_rank(reports: Sequence[_Count]) -> dict[int, int]:
    """The number of parameters of each known rank; empty if the numbers may be those within several groups."""
    counts: dict[int, int] = {}
    for report in reports:
        # it compares in order: all ranks before the first that differs have its own count
        before = dict.fromkeys(range(min(report.other, MOST_RANKS)), report.parameters)
        for rank, count in {**before, report.rank: report.parameters, report.other: report.of_other}.items():
            if counts.setdefault(rank, count) != count:
                return {}
    return {} if any(report.line.rank not in (None, report.rank) for report in reports) else counts


def find_uncounted(logs: LogEvidence) -> Iterator[Finding]:
    """The rank whose count of parameters did not arrive at others, and which does not complain itself."""
    reports = [report for report in _read_counts(logs) if not report.of_other and report.other != report.rank]
    readers = {report.rank for report in reports}
    silent = {report.other for report in reports} - readers
    plain = all(report.line.rank in (None, report.rank) for report in reports)
    # of an exchange that was broken off the first rank is empty as well: one reader does not tell it apart
    if len(silent) != 1 or not plain or (silent == {0} and len(reports) < 2):
        return
    ranks, waiting = tuple(silent), tuple(sorted(readers))
    yield Finding(
        kind="rank-failed",
        severity="critical",
        title=f"rank {ranks[0]} did not tell {ranks_text(waiting)} how many parameters it has "
        f"({reports[0].line.place})",
        explanation=(
            "DDP gathers the counts of all ranks before it begins. It refuses a model without parameters, so the 0 is "
            "memory that was never written: the exchange was broken off, or its data did not come."
        ),
        candidates=ranks,
        waiting_ranks=waiting,
        confidence="low",
        confidence_reasons=("it may have died, come late, or sent what the network lost",),
        evidence=tuple(report.line.evidence() for report in reports[:MOST_LINES]),
        next_steps=(f"Read the log of rank {ranks[0]}, and look for an earlier timeout or exit.",),
    )


def _read_counts(logs: LogEvidence) -> list[_Count]:
    reports = [(line, _COUNTS.search(line.text)) for line in logs.lines if line.pattern in PARAMETER_PATTERNS]
    return [_Count(line, *map(int, report.groups())) for line, report in reports if report is not None]
