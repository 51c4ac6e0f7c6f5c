"""Assembly of the sources of one job to its Dataset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl

from rankscope.assemble import attempts, dump_ranks, repeats
from rankscope.assemble.attempts import Attempt, NoSuchAttemptError
from rankscope.assemble.frontiers import SourceFacts, facts_of, frontier_table, has_timing, p2p_groups
from rankscope.assemble.gathering import GatheredJob, RunChoice
from rankscope.assemble.groups import GroupIndex, group_description, group_label, resolve_groups
from rankscope.assemble.operations import StackIds, complete_filtered, entry_rows, operation_table
from rankscope.assemble.repeats import repeat_table
from rankscope.assemble.secret_texts import without_secrets
from rankscope.assemble.sources import SourceFile, config_world, left_out_ranks
from rankscope.kinds.features import FEATURES
from rankscope.kinds.functions import PackageError, function
from rankscope.kinds.input_kinds import DUMP, DUPLICATE, INPUTS
from rankscope.parsers.sidecar import Sidecar
from rankscope.schema import Dataset, DumpsBeside, ReadParts
from rankscope.schema.table import harmless, site_table
from rankscope.schema.tables import FILES, FRONTIERS, GROUPS, HOOKS, OPS, TABLES


def assemble(
    sources: Sequence[SourceFile],
    root: str,
    pattern: re.Pattern[str] | None,
    world_size: int | None,
    attempt: int | None,
    errors: str | None = None,
    recall: dict[str, Any] | None = None,
) -> Dataset:
    """The Dataset of one attempt (the newest if None); `sources` are all files, in the order of their rows.

    Its texts hold no secrets. Fills in facts of the sources; `errors` is the user's own table, `recall` keeps
    communicators. NoSuchAttemptError.
    """
    runs, chosen, used = _settled_attempts(sources, pattern, attempt)
    choice = RunChoice(chosen, pattern, errors)
    job = GatheredJob(sources, runs, choice, attempt is not None, world_size or _known_world(used), recall)
    job.gather()
    world = world_size or max([_world(used, sources, chosen), *(gathered.world for gathered in job.gathered)])
    tables = dump_tables(used, [job.places[id(source)] for source in used], world)
    for gathered in job.gathered:
        tables, raised = gathered.add_tables(tables, world)
        world = world_size or raised
    told_by_processes = _add_rows(tables, sources, choice)
    for gathered in job.gathered:
        gathered.finish(tables)
    own = next((gathered.attempt for gathered in job.gathered if gathered.attempt is not None and not runs), None)
    number, table = own or (max(0, chosen), attempts.attempt_table(runs))
    dataset = Dataset(
        files=file_table(sources),
        attempts=table,
        repeats=repeat_table(sources),
        attempt=number,
        world_size=world or told_by_processes,
        is_sized=bool(world_size or used or told_by_processes) or all(gathered.sized for gathered in job.gathered),
        left_out=left_out_ranks(used, world),
        root=root,
        beside=DumpsBeside(),
        parts=ReadParts(),
    )
    return without_secrets(dataset.with_tables(tables))


def _settled_attempts(
    sources: Sequence[SourceFile], pattern: re.Pattern[str] | None, attempt: int | None
) -> tuple[list[Attempt], int, list[SourceFile]]:
    """The attempts, the number of the chosen one, and its dumps. Raises NoSuchAttemptError."""
    for source in sources:
        if not INPUTS[source.kind].settles_ranks:
            dump_ranks.claim_dump_rank(source, pattern)
    attempts.attach_sidecars(sources)
    runs = _settled_runs(sources)
    chosen = attempts.newest_attempt(runs) if attempt is None else attempt
    if runs and not 0 <= chosen < len(runs):
        raise NoSuchAttemptError(chosen, len(runs))
    used = _used_sources(runs[chosen]) if runs else []
    dump_ranks.place_undecoded(sources, chosen)
    attempts.place_sidecars(sources)
    return runs, chosen, used


def _add_rows(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], choice: RunChoice) -> int:
    """Adds rows of kinds with their own function, and what they imply; the number of ranks there, 0 if none."""
    world = 0
    there = {source.kind for source in sources}
    for name in dict.fromkeys(kind.add_rows for kind in INPUTS.values() if kind.name in there and kind.add_rows):
        added = dict(tables)
        try:
            told: int = function(name)(added, sources, choice)
            theirs = {key: _site_table(name, key, rows) for key, rows in added.items() if key not in TABLES}
        except PackageError as error:
            for source in sources:
                if INPUTS[source.kind].add_rows == name:
                    source.problem = "; ".join(text for text in (source.problem, str(error)) if text)
            continue
        tables.update(added | theirs)
        world = world or told
    for feature in FEATURES.values():
        if feature.derive and feature.derived_from in tables:
            function(feature.derive)(tables)
    return world


def _site_table(call: str, name: str, frame: Any) -> pl.DataFrame:
    """A table that a function of a package has added. Raises PackageError."""
    package, _, place = call.rpartition("/")
    if not isinstance(frame, pl.DataFrame):
        raise PackageError(package, place, "adds a table that is none")
    try:
        site_table(name, frame.schema)
    except ValueError as error:
        raise PackageError(package, place, str(error)) from error
    return harmless(frame)


def _settled_runs(sources: Sequence[SourceFile]) -> list[Attempt]:
    """The attempts, with numbers and ranks settled; copies are in none of them."""
    distinct = repeats.set_aside([s for s in sources if s.dump is not None])
    runs = attempts.job_attempts(sorted(distinct, key=lambda s: s.shown), sources)
    for number, run in enumerate(runs):
        dump_ranks.settle_dump_ranks(run.sources)
        for source in run.files:
            source.attempt = number
    return runs


def _used_sources(run: Attempt) -> list[SourceFile]:
    """The sources of a run in order of rank; of two with the same rank from the user, the newest."""
    used = []
    seen: dict[tuple[int | None, str], SourceFile] = {}
    for source in sorted(run.sources, key=lambda s: (-(s.span or (0, 0))[1], s.shown)):
        rival = next((seen[k] for k in _recorders(source) if k in seen), None)
        if rival is not None:
            source.kind = DUPLICATE.name
            source.note = f"a newer dump of rank {source.rank} is used: {rival.shown}"
            continue
        seen.update(dict.fromkeys(_recorders(source), source))
        source.used = True
        used.append(source)
    return sorted(used, key=lambda s: (s.rank or 0, s.shown))


def _recorders(source: SourceFile) -> list[tuple[int | None, str]]:
    return [(source.rank, library) for library in sorted(source.libraries)]


def _world(used: Sequence[SourceFile], sources: Sequence[SourceFile], attempt: int) -> int:
    """The highest number of ranks in groups, dumps, and dumps that could not be decoded."""
    told = [s.rank + 1 for s in used if s.rank is not None]
    told += [s.highest + 1 for s in used]
    told += [max(g.ranks) + 1 for s in used for g in s.carded if g.ranks]
    own = [s.card for s in used] + [
        s.content for s in sources if s.attempt == attempt and isinstance(s.content, Sidecar)
    ]
    told += [card.world_size for card in own if card is not None and card.world_size is not None]
    told += [s.rank + 1 for s in sources if s.kind == DUMP.name and s.attempt == attempt and s.rank is not None]
    return max(told, default=0)


def _known_world(used: Sequence[SourceFile]) -> int:
    """The number of ranks, where groups are written down; 0 if only the present dumps tell it."""
    world = config_world(list(used))
    return max([world, *(1 + s.rank for s in used if s.rank is not None)]) if world else 0


# The table of files: each file, its facts, and its problem.


def file_table(sources: Sequence[SourceFile]) -> pl.DataFrame:
    """A row for each source, in their order."""
    rows = [_row(place, source) for place, source in enumerate(sources)]
    return pl.DataFrame(rows, schema=FILES)


def _row(place: int, source: SourceFile) -> dict[str, Any]:
    dump, complete, kind, content = source.dump, source.complete, INPUTS[source.kind], source.content
    own = source.card or (content if isinstance(content, Sidecar) else None)
    host, library = function(kind.origin)(content) if kind.origin and content is not None else (None, None)
    library = dump.library_version if dump else library
    return {
        "file": place,
        "path": source.shown,
        "kind": function(kind.shown_as)(content) if kind.shown_as and content is not None else source.kind,
        "rank": source.rank,
        "rank_source": source.rank_source,
        "attempt": source.attempt,
        "host": source.host or (own.host if own is not None else None) or host,
        "pid": own.pid if own is not None else source.writer[1],
        "interval_ns": source.card.interval_ns if source.card is not None else None,
        "delay_ns": source.card.delay_ns if source.card is not None else None,
        "rows": source.content.rows if source.content else 0,
        "version": dump.version if dump else None,
        "library_version": library or None,
        "mtime_ns": source.mtime_ns,
        "size": source.size,
        "wrapped": complete and complete.wrapped,
        "filtered": complete and complete.filtered,
        "has_stacks": bool(dump.stacks) if dump else None,
        "has_timing": has_timing(dump) and source.recorder not in HOOKS if dump else None,
        "has_status": dump.status is not None if dump else None,
        "recorder": source.recorder,
        "problem": "; ".join(text for text in (source.problem, source.note) if text) or None,
        "used": source.used,
    }


# The tables of dumps alone.


def dump_tables(used: list[SourceFile], places: list[int], world: int) -> dict[str, pl.DataFrame]:
    """The tables ops, stacks, groups and frontiers of sources with these rows in the table of files."""
    if not used:
        return {**{table.name: table.empty() for table in (OPS, GROUPS, FRONTIERS)}, "stacks": StackIds().table()}
    _settle_recorders(used)
    groups, stacks = resolve_groups(used, world), StackIds()
    with ThreadPoolExecutor(1) as beside:  # polars and numpy work without the lock of the interpreter
        rows = beside.submit(entry_rows, used, places, groups, stacks)
        facts = [facts_of(i, source, groups) for i, source in enumerate(used)]
    return {**_tables(rows.result(), used, places, groups, facts), "stacks": stacks.table()}


def _settle_recorders(sources: Sequence[SourceFile]) -> None:
    """Gives dumps without operations the recorder of all other dumps.

    It skips ranks with another dump that has operations: there the empty one is of another backend.
    """
    known = {source.recorder for source in sources} - {None}
    told = {source.rank for source in sources if source.recorder is not None}
    silent = [s for s in sources if s.recorder is None and s.dump is not None and s.rank not in told]
    if len(known) != 1 or not silent:
        return
    for source in silent:
        source.recorder = min(known, key=str)
        source.__dict__.pop("complete", None)


def _tables(
    frame: pl.DataFrame, used: list[SourceFile], places: list[int], groups: GroupIndex, facts: Sequence[SourceFacts]
) -> dict[str, pl.DataFrame]:
    """All tables of dumps but the stacks."""
    counted = [place for place, fact in zip(places, facts, strict=True) if fact.torchcomms]
    ops = operation_table(frame, used, counted)
    described = pl.DataFrame(
        {"group": range(len(groups.rows)), "description": [group_description(row) for row in groups.rows]},
        schema={"group": pl.UInt32, "description": pl.String},
    )
    filtered = {
        place: {group: status.completed for group, status in fact.status.items()}
        for place, fact in zip(places, facts, strict=True)
        if fact.complete.filtered == "only-active"
    }
    if filtered:
        ops = complete_filtered(ops, filtered, described)
        ops = ops.select([pl.col(n).cast(t) for n, t in OPS.items()])
    with_p2p = p2p_groups(ops, described)
    return {
        "ops": ops,
        "groups": _group_table(groups, with_p2p),
        "frontiers": frontier_table(used, facts, ops, groups, with_p2p),
    }


def _group_table(groups: GroupIndex, with_p2p: set[int]) -> pl.DataFrame:
    rows = [
        {
            "group": i,
            "name": group_label(row),
            "description": group_description(row),
            "ranks": list(members),
            "membership": "inferred" if row.key.members is None else "config",
            "has_p2p": i in with_p2p,
        }
        for i, (row, members) in enumerate(zip(groups.rows, groups.members, strict=True))
    ]
    return pl.DataFrame(rows, schema=GROUPS)
