"""Rows of `tensors` and `settings` from summaries of tensors, joined with the groups and stacks of the dumps.

Paths and files beside the records of other tools tell their rank, step and stack: "dump/step3/rank1/dump.json",
"dump/step3/proc2016/dump.json", "monitor/rank_1/grad_reduced_0-99.csv".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.operations import LaterStacks
from rankscope.assemble.rank_files import OLDER, FileOwner, RankFile, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.numbers.read.model import (
    CODES,
    DEFAULT_GROUP,
    FLOATS,
    MOST_STEPS,
    PLAIN,
    SEED,
    SIZES,
    NumbersContent,
    NumbersGroup,
    narrowed,
)
from rankscope.features.numbers.read.records.msprobe_dumps import MONITOR_SITES, NO_SITE, NO_SLOT, StackDocument
from rankscope.kinds.input_kinds import TENSOR_RECORD
from rankscope.parsers.matrices import NULL
from rankscope.parsers.members import shared_members
from rankscope.parsers.sidecar import Sidecar
from rankscope.schema.tables import GROUPS, SETTINGS, TENSORS

_STEP = re.compile(r"(?:^|[/!])step[_\-]?(\d{1,12})(?=[/!])", re.IGNORECASE)
_PROCESS = re.compile(r"(?:^|[/!])proc[_\-]?(\d{1,12})(?=[/!])", re.IGNORECASE)
_TOOLS = ("", "msprobe", "DebugMode", "torchtitan", "msprobe-monitor", "nvdlfw-inspect")
"""Tools, the most exact one first; "" is the capture."""
NO_RANK = "neither its path nor its groups tell a rank: not used; --rank-from gives it one"
_ALONE = "no rank in its path: as the only process it is taken for rank 0"


def place_records(sources: Sequence[SourceFile]) -> None:
    """Gives records of other tools their ranks, steps, sites and stacks, and leaves all but one tool's aside."""
    records = [s for s in sources if isinstance(s.content, NumbersContent) and s.content.headers]
    tools = {content.tool for s in records if isinstance(content := s.content, NumbersContent)}
    if not tools - {""}:
        return
    best = min(tools, key=lambda tool: _TOOLS.index(tool) if tool in _TOOLS else len(_TOOLS))
    stacks = {s.directory: s.content for s in sources if isinstance(s.content, StackDocument) and s.content.places}
    ranks = _ranks_by_process(sources, records)
    everybody = sorted({rank for rank in ranks.values() if rank is not None})
    for source in records:
        content = source.content
        assert isinstance(content, NumbersContent)
        if content.tool != best:
            source.note = f"numbers of {best or 'rankscope.capture'} are used instead"
            source.content = replace(content, headers=[])
        elif content.tool:
            rank = ranks[_process_of(source)]
            source.content = _placed(content, source.shown, rank, everybody)
            beside = stacks.get(source.directory)
            if beside is not None and content.calls:
                # the stacks of its calls stand in the file beside it
                places = {number: beside.places.get(name) for number, name in enumerate(content.calls)}
                found = {number: beside.stacks[place] for number, place in places.items() if place is not None}
                source.content = replace(source.content, stacks=found)
            source.note = NO_RANK if rank is None else source.note
    for source in sources:
        source.used = source.used or (isinstance(source.content, StackDocument) and best == "msprobe")


def root_of_record(source: SourceFile) -> str:
    """The directory of a record above those of its step and rank: a run has one."""
    parts = re.split(r"[/!]", source.directory)
    while parts and re.fullmatch(r"(?:step|rank|proc)[_\-]?\d*", parts[-1], re.IGNORECASE):
        parts.pop()
    return "/".join(parts)


def _process_of(source: SourceFile) -> tuple[str, str]:
    """The process that wrote a record: the root, and the rank or process in its path."""
    found = _PROCESS.search(source.shown)
    if source.named is not None and (found is None or source.rank_source == "option"):
        return root_of_record(source), f"rank {source.named}"
    return root_of_record(source), f"proc {found[1]}" if found is not None else "proc"


