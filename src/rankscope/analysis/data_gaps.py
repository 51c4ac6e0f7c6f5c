"""Gaps in the data that make the verdict less certain: missing, damaged or cut dumps, and settings for the next run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Evidence, Finding
from rankscope.analysis.places import host_steps
from rankscope.kinds.finding_kinds import FINDINGS
from rankscope.kinds.functions import function, is_of_package, names_packages
from rankscope.kinds.input_kinds import INPUTS
from rankscope.schema.tables import HOOKS, UNRANKED
from rankscope.text.wording import byte_count, links_out, plural, ranks_text

MOST_GROUPS = 3


def find_gaps(facts: Facts, hung: bool) -> list[Finding]:
    """Findings about the input files, and those of rules of installed packages."""
    findings: list[Finding] = []
    kinds = [kind for kind in FINDINGS.values() if kind.find]
    for call in [kind.find for kind in kinds if not kind.find_in or facts.dataset.has_any((kind.find_in,))]:
        if is_of_package(call):
            # imported only where a package is installed
            from rankscope.analysis.package_findings import findings_of

            findings += findings_of(call, facts, hung)
        else:
            findings += function(call)(facts, hung)
    return findings


def unreadable_files(facts: Facts, _: bool) -> list[Finding]:
    """Files that could not be read at all."""
    return _files(facts, "unreadable-file", "could not be read", used=False)


def links_not_followed(facts: Facts, _: bool) -> list[Finding]:
    """Links that lead out of what was named."""
    kinds = [kind.name for kind in INPUTS.values() if kind.leads_out]
    links = facts.dataset.files.filter(pl.col("kind").is_in(kinds)).sort("path")
    if links.is_empty():
        return []
    evidence = tuple(Evidence(problem, file=path) for path, problem in links.select("path", "problem").iter_rows())
    title = links_out(links.height, facts.dataset.root or "the given paths")
    text = "Only what lies in the given paths is read; what lies elsewhere may belong to the job, too."
    return [_note("links-not-followed", title, text, evidence=evidence)]


def truncated_files(facts: Facts, _: bool) -> list[Finding]:
    """Files that could be read only in part."""
    return _files(facts, "truncated-file", "could be read only in part", used=True)


def _files(facts: Facts, kind: str, what: str, *, used: bool) -> list[Finding]:
    # the loss of files of these kinds hides no operation; they are only listed
    listed = [kind.name for kind in INPUTS.values() if not kind.told_if_broken]
    whole = pl.col("kind").is_in(listed) | pl.col("problem").str.starts_with(UNRANKED)
    broken = facts.dataset.files.filter(pl.col("problem").is_not_null() & ~whole & (pl.col("used") == used))
    rows = broken.sort("path").select("problem", "path", "rank")
    if rows.is_empty():
        return []
    evidence = tuple(Evidence(p, file=f, rank=r) for p, f, r in rows.iter_rows())
    title = f"{plural(rows.height, 'file')} {what}"
    return [_note(kind, title, "The intact parts of all files were used.", evidence=evidence)]


def missing_dumps(facts: Facts, _: bool) -> list[Finding]:
    """Ranks that left no dump."""
    unopened = facts.dataset.unopened_ranks
    missing = tuple(rank for rank in facts.dataset.missing_ranks if rank not in unopened)
    if facts.dataset.from_logs or not facts.dataset.seen_ranks:
        return []
    return [*([_unopened(facts)] if unopened else []), *([_missing(facts, missing)] if missing else [])]


def _unopened(facts: Facts) -> Finding:
    dataset = facts.dataset
    text = "Only the given dumps were read; the others may show who is to blame."
    where = dataset.beside.directory
    step = f"Open them all: rankscope {where}" if where else "Read all ranks: leave out --ranks"
    return _note("missing-dump", dataset.unopened, text, steps=(step,))


def _missing(facts: Facts, missing: tuple[int, ...]) -> Finding:
    seen, size = len(facts.dataset.seen_ranks), len(facts.dataset.every_rank)
    unread = facts.dataset.unread_dumps
    none = [rank for rank in missing if rank not in unread]
    text = (
        f"Dumps of {seen:,} of {size:,} ranks could be read"
        if unread
        else f"Dumps of {seen:,} of {size:,} ranks were found"
    )
    left = "left none, or it lies in a directory that was not read" if facts.dataset.unread_directories else "left none"
    text += f"; {ranks_text(none)} {left}" if none else ""
    files = "file" if len(unread) == 1 else "files"
    text += f"; the {files} of {ranks_text(sorted(unread))} could not be read." if unread else "."
    title = (
        f"no dump of {ranks_text(missing)}" if len(missing) < 20 else f"no dump of {len(missing):,} of {size:,} ranks"
    )
    there = "Their files exist: read what is said of each, and collect or read them again."
    steps = ("Collect them from the hosts' local disks, if they exist." if none else there,)
    return _note("missing-dump", title, text, steps=steps, about=missing)


def nothing_recorded(facts: Facts, _: bool) -> list[Finding]:
    """Dumps that tell of no operation: no entry, and no counter above none."""
    if not facts.nothing_recorded or facts.dataset.told_by_logs:
        return []
    ranks = plural(len(facts.dataset.seen_ranks), "rank")
    if facts.dataset.dumps["interval_ns"].is_not_null().all():
        return [
            _note(
                "nothing-recorded", f"{ranks} left dumps in which nothing was recorded so far",
                "rankscope.capture wrote them, and sees to the recorder: the job had not issued its first operation, "
                "or only such that no recorder holds, as sends and receives on gloo, or operations in CUDA graphs. "
                "After a few dumps the sidecars say which.",
                steps=host_steps(facts.dataset, facts.dataset.seen_ranks[:3]),
            )
        ]  # fmt: skip
    return [
        _note(
            "nothing-recorded",
            f"{ranks} left dumps in which nothing was recorded",
            "The recorder is off, or these are dumps of another backend's recorder, or the job did not reach its "
            "first operation, or all of its operations are captured in CUDA graphs, which are not recorded.",
            steps=(
                "Set TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE before torch 2.10) for the next run.",
                'torch 2.15 keeps a recorder for each backend: ask _dump_fr_trace(backend="nccl2"), or set '
                "TORCH_DIST_USE_NCCL2=0 to get the recorder of before.",
                *host_steps(facts.dataset, facts.dataset.seen_ranks[:3]),
            ),
        )
    ]


def unrecorded_operations(facts: Facts, _: bool) -> list[Finding]:
    """Groups in which every member counts operations that no dump has: operations captured in CUDA graphs."""
    if not facts.hook_groups:
        return []
    # for a hook: op_id = seq + p2p_seq - 1 + operations under capture (assemble.recorders)
    more = pl.col("op_id") - pl.col("seq") - pl.col("p2p_seq") + 1
    hooked = facts.dataset.dumps.filter(pl.col("recorder").is_in(HOOKS))["file"]
    rows = facts.dataset.ops.filter(pl.col("file").is_in(hooked.implode())).with_columns(more=more)
    least = (
        rows.group_by("group", "rank")
        .agg(pl.col("more").max())
        .group_by("group")
        .agg(least=pl.col("more").min(), ranks=pl.len())
    )
    counts = {group: n for group, n, ranks in least.iter_rows() if n > 0 and ranks == len(facts.groups[group].ranks)}
    if not counts:
        return []
    told = ", ".join(f"{count} of {facts.label(group)}" for group, count in sorted(counts.items())[:MOST_GROUPS])
    return [
        _note(
            "unrecorded-operations",
            f"{plural(len(counts), 'group')} issued operations that no dump holds",
            f"All members count more operations than their dumps hold: {told}. torch 2.15 does not record what is "
            "captured in CUDA graphs: a hang inside a graph is not in these dumps.",
        )
    ]


def wrapped_rings(facts: Facts, hung: bool) -> list[Finding]:
    """Rings that had overwritten older operations when a hang was found."""
    files = facts.dataset.dumps.filter(pl.col("wrapped").fill_null(False))
    if files.is_empty() or not hung or facts.dataset.parts.cuts_rings:
        return []  # the verdict says what the user left out
    ranks = files["rank"].drop_nulls().to_list()
    return [
        _note(
            "ring-wrapped",
            f"the ring of {plural(len(ranks), 'rank')} had overwritten older operations",
            f"Only the newest operations of {ranks_text(ranks)} were kept; older ones cannot be compared.",
            about=tuple(sorted(ranks)),
            steps=("Set TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE before 2.10) higher to keep more.",),
        )
    ]


def timing_off(facts: Facts, hung: bool) -> list[Finding]:
    """Recorders that did not note the start of operations when a hang was found."""
    if not hung:
        return []
    libraries = facts.dataset.ops["library"].unique().cast(pl.String).drop_nulls().to_list()
    if facts.dataset.from_logs or facts.has_timing or facts.hook_groups or set(libraries) <= {"gloo", "torchcomms"}:
        return []
    return [
        _note(
            "timing-off",
            "the recorder did not note when operations start",
            "Without start events, a device that never reached an operation looks like one that is stuck in it.",
            steps=("Set TORCH_NCCL_ENABLE_TIMING=1 for the next run.",),
        )
    ]


def memory_snapshots(facts: Facts, _: bool) -> list[Finding]:
    """Snapshots of torch's allocator, with the sizes of those that hold most."""
    held = facts.dataset.snapshots.with_columns(most=pl.max_horizontal("peak", "allocated"))
    if held.is_empty():
        return []
    ranks = tuple(sorted(held["rank"].drop_nulls().unique()))
    whose = f" of {ranks_text(ranks)}" if ranks else " of unknown ranks"
    rows = held.sort("most", descending=True, maintain_order=True).head(MOST_GROUPS).iter_rows(named=True)
    evidence = tuple(Evidence(_held_text(row), rank=row["rank"]) for row in rows)
    count = held["file"].n_unique()
    text = "They tell who holds the memory of a device, and nothing of collectives."
    steps = ("Run rankscope report --only memory PATH: it lists the places of the program that hold most.",)
    title = f"{plural(count, 'memory snapshot')}{whose}"
    return [_note("memory-snapshot", title, text, evidence=evidence, steps=steps)]


def _held_text(row: Mapping[str, Any]) -> str:
    """The sizes of a row of `snapshots`."""
    most, held, reserved, gaps = (byte_count(row[name]) for name in ("most", "allocated", "reserved", "gaps"))
    dump = f"at the dump {held} of {reserved} reserved, {gaps} in gaps"
    return f"device {row['device']}: at most {most} in tensors; {dump}"


def broken_packages(_: Facts, __: bool) -> list[Finding]:
    """Installed packages that add nothing, because they are broken."""
    if not names_packages():
        return []
    from rankscope.analysis.package_findings import left_out_packages

    return left_out_packages()


def _note(
    kind: str,
    title: str,
    text: str,
    *,
    evidence: tuple[Evidence, ...] = (),
    steps: tuple[str, ...] = (),
    about: tuple[int, ...] = (),
) -> Finding:
    return Finding(kind, FINDINGS[kind].worst, title, text, evidence=evidence, next_steps=steps, about=about)
