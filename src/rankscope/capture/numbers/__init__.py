"""Recording of numbers inside a training job: a summary of each tensor that goes through a collective, in some steps.

    from rankscope.capture import numbers
    numbers.start(model, optimizer, dumps="dumps")  # after the model is wrapped; numbers(...) does the same
    ...
    numbers.batch(batch)  # in each step, for a rehearsal of determinism

or `python -m rankscope.capture --numbers auto -o dumps train.py`. docs/numbers.md describes levels, costs and
files. It needs torch 2.3 or later and nothing else; while it is not started, nothing of torch is changed.
"""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util
import os
import sys
from collections.abc import Container
from types import ModuleType
from typing import Any, Protocol

import torch

from ..identity import environment
from ..lineage import lineage
from ..perturbation import when_first_model_runs
from .collective_hooks import CollectiveHooks
from .declared_shards import SHARDED, Sharded, ShardRule, parameter_rules
from .module_hooks import ModuleHooks, StepCounter, tensors
from .part_writer import PartWriter
from .run_facts import numeric_settings, run_id
from .session import LEVELS, NumbersSettings, Session
from .step_budget import BUDGET
from .work_hooks import PendingWorks

__all__ = ["batch", "loss", "shard", "start", "step", "stop"]
_running: list[NumbersRecording] = []
"""The recording of this process, if there is one."""
MODE = "faithful"
"""How outputs are read: after the job's own wait."""


class Hooks(Protocol):
    """Changes of torch that are taken back."""

    def install(self) -> None:
        """Makes the changes."""

    def remove(self) -> None:
        """Takes them back."""


class NumbersRecording:
    """All that is installed."""

    def __init__(self, settings: NumbersSettings, model: Any, optimizer: Any) -> None:
        header = {
            **environment(), "run": run_id(), "torch": str(torch.__version__),
            "level": settings.level, "every": settings.every, "mode": MODE, "seed": torch.initial_seed(),
            "settings": numeric_settings(),
        }  # fmt: skip
        self.writer = PartWriter(settings.directory, settings.limit_mb << 20, header)
        self.session = Session(settings, self.writer)
        works = PendingWorks(self.session)
        self.modules: ModuleHooks | None = None
        self.counter = StepCounter(self.session, optimizer)
        self._hooks: list[Hooks] = [works, CollectiveHooks(self.session, works), self.counter]
        self._waiting: Any = None
        """The handle of the hook that waits for the first model that runs."""
        if settings.level == "modules" and model is not None:
            self._hooks.append(self._modules_of(model))

    def _modules_of(self, model: Any) -> ModuleHooks:
        """The hooks of a model, which are not installed yet."""
        self.modules = self.counter.modules = ModuleHooks(self.session, model)
        return self.modules

    def start(self) -> None:
        """Installs all hooks and starts the thread."""
        for hooks in self._hooks:
            hooks.install()
        if self.session.settings.level == "modules" and self.modules is None:
            self._waiting = when_first_model_runs(self._begin_modules)
        self.declare_parameters(None)
        self.session.begin()
        self.writer.start()
        atexit.register(stop)
        if multiprocessing.parent_process() is not None:
            # a process of multiprocessing ends without its exit handlers
            multiprocessing.util.Finalize(None, stop, exitpriority=100)

    def _begin_modules(self, model: Any, args: Any) -> None:
        """Records the modules of a model that nobody named, from this first call of it on."""
        self._waiting = None
        with self.session.guarded():
            hooks = self._modules_of(model)
            hooks.install()
            self._hooks.append(hooks)
        # not within the guard, which turns gradients off: a call without them does not run again
        if self.modules in self._hooks:
            self.modules.begin_call(model, args)
            self.declare_parameters(None)

    def declare_parameters(self, group: Any, names: str = "*") -> None:
        """Takes the shards that parameters of these names declare, over a group of tensor parallelism."""
        named = () if self.modules is None else self.modules.names.parameters()
        for rule in parameter_rules(named, names, group):
            self.session.shards.add(rule)

    def remove(self) -> None:
        """Removes all hooks."""
        if self._waiting is not None:
            self._waiting.remove()
        for hooks in self._hooks:
            hooks.remove()

    def stop(self) -> None:
        """Removes all hooks, and writes what waits."""
        self.remove()
        self.session.end()
        self.writer.close()
        atexit.unregister(stop)


