"""`lone-compilation`: ranks that alone compile again and again, or without a cache, while the others wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Confidence, Evidence, Finding, GroupRef
from rankscope.analysis.places import Places
from rankscope.analysis.verdict import Scene
from rankscope.features.compile.compilation_counts import (
    CompilationWait,
    LoneFunction,
    compilation_wait,
    lone_functions,
    recording_ranks,
)
from rankscope.features.compile.graph_breaks import graph_breaks
from rankscope.features.compile.guards import guard_advice
from rankscope.features.compile.recompiling import (
    FAILURE,
    FunctionPlace,
    compilation_evidence,
    explained_failures,
    failed_compilations,
    few_recompilations,
    recompiling,
)
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.schema import Frame
from rankscope.text.wording import clock, duration, plural, ranks_text

KIND = "lone-compilation"
MOST_EVIDENCE = 5
MOST_FUNCTIONS = 3
LEAST_SHARE = 0.5
"""Share of the ranks that find compiled code in a cache, for a rank that finds none to be alone."""
SLOWER = 2
"""Least ratio of its time of compilation to the median of the others."""
_RECORD = "Set TORCH_TRACE=DIRECTORY on all ranks: it records who compiles, when and for how long, at little cost."
_DUMPS = "Give the flight recorder dumps of all ranks too: they show who waited meanwhile."
_AGAIN = "Dump again after some minutes: a compilation ends by itself, a hang does not."


def with_compilations(findings: Sequence[Finding], scene: Scene) -> list[Finding]:
    """The findings with those about compilations; ids of new ones follow.

    A rank that is accused of staying away and compiles may come yet, and a rank that is late is late because of it.
    """
    facts, places = scene.facts, scene.places
    failed = failed_compilations(facts, recording_ranks(facts.dataset))[:MOST_FUNCTIONS]
    findings = explained_failures(facts, findings, failed)
    ended = {rank for finding in findings if finding.kind == FAILURE for rank in finding.culprit_ranks}
    failed = [one for one in failed if not one.candidates or not ended.issuperset(one.candidates)]
    doubted = [_doubted(facts, finding) for finding in findings]
    lone = lone_functions(facts)
    hung = any(finding.severity == "critical" for finding in findings)
    new = [_recompiling(facts, places, one, hung=hung) for one in lone[:MOST_FUNCTIONS]]
    if not new and (cold := _uncached(facts, places, hung=hung)) is not None:
        new = [cold]
    alone = {FunctionPlace(one.function, one.path, one.code_line) for one in lone}
    new = [*failed, *new, *recompiling(facts, alone)[:MOST_FUNCTIONS]]
    new += [*few_recompilations(facts), *graph_breaks(facts)]
    new = [replace(f, id=f"f{i}") for i, f in enumerate(new, len(findings) + 1)]
    causes = [finding for finding in new if finding.root_cause]
    late = [_explained(finding, causes) for finding in doubted]
    before = [finding for finding in late if finding.severity == "critical"]
    after = [finding for finding in late if finding.severity != "critical"]
    return [*before, *new, *after] if causes else [*late, *new]


def _explained(finding: Finding, causes: Sequence[Finding]) -> Finding:
    """A straggler as the consequence of its compilations."""
    own = set(finding.culprit_ranks)
    cause = next((c for c in causes if own and own <= set(c.culprit_ranks)), None)
    if cause is None or finding.kind != "straggler":
        return finding
    return replace(finding, root_cause=False, caused_by=cause.id)


def _recompiling(facts: Facts, places: Places, lone: LoneFunction, *, hung: bool) -> Finding:
    waits = compilation_wait(facts, lone)
    sure = waits is not None or lone.is_seen
    group = facts.groups[waits.group] if waits is not None else None
    return Finding(
        kind=KIND,
        severity="warning",
        title=_title(lone, "alone " if sure else ""),
        explanation=_explanation(facts, lone, waits),
        root_cause=sure and not hung,
        culprit_ranks=lone.ranks if sure else (),
        culprits=tuple(map(places.culprit, lone.ranks)) if sure else (),
        candidates=() if sure else lone.ranks,
        waiting_ranks=waits.waiting if waits is not None else (),
        blast_radius=len(waits.waiting) if waits is not None else 0,
        confidence=_confidence(lone, waits),
        confidence_reasons=_reasons(lone, waits),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id) if group is not None else None,
        seq=waits.seq if waits is not None else None,
        op=waits.op if waits is not None else None,
        stack=(Frame(lone.function, lone.path, lone.code_line),) if lone.function and sure else (),
        evidence=tuple(compilation_evidence(facts, lone.rows)),
        next_steps=(
            guard_advice(lone.reason),
            *(() if lone.spent_ns is not None else (_RECORD,)),
            *(() if waits is not None else (_DUMPS,)),
        ),
    )


def _title(lone: LoneFunction, alone: str) -> str:
    verb = "recompiles" if len(lone.ranks) == 1 else "recompile"
    what = f"{FunctionPlace(lone.function, lone.path, lone.code_line)} " if lone.function else ""
    spent = f", {duration(lone.spent_ns)} in all" if lone.spent_ns else ""
    often = f"at least {plural(lone.times, 'time')}{spent}"
    why = f": {lone.reason}" if lone.reason else ""
    return f"{ranks_text(lone.ranks)} {alone}{verb} {what}again and again ({often}){why}"


def _explanation(facts: Facts, lone: LoneFunction, waits: CompilationWait | None) -> str:
    text = "torch.compile makes a function again when an input does not fit any compiled version. "
    if waits is None and not lone.is_seen:
        return f"{text}Whether the other ranks recompile it too, and wait, is not recorded."
    who = f"the other {lone.others:,} ranks" if lone.others > 1 else "the other rank"
    rest = f"at most {plural(lone.rest, 'recompilation')}" if lone.rest else "no recompilation"
    text += f"The inputs of {ranks_text(lone.ranks)} differ: there is {rest} of it on {who}."
    if waits is None:
        return f"{text} No dump tells whether others waited for it meanwhile."
    return (
        f"{text} In {waits.times:,} of {plural(waits.of, 'recompilation')} that the dumps cover, "
        f"{ranks_text(waits.waiting)} had already issued the next collective and waited, up to "
        f"{duration(waits.longest_ns)}; last in {waits.op} #{waits.seq} of {facts.label(waits.group)}."
    )


def _confidence(lone: LoneFunction, waits: CompilationWait | None) -> Confidence:
    if waits is not None:
        return "high" if lone.is_seen else "medium"
    return "medium" if lone.is_seen else "low"


def _reasons(lone: LoneFunction, waits: CompilationWait | None) -> tuple[str, ...]:
    seen = () if lone.is_seen else ("the others may not record their compilations",)
    return (*seen, *(() if waits is not None else ("nothing here shows whether the others waited for it",)))


# A rank that is accused of staying away, and was compiling when it was last seen.


def _doubted(facts: Facts, finding: Finding) -> Finding:
    """The finding with the open compilation of a culprit as evidence, no surer than that allows."""
    told = facts.dataset.compilations
    if not finding.root_cause or FINDINGS[finding.kind].absent != "culprits" or told.is_empty():
        return finding
    rows = [row for rank in finding.culprit_ranks if (row := _open_compilation(facts, rank)) is not None]
    if not rows:
        return finding
    ranks = tuple(sorted(row["rank"] for row in rows))
    paths = dict(facts.dataset.files.select("file", "path").iter_rows())
    evidence = [
        Evidence(
            f"compiles {row['function'] or 'a function'} {row['path']}:{row['code_line']} since "
            f"{clock(row['start_ns'])}{', because ' + row['reason'] if row['reason'] else ''}",
            paths.get(row["file"]), row["rank"], line=row["line"], time_ns=row["start_ns"],
        )
        for row in rows[:MOST_EVIDENCE]
    ]  # fmt: skip
    was = "was" if len(ranks) == 1 else "were"
    return replace(
        finding,
        confidence="low" if finding.confidence == "low" else "medium",
        confidence_reasons=(
            *finding.confidence_reasons, f"{ranks_text(ranks)} {was} compiling, which may take minutes and ends",
        ),
        evidence=(*evidence, *finding.evidence),
        next_steps=(_AGAIN, *finding.next_steps),
    )  # fmt: skip


def _open_compilation(facts: Facts, rank: int) -> dict[str, Any] | None:
    """The compilation that a rank had begun and not ended, after its last known operation; None if there is none."""
    own = facts.dataset.compilations.filter((pl.col("rank") == rank) & pl.col("is_open"))
    if own.is_empty():
        return None
    last = facts.dataset.ops.filter(pl.col("rank") == rank)["created_ns"].max()
    row = own.row(-1, named=True)
    return None if isinstance(last, int) and row["start_ns"] is not None and row["start_ns"] < last else row


# A rank that finds nothing in a cache of compiled code that the others use.


def _uncached(facts: Facts, places: Places, *, hung: bool) -> Finding | None:
    """A finding on ranks whose lookups all fail where most others' succeed, and that compile longer."""
    told = facts.dataset.compilations.drop_nulls(["rank", "hits", "misses"])
    by_rank = told.group_by("rank").agg(
        pl.col("hits").sum(), pl.col("misses").sum(), pl.col("duration_ns").sum(), pl.col("file").first()
    )  # fmt: skip
    looked = by_rank.filter(pl.col("hits") + pl.col("misses") > 0)
    warm, cold = looked.filter(pl.col("hits") > 0), looked.filter(pl.col("hits") == 0).sort("rank")
    usual = warm["duration_ns"].median()
    if cold.is_empty() or not isinstance(usual, float) or warm.height <= LEAST_SHARE * looked.height:
        return None
    late = cold.filter(pl.col("duration_ns") >= SLOWER * usual)
    if late.is_empty():
        return None
    ranks, longest = tuple(late["rank"].to_list()), late["duration_ns"].max()
    finds = "finds" if len(ranks) == 1 else "find"
    paths = dict(facts.dataset.files.select("file", "path").iter_rows())
    return Finding(
        kind=KIND,
        severity="warning",
        title=f"{ranks_text(ranks)} alone {finds} nothing in the cache of compiled code: up to "
        f"{duration(longest if isinstance(longest, int) else 0)} of compilation, the others {duration(round(usual))}",
        explanation="A rank without the cache compiles what the others load, and they wait for it in their next "
        "collective: another directory, a host without the shared disk, or a cache that is turned off.",
        root_cause=not hung,
        culprit_ranks=ranks,
        culprits=tuple(map(places.culprit, ranks)),
        confidence="medium",
        confidence_reasons=("nothing here shows whether the others waited for it",),
        evidence=tuple(
            Evidence(f"0 of {plural(misses, 'lookup')} found compiled code", paths.get(file), rank)
            for rank, misses, file in late.select("rank", "misses", "file").head(MOST_EVIDENCE).iter_rows()
        ),
        next_steps=(
            "Compare TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR of these ranks with those of the others.",
            "Warm the cache on all hosts before the job, or share it.",
        ),
    )
