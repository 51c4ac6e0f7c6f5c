"""`recompilation`: functions that torch.compile compiles again and again, on all ranks or on those that tell it;
`few-recompilations`: those that it compiles again once or twice.

Nobody is accused: `lone-compilation` is about ranks that do so alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Evidence, Finding
from rankscope.features.compile.compilation_counts import AGAIN, FEWEST_RECOMPILATIONS, counted_again
from rankscope.features.compile.guards import guard_advice
from rankscope.text.wording import duration, plural, ranks_text

KIND = "recompilation"
FEW_KIND = "few-recompilations"
MOST_EVIDENCE = 5
_PLACE = ["function", "path", "code_line"]
_FEW_TEXT = (
    "A second compilation, as for a last batch of another size or a warm-up, is usual; each costs seconds or minutes. "
    "Three or more of one function are told as a warning."
)
_AGAIN_TEXT = (
    "torch.compile makes a function again when an input does not fit any compiled version; each time costs seconds or "
    "minutes."
)
_UNTOLD = "Whether other ranks recompile it too, or wait meanwhile, is not recorded."
_EAGER = "Behind the limit the function runs without being compiled, unless fail_on_recompile_limit_hit is set."
_WHOSE = "Give the logs of all ranks: a rank that recompiles alone lets the others wait."


@dataclass(frozen=True)
class FunctionPlace:
    """A function of the program; "" and 0 where nothing tells it."""

    function: str
    path: str
    code_line: int

    def __str__(self) -> str:
        """ "block (net.py:6)"."""
        return (f"{self.function} ({self.line})" if self.path else self.function) or "a function"

    @property
    def line(self) -> str:
        """ "net.py:6", or "net.py" without a known line; "" if the file is not known."""
        name = PurePath(self.path.replace(chr(92), "/")).name
        return f"{name}:{self.code_line}" if self.path and self.code_line else name

    @property
    def rows(self) -> pl.Expr:
        """The condition for its rows of `compilations`."""
        return (
            (pl.col("function") == self.function)
            & (pl.col("path") == self.path)
            & (pl.col("code_line") == self.code_line)
        )


def recompiling(facts: Facts, lone: Collection[FunctionPlace]) -> list[Finding]:
    """A finding for each function that is compiled again and again, or up to its limit, without those that only a few
    ranks compile so; the most often compiled first."""
    counts = _often(facts)
    found = []
    for key, rows in counts.group_by("function", "path", "code_line", maintain_order=True):
        place = FunctionPlace(*key)
        if place not in lone:
            found.append((int(rows["times"].max()), _finding(facts, place, rows)))  # type: ignore[arg-type]
    return [finding for _, finding in sorted(found, key=lambda pair: -pair[0])]


def _often(facts: Facts) -> pl.DataFrame:
    """Rows of `counted_again` of functions that are compiled three times or more, or no more as their limit is hit."""
    at_limit = facts.dataset.compilations.filter(pl.col("what") == "limit").select(_PLACE).unique()
    counts = counted_again(facts.dataset.compilations)
    limited = counts.join(at_limit, on=_PLACE, how="semi")
    return counts.filter(pl.col("times") >= FEWEST_RECOMPILATIONS).vstack(limited).unique(maintain_order=True)


def few_recompilations(facts: Facts) -> list[Finding]:
    """One finding on all functions that are compiled again once or twice, as for a last batch; none without any."""
    counts = counted_again(facts.dataset.compilations)
    again = facts.dataset.compilations.filter(pl.col("what").is_in(AGAIN), pl.col("error") == "")
    rows = again.join(_often(facts), on=_PLACE, how="anti")
    if rows.is_empty():
        return []
    ranks = tuple(sorted(set(rows["rank"].drop_nulls().to_list())))
    keys = list(rows.select(_PLACE).unique(maintain_order=True).iter_rows())
    times = max(counts.join(rows.select(_PLACE).unique(), on=_PLACE, how="semi")["times"].to_list())
    often = "once" if times == 1 else "twice" if len(keys) == 1 else "at most twice"
    told = rows.filter(pl.col("reason") != "")["reason"]
    where = (
        f"{FunctionPlace(*keys[0])}" if len(keys) == 1 else f"{len(keys)} functions, first {FunctionPlace(*keys[0])}"
    )
    return [
        Finding(
            kind=FEW_KIND,
            severity="info",
            title=f"torch.compile makes {where}{f' on {ranks_text(ranks)}' if ranks else ''} again, "
            f"{often}{f': {told[0]}' if told.len() else ''}",
            explanation=_FEW_TEXT,
            about=ranks,
            confidence="high",
            evidence=tuple(compilation_evidence(facts, rows)),
            next_steps=(guard_advice(str(told[0]) if told.len() else ""),),
        )
    ]


def _finding(facts: Facts, place: FunctionPlace, counts: pl.DataFrame) -> Finding:
    compilations = facts.dataset.compilations.filter(pl.col("what").is_in(AGAIN), place.rows)
    ranks = tuple(sorted(set(counts["rank"].drop_nulls().to_list())))
    processes = counts.filter(pl.col("rank").is_null())
    who = ranks_text(ranks) if ranks else "a process" if processes.height == 1 else f"{processes.height} processes"
    alone = len(ranks) == 1 if ranks else processes.height == 1
    told = compilations.filter(pl.col("reason") != "", pl.col("error") == "")["reason"]
    reason = str(told[-1]) if told.len() else ""
    spent = compilations.filter(pl.col("what") == "recompile")["duration_ns"].sum()
    took = f", {duration(spent)} in all" if isinstance(spent, int) and spent else ""
    times = sorted(counts["times"].to_list())
    often = f" (at least {plural(times[0], 'time')}{took})" if times[0] else ""
    if times[0] != times[-1]:
        often = f" ({times[0]} to {times[-1]} times{took})"
    stopped = (compilations["what"] == "limit").any()
    again = "again and again" if times[-1] >= FEWEST_RECOMPILATIONS else "up to its limit"
    return Finding(
        kind=KIND,
        severity="warning",
        title=f"{who} {'recompiles' if alone else 'recompile'} {place} {again}{often}{f': {reason}' if reason else ''}",
        explanation=" ".join(filter(None, (_AGAIN_TEXT, _EAGER if stopped else "", _UNTOLD if alone else ""))),
        about=ranks,
        confidence="high",
        evidence=tuple(compilation_evidence(facts, compilations)),
        next_steps=(guard_advice(reason), *(() if len(ranks) > 1 else (_WHOSE,))),
    )


def compilation_evidence(facts: Facts, rows: pl.DataFrame) -> list[Evidence]:
    """The last rows of `compilations` as evidence."""
    paths = dict(facts.dataset.files.select("file", "path").iter_rows())
    return [
        Evidence(_row_text(row), paths.get(row["file"]), row["rank"], line=row["line"], time_ns=row["start_ns"])
        for row in rows.tail(MOST_EVIDENCE).iter_rows(named=True)
    ]


def _row_text(row: dict[str, Any]) -> str:
    took = f", {duration(row['duration_ns'])}" if row["duration_ns"] is not None else ""
    what = "gives up after too many compilations" if row["what"] == "limit" else "recompiles"
    return f"{what} {row['function'] or 'a function'} [{row['compile_id']}]{took}: {row['reason'] or 'no reason told'}"


FAILURE = "rank-failed"
LIMIT_ERROR = "recompile-limit"
"""Known error of a process that ended because a function was compiled too often."""
FAILED_KIND = "compilation-failed"
FALLBACKS = frozenset(
    {"Unsupported", "SkipFrame", "UncapturedHigherOrderOpError", "RecompileLimitExceeded", "CacheLimitExceeded"}
)
"""Exceptions after which a function runs without being compiled, unless fullgraph=True was given."""
_FALLBACK_TEXT = "torch.compile runs such a function as it is; with fullgraph=True the exception ends the process."
_FAILED_TEXT = (
    "The exception ends the process, and the others wait for it in their next collective, unless "
    "torch._dynamo.config.suppress_errors is set or the program catches it."
)
_FAILED_STEPS = (
    "TORCHDYNAMO_VERBOSE=1 and TORCH_LOGS=+dynamo,+inductor on this rank tell where the compiler fails.",
    "backend='eager', then 'aot_eager', then 'inductor' show which part of the compiler it is; the same code on the "
    "other ranks points to the host: its compiler, its driver, a full disk or the cache of compiled code.",
)


def failed_compilations(facts: Facts, others: Collection[int]) -> list[Finding]:
    """A finding for each function and exception that ended a compilation, those that end processes first.

    `others` are ranks that record their compilations.
    """
    failed = facts.dataset.compilations.filter(pl.col("error") != "")
    found = []
    for key, rows in failed.group_by("function", "path", "code_line", "error", maintain_order=True):
        place, error = FunctionPlace(*key[:3]), str(key[3])
        ranks = tuple(sorted(set(rows["rank"].drop_nulls().to_list())))
        ends = error not in FALLBACKS
        told = f": {rows['reason'][-1]}" if rows["reason"][-1] else ""
        found.append(
            Finding(
                kind=FAILED_KIND,
                severity="warning" if ends else "info",
                title=f"torch.compile fails on {place}{f' on {ranks_text(ranks)}' if ranks else ''}: {error}{told}",
                explanation=_FAILED_TEXT if ends else _FALLBACK_TEXT,
                candidates=ranks if ends and set(others) - set(ranks) else (),
                about=() if ends and set(others) - set(ranks) else ranks,
                confidence="medium",
                confidence_reasons=("compiler logs do not show whether the process ended with it",),
                evidence=tuple(_failure_evidence(facts, rows)),
                next_steps=_steps(error, facts, place) if ends else (),
            )
        )
    return sorted(found, key=lambda finding: finding.severity != "warning")


def explained_failures(facts: Facts, findings: Sequence[Finding], failed: Sequence[Finding]) -> list[Finding]:
    """The findings; those about processes that the compiler ended have what is known of the compilation."""
    # which process hit the limit, and behind it the function that it compiled so often
    ended = facts.dataset.messages.filter(pl.col("pattern") == LIMIT_ERROR).select("file", "rank").unique()
    limits = facts.dataset.compilations.filter((pl.col("what") == "limit") & (pl.col("function") != ""))
    paths = dict(facts.dataset.files.select("file", "path").iter_rows())
    of_process = {
        (paths.get(row["file"]), row["rank"]): limits.filter(pl.int_range(pl.len()) == place)
        for place, row in enumerate(limits.iter_rows(named=True))
        if ended.filter(pl.col("file") == row["file"], pl.col("rank").eq_missing(row["rank"])).height
    }
    return [_explained(facts, f, failed, of_process) if f.kind == FAILURE else f for f in findings]


def _explained(
    facts: Facts,
    finding: Finding,
    failed: Sequence[Finding],
    limits: Mapping[tuple[str | None, int | None], pl.DataFrame],
) -> Finding:
    causes = [f for f in failed if f.candidates and set(f.candidates) <= set(finding.culprit_ranks)]
    evidence, steps, title = [e for f in causes for e in f.evidence], [s for f in causes for s in f.next_steps], ""
    at_limit = next((limits[e.file, e.rank] for e in finding.evidence if (e.file, e.rank) in limits), None)
    if at_limit is not None:
        row = at_limit.row(0, named=True)
        title = f": {FunctionPlace(row['function'], row['path'], row['code_line'])}"
        evidence += compilation_evidence(facts, at_limit)
        steps.append(guard_advice(row["reason"]))
    return replace(
        finding, title=finding.title + title, evidence=(*finding.evidence, *evidence),
        next_steps=tuple(dict.fromkeys((*steps, *finding.next_steps))),
    )  # fmt: skip


def _steps(error: str, facts: Facts, place: FunctionPlace) -> tuple[str, ...]:
    if error != "FailOnRecompileLimitHit":
        return _FAILED_STEPS
    again = facts.dataset.compilations.filter(pl.col("what") == "recompile", pl.col("reason") != "", place.rows)[
        "reason"
    ]
    return (guard_advice(str(again[-1]) if again.len() else ""),)


def _failure_evidence(facts: Facts, rows: pl.DataFrame) -> list[Evidence]:
    paths = dict(facts.dataset.files.select("file", "path").iter_rows())
    return [
        Evidence(
            f"[{row['compile_id']}] {row['error']}: {row['reason'] or 'no reason told'}",
            paths.get(row["file"]), row["rank"], line=row["line"], time_ns=row["start_ns"],
        )
        for row in rows.tail(MOST_EVIDENCE).iter_rows(named=True)
    ]  # fmt: skip