def start(
    model: Any = None,
    optimizer: Any = None,
    *,
    every: int | None = None,
    steps: Container[int] = (),
    dumps: str | os.PathLike[str] = "dumps",
    level: str = "modules",
    budget: float = BUDGET,
    limit_mb: int = 256,
    replay_step: int | None = None,
) -> None:
    """Records steps to `numbers_rank_R.jsonl` in the directory `dumps`: one in `every`, and `steps`.

    Without `every` the first three steps are recorded, and then as many as cost at most `budget` of the job's time, by
    measured times. Call it once, after the model is wrapped (DDP, FSDP) and before training. A step ends with that of
    `optimizer`, without one with that of the first optimizer that makes one, or with `step()`. The level "modules"
    takes `model`, without one the first that runs. In `replay_step` the first forward pass of it runs again, with
    the same random states, and both are recorded; not one with collectives, or that changes its inputs in place. In a
    child of a rank it does nothing.
    Raises ValueError for invalid settings; later errors never reach the job.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}: {level!r}")
    if (every or 0) < 0 or limit_mb <= 0 or not 0 < budget <= 1:
        raise ValueError(
            f"every must not be negative, limit_mb more than 0, budget more than 0 and at most 1: {every}, {limit_mb}, "
            f"{budget}"
        )
    if replay_step is not None and (level != "modules" or replay_step < 0):
        raise ValueError(f"replay_step needs the level modules, and is not negative: {replay_step}")
    if not hasattr(torch, "uint32") or not torch.distributed.is_available():
        raise ValueError("recording numbers needs torch 2.3 or later, with torch.distributed")
    if _running:
        raise RuntimeError("rankscope.capture.numbers was started already")
    if lineage(torch.distributed.is_initialized()).is_child_of_rank:
        return
    # the job may change its directory later
    directory = os.path.abspath(os.fspath(dumps))  # noqa: PTH100 - resolve() would ask the file system, which may hang
    recording = NumbersRecording(
        NumbersSettings(directory, every, steps, level, limit_mb, budget, replay_step), model, optimizer
    )
    _running.append(recording)
    try:
        recording.start()
    except Exception as error:  # noqa: BLE001 - a torch without what is hooked: the job goes on without a recording
        recording.session.problem(f"no numbers are recorded, {type(error).__name__}: {error}")
        recording.remove()
        _running.clear()


def stop() -> None:
    """Ends the recording: torch is as it was before."""
    while _running:
        _running.pop().stop()


def step() -> None:
    """Ends a step, in a job whose steps are not those of an optimizer of torch."""
    for recording in _running:
        recording.counter.step()


def batch(data: Any) -> None:
    """Records the tensors of a batch, in a recorded step: a tensor, or nested lists, tuples and mappings of them."""
    _add(data, "batch")


def shard(what: Sharded, names: str, dim: int | None, group: Any) -> None:
    """Declares that tensors are parts of larger ones, split evenly along a dimension over a group, in its order.

    `what` is "parameters", "inputs", "outputs" or "activations" (both) of the modules or parameters whose name matches
    `names`, with wildcards of a shell (`*.mlp.first`). With `dim` None it is about parameters that say their dimension
    themselves, as those of Megatron-LM do (`partition_dim`). Call it after `start()`, once for each dimension;
    activations are split over data parallelism, too. Raises ValueError for another `what`.
    """
    if what not in SHARDED or (dim is None and what != "parameters"):
        raise ValueError(f"what must be one of {', '.join(SHARDED)}, and dim a number but for parameters: {what!r}")
    for recording in _running:
        if dim is None:
            recording.declare_parameters(group, names)
        else:
            recording.session.shards.add(ShardRule(what, names, dim, int(group.rank()), int(group.size())))


def loss(data: Any) -> None:
    """Records a loss, in a recorded step."""
    _add(data, "loss")


def _add(data: Any, site: str) -> None:
    for recording in _running:
        session = recording.session
        if session.recording:
            with session.guarded():
                for name, tensor in tensors(data):
                    session.add(tensor, site, "in0", name=name, occurrence=session.occurrence(site, name))


def _after_fork() -> None:
    """Leaves the recording to the parent: the child has its hooks, but not its thread."""
    while _running:
        _running.pop().session.mute()


os.register_at_fork(after_in_child=_after_fork)


class NumbersModule(ModuleType):
    """This module, which can be called in place of `start`."""

    __call__ = staticmethod(start)
    start = staticmethod(start)
    stop = staticmethod(stop)
    step = staticmethod(step)
    batch = staticmethod(batch)
    loss = staticmethod(loss)
    shard = staticmethod(shard)


sys.modules[__name__].__class__ = NumbersModule
