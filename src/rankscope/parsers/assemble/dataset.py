"""All of it put together: the sources of one job to its Dataset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import DUMP, DUPLICATE, EMPTY, INPUTS, LOG, PY_SPY, UNKNOWN
from rankscope.parsers.assemble import attempts, cards, copies, naming, ranks, silent, snapshots
from rankscope.parsers.assemble import ends as ended
from rankscope.parsers.assemble.again import again
from rankscope.parsers.assemble.attempts import Attempt, NoSuchAttemptError
from rankscope.parsers.assemble.files import file_table, with_rows
from rankscope.parsers.assemble.placed import Asked, Placed, claim, place_again, with_peers
from rankscope.parsers.assemble.repeats import repeat_table
from rankscope.parsers.assemble.sources import Source, config_world
from rankscope.parsers.assemble.tables import Memory, dump_tables
from rankscope.parsers.assemble.threads import thread_tables
from rankscope.parsers.sidecar.model import Card
from rankscope.schema import Dataset

if TYPE_CHECKING:
    from rankscope.parsers.assemble.logs.log_processes import Scene
    from rankscope.parsers.assemble.py_spy_ranks import Seen
    from rankscope.parsers.assemble.traces.bring import Windows


def assemble(
    sources: Sequence[Source],
    root: str,
    pattern: re.Pattern[str] | None,
    world_size: int | None,
    attempt: int | None,
    memory: Memory | None = None,
    errors: str | None = None,
) -> Dataset:
    """The Dataset of one attempt (the newest if None); `sources` are all files, in the order of their rows.

    With the `memory` of the last time only what has changed since is worked out, and kept there for the next time; it
    has the sources then as they were placed, where without it these are. `errors` is the path of the user's own table
    of known errors.
    """
    asked = pattern, world_size, attempt
    if memory is None:
        placed, memory = _placed(sources, asked), Memory()
    else:
        placed = _placed_again(sources, asked, memory.placed)
    dataset = again(memory, placed)
    if dataset is None:
        memory.placed, memory.dataset, memory.partly = placed, None, False
        dataset = memory.dataset = _whole(placed, root, memory, errors)
    return dataset


def _whole(placed: Placed, root: str, memory: Memory, errors: str | None) -> Dataset:
    """All of it, as the sources were placed."""
    pattern, world_size, attempt = placed.asked
    sources, runs, used = placed.sources, placed.runs, placed.used
    chosen = silent.newest(runs) if attempt is None else attempt
    _place_undecoded(sources, chosen)
    cards.place(sources)
    known = world_size or _known_world(used)
    places = {id(source): i for i, source in enumerate(sources)}
    scene = _logs(placed, places, chosen, known, memory)
    seen = snapshots.settle(sources, runs, chosen, pattern, known, _in_logs(scene))
    windows = _windows(sources, max(0, chosen), pattern)
    told_worlds = (one.world for one in (windows, scene) if one is not None)
    highest = max((r for s in seen for r in s.ranks.values()), default=-1)
    world = world_size or max(_world(used, sources, chosen), 1 + highest, *told_worlds)
    tables = dump_tables(used, [places[id(s)] for s in used], world, memory)
    tables, world = _brought(tables, scene, windows, world, memory, fixed=world_size)
    tables["threads"], tables["stacks"] = thread_tables(seen, places, tables["ops"], tables["stacks"])
    told_by_processes = _of_processes(tables, sources, chosen, pattern, errors)
    return Dataset(
        **tables,
        files=_files(placed, memory),
        attempts=attempts.table(runs),
        repeats=repeat_table(sources, memory.repeats),
        attempt=max(0, chosen),
        world_size=world or told_by_processes,
        root=root,
    )


def _of_processes(
    tables: dict[str, pl.DataFrame],
    sources: Sequence[Source],
    chosen: int,
    pattern: re.Pattern[str] | None,
    errors: str | None,
) -> int:
    """Adds how processes ended, and what files say that are brought in by the rows of their kinds.

    Returns the number of ranks that these tell; 0 if none.
    """
    world = 0
    if ends := ended.of_attempt(sources, max(0, chosen)):
        tables["messages"] = ended.with_ends(tables.get("messages"), ends, sources, errors)
        world = ended.world_of(ends)
    there = {source.kind for source in sources}
    for kind in INPUTS.values():
        if kind.bring and kind.name in there:
            told: int = function(kind.bring)(tables, sources, chosen, pattern)
            world = world or told
    return world


def _placed_again(given: Sequence[Source], asked: Asked, before: Placed | None) -> Placed:
    """The same as `_placed`, as `before` where nothing speaks for more; `given` stay as they are."""
    again = place_again(before, asked, given) if before is not None else None
    if again is not None:
        return again
    placed = _placed([source.renewed() for source in given], asked)
    return with_peers(replace(placed, given=list(given)))


def _placed(sources: Sequence[Source], asked: Asked) -> Placed:
    """The attempts, and the dumps of the one that is wanted. Raises NoSuchAttemptError."""
    pattern, _, attempt = asked
    claim(sources, pattern)
    cards.settle(sources)
    runs = _runs(sources)
    chosen = silent.newest(runs) if attempt is None else attempt
    if runs and not 0 <= chosen < len(runs):
        raise NoSuchAttemptError(chosen, len(runs))
    return Placed(asked, [], list(sources), runs, _used(runs[chosen]) if runs else [])


def _files(placed: Placed, memory: Memory) -> pl.DataFrame:
    """The table of files; rows of before for those of which nothing is new."""
    if memory.files is None or placed.fresh is None:
        memory.files = file_table(placed.sources)
    else:
        memory.files = with_rows(memory.files, placed.sources, placed.fresh)
    return memory.files


def _brought(
    tables: dict[str, pl.DataFrame],
    scene: Scene | None,
    windows: Windows | None,
    world: int,
    memory: Memory,
    fixed: int | None,
) -> tuple[dict[str, pl.DataFrame], int]:
    """The tables with what logs and traces tell, and the number of ranks then, unless the user has fixed it."""
    memory.lines = None
    if scene is not None:
        from rankscope.parsers.assemble.logs.log_tables import bring

        tables, memory.lines = bring(tables, scene)
        world = fixed or max(world, 1 + _highest(tables["groups"]))
    if windows is None:
        memory.traces = None
    else:
        from rankscope.parsers.assemble.traces.bring import bring as bring_traces

        memory.traces = bring_traces(tables, windows, world, memory.traces)
        tables = {**tables, **memory.traces.tables}
    return tables, world


def _logs(placed: Placed, places: dict[int, int], chosen: int, world: int, memory: Memory) -> Scene | None:
    """Who wrote the logs of the chosen attempt; None without a log, which costs nothing."""
    if not any(source.kind == LOG.name for source in placed.sources):
        return None
    from rankscope.parsers.assemble.logs import attempts as log_attempts
    from rankscope.parsers.assemble.logs.log_tables import read_scene
    from rankscope.parsers.assemble.logs.recall import Recall

    (pattern, _, attempt), runs = placed.asked, placed.runs
    memory.recall = memory.recall or Recall()
    logs = [source for source in placed.sources if source.log is not None]
    log_attempts.settle(logs, runs)
    mine = [(places[id(source)], source) for source in logs if source.attempt == (max(0, chosen) if runs else 0)]
    run = log_attempts.run_in(logs, runs, chosen, attempt is not None)
    return read_scene(mine, world, pattern, run, memory.recall)


def _in_logs(scene: Scene | None) -> list[Seen]:
    """The stacks that stand in logs."""
    if scene is None:
        return []
    from rankscope.parsers.assemble.logs.stacked import stacks_in

    return stacks_in(scene)


def _windows(sources: Sequence[Source], attempt: int, pattern: re.Pattern[str] | None) -> Windows | None:
    """Whose the profilers' traces are; None without one, which costs nothing."""
    if not any(source.trace is not None for source in sources):
        return None
    from rankscope.parsers.assemble.traces.bring import read_windows

    return read_windows(list(enumerate(sources)), attempt, pattern)


