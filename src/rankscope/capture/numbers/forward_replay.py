"""A forward pass that runs again on the spot, with the same inputs, random states, buffers and attributes.

What differs then is no fault of data, code or layout: a kernel that is not deterministic, a race, or a device.

The second pass writes into copies alone: the tensors of the first one are those that the backward pass needs. Where no
copy is made (parameters, inputs, tensors that modules hold besides buffers) a first pass that writes into them is not
repeated. Nor is one with collectives: where the second pass fails on one rank, the others would wait for it.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..progress import issued
from .session import Session

_SHARDED = frozenset({"FSDPModule", "FullyShardedDataParallel"})
"""Classes of modules that gather their parameters before they run."""
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
_TABLES = ("_parameters", "_buffers", "_modules")
"""Attributes of every module into which it sets others."""
_TRACKERS = (
    ("megatron.core.tensor_parallel.random", "_CUDA_RNG_STATE_TRACKER"),
    ("deepspeed.runtime.activation_checkpointing.checkpointing", "_CUDA_RNG_STATE_TRACKER"),
)
"""Variables of modules that hold states of random generators beside those of torch."""
Restore = Callable[[], object]


def replayed_part(model: Any) -> Any:
    """The part of a model that runs again: DDP would send its buffers to all ranks a second time, and change
    what the backward pass needs."""
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


class ForwardReplay:
    """State that a model needs to run again: what it is given and what it holds before its first call in a step."""

    def __init__(self, session: Session, model: Any, args: Any, kwargs: Any) -> None:
        """Takes the state now; without `kwargs` (None) those of the first pass are given to `run`."""
        self.model = model
        self._session = session
        self._modules = list(model.modules())
        self._issued = self._issued_now()
        attributes = [_own_attributes(module) for module in self._modules]
        given = [*tree_leaves((args, kwargs, attributes)), *model.parameters()]
        self._versions = [(leaf, leaf._version) for leaf in given if isinstance(leaf, torch.Tensor)]
        self._holders = [leaf for leaf in given if not isinstance(leaf, torch.Tensor)]
        self._args, self._kwargs = _containers_copied((args, kwargs))
        copies: dict[int, Any] = {}
        self._attributes = [_attributes_copied(module, copies) for module in self._modules]
        self._generators = list(generator_states(self._holders))

    def obstacle(self) -> str:
        """Why the model must not run again, after its first pass; "" where nothing is in the way."""
        sharded = (base for module in self._modules for base in type(module).__mro__ if base.__name__ in _SHARDED)
        if any(sharded) or self._issued != self._issued_now():
            return "it has collectives, in which ranks would wait for one that fails"
        if any(tensor._version != version for tensor, version in self._versions):
            return "it changes its inputs, its parameters or other tensors than buffers in place"
        return ""

    def run(self, kwargs: Any) -> None:
        """Runs the model once more, without gradients; all that it holds is then what it was before this."""
        with contextlib.ExitStack() as afterwards:
            for module in self._modules:
                afterwards.callback(_set_attributes, module, dict(vars(module)))
            for restore in generator_states(self._holders):
                afterwards.callback(restore)
            for module, before in zip(self._modules, self._attributes, strict=True):
                _set_attributes(module, before)
            for restore in self._generators:
                restore()
            with torch.no_grad():
                self.model(*self._args, **(kwargs if self._kwargs is None else self._kwargs))

    def _issued_now(self) -> object:
        """The counts of collectives: of those that hooks see, and of what groups count, as barriers."""
        return self._session.issued, issued()


def _own_attributes(module: Any) -> dict[str, Any]:
    """The attributes of a module beside those that every module has."""
    return {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE}


def _containers_copied(value: Any) -> Any:
    """Nested lists, tuples and mappings anew, with the same leaves."""
    return tree_map(lambda leaf: leaf, value)


def _attributes_copied(module: Any, copies: dict[int, Any]) -> dict[str, Any]:
    """The attributes of a module, with clones of its buffers; `copies`: clones by the ids of their originals.

    Raises TypeError for one that keeps its buffers elsewhere, as of TorchScript.
    """
    attributes: dict[str, Any] = vars(module) | _containers_copied(_own_attributes(module))
    for name in _TABLES:
        if not isinstance(attributes.get(name), dict):
            raise TypeError(f"{type(module).__name__} does not keep its buffers in Python")
        attributes[name] = attributes[name].copy()
    for name, buffer in attributes["_buffers"].items():
        if buffer is not None:
            if id(buffer) not in copies:
                copies[id(buffer)] = buffer.detach().clone()
            attributes["_buffers"][name] = copies[id(buffer)]
    return attributes


def _set_attributes(module: Any, attributes: dict[str, Any]) -> None:
    present = vars(module)
    present.update(attributes)
    for name in present.keys() - attributes.keys():
        del present[name]


def generator_states(holders: list[Any]) -> Iterator[Restore]:
    """Functions that put random generators back to their states now: those of torch, of devices in use, of Python, of
    numpy where it is loaded, of libraries that keep states of their own, and those among `holders`."""
    yield partial(torch.set_rng_state, torch.get_rng_state())
    # asking whether there is a device would start the driver, and a later fork could use none
    if torch.cuda.is_initialized():
        yield partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
    numpy = sys.modules.get("numpy.random")
    yield partial(random.setstate, random.getstate())
    if numpy is not None:
        yield partial(numpy.set_state, numpy.get_state())
    for module, name in _TRACKERS:
        tracker: Any = getattr(sys.modules.get(module), name, None)
        if hasattr(tracker, "get_states"):
            states = dict(tracker.get_states())
            yield partial(tracker.set_states, states)
            # those that a graph of CUDA may capture are generators, which stay the same
            holders = [*holders, *states.values()]
    for holder in holders:
        if isinstance(holder, torch.Generator):
            yield partial(holder.set_state, holder.get_state())
        elif isinstance(holder, random.Random):
            yield partial(holder.setstate, holder.getstate())
        elif numpy is not None and isinstance(holder, numpy.Generator):
            yield partial(setattr, holder.bit_generator, "state", holder.bit_generator.state)
        elif numpy is not None and isinstance(holder, numpy.RandomState):
            yield partial(holder.set_state, holder.get_state())
