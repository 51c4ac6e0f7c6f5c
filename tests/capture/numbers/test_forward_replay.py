"""A forward pass that runs again on the spot: what is recorded of it, and that the job goes on as without it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

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


class Layer(torch.nn.Module):  # type: ignore[misc]
    """A linear layer; shape [n, 8] of arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class OnlyOnce(Layer):
    """Fails in a second pass."""

    def forward(self, x: Any) -> Any:
        if not torch.is_grad_enabled():
            raise RuntimeError("only once")
        return self.layer(x)


class BufferSetAnew(Layer):
    """Has a buffer that each pass replaces, and that the backward pass needs."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Any
        self.register_buffer("mean", torch.ones(8))

    def forward(self, x: Any) -> Any:
        x = self.layer(x)
        self.mean = 0.5 * self.mean + x.detach().mean(0)
        return x * self.mean


class BufferInPlace(BufferSetAnew):
    """Has a buffer that each pass changes in place."""

    def forward(self, x: Any) -> Any:
        x = self.layer(x)
        self.mean.mul_(0.5).add_(x.detach().mean(0))
        return x + self.mean


class AttributesSet(Layer):
    """Keeps a part of its loss and a list of what it has seen, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen, self.aux = 0, list[float](), torch.zeros(())

    def forward(self, x: Any) -> Any:
        x = self.layer(x)
        self.aux = x.softmax(-1).square().mean()
        self.calls += 1
        self.seen.append(float(x.detach().sum()))
        return x * self.calls + sum(self.seen)


class OwnGenerators(Layer):
    """Draws from generators of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.dice = torch.Generator().manual_seed(3), random.Random(4)
        self.of_numpy = (numpy.random.default_rng(5), [numpy.random.RandomState(6)])

    def forward(self, x: Any) -> Any:
        drawn = self.dice.random() + self.of_numpy[0].random() + self.of_numpy[1][0].random_sample()
        return self.layer(x) * (torch.rand(8, generator=self.generator) > 0.3) * drawn


class InputInPlace(Layer):
    """Changes its input."""

    def forward(self, x: Any) -> Any:
        return self.layer(x.mul_(2).sub_(1))


class ParameterInPlace(Layer):
    """Clips its weights before it uses them."""

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.layer.weight.clamp_(-0.3, 0.3)
        return self.layer(x)


class AttributeInPlace(Layer):
    """Changes a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.held = [torch.ones(8)]

    def forward(self, x: Any) -> Any:
        return self.layer(x) + self.held[0].mul_(0.5)


class Reduces(Layer):
    """Has a collective in its forward pass."""

    def forward(self, x: Any) -> Any:
        total = x.detach().sum(0)
        dist.all_reduce(total)
        return self.layer(x) + total


class Waits(Layer):
    """Has a barrier in its forward pass."""

    def forward(self, x: Any) -> Any:
        dist.barrier()
        return self.layer(x)


class ReducesOnlyAgain(Layer):
    """Has a collective in the second pass alone."""

    issued = 0

    def forward(self, x: Any) -> Any:
        if not torch.is_grad_enabled():
            dist.all_reduce(x.clone())
            ReducesOnlyAgain.issued += 1
        return self.layer(x)


def fully_sharded() -> Any:
    """A model whose hook gathers its parameters before all other hooks of it."""
    return fully_shard(Layer(), mesh=init_device_mesh("cpu", (1,)))


