"""Metrics of a followed job in a file for the textfile collector of Prometheus' node exporter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

import click

from rankscope.parsers.file_access import is_directory
from rankscope.report.output_files import overwrite

if TYPE_CHECKING:
    from rankscope.report.prometheus_text import FollowedState
    from rankscope.watching.update import FollowProgress, JobUpdate

REWRITTEN_S = 15.0
"""Seconds after which the file is written again without news, because ages grow."""
SUFFIX = ".prom"


def metrics_path(name: str | None) -> Path | None:
    """The path of `--metrics`; ClickException for one that cannot be written, or that the collector does not read."""
    if name is None:
        return None
    path = Path(name)
    if path.suffix != SUFFIX:
        raise click.ClickException(f"--metrics: {name}: the collector reads only files that end in {SUFFIX}")
    if is_directory(path):
        raise click.ClickException(f"--metrics: {name}: is a directory")
    if not is_directory(path.parent):
        raise click.ClickException(f"--metrics: {path.parent}: no such directory")
    return path


class MetricsFile:
    """Writes the file with each update, and from time to time; `tell` gets the problem if that fails, once."""

    def __init__(
        self, path: Path, source: str, tell: Callable[[str], None], now_ns: Callable[[], int] = time_ns
    ) -> None:
        self._path, self._source, self._tell, self._now_ns = path, source, tell, now_ns
        self._state: FollowedState | None = None
        self._problem = ""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)
        self._thread.start()

    def publish(self, news: JobUpdate | FollowProgress) -> None:
        """Takes news of the watcher."""
        from rankscope.report.prometheus_text import FollowedState
        from rankscope.watching.update import FollowProgress

        with self._lock:
            if not isinstance(news, FollowProgress):
                trouble = news.reading.trouble
                self._state = FollowedState(news.dataset, news.analysis, news.live, news.number, trouble)
            elif self._state is not None:
                self._state = replace(self._state, trouble=news.trouble)
        self.write()

    def write(self, *, watching: bool = True) -> None:
        """Writes the file as of now; nothing before the first update."""
        from rankscope.report.prometheus_text import render_metrics

        with self._lock:
            if self._state is None:
                return
            try:
                overwrite(self._path, render_metrics(self._state, self._source, self._now_ns(), watching=watching))
                problem = ""
            except OSError as error:
                problem = f"--metrics: {self._path}: {error.strerror}"
            news, self._problem = problem if problem != self._problem else "", problem
        if news:
            self._tell(news)

    def close(self) -> None:
        """Ends the writing; the file then says that the job is not followed any more."""
        self._closed.set()
        self._thread.join()
        self.write(watching=False)

    def _repeat(self) -> None:
        while not self._closed.wait(REWRITTEN_S):
            self.write()
