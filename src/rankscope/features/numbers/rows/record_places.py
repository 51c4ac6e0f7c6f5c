"""Ranks, steps and stacks of records of other tools: their paths and the files beside them tell what they do not.

"dump/step3/rank1/dump.json", "dump/step3/proc2016/dump.json", "monitor/rank_1/grad_reduced_0-99.csv".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np

from rankscope.assemble.sources import SourceFile
from rankscope.features.numbers.read.model import NumbersContent, NumbersGroup, narrowed
from rankscope.features.numbers.read.records.msprobe_tables import MONITOR_SITES, NO_SITE, NO_SLOT, StackDocument
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.matrices import NULL
from rankscope.parsers.members import shared_members
from rankscope.parsers.sidecar import Sidecar

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
            placed = _placed(content, source.shown, rank, everybody)
            source.content = _with_stacks(placed, stacks.get(source.directory))
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
    own: defaultdict[tuple[str, str], list[SourceFile]] = defaultdict(list)
    for source in records:
        own[_process_of(source)].append(source)
    ranks: dict[tuple[str, str], int | None] = {}
    for process, files in own.items():
        ranks[process] = files[0].named if process[1].startswith("rank") else None
    pids = {s.content.pid: s.content.rank for s in sources if isinstance(s.content, Sidecar)}
    pids |= {s.card.pid: s.card.rank for s in sources if s.card is not None}
    for process in [process for process, rank in ranks.items() if rank is None]:
        number = process[1].removeprefix("proc").strip()
        told = pids.get(int(number)) if number else None
        ranks[process] = _by_groups(own[process]) if told is None else told
    if len(ranks) == 1 and None in ranks.values():
        ranks = dict.fromkeys(ranks, 0)
        for source in records:
            source.note = _ALONE
    taken = Counter((root, rank) for (root, _), rank in ranks.items())
    return {key: rank if taken[key[0], rank] <= 1 or key[1].startswith("rank") else None for key, rank in ranks.items()}


def _by_groups(files: Iterable[SourceFile]) -> int | None:
    """The only rank that is in all groups of a process; None if there are several."""
    sets = [
        group.ranks.as_set
        for source in files
        if isinstance(source.content, NumbersContent)
        for group in source.content.groups
        if group.ranks
    ]
    common = sets[0].intersection(*sets[1:]) if sets else frozenset()
    return next(iter(common)) if len(common) == 1 else None


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
        site, slot = _site_of(shown)
        texts = [site if text == NO_SITE else slot if text == NO_SLOT else text for text in texts]
    headers = [] if rank is None else [header._replace(rank=rank) for header in content.headers]
    return replace(content, columns=columns, groups=groups, texts=texts, headers=headers)


def _site_of(shown: str) -> tuple[str, str]:
    """Site and slot of the rows of a table of msprobe's monitor, by the name of the file; no site if it is unknown."""
    name = PurePosixPath(shown.replace("!", "/")).name
    return next(((site, slot) for begin, site, slot in MONITOR_SITES if name.startswith(begin)), ("", "in0"))


def _with_stacks(content: NumbersContent, beside: StackDocument | None) -> NumbersContent:
    """The content with the stacks of its calls, from the file beside it."""
    if beside is None or not content.calls:
        return content
    stacks: dict[int, list[StackFrame]] = {
        number: beside.stacks[beside.places[name]] for number, name in enumerate(content.calls) if name in beside.places
    }
    return replace(content, stacks=stacks)
