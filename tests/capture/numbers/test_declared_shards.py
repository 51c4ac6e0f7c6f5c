"""Places of declared shards, and names of layers and experts over the whole model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from rankscope.capture import numbers
from rankscope.capture.numbers.declared_shards import DeclaredShards, ShardRule, parameter_rules
from rankscope.capture.numbers.global_names import GlobalNames
from rankscope.capture.numbers.linear_hash import ShardPlace, whole
from tests.capture.numbers.recorded import lines

pytestmark = pytest.mark.torch


def test_declarations_of_several_dimensions_work_together() -> None:
    shards, own = DeclaredShards(), whole((8, 4, 16))
    shards.add(ShardRule("activations", "blocks.*", 1, 3, 4))
    shards.add(ShardRule("outputs", "first", -1, 1, 2))
    placed = ShardPlace((8, 4, 16), (0, 12, 16), (8, 16, 32))
    assert shards.place(own, "forward", "module.blocks.0.first", "out0.1") == placed
    assert shards.place(own, "backward", "blocks.0.first", "in0") == placed
    assert shards.place(own, "forward", "blocks.0.first", "in0") == ShardPlace((8, 4, 16), (0, 12, 0), (8, 16, 16))
    for site, name in (("gradient", "blocks.0.first"), ("batch", "blocks.0"), ("forward", "head")):
        assert shards.place(own, site, name, "out0") == own
    assert shards.place(whole(()), "forward", "blocks.0", "out0") == whole(())


def parameter(**facts: Any) -> Any:
    return SimpleNamespace(tensor_model_parallel=True, **facts)


def test_parameters_say_their_dimension_themselves() -> None:
    group = SimpleNamespace(rank=lambda: 1, size=lambda: 4)
    named = [
        ("up.weight", parameter(partition_dim=0)),
        ("gate.weight", parameter(partition_dim=0, partition_stride=2)),
        ("expert.weight", parameter(partition_dim=0, allreduce=False)),
        ("norm.weight", SimpleNamespace(tensor_model_parallel=False, partition_dim=-1)),
    ]
    assert list(parameter_rules(named, "*", group)) == [ShardRule("parameters", "up.weight", 0, 1, 4)]
    assert list(parameter_rules(named, "down*", group)) == list(parameter_rules(named)) == []
    with pytest.raises(ValueError, match="what must be one of"):
        numbers.shard("activations", "*", None, group)


def test_declared_shards_are_recorded_at_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    group, model = SimpleNamespace(rank=lambda: 1, size=lambda: 2), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers.start(model, optimizer, every=1, dumps=tmp_path, level="modules")
    numbers.shard("parameters", "weight", 0, group)
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    numbers.stop()
    rows = [row for row in lines(tmp_path, 0) if row.get("name") in ("weight", "bias")]
    assert {(row["name"], tuple(row.get("offsets", ())), tuple(row.get("global_shape", ()))) for row in rows} == {
        ("weight", (2, 0), (4, 4)), ("bias", (), ()),
    }  # fmt: skip


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, number: int) -> None:
        super().__init__()
        self.layer_number, self.mlp = number, nn.Module()
        self.mlp.local_expert_indices, self.mlp.experts = [6, 7], nn.Module()
        self.mlp.experts.local_experts = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(2)])


def test_layers_and_experts_have_their_numbers_in_the_whole_model() -> None:
    chunks = [nn.ModuleDict({"layers": nn.ModuleList([Layer(first), Layer(first + 1)])}) for first in (3, 7)]
    names = [name for name, _ in GlobalNames(chunks).parameters()]
    assert names == [
        f"layers.{layer}.mlp.experts.local_experts.{expert}.weight" for layer in (2, 3, 6, 7) for expert in (6, 7)
    ]
    assert "layers.6.mlp" in [name for name, _ in GlobalNames(chunks).modules()]
    plain = nn.Sequential(torch.nn.Linear(2, 2))
    assert [name for name, _ in GlobalNames(plain).modules()] == ["", "0"]
