"""Hooks of optimizers, which count steps, and of modules: what goes in and out, gradients, parameters, optimizer state.

Gradients are taken from hooks of tensors: backward hooks of modules would wrap inputs and outputs, and a module that
then works in place would fail.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .forward_replay import ForwardReplay, replayed_part
from .global_names import GlobalNames
from .session import Session, no_modes
from .work_hooks import named_slots

_DEEPEST = 8
"""Deepest nesting of tensors in arguments that is looked at."""


def tensors(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The tensors in nested lists, tuples and mappings, with their dotted names."""
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else ()
    if isinstance(value, list | tuple):
        pairs = enumerate(value)
    for key, one in pairs if depth < _DEEPEST else ():
        yield from tensors(one, f"{name}.{key}" if name else str(key), depth + 1)


class StepCounter:
    """The end of each step, at the end of a step of the optimizer: of the given one, else of the first that is seen."""

    def __init__(self, session: Session, optimizer: Any) -> None:
        self.session = session
        self.modules: ModuleHooks | None = None
        """Those of the model, once it is known."""
        self._optimizer = None if optimizer is None else weakref.ref(optimizer)
        self._is_manual = False
        self._handles: list[Any] = []

    def install(self) -> None:
        """Registers hooks of all optimizers."""
        self._handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()

    def step(self) -> None:
        """Ends a step by hand; from the first call on, optimizers end none. That call ends none if one has."""
        counted, self._is_manual = self._optimizer is not None and not self._is_manual, True
        if not (counted and self.session.step):
            self.session.end_step()

    def _is_counted(self, optimizer: Any) -> bool:
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        return self._optimizer() is optimizer

    def _before(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self.session.recording and self.modules is not None and self._is_counted(optimizer):
            self.modules.before_step()

    def _after(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self._is_counted(optimizer):
            return
        if self.session.recording and self.modules is not None:
            self.modules.after_step(optimizer)
        if not self._is_manual:
            self.session.end_step()


class ModuleHooks:
    """The hooks of a model's modules and parameters."""

    def __init__(self, session: Session, model: Any) -> None:
        self.session = session
        self.names = GlobalNames(model)
        self._handles: list[Any] = []
        self._occurrences: dict[str, int] = {}
        """Number of the last call of each module in the step."""
        self._replay: ForwardReplay | None = None
        """The call of the model that runs again when it has ended."""
        self._is_replayed = False
        """Whether the model runs again now: only modules are recorded then."""

    def install(self) -> None:
        """Registers the hooks."""
        self.session.at_end.append(self._drop_replay)
        for name, module in self.names.modules():
            if self.session.settings.replay_step is not None and self._is_model(module):
                # before the hooks of others, which may change arguments and issue collectives: they run again, too
                begin = partial(self._begin_replay, name)
                self._handles.append(module.register_forward_pre_hook(begin, with_kwargs=True, prepend=True))
            self._handles += [
                module.register_forward_pre_hook(partial(self._before_forward, name), with_kwargs=True),
                module.register_forward_hook(partial(self._after_forward, name), with_kwargs=True),
            ]
        for name, parameter in self.names.parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(partial(self._accumulated, name))
                self._handles.append(hook)

    def begin_call(self, model: Any, args: Any) -> None:
        """Takes the call of the model in which the hooks are installed: its own hooks miss the begin of that one."""
        for name, module in self.names.modules():
            if module is model:
                if self._is_model(module):
                    self._begin_replay(name, module, args, None)
                self._before_forward(name, module, args, {})

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()

    def _add_all(self, value: Any, site: str, kind: str, **facts: Any) -> None:
        with self.session.guarded():
            for slot, tensor in named_slots(kind, [tensor for _, tensor in tensors(value)]):
                self.session.add(tensor, site, slot, **facts)

    def _forward_facts(self, name: str) -> dict[str, Any]:
        is_again = self._is_replayed or torch._C._current_graph_task_id() != -1
        again = {"recompute": True} if is_again else {}
        return {"name": name, "occurrence": self._occurrences.get(name, 0), **again}

    def _begin_replay(self, name: str, module: Any, args: Any, kwargs: Any) -> None:
        """Takes the state before a call of the model, if it is the one that runs again: the first one of the step."""
        if not self.session.recording:
            return
        self._replay = None
        is_first = ("forward", name) not in self.session.counted
        if is_first and self.session.step == self.session.settings.replay_step and torch.is_grad_enabled():
            with self._replay_guarded(), no_modes():
                self._replay = ForwardReplay(self.session, module, args, kwargs)

    def _before_forward(self, name: str, _module: Any, args: Any, kwargs: Any) -> None:
        if self.session.recording or self._is_replayed:
            self._occurrences[name] = self.session.occurrence("forward", name)
            self._add_all((args, kwargs), "forward", "in", **self._forward_facts(name))

    def _is_model(self, module: Any) -> bool:
        return any(module is replayed_part(chunk) for chunk in self.names.chunks)

    @contextlib.contextmanager
    def _replay_guarded(self) -> Iterator[None]:
        """Keeps errors of a second pass from the job."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - no error here may reach the job
            self._not_again(f"{type(error).__name__}: {error}")

    def _not_again(self, reason: str) -> None:
        self.session.problem(f"the forward pass did not run again: {reason}")

    def _drop_replay(self) -> None:
        """Drops the state of a call that has raised."""
        self._replay = None

    def _run_again(self, replay: ForwardReplay, kwargs: Any) -> None:
        with self._replay_guarded():
            if obstacle := replay.obstacle():
                self._not_again(obstacle)
                return
            self._is_replayed, self.session.recording = True, False
            self.session.thread_of_replay = threading.get_ident()
            try:
                replay.run(kwargs)
            finally:
                self._is_replayed, self.session.recording = False, True
                self.session.thread_of_replay = None

    def _after_forward(self, name: str, module: Any, _args: Any, kwargs: Any, output: Any) -> None:
        if not self.session.recording and not self._is_replayed:
            return
        facts = self._forward_facts(name)
        self._add_all(output, "forward", "out", **facts)
        if torch.is_grad_enabled() and "recompute" not in facts:
            for slot, tensor in named_slots("in", [tensor for _, tensor in tensors(output)]):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    tensor.register_hook(partial(self._backward, name, slot, facts["occurrence"]))
        if self._replay is not None and self._replay.model is module:
            replay, self._replay = self._replay, None
            self._run_again(replay, kwargs)

    def _backward(self, name: str, slot: str, occurrence: int, gradient: Any) -> None:
        if self.session.recording:
            with self.session.guarded():
                self.session.add(gradient, "backward", slot, name=name, occurrence=occurrence)

    def _accumulated(self, name: str, parameter: Any) -> None:
        if self.session.recording and parameter.grad is not None:
            with self.session.guarded():
                count = self.session.occurrence("gradient", name)
                self.session.add(parameter.grad, "gradient", "in0", name=name, occurrence=count)

    def before_step(self) -> None:
        """Adds gradients and parameters as the optimizer finds them."""
        for name, parameter in self.names.parameters():
            with self.session.guarded(2):
                if parameter.grad is not None:
                    self.session.add(parameter.grad, "gradient", "out0", name=name, occurrence=0)
                self.session.add(parameter, "parameter", "in0", name=name, occurrence=0)

    def after_step(self, optimizer: Any) -> None:
        """Adds parameters and the state of the optimizer after its step."""
        for name, parameter in self.names.parameters():
            with self.session.guarded():
                self.session.add(parameter, "optimizer", "out0", name=name, occurrence=0)
                for key, state in optimizer.state.get(parameter, {}).items():
                    # a number, such as the count of steps, is as costly as a tensor and tells nothing
                    if isinstance(state, torch.Tensor) and state.dim():
                        self.session.add(state, "optimizer", str(key), name=name, occurrence=0)
