"""Rows of `settings` from environments, with their rank and attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from rankscope.assemble import file_names
from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.rank_files import attempts_by_directory
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.environment import Environment, EnvironmentProcess
from rankscope.schema.tables import SETTINGS

_PID = re.compile(r"(?:^|[/!])proc/(\d{1,9})/environ$|environ[._\-]?(\d{1,9})$|(?:pid|proc)[._\-]?(\d{1,9})")
_MSPROBE = re.compile(r"![^!]*\b(?:env|pip)$")
"""Files that msprobe's config_check packs."""
_PACKAGE_LIST = re.compile(r"pip|freeze|packages", re.IGNORECASE)


def add_environments(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the environments of the chosen attempt to `settings`; returns the number of their ranks, 0 for none."""
    chosen, pattern = run.attempt, run.pattern
    told = settle_environments(sources, chosen, pattern)
    if not told:
        return 0
    own = setting_rows(told, {id(source): i for i, source in enumerate(sources)})
    tables["settings"] = pl.concat([tables["settings"], own]) if "settings" in tables else own
    return environment_world(told)


def settle_environments(
    sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None
) -> list[SourceFile]:
    """Gives environments their rank and attempt; returns those of the chosen one."""
    ranks = _msprobe_ranks(sources)
    attempts = attempts_by_directory(sources)
    found = []
    for source in sources:
        told = source.content
        if not isinstance(told, Environment):
            continue
        if _required(source, told):
            source.note = "a list of packages, which may differ from the installed ones: not used"
            continue
        _rank(source, told, pattern, ranks)
        source.attempt = attempts.get(source.directory, max(0, chosen))
        if source.attempt == max(0, chosen):
            source.used = True
            found.append(source)
    return found


def environment_world(sources: Sequence[SourceFile]) -> int:
    """The size of the job in most environments of ranks; 0 if none has it."""
    told = [
        process.world_size
        for source in sources
        for process in _processes(source)
        if process.rank is not None and process.world_size is not None and process.rank < process.world_size
    ]
    return max(sorted(set(told)), key=told.count, default=0)


def setting_rows(sources: Sequence[SourceFile], places: dict[int, int]) -> pl.DataFrame:
    """The table `settings` of environments; `places` are rows of `files` by the identity of a source."""
    rows = [row for source in sources for row in _rows(source, places[id(source)])]
    return pl.DataFrame(rows, schema=SETTINGS, infer_schema_length=None)


def _rows(source: SourceFile, place: int) -> Iterator[dict[str, Any]]:
    pid = _PID.search(source.shown)
    number = next((int(group) for group in pid.groups() if group), None) if pid is not None else None
    for process in _processes(source):
        kind = "msprobe" if _MSPROBE.search(source.shown) else "environ" if process.whole else "container"
        rank = source.rank if source.rank is not None else process.rank
        for variable in process.variables:
            yield {
                "rank": rank,
                "host": process.host or source.host,
                "pid": number,
                "name": variable.name,
                "value": variable.value,
                "source": kind,
                "file": place,
                "line": variable.line,
            }


def _processes(source: SourceFile) -> list[EnvironmentProcess]:
    return source.content.processes if isinstance(source.content, Environment) else []


def _rank(source: SourceFile, told: Environment, pattern: re.Pattern[str] | None, ranks: dict[str, int]) -> None:
    """Sets the rank from the user's option, from the launcher's variables, else from a name with a rank."""
    own = {process.rank for process in told.processes}
    option = file_names.rank_by(pattern, source.shown) if pattern is not None else None
    source.rank = source.rank_source = source.named = None
    if option is not None:
        source.rank, source.rank_source = option, "option"
    elif len(own) == 1 and None not in own:
        source.rank, source.rank_source = next(iter(own)), "content"
    elif own == {None} and file_names.says_rank(source.shown):
        source.rank, source.rank_source = file_names.rank_of(source.shown), "name"
    elif own == {None} and source.directory in ranks:
        source.rank, source.rank_source = ranks[source.directory], "content"


def _msprobe_ranks(sources: Sequence[SourceFile]) -> dict[str, int]:
    """The rank in the environment of each archive, for the list of packages in the same archive."""
    found = {}
    for source in sources:
        for process in _processes(source):
            if process.rank is not None and "!" in source.shown:
                found[source.directory] = process.rank
    return found


def _required(source: SourceFile, told: Environment) -> bool:
    """Whether the file lists required packages: its name does not say that they are installed."""
    versions = all(v.name.startswith("version:") for process in told.processes for v in process.variables)
    return versions and not _PACKAGE_LIST.search(PurePosixPath(source.shown.replace("!", "/")).name)
