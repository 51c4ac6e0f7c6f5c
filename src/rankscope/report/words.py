"""Findings, and the input, in words; the reports for people share them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from rankscope.analysis.host_stacks import is_native, kind_of, short_function_name
from rankscope.analysis.job_state import noted_ends
from rankscope.analysis.model import (
    Analysis,
    ChainStep,
    Culprit,
    Evidence,
    Finding,
    Mesh,
    RankExplanation,
    Reason,
)
from rankscope.kinds.finding_kinds import FINDINGS, STATUSES
from rankscope.kinds.input_kinds import INPUTS, UNKNOWN
from rankscope.schema import Dataset, Frame
from rankscope.text.secrets import hide
from rankscope.text.wording import LONGEST_RANGES, duration, group_name, moment, plural, rank_ranges, ranks_text

if TYPE_CHECKING:
    from rankscope.analysis.host_stacks import HostThread

STAND_IN = re.compile(r"(?<![\w-])(?:host|user|dir|name|file|job|project|bucket|service|switch|rack)-\d+")
"""A stand-in of a redacted job in the name of a file: its number says nothing of the file."""
LONGEST_LINE = 2_000
"""Characters shown of one title, explanation or line of evidence."""
MOST_EVIDENCE = 8
MOST_FRAMES = 20
MOST_STEPS = 8
MOST_JOBS = 3
"""Other jobs that are named in the line of the input."""
MOST_FILES = 20
MOST_PLACES = 4
MOST_PATHS = 3
MOST_FOLLOWING = 5
"""How many of each a report for people lists; the JSON report has them all."""


def headline(analysis: Analysis) -> str:
    """The status in capitals and the verdict, in one line."""
    return f"{STATUSES[analysis.status].badge}: {analysis.verdict}"


def title(analysis: Analysis) -> str:
    """The status with one capital and the verdict, as the title of a page."""
    return f"{STATUSES[analysis.status].badge.capitalize()}: {analysis.verdict}"


def instead(finding: Finding) -> str:
    """The word for ranks that may be to blame: beside a culprit, or if nobody is accused."""
    return "Or else" if finding.culprit_ranks else "Suspect"


def place(finding: Finding) -> str:
    """The operation of a finding: "all_reduce #12 in mesh_tp (group 41), ranks 2-3"; "" if there is none."""
    number = "" if finding.seq is None else f"#{finding.seq}"
    if finding.peer is None:
        parts = [finding.op or "", number]
    elif finding.never_posted:
        side = "receive from" if finding.op == "send" else "send to"
        parts = [f"{side} rank {finding.peer}{f' ({number})' if number else ''}, never posted"]
    else:
        parts = [finding.op or "", number, f"with rank {finding.peer}"]
    if group := finding.group:
        name = group_name(group.id, group.description)
        parts.append(f"{'in ' if any(parts) else ''}{name}, {ranks_text(group.ranks)}")
    return " ".join(p for p in parts if p)


def who(finding: Finding) -> str:
    """The accused: "rank 3 on node07"; "" if nobody is."""
    if not finding.culprits:
        return ranks_text(finding.culprit_ranks) if finding.culprit_ranks else ""
    hosts: dict[tuple[str, ...], list[Culprit]] = {}
    for culprit in finding.culprits:
        key = () if culprit.rank is None else (culprit.host or "",)
        hosts.setdefault(key, []).append(culprit)
    return "; ".join(_accused(members) for members in hosts.values())


def _accused(members: list[Culprit]) -> str:
    ranks = [c.rank for c in members if c.rank is not None]
    if not ranks:
        return ", ".join(map(_without_rank, members))
    first = members[0]
    device = f", {first.device}" if first.device and len(members) == 1 else ""
    return ranks_text(ranks) + (f" on {first.host}" if first.host else "") + device


def on_mesh(finding: Finding, mesh: Mesh | None) -> str:
    """The place of the accused on the grid: "rank 12 is pp 1, dp 2, tp 0"; for many, their common part."""
    places = {rank: mesh.where(rank) for rank in finding.culprit_ranks if mesh.place(rank)} if mesh else {}
    if mesh is None or len(places) <= MOST_PLACES:
        return "; ".join(f"rank {rank} is {where}" for rank, where in places.items())
    common = []
    for axis, dimension in enumerate(mesh.dimensions):
        along = {mesh.places[rank][axis] for rank in places}
        if len(along) == 1:
            common.append(f"{dimension.name} {along.pop()}")
    number = "all" if len(places) == len(finding.culprit_ranks) else f"{len(places)}"
    return f"{number} of them are {', '.join(common)}" if common else ""


def _without_rank(culprit: Culprit) -> str:
    pid = f"process {culprit.pid}" if culprit.pid is not None else None
    return " ".join(p for p in (pid, culprit.device, f"on {culprit.host}" if culprit.host else None) if p) or "unknown"


def held_up(finding: Finding) -> str:
    """The ranks that wait because of the finding: "3 ranks (0-2)"; "" if there are none."""
    number = max(finding.blast_radius, len(finding.waiting_ranks))
    named = f" ({rank_ranges(finding.waiting_ranks, LONGEST_RANGES)})" if finding.waiting_ranks else ""
    return f"{plural(number, 'rank')}{named}" if number else ""


def descriptions(dataset: Dataset) -> dict[str, str]:
    """The description of each group for people, by its name, if the name stands for one group."""
    named = dataset.groups.filter(pl.col("name").is_unique() & (pl.col("description") != ""))
    return dict(named.select("name", "description").iter_rows())


def steps(finding: Finding, groups: Mapping[str, str]) -> list[str]:
    """The chain in words, with `groups` by description; a long chain loses its middle."""
    lines = [_step(one, groups) for one in finding.chain]
    if len(lines) <= MOST_STEPS:
        return lines
    half = MOST_STEPS // 2
    return [*lines[:half], f"({len(lines) - 2 * half} more steps)", *lines[-half:]]


def _step(one: ChainStep, groups: Mapping[str, str]) -> str:
    where = one.waits_in
    group = groups.get(where.group) or f"group {where.group}"
    number = "" if where.seq is None else f" #{where.seq}"
    return f"rank {one.rank} waits in {group} {where.op}{number} for rank {one.for_rank}"


def source(evidence: Evidence) -> str:
    """The place of an evidence: "nccl_trace_rank_3, record 2210"; "" if it names none."""
    parts = [evidence.file or ("" if evidence.rank is None else f"rank {evidence.rank}")]
    if evidence.line is not None:
        parts.append(f"line {evidence.line}")
    if evidence.record_id is not None:
        parts.append(f"record {evidence.record_id}")
    elif evidence.file and evidence.line is None and not _names(evidence.file, evidence.rank):
        parts.append(f"rank {evidence.rank}")
    return ", ".join(p for p in parts if p)


def _names(file: str, rank: int | None) -> bool:
    """Whether a file's name contains the rank already, or there is no rank."""
    name = STAND_IN.sub("", file.rsplit("/", 1)[-1])
    return rank is None or re.search(rf"(?<!\d){rank}(?!\d)", name) is not None


