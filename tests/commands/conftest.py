"""The command line on a job that is made up, so that only the command line is tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.cli import rankscope
from rankscope.commands.source import JobSource
from rankscope.schema import Dataset
from tests.report import samples

Commands = Iterator[tuple[str, click.Command]]

Serve = Callable[[Callable[[], tuple[Dataset, Analysis]]], list[JobSource]]


def every_command(group: click.Group = rankscope, above: str = "") -> Commands:
    """Each command with its words, hidden ones too, and not the groups."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every_command(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Serve:
    """Makes every source load the given job; the sources asked for are in the list. The working directory is empty."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dumps").mkdir()
    asked: list[JobSource] = []

    def use(job: Callable[[], tuple[Dataset, Analysis]]) -> list[JobSource]:
        def load(source: JobSource, progress: object, **_: str) -> tuple[Dataset, Analysis]:
            asked.append(source)
            dataset, analysis = job()
            if source.redaction is None:
                return dataset, analysis
            dataset = source.redaction.dataset(dataset)
            return dataset, analyse(dataset)

        monkeypatch.setattr(JobSource, "load", load)
        return asked

    return use


@pytest.fixture
def hang(serve: Serve) -> list[JobSource]:
    """Every source is a hang."""
    return serve(samples.hang)
