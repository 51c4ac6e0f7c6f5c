"""A forward pass that runs again on the spot: what is recorded of it, and that the job goes on as without it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.assemble.load import load
from rankscope.capture import numbers
from rankscope.features.numbers.golden.golden_comparison import saved_golden
from rankscope.features.numbers.rules.number_findings import judge_numbers
from rankscope.features.numbers.rules.reference import compare_numbers
from tests.capture.numbers.recorded import lines

pytestmark = pytest.mark.torch

REPLAYED = 2


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RANK", "0")
    yield
    numbers.stop()


class Kernel(torch.nn.Module):  # type: ignore[misc]
    """A layer that may have a kernel whose bits differ each time, from a step on."""

    calls = 0

    def __init__(self, begin: int | None) -> None:
        super().__init__()
        self.layer, self.begin, self.step = torch.nn.Linear(8, 8), begin, 0

    def forward(self, x: Any) -> Any:
        """Shape [n, 8], also of the result."""
        Kernel.calls += 1
        noise = 1e-3 * Kernel.calls if self.begin is not None and self.step >= self.begin else 0.0
        return self.layer(x) * (1 + noise + 0.0 * random.random())


def trained(folder: Path | None, begin: int | None = None, **options: Any) -> tuple[Any, Any]:
    """All weights and buffers after four steps, and the states of generators; not recorded without a folder."""
    torch.manual_seed(0)
    random.seed(0)
    Kernel.calls = 0
    kernel = Kernel(begin)
    model = torch.nn.Sequential(kernel, torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if folder is not None:
        numbers.start(model, optimizer, every=1, dumps=folder, **options)
    for kernel.step in range(4):
        optimizer.zero_grad()
        model(torch.randn(6, 8)).square().mean().backward()
        optimizer.step()
    numbers.stop()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return state, (torch.get_rng_state(), random.getstate())


def again(folder: Path) -> list[dict[str, Any]]:
    return [line for line in lines(folder, 0) if line.get("recompute")]


def test_the_forward_pass_of_one_step_is_recorded_twice(tmp_path: Path) -> None:
    trained(tmp_path, replay_step=REPLAYED)
    rows = again(tmp_path)
    assert {row["step"] for row in rows} == {REPLAYED} and {row["site"] for row in rows} == {"forward"}
    first = [row for row in lines(tmp_path, 0) if row.get("step") == REPLAYED and row.get("site") == "forward"]
    assert len(first) == 2 * len(rows)
    hashes = {(row["name"], row["slot"]): row["hash"] for row in first if not row.get("recompute")}
    assert all(hashes[row["name"], row["slot"]] == row["hash"] for row in rows)
    assert judge_numbers(load([tmp_path])).causes == ()


def test_the_job_goes_on_as_without_it(tmp_path: Path) -> None:
    """Batch norm and dropout have what would change: running means, and random numbers."""
    plain, generators = trained(None)
    replayed, others = trained(tmp_path, replay_step=REPLAYED)
    assert again(tmp_path)
    assert all(torch.equal(value, replayed[name]) for name, value in plain.items())
    assert torch.equal(generators[0], others[0]) and generators[1] == others[1]


def test_a_kernel_that_gives_other_bits_each_time_is_found(tmp_path: Path) -> None:
    trained(tmp_path, begin=0, replay_step=REPLAYED)
    (cause,) = (one for one in judge_numbers(load([tmp_path])).causes if one.explained_by is None)
    row = load([tmp_path]).tensors.row(cause.first.row, named=True)
    assert (cause.first.rule, row["name"], row["slot"]) == ("S6", "0", "out0")


def test_the_step_is_recorded_in_any_case(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers.start(model, optimizer, every=0, dumps=tmp_path, replay_step=1)
    for _ in range(3):
        model(torch.randn(16, 4)).sum().backward()
        optimizer.step()
    numbers.stop()
    assert [line["end_of_step"] for line in lines(tmp_path, 0) if "end_of_step" in line] == [1]
    assert again(tmp_path)


def test_an_error_of_the_second_pass_does_not_reach_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    class Once(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = torch.nn.Linear(4, 4), 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            if self.calls == 2:
                raise RuntimeError("only once")
            return self.layer(x)

    model = Once()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers.start(model, optimizer, every=1, dumps=tmp_path, replay_step=0)
    model(torch.randn(16, 4)).sum().backward()
    optimizer.step()
    numbers.stop()
    assert "did not run again: RuntimeError: only once" in caplog.text
    assert [line["end_of_step"] for line in lines(tmp_path, 0) if "end_of_step" in line] == [0]


@pytest.mark.parametrize("options", [{"level": "collectives", "replay_step": 1}, {"replay_step": -1}])
def test_a_replay_that_cannot_be(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="replay_step"):
        numbers.start(dumps=tmp_path, **options)


def test_a_reference_need_not_run_again(tmp_path: Path) -> None:
    trained(tmp_path / "one", replay_step=REPLAYED)
    trained(tmp_path / "other")
    one, other = (load([tmp_path / name]) for name in ("one", "other"))
    assert one.tensors.height > other.tensors.height
    assert compare_numbers(one, other).causes == () and compare_numbers(other, one).causes == ()
    assert saved_golden(one, []) == saved_golden(other, [])