def certainty(finding: Finding) -> str:
    """How sure a finding is, with the reasons: "medium: timing is off; rank 5 left no dump"."""
    reasons = "; ".join(finding.confidence_reasons)
    return f"{finding.confidence}: {reasons}" if reasons else finding.confidence


@dataclass(frozen=True)
class UnreadFiles:
    """Files that could not be read, or only in part, for one reason."""

    problem: str
    paths: tuple[str, ...]


def unread(dataset: Dataset) -> list[UnreadFiles]:
    """Files that could not be read, by reason, in order of the files; links that lead out are the last."""
    reasons: dict[str, list[str]] = {}
    rows = dataset.files.select("path", "problem", "kind").drop_nulls("problem").iter_rows()
    for path, problem, _ in sorted(rows, key=lambda row: INPUTS.get(row[2], UNKNOWN).leads_out):
        reasons.setdefault(problem, []).append(path)
    return [UnreadFiles(problem, tuple(paths)) for problem, paths in reasons.items()]


def summary(dataset: Dataset) -> str:
    """The input in one line: "4 ranks, 2 groups, 4 dumps with 380 operations"; without dumps only what is there."""
    used = dataset.files.filter("used")["kind"].to_list()
    kinds = sorted((kind for kind in INPUTS.values() if kind.noun and kind.name in used), key=lambda kind: kind.place)
    read = [(used.count(kind.name), kind.noun) for kind in kinds] or [(0, "dump")]
    *most, last = (plural(number, noun) for number, noun in read)
    files = f"{', '.join(most)} and {last}" if most else last
    operations = dataset.traced.height if dataset.from_traces else dataset.ops.height
    told = not dataset.dumps.is_empty() or not used
    # without a number in any line, ranks are those that the lines are about; a lone trace may tell none
    ranks = dataset.every_rank if dataset.is_sized else dataset.told_ranks
    counts = [(0 if dataset.is_rankless else len(ranks), "rank"), (dataset.groups.height, "group")]
    parts = [plural(number, noun) for number, noun in counts if number or told]
    with_operations = f" with {plural(operations, 'operation')}" if operations or told else ""
    if not dataset.is_sized and ranks:
        parts[0] += " of an unknown number"
    line = ", ".join([*parts, f"{files}{with_operations}"])
    return f"{line}, {_attempt(dataset)}" if dataset.attempts.height > 1 else line


