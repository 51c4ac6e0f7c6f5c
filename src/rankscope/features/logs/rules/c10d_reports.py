"""Ranks that lines name: differing fingerprints, desync reports and monitored barriers of c10d, known errors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rankscope.analysis.model import Confidence, Finding
from rankscope.features.logs.rules.log_lines import (
    LogEvidence,
    LogLine,
    error_label,
    ranks_of,
    separate_errors,
    who_text,
)
from rankscope.kinds.error_traits import AWAITED
from rankscope.schema import Dataset, Group
from rankscope.text.wording import duration, plural, ranks_text

MOST_EVIDENCE = 8
WORLD_NAMES = ("", "0", "default_pg")
GUESSED_RANKS_REASON = "the line names no known group: its ranks are assumed to be global"
_STACK_STEP = "Look at the stack of {}, or read the end of its log: that is where it stopped."
_Side = tuple[Any, ...]
"""A fingerprint: sequence number, operation, shape, type, device, as texts."""


def find_named(logs: LogEvidence) -> Iterator[Finding]:
    """A finding for each group with named ranks, the surest first."""
    findings = [*_mismatches(logs), *_desyncs(logs), *_barriers(logs), *_pointed_out(logs)]
    yield from sorted(findings, key=lambda f: ("high", "medium", "low").index(f.confidence))


def _by_group(lines: Iterable[LogLine]) -> list[list[LogLine]]:
    groups: defaultdict[Any, list[LogLine]] = defaultdict(list)
    for line in lines:
        groups[line.group, line.values.get("pg_guid")].append(line)
    return list(groups.values())


def _accusation(
    logs: LogEvidence,
    lines: Sequence[LogLine],
    ranks: tuple[int, ...],
    guess: bool,
    kind: str,
    title: str,
    explanation: str,
    waiting: Iterable[int],
    confidence: Confidence = "high",
    reasons: tuple[str, ...] = (),
    **more: Any,
) -> Finding:
    """The finding on `ranks` of one group, with the lines that name them; `guess`: their numbers may be another's."""
    reasons = (*reasons, *((GUESSED_RANKS_REASON,) if guess else ()))
    held = tuple(sorted(set(waiting) - set(ranks)))
    return Finding(
        kind=kind,
        severity="critical",
        title=title,
        explanation=explanation,
        root_cause=True,
        culprit_ranks=ranks,
        culprits=tuple(map(logs.place, ranks)),
        waiting_ranks=held,
        blast_radius=len(held),
        confidence="medium" if reasons and confidence == "high" else confidence,
        confidence_reasons=reasons,
        group=logs.group(lines[0].group),
        evidence=tuple(line.evidence() for line in lines[:MOST_EVIDENCE]),
        **more,
    )


def _is_unplaced(logs: LogEvidence) -> bool:
    """Whether there are operations of several groups that nothing distinguishes."""
    return any(line.kind == "log-unplaced" for line in logs.lines)


def _mismatches(logs: LogEvidence) -> Iterator[Finding]:
    """By group, the odd one of all ranks that any line quotes."""
    quotes = [
        line
        for line in logs.lines
        if line.kind == "fingerprint-mismatch" and len(line.values.get("fingerprints") or ()) == 2
    ]
    several = len(logs.dataset.group_list) > 1 or _is_unplaced(logs)
    for lines in _by_group(quotes):
        speakers = _speakers(lines)
        votes, guess = _votes(lines, speakers, logs.dataset)
        if len(votes) < 2:
            continue
        counts = Counter(votes.values()).most_common()
        sides = [side for side, _ in counts]
        tied = len(counts) > 1 and counts[0][1] == counts[1][1]
        odd = () if tied else tuple(sorted(rank for rank, vote in votes.items() if vote != sides[0]))
        spoken = set(odd or votes) <= set(speakers.values())
        if guess and several and not spoken and len(votes) < logs.world:
            yield _in_some_group(logs, lines, votes, sides)
        else:
            yield _mismatch(logs, lines, votes, sides, odd, guess)