def weights(make: Callable[[], Any], folder: Path | None) -> list[Any]:
    """All weights and buffers of a model after three steps, the second of which has two passes; in `folder` if any."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if folder is not None:
        numbers.start(model, optimizer, every=1, dumps=folder, replay_step=1)
    for _ in range(3):
        loss = model(torch.rand(4, 8)).square().mean() + getattr(model, "aux", 0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    numbers.stop()
    return [value.clone() for value in model.state_dict().values()]


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("make", [BufferSetAnew, BufferInPlace, AttributesSet, OwnGenerators])
def test_what_a_model_holds_is_what_it_would_be_without_a_second_pass(
    make: Callable[[], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert all(map(torch.equal, weights(make, None), weights(make, tmp_path)))
    assert again(tmp_path) and not caplog.text
    assert judge_numbers(load([tmp_path])).causes == ()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (OnlyOnce, "RuntimeError: only once"),
        (InputInPlace, "in place"),
        (ParameterInPlace, "in place"),
        (AttributeInPlace, "in place"),
        (Reduces, "it has collectives"),
        (Waits, "it has collectives"),
        (fully_sharded, "it has collectives"),
        (ReducesOnlyAgain, "it would issue a collective"),
    ],
)
@pytest.mark.usefixtures("group")
def test_a_pass_that_cannot_be_had_again_leaves_the_job_alone(
    make: Callable[[], Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert all(map(torch.equal, weights(make, None), weights(make, tmp_path)))
    assert "the forward pass did not run again: " in caplog.text and reason in caplog.text
    assert [line["end_of_step"] for line in lines(tmp_path, 0) if "end_of_step" in line] == [0, 1, 2]
    assert not [row for row in again(tmp_path) if row["name"] == "layer"] and ReducesOnlyAgain.issued == 0


class Tracker:
    """As Megatron-LM has one: states by name, each replaced when it was used."""

    def __init__(self) -> None:
        self.states = {"model-parallel-rng": torch.Generator().manual_seed(7).get_state()}

    def get_states(self) -> dict[str, Any]:
        return dict(self.states)

    def set_states(self, states: dict[str, Any]) -> None:
        self.states = states

    def draw(self) -> float:
        generator = torch.Generator()
        generator.set_state(self.states["model-parallel-rng"])
        drawn = float(torch.rand((), generator=generator))
        self.states["model-parallel-rng"] = generator.get_state()
        return drawn


def test_states_of_random_generators_in_a_library_are_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("megatron.core.tensor_parallel.random")
    monkeypatch.setitem(sys.modules, library.__name__, library)

    class Draws(Layer):
        def forward(self, x: Any) -> Any:
            return self.layer(x) * library.__dict__["_CUDA_RNG_STATE_TRACKER"].draw()

    library.__dict__["_CUDA_RNG_STATE_TRACKER"] = Tracker()
    plain = weights(Draws, None)
    library.__dict__["_CUDA_RNG_STATE_TRACKER"] = Tracker()
    assert all(map(torch.equal, plain, weights(Draws, tmp_path)))
    assert again(tmp_path) and judge_numbers(load([tmp_path])).causes == ()


def test_the_second_pass_gets_arguments_as_the_caller_gave_them(tmp_path: Path) -> None:
    """A hook before the model is part of the pass: it would change arguments twice."""

    def make() -> Any:
        model = Layer()
        model.register_forward_pre_hook(lambda _, args: (2 * args[0],))
        return model

    weights(make, tmp_path)
    assert again(tmp_path) and judge_numbers(load([tmp_path])).causes == ()


def test_the_first_call_of_a_model_that_nobody_named_runs_again_with_all_its_arguments(tmp_path: Path) -> None:
    class Adds(Layer):
        def forward(self, x: Any, *, bias: Any = 0.0) -> Any:
            return self.layer(x + bias)

    numbers.start(every=1, dumps=tmp_path, replay_step=0)
    Adds()(torch.rand(4, 8), bias=torch.rand(8)).sum().backward()
    numbers.step()
    numbers.stop()
    assert again(tmp_path) and judge_numbers(load([tmp_path])).causes == ()


@pytest.mark.parametrize("ends_step", [False, True])
def test_a_call_that_raises_is_not_had_again_at_a_later_one(tmp_path: Path, ends_step: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))
    numbers.start(model, every=1, dumps=tmp_path, replay_step=0)
    with pytest.raises(RuntimeError, match="shapes"):
        model(torch.rand(4, 7))
    if ends_step:
        numbers.step()
    model(torch.rand(4, 8))
    numbers.stop()
    assert not again(tmp_path)


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
