"""A forward pass that runs again on the spot, with the same inputs, random states and buffers.

What differs then is no fault of data, code or layout: a kernel that is not deterministic, a race, or a device.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class GeneratorStates:
    """The states of the random generators of this process: torch, devices in use, Python, numpy where it is loaded."""

    torch_state: Any
    devices: list[Any]
    python: Any
    numpy: Any

    @classmethod
    def now(cls) -> GeneratorStates:
        """The states now."""
        numpy = sys.modules.get("numpy")
        return cls(
            torch.get_rng_state(),
            # asking whether there is a device would start the driver, and a later fork could use none
            torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            random.getstate(),
            numpy.random.get_state() if numpy is not None and hasattr(numpy, "random") else None,
        )

    def restore(self) -> None:
        """Puts the generators back."""
        torch.set_rng_state(self.torch_state)
        if self.devices:
            torch.cuda.set_rng_state_all(self.devices)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)


def replayed_part(model: Any) -> Any:
    """The part of a model that runs again: DDP would send its buffers to all ranks a second time, and change
    what the backward pass needs."""
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


class ForwardReplay:
    """State that a model needs to run again: its random states and buffers before its first call in a step.

    Arguments are taken as they are: a model that writes into them runs on others the second time.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._generators = GeneratorStates.now()
        self._buffers = _copied(model)

    def run(self, args: Any, kwargs: Any) -> None:
        """Runs the model once more, without gradients; generators and buffers are then what they were before this."""
        generators, buffers = GeneratorStates.now(), _copied(self._model)
        try:
            self._generators.restore()
            _put_back(self._model, self._buffers)
            with torch.no_grad():
                self._model(*args, **kwargs)
        finally:
            generators.restore()
            _put_back(self._model, buffers)


def _copied(model: Any) -> dict[str, Any]:
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers()}


def _put_back(model: Any, buffers: dict[str, Any]) -> None:
    for name, buffer in model.named_buffers():
        before = buffers.get(name)
        if before is not None and before.shape == buffer.shape:
            # of the tensor itself a write would count as a change, and the backward pass of a norm refuses those
            buffer.data.copy_(before)
