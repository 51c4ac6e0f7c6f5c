"""Samples of memory inside a job: when they are taken, of which device, and how the file stays small."""

from __future__ import annotations

import json
import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from rankscope.capture import memory_record
from rankscope.capture.memory_record import MemoryRecord
from rankscope.features.memory.memory_samples import decode_samples


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A torch whose device 1 is in use."""
    stats = {"allocated_bytes.all.current": 5, "allocated_bytes.all.peak": 8, "reserved_bytes.all.current": 9}
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 1, memory_stats=lambda place: stats if place == 1 else {},
        get_device_properties=lambda _: types.SimpleNamespace(total_memory=80),
    )  # fmt: skip
    fake = types.SimpleNamespace(cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_a_step_samples_the_device_of_its_thread(torch: Any, tmp_path: Path) -> None:
    record = MemoryRecord(1e-9)
    record.step()
    record.write(tmp_path / "m", {"rank": 2})
    read = decode_samples((tmp_path / "m").read_bytes())
    assert read.rank == 2 and read.devices == ["host", "cuda:1"]
    assert read.numbers[3:, 1].tolist() == [1, 5, 9, 8, 80]


def test_samples_are_rarer_than_their_interval(torch: Any) -> None:
    record = MemoryRecord(3600.0)
    for _ in range(5):
        record.step()
    record.look()
    assert record.steps == 5 and len(record._lines) == 2


def test_an_error_of_torch_does_not_reach_the_job(torch: Any) -> None:
    del torch.cuda.current_device
    record = MemoryRecord(1e-9)
    record.step()
    assert record.problem is not None and record.steps == 1


def test_a_long_job_has_a_small_file(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_record, "MOST_LINES", 20)
    record = MemoryRecord(1e-9)
    for _ in range(40):
        record.step()
        record._due = 0.0
        record.write(tmp_path / "m", {"rank": 0})
    told = [json.loads(line) for line in (tmp_path / "m").read_text().splitlines()]
    assert len(told) <= 22 and told[1]["step"] == 1 and told[-1]["step"] == 40 and record.every > 1e-9


@pytest.mark.parametrize("others", [{}, {1: print}])
def test_hooks_of_the_trainer_stay(monkeypatch: pytest.MonkeyPatch, others: dict[int, Any]) -> None:
    module: Any = types.ModuleType("torch.optim.optimizer")
    module._global_optimizer_post_hooks = OrderedDict(others)
    module.register_optimizer_step_post_hook = lambda hook: module._global_optimizer_post_hooks.update({2: hook})
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", module)
    record = MemoryRecord(1.0)
    record.attach()
    record.attach()
    hooks = [*module._global_optimizer_post_hooks.values()]
    assert hooks == [*others.values(), record.step]


@pytest.mark.torch
def test_the_optimizer_of_torch_counts_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.optim import optimizer

    monkeypatch.setattr(optimizer, "_global_optimizer_post_hooks", OrderedDict())
    record = MemoryRecord(3600.0)
    record.attach()
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    for _ in range(3):
        torch.optim.SGD([weight], lr=0.1).step()
    assert record.steps == 3 and [json.loads(line)["device"] for line in record._lines] == ["host"]