def _highest(groups: pl.DataFrame) -> int:
    """The highest rank of any group; -1 without one."""
    highest = groups["ranks"].explode().max()
    return int(highest) if isinstance(highest, int) else -1


def _runs(sources: Sequence[Source]) -> list[Attempt]:
    """The attempts with their numbers given out and their ranks settled; copies are in none of them."""
    distinct = copies.set_aside([s for s in sources if s.dump is not None])
    runs = silent.with_silent(attempts.split(sorted(distinct, key=lambda s: s.shown)), sources)
    for number, run in enumerate(runs):
        ranks.settle(run.sources)
        for source in run.files:
            source.attempt = number
    return runs


def _used(run: Attempt) -> list[Source]:
    """The sources of a run in order of rank; of two that the user gave one rank, the newest."""
    used = []
    seen: dict[tuple[int | None, str], Source] = {}
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


def _recorders(source: Source) -> list[tuple[int | None, str]]:
    return [(source.rank, library) for library in sorted(source.libraries)]


def _place_undecoded(sources: Sequence[Source], newest: int) -> None:
    """Files that could not be decoded are dumps if their name says whose, and belong to the run of their directory."""
    by_directory: dict[str, int] = {}
    for source in sources:
        if source.attempt is not None:
            by_directory[source.directory] = max(source.attempt, by_directory.get(source.directory, 0))
    for source in sources:
        if not INPUTS[source.kind].may_be_dump:
            continue
        if source.kind == EMPTY.name and naming.of_py_spy(source.shown):
            # that py-spy wrote nothing says nothing of what the rank left itself
            source.kind, source.rank, source.rank_source = PY_SPY.name, None, None
            continue
        # the capture had begun to write it when its process ended, or has not ended yet
        unfinished = naming.is_part(source.shown)
        source.kind = (DUMP if source.named is not None and not unfinished else UNKNOWN).name
        if source.named is not None:
            source.attempt = by_directory.get(source.directory, newest if by_directory else None)


def _world(used: Sequence[Source], sources: Sequence[Source], attempt: int) -> int:
    """The most that groups, dumps, and dumps that could not be decoded speak of."""
    told = [s.rank + 1 for s in used if s.rank is not None]
    told += [s.highest + 1 for s in used]
    told += [max(g.ranks) + 1 for s in used for g in s.carded if g.ranks]
    own = [s.card for s in used] + [s.content for s in sources if s.attempt == attempt and isinstance(s.content, Card)]
    told += [card.world_size for card in own if card is not None and card.world_size is not None]
    told += [s.rank + 1 for s in sources if s.kind == DUMP.name and s.attempt == attempt and s.rank is not None]
    return max(told, default=0)


def _known_world(used: Sequence[Source]) -> int:
    """The number of ranks where groups are written down; 0 where only the dumps that are there tell."""
    world = config_world(list(used))
    return max([world, *(1 + s.rank for s in used if s.rank is not None)]) if world else 0
