"""`rankscope watch`: follows a running job without a screen and prints a line for each change."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Literal

import click

from rankscope.commands.metrics_file import MetricsFile, metrics_path
from rankscope.commands.output import encoded
from rankscope.commands.source import JobSource, with_local_paths
from rankscope.parsers.files.directory_walk import is_session
from rankscope.parsers.workers.machine_share import users_variables
from rankscope.text.escaping import plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TypeAlias

    from rankscope.watching.update import FollowProgress, JobUpdate
    from rankscope.watching.watcher import Watcher

    Receiver: TypeAlias = Callable[[JobUpdate | FollowProgress], None]


@dataclass(frozen=True)
class FollowOptions:
    """Options of following, from the command line."""

    poll: float | None = None
    freeze_after: float | None = None
    on_freeze: str | None = None
    wait: bool = False
    """Whether paths that do not exist yet are waited for."""


DEFAULT_OPTIONS = FollowOptions()
"""The default options."""


def watcher_for(source: JobSource, follow: FollowOptions) -> Watcher:
    """The watcher for the files of a source; ClickException for bad options."""
    from rankscope.assemble.load import InputError
    from rankscope.watching.watcher import Watcher, WatchOptions

    if source.attempt is not None:
        raise click.ClickException("--attempt: a watched job always shows its newest attempt")
    fixed = next((path for path in source.paths if is_session(Path(path))), None)
    if fixed is not None:
        raise click.ClickException(f"{fixed}: is a session, which does not change; watch the directory of its files")
    try:
        options = WatchOptions(source.options, follow.poll, follow.freeze_after, source.redaction)
        return Watcher([Path(p) for p in source.paths], options)
    except InputError as error:
        raise click.ClickException(str(error)) from error


@dataclass
class FollowedJob:
    """Source of updates for the screen that also runs the user's command at every freeze."""

    watcher: Watcher
    on_freeze: str | None
    path_map: tuple[tuple[str, str], ...]

    def run(self, publish: Callable[[JobUpdate | FollowProgress], None]) -> None:
        """Follows until `stop`; ClickException if no process can be started."""
        from rankscope.parsers.workers.pool import WorkerError
        from rankscope.watching.update import FollowProgress

        last: list[FollowProgress] = [FollowProgress()]
        said = [""]

        def tell(text: str) -> None:
            said[0] = text
            publish(replace(last[0], said=text))

        hook = FreezeHook(self.on_freeze, tell) if self.on_freeze is not None else None

        def pass_on(news: JobUpdate | FollowProgress) -> None:
            if isinstance(news, FollowProgress):
                last[0] = replace(news, said=said[0])
                publish(last[0])
                return
            fires = news.alarm and hook is not None
            said[0] = "" if fires else said[0]
            last[0] = replace(news.reading, said=said[0])
            dataset, analysis = with_local_paths(news.dataset, news.analysis, self.path_map)
            publish(replace(news, dataset=dataset, analysis=analysis, reading=last[0]))
            if fires and hook is not None:
                # after that, so that its outcome is told later
                hook.fire(report_of(news, self.path_map))

        try:
            self.watcher.run(pass_on)
        except WorkerError as error:
            raise click.ClickException(str(error)) from error

    def stop(self) -> None:
        """Ends `run`."""
        self.watcher.stop()


def followed_job(source: JobSource, follow: FollowOptions, path_map: tuple[tuple[str, str], ...]) -> FollowedJob:
    """The source of updates for the screen; ClickException for bad options."""
    return FollowedJob(watcher_for(source, follow), follow.on_freeze, path_map)


def report_of(update: JobUpdate, path_map: tuple[tuple[str, str], ...] = ()) -> bytes:
    """The JSON report of an update."""
    from rankscope.report.json import render_json

    return render_json(*with_local_paths(update.dataset, update.analysis, path_map))


def run(
    source: JobSource,
    *,
    form: Literal["text", "json"] = "text",
    until_frozen: bool = False,
    follow: FollowOptions = DEFAULT_OPTIONS,
    ascii_only: bool = False,
    path_map: tuple[tuple[str, str], ...] = (),
    metrics: str | None = None,
) -> int:
    """Follows until a signal; the exit code says whether the last verdict was critical.

    `metrics` is a file for the textfile collector of Prometheus.
    """
    source.check(may_come=follow.wait)
    path = metrics_path(metrics)
    watcher = watcher_for(source, follow)
    gc.enable()
    printer = _StatusPrinter(watcher, form, ascii_only, until_frozen, path_map, _hook(follow))
    with _ended_by_signals(watcher), _metrics(path, source.title) as receivers:
        _run(watcher, [*receivers, printer.publish])
    if printer.hook is not None and until_frozen:
        printer.hook.wait()
    return int(printer.critical or (until_frozen and printer.alarmed))