def _ranks_by_process(
    sources: Sequence[SourceFile], records: Sequence[SourceFile]
) -> dict[tuple[str, str], int | None]:
    """The rank of each process that wrote records: by its path, its sidecar, or its groups."""
    by_process: defaultdict[tuple[str, str], list[SourceFile]] = defaultdict(list)
    for source in records:
        by_process[_process_of(source)].append(source)
    ranks: dict[tuple[str, str], int | None] = {}
    for process, files in by_process.items():
        ranks[process] = files[0].named if process[1].startswith("rank") else None
    pids = {s.content.pid: s.content.rank for s in sources if isinstance(s.content, Sidecar)}
    pids |= {s.card.pid: s.card.rank for s in sources if s.card is not None}
    for process in [process for process, rank in ranks.items() if rank is None]:
        number = process[1].removeprefix("proc").strip()
        ranks[process] = pids.get(int(number)) if number else None
        if ranks[process] is None:
            # the only rank that is in all groups of the process
            contents = [source.content for source in by_process[process] if isinstance(source.content, NumbersContent)]
            groups = [group.ranks.as_set for content in contents for group in content.groups if group.ranks]
            common = groups[0].intersection(*groups[1:]) if groups else frozenset()
            ranks[process] = next(iter(common)) if len(common) == 1 else None
    if len(ranks) == 1 and None in ranks.values():
        ranks = dict.fromkeys(ranks, 0)
        for source in records:
            source.note = _ALONE
    taken = Counter((root, rank) for (root, _), rank in ranks.items())
    return {key: rank if taken[key[0], rank] <= 1 or key[1].startswith("rank") else None for key, rank in ranks.items()}


def _placed(content: NumbersContent, shown: str, rank: int | None, everybody: Sequence[int]) -> NumbersContent:
    """The content with its rank, the step in its path, and the members of the default group."""
    found = _STEP.search(shown)
    columns = dict(content.columns)
    if found is not None and content.rows:
        step = content.column("step")
        columns["step"] = narrowed(np.where(step == NULL, int(found[1]), step))
    groups = [
        group if group.ranks else NumbersGroup(group.name, group.description, shared_members(everybody))
        for group in content.groups
    ]
    texts = content.texts
    if NO_SITE in texts:
        # a table of msprobe's monitor tells site and slot by the name of its file
        name = PurePosixPath(shown.replace("!", "/")).name
        site, slot = next(((site, slot) for begin, site, slot in MONITOR_SITES if name.startswith(begin)), ("", "in0"))
        texts = [site if text == NO_SITE else slot if text == NO_SLOT else text for text in texts]
    headers = [] if rank is None else [header._replace(rank=rank) for header in content.headers]
    return replace(content, columns=columns, groups=groups, texts=texts, headers=headers)


SOURCE = "numbers"
NumbersFile = RankFile[NumbersContent]
BATCH, RANDOM_STATES = "batch", "random states"
"""Beginnings of the names of settings of one step: "batch of step 3"."""
_COMPARED = ("torch", "cuda")
"""Generators whose states are compared step by step: others differ by accident in jobs that do not use them."""


def with_number_settings(
    before: pl.DataFrame | None, files: Sequence[NumbersFile], tensors: pl.DataFrame
) -> pl.DataFrame:
    """The table `settings` with the rows of these files and of the batches in `tensors` behind the others."""
    first: dict[int, NumbersFile] = {}
    for file in files:
        rank, begin = file.source.rank or 0, file.content.headers[0].time_ns or 0
        # the first part of a rank has the first steps
        if rank not in first or begin < (first[rank].content.headers[0].time_ns or 0):
            first[rank] = file
    settings = [(rank, *setting) for rank, file in first.items() for setting in _settings_of(file)]
    # a hash of all tensors of the batches of a step, for the first steps of each rank
    batches = tensors.lazy().filter(pl.col("site").cast(pl.String) == BATCH).drop_nulls(["hash", "step"])
    batches = batches.filter(pl.col("step").rank("dense").over("rank") <= MOST_STEPS).sort("order")
    weight = 2 * pl.int_range(pl.len(), dtype=pl.UInt64) + 1
    hashes = batches.group_by("rank", "step").agg((pl.col("hash") * weight).sum()).sort("rank", "step").collect()
    settings += [(rank, f"{BATCH} of step {step}", f"{hash_:016x}") for rank, step, hash_ in hashes.iter_rows()]
    rows = []
    for rank, name, value in settings:
        if rank in first:
            header = first[rank].content.headers[0]
            rows.append((rank, header.host, header.pid, name, value, SOURCE, first[rank].place, None))
    own = pl.DataFrame(rows, schema=SETTINGS, orient="row")
    return own if before is None else pl.concat([before, own])


_SEED, _STATE = "torch.seed", "random state "
_LARGEST_SEED = 1 << 32
"""Seeds from here on are taken for those that torch draws where nobody sets one: it draws 64 bits."""