def _mismatch(
    logs: LogEvidence,
    lines: list[LogLine],
    votes: dict[int, _Side],
    sides: list[_Side],
    odd: tuple[int, ...],
    guess: bool,
) -> Finding:
    size = len(logs.dataset.group_list[lines[0].group].ranks) if lines[0].group is not None else logs.world
    tie = () if odd else tuple(sorted(votes))
    few = len(votes) < size
    reasons = (f"the logs quote only {len(votes):,} of {size:,} ranks",) if few and odd else ()
    title = f"{ranks_text(tie)} disagree: {_versus(sides)}"
    if odd:
        title = f"{ranks_text(odd)} called {_call(votes[odd[0]])}, the others {_call(sides[0])}"
    return _accusation(
        logs,
        lines,
        odd,
        guess,
        _kind(sides),
        f"{title} ({lines[0].place})",
        f"TORCH_DISTRIBUTED_DEBUG found it before the collective ran: {_calls_text(votes, sides)}.",
        votes,
        "high" if odd and not few else "medium" if odd else "low",
        reasons if odd else ("there is no majority",),
        candidates=tie,
        seq=int(sides[0][0]) if sides[0][0].isdecimal() else None,
        op=sides[0][1].lower(),
        next_steps=("Compare the code path of these ranks at this step: a branch on rank, data or an exception.",),
    )


def _in_some_group(logs: LogEvidence, lines: list[LogLine], votes: dict[int, _Side], sides: list[_Side]) -> Finding:
    """A mismatch in one of several groups that the lines do not name, so its ranks are unknown."""
    return _accusation(
        logs,
        lines,
        (),
        False,
        _kind(sides),
        f"ranks of one group disagree: {_versus(sides)} ({lines[0].place})",
        f"TORCH_DISTRIBUTED_DEBUG found it before the collective ran: {_calls_text(votes, sides, ' of it')}. Its ranks "
        "are counted within the group.",
        (),
        "low",
        ("the lines name no group, and there are several",),
        seq=int(sides[0][0]) if sides[0][0].isdecimal() else None,
        op=sides[0][1].lower(),
        next_steps=(
            "Print the rank before each line ([rankN]: of torch 2.2 on, or --tee of torchrun), so that each line "
            "has a rank.",
        ),
    )


def _calls_text(votes: dict[int, _Side], sides: list[_Side], of: str = "") -> str:
    shown = [(side, ranks_text([r for r, v in votes.items() if v == side])) for side in sides[:4]]
    return "; ".join(f"{who}{of} called {_call(side)}" for side, who in shown)


def _votes(lines: list[LogLine], speakers: dict[int, int], dataset: Dataset) -> tuple[dict[int, _Side], bool]:
    """The fingerprint of each quoted rank, preferably by its own line; and whether the ranks are a guess.

    A rank misreads the fingerprint of another one if the lengths differ: "#0 GATHER".
    """
    spoken: dict[int, _Side] = {}
    heard: dict[int, _Side] = {}
    guess = False
    for line in lines:
        names, guessed = global_ranks(line, line.values["ranks"], dataset.group_list)
        if line.group is None and any(rank != inside for inside, rank in speakers.items()):
            names, guessed = speakers, False
        guess |= guessed
        quoted = zip((spoken, heard), line.values["ranks"], line.values["fingerprints"], strict=False)
        for words, rank, fingerprint in quoted:
            if rank in names:
                words[names[rank]] = tuple(map(str, fingerprint))
    return {**spoken, **{rank: words for rank, words in heard.items() if rank not in spoken}}, guess


def _speakers(lines: list[LogLine]) -> dict[int, int]:
    """Global rank by rank in the group, from the processes that are quoted first in their own lines.

    Empty if two processes say the same of themselves: then the lines are of several groups.
    """
    pairs = {(line.values["ranks"][0], line.rank) for line in lines if line.rank is not None and line.values["ranks"]}
    ranks = dict(pairs)
    return ranks if len(pairs) == len(ranks) == len(set(ranks.values())) else {}


def _kind(sides: list[_Side]) -> str:
    one, other = sides[0], sides[1]
    if one[1] != other[1] or one[2] == other[2] == "None":
        return "collective-mismatch"
    if one[2] != other[2]:
        return "size-mismatch"
    return "dtype-mismatch" if one[3] != other[3] else "collective-mismatch"


def _call(side: _Side) -> str:
    seq, op, shape, dtype = side[:4]
    return f"{op.lower()} #{seq}" + (f" {shape} {dtype}" if shape != "None" else "")


def _versus(sides: list[_Side]) -> str:
    return " or ".join(_call(side) for side in sides[:4])


