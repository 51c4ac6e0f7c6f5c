"""`rankscope PATH...`: the app, or the text report where there is no terminal to draw on."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.commands import report
from rankscope.commands import watch as watching
from rankscope.commands.source import A_BIT_AT_A_TIME, Source, Step
from rankscope.commands.watch import UNSAID, Follow
from rankscope.parsers.workers.machine_share import of_the_user
from rankscope.report.escape import plain
from rankscope.triggers.pipes import Pipe, ask, find_pipes

if TYPE_CHECKING:
    from rankscope.analysis.model import Analysis
    from rankscope.assemble.load import Kept
    from rankscope.schema import Dataset
    from rankscope.tui.app import RankscopeApp
    from rankscope.tui.options import Load, Palette, ViewOptions

SWITCH_S = 0.001
"""So long a thread keeps the interpreter from another one that waits for it; 5 ms otherwise."""


def run(
    paths: tuple[str, ...],
    *,
    called: tuple[str, ...] = (),
    ascii_only: bool = False,
    palette: Palette | None = None,
    mouse: bool | None = None,
    path_map: tuple[tuple[str, str], ...] = (),
    rank_from: str | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
    jobs: int | None = None,
    errors: str | None = None,
    watch: bool = False,
    follow: Follow = UNSAID,
    bell: bool = True,
) -> int:
    """Opens the app on a terminal; elsewhere prints the report, with its exit code, or follows the job in lines."""
    source = Source(paths, rank_from, world_size, attempt, jobs, errors, called)
    if not on_terminal():
        without = partial(watching.run, follow=follow) if watch else report.run
        return without(
            paths, called=called, ascii_only=ascii_only, path_map=path_map, rank_from=rank_from,
            world_size=world_size, attempt=attempt, jobs=jobs, errors=errors,
        )  # fmt: skip
    source.check(may_come=watch)
    from rankscope.tui.app import RankscopeApp
    from rankscope.tui.options import from_environment

    for name in ("COLUMNS", "LINES"):
        # Where they are exported they hide that the terminal was resized.
        os.environ.pop(name, None)
    options = from_environment(
        os.environ, ascii_only=ascii_only, palette=palette, mouse=mouse, path_map=path_map, export=_export, bell=bell,
        export_traces=_export_traces, pipes=PipesOf(paths),
    )  # fmt: skip
    options = replace(options, editor_environment=of_the_user())
    if watch:
        _app_that_follows(source, follow, options).run()
    else:
        first, rest = _readings(source)
        RankscopeApp(load=first, title=source.title, options=options, rest=rest).run()
    return 0


def _app_that_follows(source: Source, follow: Follow, options: ViewOptions) -> RankscopeApp:
    from rankscope.commands.follower_process import Apart, Wanted
    from rankscope.tui.app import RankscopeApp

    answer_keys()
    apart = Apart(Wanted(source, follow, options.path_map))
    return RankscopeApp(load=None, title=source.title, options=options, watch=apart)


def _readings(source: Source) -> tuple[Load, Load]:
    """What is shown at first, and the rest, for which only traces are opened again."""
    from rankscope.assemble.load import Kept

    kept = Kept()
    return partial(_first, source, kept), partial(source.load, kept=kept)


def _first(source: Source, kept: Kept, progress: Callable[[Step], None]) -> tuple[Dataset, Analysis]:
    """Of traces only their collectives and steps: they are there in a third of the time."""
    try:
        return source.load(progress, detail="collectives", kept=kept)
    finally:
        gc.freeze()
        gc.enable()


def answer_keys() -> None:
    """Has the thread that takes updates get out of the way of the one that answers keys.

    A search for cycles stops both: one through all that was imported takes a tenth of a second.
    """
    gc.enable()
    gc.set_threshold(*A_BIT_AT_A_TIME)
    sys.setswitchinterval(SWITCH_S)


def _export(dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """Imports what writes Markdown only when something is written."""
    from rankscope.report.perfetto import export_markdown

    return export_markdown(dataset, analysis, directory)


def _export_traces(dataset: Dataset, analysis: Analysis, directory: Path) -> Path:
    """As `_export`, for the merged trace."""
    from rankscope.report.perfetto import export_merged

    return export_merged(dataset, analysis, directory)


def on_terminal() -> bool:
    """Whether there is a terminal to draw on and to read keys from."""
    return all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout)) and os.environ.get("TERM") != "dumb"


# Asking a running job for dumps through the trigger pipes that lie where its dumps do.


@dataclass(frozen=True)
class PipesOf:
    """The trigger pipes of some paths. What is asked first may be gone when it is written to: that is said."""

    paths: Sequence[str]

    def ranks(self) -> list[int]:
        """Ranks that can be asked."""
        return sorted({pipe.rank for pipe in self._find()})

    def ask(self) -> str:
        """Asks all of them, and says what came of it."""
        asked = ask(self._find())
        failed = [one for one in asked if one.problem is not None]
        text = f"{len(asked) - len(failed)} of {len(asked)} ranks asked for dumps"
        if failed:
            text += f"; rank {failed[0].pipe.rank}: {failed[0].problem}"
        return plain(text)

    def _find(self) -> list[Pipe]:
        places = [Path(path) if Path(path).is_dir() else Path(path).parent for path in self.paths]
        return find_pipes(dict.fromkeys(places))