def _attempt(dataset: Dataset) -> str:
    """The attempt in use, the attempts that left no dumps, and those that are of other jobs."""
    # attempts that only logs tell apart have no times
    silent = dataset.attempts.filter((pl.col("dumps") == 0) & pl.col("newest_ns").is_not_null())["attempt"].to_list()
    noun = "attempt" if len(silent) == 1 else "attempts"
    left = f"; {noun} {rank_ranges(silent, LONGEST_RANGES)} left no dumps" if silent else ""
    others = "".join(f"; {text}" for text in _other_jobs(dataset))
    return f"attempt {dataset.attempt} of {dataset.attempts.height} (0 is the oldest{left}{others})"


def _other_jobs(dataset: Dataset) -> list[str]:
    """Attempts of other jobs, by their ids, else by their times: "attempt 0 is another job, 4711: ..."."""
    rows = {row["attempt"]: row for row in dataset.attempts.iter_rows(named=True)}
    mine = rows[dataset.attempt]
    others: dict[str, list[int]] = {}
    for attempt, row in rows.items():
        if None not in (mine["job"], row["job"]):
            said = f"another job, {hide(row['job'])}" if mine["job"] != row["job"] else ""
        else:
            said = "another job, which ran at the same time" if attempt != mine["attempt"] and _meet(mine, row) else ""
        if said:
            others.setdefault(said, []).append(attempt)
    texts = []
    for said, attempts in list(others.items())[:MOST_JOBS]:
        several = len(attempts) > 1
        noun = f"attempts {rank_ranges(attempts, LONGEST_RANGES)} are of" if several else f"attempt {attempts[0]} is"
        texts.append(f"{noun} {said}: read it with --attempt {attempts[-1]}")
    more = len(others) - MOST_JOBS
    return [*texts, f"{plural(more, 'more job')} left files here"] if more > 0 else texts


