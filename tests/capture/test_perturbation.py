"""Noise of the size of rounding: on which weights, how large, the same on all ranks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from rankscope import capture
from rankscope.capture.perturbation import perturb_first_model

pytestmark = pytest.mark.torch


def tied() -> Any:
    """A model whose head has the weights of its embedding."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"head": torch.nn.Linear(8, 40), "embedding": torch.nn.Embedding(40, 8)})
    model["head"].weight = model["embedding"].weight
    return model


def changes(before: Any, after: Any) -> dict[str, float]:
    """The largest relative change of each parameter that has one."""
    pairs = zip(before.named_parameters(), after.parameters(), strict=True)
    off = {name: float(((a - b).abs() / a.abs()).max().detach()) for (name, a), b in pairs}
    return {name: size for name, size in off.items() if size}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embeddings_change_by_the_size_of_rounding(dtype: torch.dtype) -> None:
    model = tied().to(dtype)
    before = copy.deepcopy(model)
    assert capture.perturb(model, seed=3) == 1
    ((name, size),) = changes(before, model).items()
    assert name == "head.weight" and 0 < size < 4 * torch.finfo(dtype).eps
    assert model["head"].weight is model["embedding"].weight


def test_a_seed_gives_one_noise() -> None:
    models = [tied() for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        capture.perturb([model], seed=seed)
    assert not changes(models[0], models[1]) and changes(models[0], models[2])


def test_without_embeddings_the_first_weight_changes() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(9, 4), torch.nn.Linear(4, 2))
    before = copy.deepcopy(model)
    assert capture.perturb(model) == 1 and list(changes(before, model)) == ["0.weight"]
    with pytest.raises(ValueError, match="no floating-point parameter"):
        capture.perturb(torch.nn.ReLU())


def test_the_first_model_that_runs_is_perturbed_once() -> None:
    model, inputs = torch.nn.Sequential(torch.nn.Linear(9, 4)), torch.ones(1, 9)
    before = copy.deepcopy(model)
    perturb_first_model(1)
    torch.nn.ReLU()(inputs)
    assert not changes(before, model)
    model(inputs)
    once = copy.deepcopy(model)
    assert list(changes(before, model)) == ["0.weight"]
    model(inputs)
    assert not changes(once, model)


def test_a_shard_that_is_empty_here_is_no_reason_to_fail() -> None:
    model = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(4, 8), "head": torch.nn.Linear(8, 4)})
    model["embedding"].weight.data = torch.empty(0, 8)
    before = copy.deepcopy(model)
    assert capture.perturb(model) == 1 and changes(before["head"], model["head"]) == {}


def test_a_model_that_cannot_be_perturbed_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Linear(3, 2, dtype=torch.complex64)
    perturb_first_model(1)
    assert model(torch.ones(1, 3, dtype=torch.complex64)).shape == (1, 2)
    assert "--perturb changed nothing" in caplog.text
