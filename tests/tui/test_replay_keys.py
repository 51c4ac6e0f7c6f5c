"""Replays by name: `export_repro` writes the script, `step` lets a replay on the screen go a step further."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis.model import Analysis
from rankscope.commands.rehearsal import write_script
from rankscope.schema import Dataset
from tests.tui.drive import PLAIN, act, bar, opened, until
from tests.tui.jobs import hang


def refused(_dataset: Dataset, _analysis: Analysis, _folder: Path) -> Path:
    raise ValueError("no dump holds an operation")


@pytest.mark.parametrize(
    ("export", "said"),
    [(write_script, "repro-2.py written"), (refused, "not written: no dump holds an operation")],
)
async def test_the_script_is_written_beside_others_or_the_reason_is_told(
    tmp_path: Path, export: object, said: str
) -> None:
    (tmp_path / "repro.py").write_text("mine")
    options = replace(PLAIN, export_repro=export, export_dir=tmp_path)  # type: ignore[arg-type]
    async with opened(hang(), (200, 24), options) as (app, pilot):
        await act(app, pilot, "export_repro")
        await until(pilot, lambda: said in bar(app, "keys"))
    assert (tmp_path / "repro.py").read_text() == "mine"


async def test_a_replay_goes_one_operation_further() -> None:
    steps: list[str] = []

    def step() -> str:
        steps.append("one")
        return f"step {len(steps)}"

    async with opened(hang(), options=replace(PLAIN, step=step)) as (app, pilot):
        await act(app, pilot, "step")
        await act(app, pilot, "step")
        assert bar(app, "keys").strip() == "step 2"
    assert len(steps) == 2


async def test_another_job_has_no_steps() -> None:
    async with opened(hang()) as (app, pilot):
        await act(app, pilot, "step")
        assert "rankscope repro PATH --run --step" in bar(app, "keys")