def _desyncs(logs: LogEvidence) -> Iterator[Finding]:
    """By group, the ranks that never joined the next collective, by the report on the oldest collective."""
    for lines in _by_group(line for line in logs.lines if line.kind == "desync" and line.values.get("lagging")):
        first = min(lines, key=lambda line: min(seq for _, _, seq in line.values["lagging"]))
        absent = {rank: seq for rank, what, seq in first.values["lagging"] if what != "joined"}
        ahead = [rank for _, _, _, ranks in first.values.get("states") or () for rank in ranks]
        names, guess = global_ranks(first, {*absent, *ahead}, logs.dataset.group_list)
        ranks = tuple(sorted(names[rank] for rank in absent if rank in names))
        if not ranks:
            continue
        seq = max(seq for _, what, seq in first.values["lagging"] if what != "joined")
        last = f"finished #{seq} and never joined #{seq + 1}" if seq else "never joined any collective"
        yield _accusation(
            logs,
            [first, *(line for line in lines if line is not first)],
            ranks,
            guess,
            "missing-rank",
            f"{ranks_text(ranks)} {last}, while others wait in #{first.values.get('seq')} ({first.place})",
            f"The desync report of c10d says so; it knows of {plural(len(names), 'rank')}.",
            names.values(),
            seq=seq + 1 if seq else None,
            next_steps=(_STACK_STEP.format(ranks_text(ranks)),),
        )


def _pointed_out(logs: LogEvidence) -> Iterator[Finding]:
    """The ranks that known errors name, by error and group."""
    by_error: defaultdict[Any, list[LogLine]] = defaultdict(list)
    for line in separate_errors(logs.lines):
        if line.role == "root" and line.values.get("accuses") == "named" and line.values.get("named"):
            by_error[line.pattern, line.group, line.values.get("pg_guid")].append(line)
    for lines in by_error.values():
        yield _awaited(logs, lines) if lines[0].has(AWAITED) else _named_in(logs, lines)


def _awaited(logs: LogEvidence, lines: list[LogLine]) -> Finding:
    """The ranks that all lines wait for, where each line tells who is missing in one operation."""
    missing, everybody, guess = _named_ranks(lines, logs.dataset, set.intersection)
    first = lines[0]
    if not missing:
        return _accusation(
            logs,
            lines,
            (),
            guess,
            "collective-mismatch",
            f"{ranks_text(everybody)} wait for each other in different operations ({first.place})",
            "Each of them is missing in operations that others wait in.",
            everybody,
            "low",
            ("no rank is missing in all of them",),
            candidates=everybody,
        )
    title = f"{ranks_text(missing)} did not submit what others wait for ({first.place})"
    words = f"{_meaning(first)}The ranks are named in {plural(len(lines), 'line')}."
    steps = _next_steps(first, missing)
    return _accusation(logs, lines, missing, guess, "missing-rank", title, words, (), next_steps=steps)


def _named_in(logs: LogEvidence, lines: list[LogLine]) -> Finding:
    """All ranks that the lines of one known error name."""
    ranks, _, guess = _named_ranks(lines, logs.dataset, set.union)
    first = lines[0]
    listed = sorted({rank for line in lines for rank in line.values["named"]})
    who = ranks_text(ranks) if ranks else f"{ranks_text(listed)} of a group"
    reporters = set(ranks_of(lines))
    printed = "" if reporters <= set(ranks) else f", as {who_text(lines)} reported"
    return _accusation(
        logs,
        lines,
        ranks,
        guess and bool(ranks),
        "known-error",
        f"{who}: {error_label(first)}{printed} ({first.place})",
        f"{_meaning(first)}The line itself names the ranks.",
        (),
        "high" if ranks else "low",
        () if ranks else ("the line does not tell which group its ranks are counted in",),
        next_steps=_next_steps(first, ranks),
    )