def _settings_of(file: NumbersFile) -> Iterator[tuple[str, str]]:
    """Names and values of the header, and of the states of generators of torch at the end of each step, in one value.

    The header is written when the recording starts, which may be before the job sets its seed: then the seed of the
    first step counts, and no random state of the header does.
    """
    settings, states = file.content.headers[0].settings, file.content.random_states
    at_start = next((value for name, value in settings if name == _SEED), None)
    in_step = next((state for _, name, state in states if name == SEED), None)
    start_drawn, step_drawn = (
        seed is not None and seed.isdigit() and int(seed) >= _LARGEST_SEED for seed in (at_start, in_step)
    )
    is_early = at_start is not None and (start_drawn or in_step not in (None, at_start))
    for name, value in settings:
        if not is_early or not (name == _SEED or name.startswith(_STATE)):
            yield name, value
    if is_early and in_step is not None:
        yield _SEED, f"not set (drawn: {in_step})" if step_drawn else in_step
    steps: dict[int, list[str]] = {}
    for step, name, state in states:
        if name in _COMPARED:
            steps.setdefault(step, []).append(f"{name} {state}")
    for step, generators in steps.items():
        yield f"{RANDOM_STATES} of step {step}", ", ".join(sorted(generators))


def add_tensors(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the summaries of the newest run of the chosen attempt to `tensors`, and its groups, stacks and settings to
    their tables; returns the number of ranks, 0 for none."""
    chosen, pattern = run.attempt, run.pattern
    if any(source.kind == TENSOR_RECORD.name for source in sources):
        place_records(sources)
    used = _newest_run(list(rank_files(sources, NumbersContent, chosen, pattern, _owner)))
    if not used:
        return 0
    used.sort(key=lambda file: (file.source.rank or 0, file.source.shown))
    for file in used:
        file.source.used = True
    groups, stacks = _GroupRows(tables), LaterStacks(tables)
    contents = [file.content for file in used]
    tables["tensors"] = _tensor_table(contents, [file.place for file in used], max(0, chosen), groups, stacks)
    tables["groups"], tables["stacks"] = groups.table(), stacks.table()
    tables["settings"] = with_number_settings(tables.get("settings"), used, tables["tensors"])
    highest = tables["groups"]["ranks"].explode().max()
    sizes = [max(header.world_size or 0, 1 + (header.rank or 0)) for content in contents for header in content.headers]
    return max([*sizes, 1 + highest if isinstance(highest, int) else 0])


def _owner(source: SourceFile, content: NumbersContent) -> FileOwner | None:
    """Who wrote a file; of another tool's the path may have told the rank. None without summaries."""
    if not content.headers:
        return None
    first = content.headers[0]
    source_of_rank = (source.rank_source or "content") if content.tool else "content"
    return FileOwner(first.rank, first.host, first.pid, source_of_rank)


def _newest_run(used: list[NumbersFile]) -> list[NumbersFile]:
    """The files of each rank that its last process wrote; the others get a note. Each process names a run of its
    own."""
    newest: dict[tuple[int | None, str, str], int] = {}
    last: dict[int | None, tuple[int, str, str]] = {}
    for file in used:
        source = file.source
        key = source.rank, *_run_of(file)
        written_ns = file.content.headers[0].time_ns or file.source.mtime_ns or 0
        newest[key] = max(newest.get(key, 0), written_ns)
        last[source.rank] = max(last.get(source.rank, (0, "", "")), (newest[key], *key[1:]))
    kept = []
    for file in used:
        if last[file.source.rank][1:] == _run_of(file):
            kept.append(file)
        else:
            file.source.note = OLDER
    return kept


def _run_of(file: NumbersFile) -> tuple[str, str]:
    """The run that a file names, and its directory; other tools make one for each step and rank."""
    _, source, content = file
    return content.headers[0].run, root_of_record(source) if content.tool else source.directory


class _GroupRows:
    """The table of groups, with those that only summaries name behind the others."""

    def __init__(self, tables: dict[str, pl.DataFrame]) -> None:
        self._before = tables["groups"] if "groups" in tables else GROUPS.empty()
        rows = self._before.select("group", "name", "ranks").iter_rows()
        self._by_name: dict[tuple[str, tuple[int, ...]], int] = {}
        self._by_ranks: dict[tuple[int, ...], list[int]] = {}
        for number, name, ranks in rows:
            self._by_name[name, tuple(ranks)] = number
            self._by_ranks.setdefault(tuple(ranks), []).append(number)
        self._new: list[dict[str, object]] = []

    def places(self, content: NumbersContent) -> dict[str, int]:
        """The row of each group of a file, by its name in the file."""
        return {one.name: self._place(one.name, one.description, tuple(one.ranks)) for one in content.groups}

    def _place(self, name: str, description: str, ranks: tuple[int, ...]) -> int:
        known = self._by_name.get((name, ranks))
        alike = self._by_ranks.get(ranks, [])
        if known is None and len(alike) == 1 and alike[0] < self._before.height:
            known = alike[0]
        if known is None:
            known = self._before.height + len(self._new)
            self._new.append({
                "group": known, "name": name, "description": description, "ranks": list(ranks),
                "membership": "inferred" if name == DEFAULT_GROUP else "config", "has_p2p": False,
            })  # fmt: skip
            self._by_ranks.setdefault(ranks, []).append(known)
        self._by_name[name, ranks] = known
        return known

    def table(self) -> pl.DataFrame:
        """All groups."""
        return pl.concat([self._before, pl.DataFrame(self._new, schema=GROUPS)])


def _tensor_table(
    contents: Sequence[NumbersContent], places: Sequence[int], attempt: int, groups: _GroupRows, stacks: LaterStacks
) -> pl.DataFrame:
    """The rows of all files, each with the place of its file; a column at a time, for a job has thousands of files."""

    def column(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([content.column(name) for content in contents])

    known = column("told")
    counts = [content.rows for content in contents]
    stack = np.concatenate([_stack_ids(content, stacks) for content in contents])
    columns: dict[str, pl.Series] = {
        "rank": pl.Series(np.concatenate([_ranks(content) for content in contents])),
        "attempt": pl.repeat(attempt, len(known), dtype=pl.UInt16, eager=True),
        "file": pl.Series(np.repeat(np.array(places, np.uint32), counts)),
        "hash": _where(pl.Series(column("hash").view(np.uint64)), known & 1 > 0),
        "held": pl.Series(column("held").view(np.uint64)),
        "recompute": pl.Series(column("recompute") == 1),
        "samples": pl.concat([pl.Series(_samples(content), dtype=pl.Binary) for content in contents]),
        "line": pl.Series(column("line")),
        "tool": pl.Series(
            np.repeat(np.array([content.tool or None for content in contents], object), counts), dtype=pl.String
        ),
        "stack_id": _where(pl.Series(stack), stack != NULL),
        **dict(_coded(contents, groups)),
    }
    for name in PLAIN:
        values = column(name)
        columns[name] = _where(pl.Series(values).cast(TENSORS[name], strict=False), values != NULL)
    for bit, name in enumerate(FLOATS, 1):
        values = np.concatenate([content.floats[bit - 1] for content in contents])
        columns[name] = _where(pl.Series(values), (known >> bit) & 1 > 0)
    return pl.DataFrame([columns[name].cast(kind, strict=False).alias(name) for name, kind in TENSORS.items()])


def _ranks(content: NumbersContent) -> npt.NDArray[np.int32]:
    """The rank of each row, by the header above it."""
    ranks = np.array([header.rank for header in content.headers], np.int32)
    return ranks[content.column("header")]


def _stack_ids(content: NumbersContent, stacks: LaterStacks) -> npt.NDArray[np.int64]:
    """The id of the stack of each row, `NULL` for none."""
    ids = {own: stacks.number(frames) for own, frames in content.stacks.items()}
    numbers, place = np.unique(content.column("stack"), return_inverse=True)
    return np.array([ids.get(number, NULL) for number in numbers.tolist()], np.int64)[place]


def _where(column: pl.Series, known: npt.NDArray[np.bool_]) -> pl.Series:
    """The column with null where nothing is told."""
    return column if known.all() else column.to_frame("v").select(pl.when(pl.Series(known)).then("v")).to_series()


def _coded(contents: Sequence[NumbersContent], groups: _GroupRows) -> Iterator[tuple[str, pl.Series]]:
    """Columns of texts, sizes and groups, of which all files together have few."""
    texts = _joined(content.texts for content in contents)
    sizes = _joined(map(tuple, content.sizes) for content in contents)
    numbers = _joined(map(groups.places(content).get, content.texts) for content in contents)
    for name in CODES:
        values, places = sizes if name in SIZES else numbers if name == "group" else texts
        kind = pl.List(pl.Int64) if name in SIZES else pl.UInt32() if name == "group" else pl.String()
        code = np.concatenate([codes[content.code(name)] for codes, content in zip(places, contents, strict=True)])
        yield name, pl.Series(values, dtype=kind).cast(TENSORS[name], strict=False).gather(code)


def _joined(tables: Iterable[Iterable[Hashable]]) -> tuple[list[Hashable], list[npt.NDArray[np.int64]]]:
    """The different values of tables, None first, and for each table the places of its values among them; the place of
    None is the last one, at which -1 points."""
    places: dict[Hashable, int] = {None: 0}
    codes = [np.array([*(places.setdefault(value, len(places)) for value in table), 0], np.int64) for table in tables]
    return list(places), codes


def _samples(content: NumbersContent) -> list[bytes]:
    """The samples of each row."""
    ends = np.cumsum(content.column("sampled")).tolist()
    samples = content.samples
    return [bytes(samples[begin:end]) for begin, end in pairwise([0, *ends])]