def _meet(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two attempts ran at the same time, by their first and last events."""
    times = [row[key] for row in (one, other) for key in ("started_ns", "newest_ns")]
    return None not in times and max(times[0], times[2]) < min(times[1], times[3])


def stillness(analysis: Analysis, dataset: Dataset) -> str:
    """The time since which an operation waits, and how long the job was still unless it moves; "" if neither is
    known."""
    if analysis.hang_since_ns is None:
        return ""
    zone = "local time of the log" if dataset.from_logs else "UTC"
    yearless = dataset.from_logs and dataset.messages["values"].str.contains('"yearless":true', literal=True).any()
    since = f"since {moment(analysis.hang_since_ns, zone, with_year=not yearless)}"
    still = (
        f"still for {duration(analysis.frozen_for_ns)} by the files' times"
        if analysis.frozen_for_ns is not None and analysis.status != "progressing"
        else ""
    )
    return ", ".join(p for p in (since, still) if p)


def unseen(analysis: Analysis, dataset: Dataset) -> str:
    """The place where a job with healthy dumps waits if it hangs; "" if there is other data than dumps, or it has
    ended."""
    if analysis.status != "healthy" or dataset.dumps.is_empty() or dataset.has_logs or dataset.has_traces:
        return ""
    if noted_ends(dataset):
        # no process is left of which stacks could be taken
        return ""
    gloo = bool((dataset.ops["library"] == "gloo").any())
    where = " (gloo records no send, receive or monitored barrier)" if gloo else ""
    return f"if it hangs anyway, no rank waits in a recorded operation{where}: run py-spy dump on every rank"


def following(analysis: Analysis, finding: Finding) -> list[Finding]:
    """The findings that follow from this one."""
    return [f for f in analysis.findings if finding.id and f.caused_by == finding.id]


def leading(analysis: Analysis) -> list[Finding]:
    """The findings that do not follow from others, in their order."""
    known = {f.id for f in analysis.findings if f.id}
    return [f for f in analysis.findings if f.caused_by is None or f.caused_by not in known]


def causes_first(analysis: Analysis) -> list[int]:
    """The places of all findings: those that lead, then those that follow from them."""
    lead = {id(f) for f in leading(analysis)}
    return sorted(range(len(analysis.findings)), key=lambda at: id(analysis.findings[at]) not in lead)


def under_causes(analysis: Analysis) -> list[int]:
    """The places of all findings, each followed by those that follow from it."""
    place = {id(f): at for at, f in enumerate(analysis.findings)}
    listed = [f for cause in leading(analysis) for f in (cause, *following(analysis, cause))]
    found = dict.fromkeys(place[id(f)] for f in listed)
    return [*found, *(at for at in place.values() if at not in found)]


def stack_title(finding: Finding, dataset: Dataset) -> str:
    """The title of a finding's stack: of a culprit or its request, or of a waiting rank if no culprit left a dump."""
    if FINDINGS[finding.kind].ended:
        return f"{ranks_text(finding.culprit_ranks[:1])}, in its log" if finding.culprit_ranks else "it, in its log"
    if finding.limits and finding.evidence:
        return f"rank {finding.evidence[0].rank}"
    if finding.kind == "memory-request-failed":
        return "the request"
    seen = [rank for rank in finding.culprit_ranks if rank in dataset.seen_ranks]
    if not seen:
        return "a waiting rank"
    return f"rank {seen[0]}, at its last operation" if finding.kind == "missing-rank" else f"rank {seen[0]}"


def counterpart(finding: Finding, dataset: Dataset) -> tuple[str, Sequence[Frame]]:
    """The rank of the first evidence that is no culprit, and its stack there."""
    for evidence in finding.evidence:
        if evidence.rank is None or evidence.record_id is None or evidence.rank in finding.culprit_ranks:
            continue
        rows = dataset.ops.filter(rank=evidence.rank, record_id=evidence.record_id)
        stack = dataset.stack(rows["stack_id"][0]) if rows.height == 1 else ()
        if stack and stack != finding.stack:
            waits = ", which waits" if evidence.rank in finding.waiting_ranks else ""
            return f"rank {evidence.rank}{waits}", stack
    return "", ()


def stacks(finding: Finding, dataset: Dataset) -> list[tuple[str, list[str]]]:
    """The stacks of a finding, each with its title: the culprit's, and another member's for comparison."""
    own = (stack_title(finding, dataset), finding.stack)
    return [(title, frames(stack)) for title, stack in (own, counterpart(finding, dataset)) if stack]


def frames(stack: Sequence[Frame]) -> list[str]:
    """A stack, innermost first: "forward  model.py:88"; without the frames of torch and Python at its two ends."""
    own = [i for i, frame in enumerate(stack) if kind_of(frame) == "user"] or range(len(stack))
    kept = stack[own[0] : own[-1] + 1][:MOST_FRAMES] if stack else ()
    lines = [f"{f.function}  {f.file}:{f.line}" for f in kept]
    left = len(stack) - len(lines)
    return [*lines, f"({plural(left, 'frame')} left out)"] if left else lines


def evidence_lines(evidence: Sequence[Evidence]) -> list[str]:
    """The lines of the evidence, each with its place first."""
    shown = evidence[:MOST_EVIDENCE]
    lines = [hide(f"{source(e)}: {e.text}" if source(e) else e.text) for e in shown]
    return lines + _left(len(evidence) - len(shown))


def following_lines(analysis: Analysis, finding: Finding) -> list[str]:
    """The titles of the findings that follow from this one."""
    found = following(analysis, finding)
    return [f.title for f in found[:MOST_FOLLOWING]] + _left(len(found) - MOST_FOLLOWING)


def _left(number: int) -> list[str]:
    return [f"({number:,} more in the JSON report)"] if number > 0 else []


def paths_phrase(group: UnreadFiles) -> str:
    """The files of one problem: the names of the first few."""
    shown = ", ".join(group.paths[:MOST_PATHS])
    left = len(group.paths) - MOST_PATHS
    return f"{shown} and {plural(left, 'file')} more" if left > 0 else shown


def troubles(finding: Finding) -> list[str]:
    """The files of a finding, and the text about each; equal texts once: "rank_0, rank_1: cut off"."""
    said: dict[str, list[str]] = {}
    for one in finding.evidence:
        if one.file is not None:
            said.setdefault(one.text, []).append(one.file)
    groups = [UnreadFiles(text, tuple(files)) for text, files in said.items()]
    return [": ".join(p for p in (paths_phrase(group), group.problem) if p) for group in groups]


# The host stacks of the ranks of a finding, for reports for people.

MOST_HOST_PLACES = 2
"""Places of hosts that are shown of one finding."""
MOST_HOST_FRAMES = 14
"""Frames shown of a stack: the innermost, for they tell the activity of the host."""


def host_sections(finding: Finding, dataset: Dataset) -> Iterator[tuple[str, list[str]]]:
    """(whose, by what tool; lines innermost first) of the culprits, or else the candidates; and who held the GIL."""
    if dataset.threads.is_empty():
        return
    # imported only for jobs with stacks of their hosts
    from rankscope.analysis.host_stacks import host_stacks, stack_sites

    for ranks in (finding.culprit_ranks, finding.candidates):
        found = stack_sites(host_stacks(dataset, ranks).values()) if ranks else []
        for site in found[:MOST_HOST_PLACES]:
            who = ranks_text(site.ranks)
            by = f"by {site.first.tool}"
            yield f"{who}, {_thread(site.first.trains)}, {by}", frame_lines(site.first.trains.stack)
            if site.first.holder is not None:
                yield f"{who}, {_thread(site.first.holder)}, {by}", frame_lines(site.first.holder.stack)
        if found:
            return


def _thread(thread: HostThread) -> str:
    return f"{thread.label}{', which holds the GIL' if thread.gil else ''}"


def frame_lines(stack: Sequence[Frame]) -> list[str]:
    """The frames, native ones by their library, without those of the interpreter at the outer end."""
    outer = next((i for i in reversed(range(len(stack))) if kind_of(stack[i]) == "user"), len(stack) - 1)
    lines = [frame_line(frame) for frame in stack[: min(outer + 1, MOST_HOST_FRAMES)]]
    left = len(stack) - len(lines)
    return [*lines, f"({plural(left, 'frame')} left out)"] if left else lines or ["no frame"]


def frame_line(frame: Frame) -> str:
    """A frame: "save  ckpt.py:77", "take_gil  python3.11 (native)"."""
    return (
        f"{short_function_name(frame)}  {frame.file} (native)"
        if is_native(frame)
        else f"{frame.function}  {frame.file}:{frame.line}"
    )


# The reasons why a rank is accused or not, in words for a person: lines under labels.

WHY_LABELS: dict[str, str] = {
    "rule": "rule", "evidence": "evidence", "waits": "waits", "root": "because", "state": "progress",
    "unlike": "difference", "against": "against", "close": "how close", "clears": "clears it", "also": "also",
}  # fmt: skip
"""Labels of the facts about a rank, in the order of the report."""


def why_sections(why: RankExplanation) -> list[tuple[str, list[str]]]:
    """The lines of an answer by their labels, each with its place first."""
    told = {label: [_why_line(r) for r in why.lines if r.about == about] for about, label in WHY_LABELS.items()}
    return [(label, lines) for label, lines in told.items() if lines]


def _why_line(reason: Reason) -> str:
    place = source(reason.evidence)
    return hide(f"{place}: {reason.evidence.text}" if place else reason.evidence.text)
