"""Means in brackets behind values, of which one value was not finite."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load

LINE = "Epoch: [0]  [{step}/1299]  lr: 0.001435  loss: 2.3{step} ({mean})  grad_norm: 0.39 (0.38)  time: 0.4944\n"


@pytest.mark.parametrize("means", [("2.4", "2.4", "nan"), ("nan", "nan", "nan"), ("2.4", "inf", "inf")])
def test_a_mean_that_is_lost_is_told_and_is_no_failure(tmp_path: Path, means: tuple[str, ...]) -> None:
    (tmp_path / "out.log").write_text("".join(LINE.format(step=10 * at, mean=mean) for at, mean in enumerate(means, 1)))
    analysis = analyse(load([tmp_path]))
    assert f"loss (mean) is {means[-1]} at step" in analysis.verdict and analysis.status == "unknown"


def test_means_that_are_finite_are_no_quantity(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("".join(LINE.format(step=10 * at, mean="2.4") for at in range(1, 4)))
    dataset = load([tmp_path])
    assert "nothing wrong seen" in analyse(dataset).verdict
    assert not dataset.training["raw_name"].str.contains("mean").any()