@contextmanager
def _metrics(path: Path | None, title: str) -> Iterator[list[Receiver]]:
    """The receivers that write metrics into a file: none without a path."""
    if path is None:
        yield []
        return
    file = MetricsFile(path, title, _say)
    try:
        yield [file.publish]
    finally:
        file.close()


def _run(watcher: Watcher, receivers: Sequence[Receiver]) -> None:
    from rankscope.parsers.workers.pool import WorkerError

    def publish(news: JobUpdate | FollowProgress) -> None:
        for receive in receivers:
            receive(news)

    try:
        watcher.run(publish)
    except WorkerError as error:
        raise click.ClickException(str(error)) from error


def _hook(follow: FollowOptions) -> FreezeHook | None:
    if follow.on_freeze is None:
        return None

    return FreezeHook(follow.on_freeze, _say)


@dataclass
class _StatusPrinter:
    """Prints the changes of a job, and runs the user's command."""

    watcher: Watcher
    form: str
    ascii_only: bool
    until_frozen: bool
    path_map: tuple[tuple[str, str], ...]
    hook: FreezeHook | None
    critical: bool = False
    alarmed: bool = False
    _said: object = None
    _trouble: str = field(default="")

    def publish(self, news: JobUpdate | FollowProgress) -> None:
        """Takes an update of the watcher."""
        from rankscope.watching.update import FollowProgress

        if isinstance(news, FollowProgress):
            self._tell_trouble(news)
            return
        self._tell_trouble(news.reading)
        self.critical = news.analysis.is_critical
        self._print(news)
        if news.alarm:
            self.alarmed = True
            if self.hook is not None:
                self.hook.fire(report_of(news, self.path_map))
            if self.until_frozen:
                self.watcher.stop()

    def _print(self, update: JobUpdate) -> None:
        from rankscope.report.watch_lines import render_line_json, render_line_text, verdict_key

        key = verdict_key(update.analysis, update.live)
        if key == self._said:
            return
        self._said = key
        if self.form == "json":
            line = render_line_json(update.dataset, update.analysis, update.live, time_ns())
        else:
            text = render_line_text(update.analysis, update.live, time_ns())
            line = encoded(text, self.ascii_only)
        try:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self.watcher.stop()

    def _tell_trouble(self, reading: FollowProgress) -> None:
        trouble = reading.trouble
        if trouble != self._trouble:
            self._trouble = trouble
            _say(trouble or "the trouble is over, reading goes on")


def _say(text: str) -> None:
    if sys.stderr:
        sys.stderr.write(f"rankscope: {text}\n")
        sys.stderr.flush()


@contextmanager
def _ended_by_signals(watcher: Watcher) -> Iterator[None]:
    """SIGINT and SIGTERM end following, not the program."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: watcher.stop())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# The user's command that runs when a job freezes, with the report on its standard input.

LONGEST_QUOTE = 200
"""Longest quoted output of a failed command."""


class FreezeHook:
    """Runs the command in the background, once at a time; `tell` gets its outcome."""

    def __init__(self, command: str, tell: Callable[[str], None]) -> None:
        self._command, self._tell = command, tell
        self._thread: threading.Thread | None = None

    def fire(self, report: bytes) -> None:
        """Starts the command."""
        if self._thread is not None and self._thread.is_alive():
            self._tell("--on-freeze: the last command is still running, so it was not started again")
            return
        self._thread = threading.Thread(target=self._run, args=(report,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits until the command has ended."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, report: bytes) -> None:
        try:
            done = subprocess.run(
                self._command, shell=True, input=report, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
                start_new_session=True, env=users_variables(),
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self._tell(f"--on-freeze: cannot be run: {plain(str(error), LONGEST_QUOTE)}")
            return
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            why = f": {plain(said[-1], LONGEST_QUOTE)}" if said else ""
            self._tell(f"--on-freeze: the command failed with exit code {done.returncode}{why}")
