"""DeepSpeed and Megatron in records of models, by stand-ins with the names of their classes and attributes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankscope.capture.model_record import model_lines


def stand_in(name: str, package: str) -> Any:
    """A module class that holds a model as `module`, as if `package` had it."""
    import torch

    class Wrapper(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

    Wrapper.__name__, Wrapper.__module__ = name, package
    return Wrapper


class TensorGroup:
    """A tensor parallel group of two ranks."""

    def size(self) -> int:
        """The number of ranks."""
        return 2


def described(model: Any) -> dict[str, dict[str, Any]]:
    """The lines of a record, by name."""
    lines = [json.loads(line) for line in model_lines(model, None, None, {"rank": 0}).splitlines()[1:]]
    return {line["name"]: line for line in lines}


@pytest.mark.torch
def test_a_parameter_of_zero_stage_3_is_its_shard() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6))
    weight = model[0].weight
    weight.ds_shape, weight.ds_tensor = weight.shape, torch.zeros(12)
    weight.data = torch.empty(0)
    rows = described(stand_in("DeepSpeedEngine", "deepspeed.runtime.engine")(model))
    assert list(rows) == ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
                          "1.num_batches_tracked"]  # fmt: skip
    own = rows["0.weight"]
    assert (own["shape"], own["local"], own["bytes"], own["wrapper"]) == ([6, 4], [12], 48, "zero")
    assert own["placements"] == ["S(flat)"] and rows["0.bias"]["placements"] is None
    assert [name for name, row in rows.items() if row.get("buffer")] == list(rows)[4:]


@pytest.mark.torch
def test_a_part_of_a_tensor_parallel_layer_of_megatron_has_the_whole_shape() -> None:
    import torch

    model = torch.nn.Linear(4, 6)
    model.weight.tensor_model_parallel, model.weight.partition_dim = True, 0
    model.weight.main_grad = torch.zeros(6, 4)
    wrapper = stand_in("DistributedDataParallel", "megatron.core.distributed")
    outer = wrapper(stand_in("Float16Module", "megatron.core.transformer.module")(model))
    outer.tp_group = TensorGroup()
    rows = described(outer)
    assert list(rows) == ["weight", "bias"] and {row["wrapper"] for row in rows.values()} == {"megatron"}
    assert (rows["weight"]["shape"], rows["weight"]["placements"]) == ([12, 4], ["S(0)"])
    assert rows["weight"]["gradient_bytes"] == 96 and rows["bias"]["shape"] == [6]


@pytest.mark.torch
def test_another_class_of_that_name_is_no_wrapper() -> None:
    import torch

    rows = described(stand_in("DeepSpeedEngine", "somebody.engine")(torch.nn.Linear(2, 2)))
    assert rows["module.weight"]["wrapper"] is None