def _named_ranks(
    lines: Sequence[LogLine], dataset: Dataset, join: Callable[..., set[int]]
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """(global ranks of all lines joined, those that any line names, whether they are a guess)."""
    sets, guess = [], False
    several = len({group.ranks for group in dataset.group_list}) > 1
    for line in lines:
        names, guessed = global_ranks(line, line.values["named"], dataset.group_list)
        sets.append(set(names.values()))
        guess |= guessed and several
    return tuple(sorted(join(*sets))), tuple(sorted(set.union(*sets))), guess


def _meaning(line: LogLine) -> str:
    meaning = str(line.values.get("meaning") or "")
    return f"{meaning} " if meaning else ""


def _next_steps(line: LogLine, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """Advice of the table, else where to see that the ranks stopped."""
    advice = str(line.values.get("next") or "")
    return (advice,) if advice else (_STACK_STEP.format(ranks_text(ranks)),) if ranks else ()


def _barriers(logs: LogEvidence) -> Iterator[Finding]:
    """By group, the ranks that did not come to a monitored barrier, except those that had ended or waited in one."""
    ended = {line.rank for line in logs.lines if line.kind == "fingerprint-mismatch" and line.rank is not None}
    barriers = [line for line in logs.lines if line.kind == "monitored-barrier"]
    waited = {line.rank for line in barriers if line.rank is not None}
    # if a rank has another number in some group, the group of a line without a name is unknown
    several = any(line.rank not in (None, line.values.get("reporter", line.rank)) for line in barriers)
    several |= _is_unplaced(logs)
    for lines in _by_group(barriers):
        failed = [line for line in lines if line.values.get("failed_ranks")]
        absent: set[int] = set()
        guess = False
        for line in failed:
            names, guessed = global_ranks(line, line.values["failed_ranks"], logs.dataset.group_list)
            if not (guessed and several):
                absent |= set(names.values())
                guess |= guessed
        ranks = tuple(sorted(absent - waited - ended))
        if ranks:
            yield _barrier(logs, lines, failed, ranks, guess)
        elif absent and not absent & ended:
            yield _crossed(logs, lines, failed, absent)


def _barrier(
    logs: LogEvidence, lines: list[LogLine], failed: list[LogLine], ranks: tuple[int, ...], guess: bool
) -> Finding:
    came = {line.rank for line in lines if line.values.get("outcome") in ("reached", "timed-out")}
    after = failed[0].values.get("timeout_ms")
    within = f" within {duration(after * 1_000_000)}" if isinstance(after, int) else ""
    only = len({tuple(line.values["failed_ranks"]) for line in failed}) == 1 and len(ranks) == 1 and logs.world > 2
    more = " The barrier stops at the first rank; others may have been late too." if only else ""
    return _accusation(
        logs,
        failed,
        ranks,
        guess,
        "missing-rank",
        f"{ranks_text(ranks)} did not reach a monitored barrier{within} ({failed[0].place})",
        f"The first rank of the group waits for a sign from every other rank; theirs never came.{more}",
        [rank for rank in (*came, *(line.rank for line in failed)) if rank is not None],
        op="monitored_barrier",
        next_steps=(_STACK_STEP.format(ranks_text(ranks)),),
    )


def _crossed(logs: LogEvidence, lines: list[LogLine], failed: list[LogLine], absent: set[int]) -> Finding:
    """Absent ranks that waited in another barrier: one of the sides took another path, and nothing tells which."""
    waiting = ranks_of(lines)
    return _accusation(
        logs,
        failed,
        (),
        False,
        "order-deadlock",
        f"{ranks_text(ranks_of(failed))} waited in a monitored barrier for {ranks_text(sorted(absent))}, which waited "
        f"in another ({failed[0].place})",
        "With TORCH_DISTRIBUTED_DEBUG=DETAIL every collective begins with such a barrier. Ranks went into different "
        "ones: groups were entered in different orders, or one of these ranks left a collective out.",
        waiting,
        "low",
        ("the lines do not name the group of each barrier",),
        candidates=tuple(sorted({*absent, *waiting})),
        op="monitored_barrier",
        next_steps=("Compare the tracebacks of these ranks: which of them is at another place in the program?",),
    )


def global_ranks(line: LogLine, ranks: Iterable[int], groups: tuple[Group, ...]) -> tuple[dict[int, int], bool]:
    """(global rank by rank in the group, as c10d prints it, whether that is a guess); empty if it is unknown."""
    ranks = list(ranks)
    if line.group is not None and line.group < len(groups):
        members = groups[line.group].ranks
        return {rank: members[rank] for rank in ranks if 0 <= rank < len(members)}, False
    if line.values.get("pg_desc") == "default_pg":
        return {rank: rank for rank in ranks}, False
    inside = line.values.get("reporter", line.values.get("rank_in_group"))
    if isinstance(inside, int) and line.rank is not None:
        fitting = _fitting(line.rank, inside, ranks, groups)
        if len(fitting) == 1:
            return fitting.pop(), False
        if fitting or inside != line.rank:
            return {}, True
    if str(line.values.get("pg_guid") or "") not in WORLD_NAMES:
        return {}, True
    known = inside is not None and inside == line.rank and line.rank != 0
    return {rank: rank for rank in ranks}, not known


def _fitting(reporter: int, inside: int, ranks: list[int], groups: tuple[Group, ...]) -> list[dict[int, int]]:
    """The meaning of ranks in each group that they may be of; empty if only the group of all ranks is known."""
    if len({group.ranks for group in groups}) < 2:
        return []
    meanings: list[dict[int, int]] = []
    for group in groups:
        members = group.ranks
        if inside < len(members) and members[inside] == reporter and all(rank < len(members) for rank in ranks):
            meaning = {rank: members[rank] for rank in ranks}
            meanings += [meaning] if meaning not in meanings else []
    return meanings
