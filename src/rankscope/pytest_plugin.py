"""Fixture `rankscope_numbers` of pytest: a test that the numbers of a training are those of a golden file.

    def train(record):
        torch.manual_seed(0)
        model = ...
        record(model, optimizer)  # before the first step
        ...                       # two or three steps

    def test_numbers(rankscope_numbers):
        rankscope_numbers(train, "golden.json")

`pytest --rankscope-update` writes the golden file, with a tolerance from perturbed runs of the same function. pytest
finds it by its entry point. Nothing is imported before a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

PERTURBED = 3
"""Runs from which the tolerance is learned."""
_OPTION = "--rankscope-update"


class RecordStart(Protocol):
    """Begins the recording of a model, before its first step."""

    def __call__(self, model: Any, optimizer: Any = None) -> None:
        """Records each step of the optimizer; without one those of the first that makes one."""


Train = Callable[[RecordStart], object]


class NumbersTest:
    """The check of a test's trainings against golden files."""

    def __init__(self, tests: Path, scratch: Path, *, update: bool) -> None:
        self._tests, self._scratch, self._update = tests, scratch, update
        self._runs = 0

    def __call__(self, train: Train, golden: str | os.PathLike[str], *, strict: bool = True) -> None:
        """Runs `train`, and fails if its numbers are not those of the golden file or break a rule.

        A path that is not absolute is that from the directory of the test. With `strict` also what is no proof fails.
        """
        path = self._tests / golden
        run = self._recorded(train, 0)
        if self._update:
            perturbed = [self._recorded(train, seed) for seed in range(1, PERTURBED + 1)]
            words = [word for one in perturbed for word in ("--perturbed", one)]
            self._judge([run, "--save", str(path), "--force", *words], strict=strict)
        else:
            self.check(run, path, strict=strict)

    def check(self, run: str | os.PathLike[str], golden: str | os.PathLike[str], *, strict: bool = True) -> None:
        """Fails if a recorded run, such as one of torchrun, is not that of the golden file."""
        path = self._tests / golden
        if not path.exists():
            pytest.fail(f"{path}: no golden file; pytest {_OPTION} writes it", pytrace=False)
        self._judge([os.fspath(run), "--reference", str(path), *(["--update"] if self._update else [])], strict=strict)

    def _recorded(self, train: Train, seed: int) -> str:
        """The directory of a recorded training, perturbed if `seed` is not 0."""
        from rankscope.capture import numbers, perturb

        self._runs += 1
        directory = self._scratch / f"numbers_{self._runs}"

        def record(model: Any, optimizer: Any = None) -> None:
            if seed:
                perturb(model, seed)
            numbers.start(model, optimizer, every=1, level="modules", dumps=directory)

        try:
            train(record)
        finally:
            numbers.stop()
        if not directory.exists():
            pytest.fail("nothing was recorded: the training has to call record(model, optimizer)", pytrace=False)
        return str(directory)

    @staticmethod
    def _judge(words: list[str], *, strict: bool) -> None:
        """Runs `rankscope report --only numbers` in this process; its report is the message of the failure."""
        import contextlib
        import io

        from rankscope.cli import run

        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = run(["report", "--only", "numbers", *words, *(["--strict"] if strict else [])])
        report = out.buffer.getvalue().decode()
        if code:
            pytest.fail(report, pytrace=False)
        print(report)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that writes golden files."""
    parser.getgroup("rankscope").addoption(
        _OPTION, action="store_true", help="write the golden files of rankscope_numbers, with their tolerance"
    )


@pytest.fixture
def rankscope_numbers(request: pytest.FixtureRequest, tmp_path: Path) -> NumbersTest:
    """The check of numbers against golden files beside the test."""
    return NumbersTest(request.path.parent, tmp_path, update=bool(request.config.getoption(_OPTION)))
