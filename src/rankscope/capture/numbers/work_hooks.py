"""Hooks of works: outputs are summarised after the job's own wait, so that the recording waits for nobody.

`Work.wait` is called from Python for all of `torch.distributed`, FSDP2 and pipelines; sends and receives are always
issued from Python, too. Two kinds of works nobody waits for in Python: those of DDP's reducer and those of which only
the future is asked for. They are taken at the end of the backward pass in which they were issued, where the job
waits for them, too. A work of a send or receive is never waited for here: gloo hangs at a second wait.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed import ProcessGroup, Work

from ..progress import issued_operations
from .session import GroupMembers, Session

WAIT_S = 20.0
"""Longest wait for a work in C++ at the place where the job waits for it next. After one in vain there are no more."""
_PAUSE_S = 0.0005
_WAITS = ("wait", "synchronize", "block_current_stream")
_ISSUING = "torch.distributed.distributed_c10d"


@dataclass
class PendingOutputs:
    """Outputs of an issued operation that are not there yet."""

    work: Any
    """The work, or the output tensor of a functional collective: kept, so that its key stays its own."""
    summarize: list[Callable[[], object]]
    """Functions that add the rows of its outputs."""
    waited_inside: bool = False
    """Whether the job waits for it in C++."""
    is_device: bool = False


@dataclass
class PendingWorks:
    """Works whose outputs are not there yet, and the patches of Python's methods of works and groups."""

    session: Session
    _pending: dict[int, PendingOutputs] = field(default_factory=dict)
    _coalesced: list[Callable[[], object]] | None = None
    """Outputs of operations between the start and the end of a batch of NCCL; None outside of one."""
    _newest_inside: bool = False
    """Whether the job waits in C++ for the work that was noted last."""
    _graph_task: int = -1
    """The backward pass at whose end works are taken."""
    _gave_up: bool = False
    _originals: list[tuple[Any, str, Any]] = field(default_factory=list)

    def install(self) -> None:
        """Patches the methods."""
        for name in _WAITS:
            self._patch(Work, name, self._waiting)
        self._patch(Work, "get_future", self._asking_for_future)
        self._patch(ProcessGroup, "_start_coalescing", self._starting)
        self._patch(ProcessGroup, "_end_coalescing", self._ending)
        for name, op in (("send", "send"), ("recv", "recv"), ("recv_anysource", "recv")):
            self._patch(ProcessGroup, name, functools.partial(self._passing, op), always=True)
        self.session.at_end.append(self._drop)

    def remove(self) -> None:
        """Puts the original methods back."""
        for place, name, original in self._originals:
            setattr(place, name, original)
        self._originals = []

    def _patch(self, place: Any, name: str, hook: Callable[..., Any], always: bool = False) -> None:
        original = getattr(place, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def patched(*args: Any, **kwargs: Any) -> Any:
            # nothing is looked at while no step is recorded and no output is awaited
            if not (always or self.session.recording or self._pending):
                return original(*args, **kwargs)
            return hook(original, *args, **kwargs)

        self._originals.append((place, name, original))
        setattr(place, name, patched)

    def expect(self, key: int, outputs: PendingOutputs) -> None:
        """Notes outputs that are there after the wait with this key: the id of a work, or the address of a storage."""
        if self._coalesced is not None:
            self._coalesced += outputs.summarize
            return
        known = self._pending.setdefault(key, outputs)
        if known is not outputs:
            known.summarize += outputs.summarize

    def expect_work(self, work: Any, summarize: list[Callable[[], object]], device: Any, issuer: str) -> None:
        """Notes the outputs of a collective that the module `issuer` called; "" for a thread of C++.

        Torch's own C++ waits for its works at once, or at the end of the backward pass.
        """
        inside = issuer != _ISSUING and (not issuer or issuer.partition(".")[0] == "torch")
        self.expect(id(work), PendingOutputs(work, summarize, inside, device.type != "cpu"))
        self._newest_inside = inside

    def arrange(self) -> None:
        """Arranges when works are taken for which the job waits in C++; called after each issue, without a lock."""
        try:
            task = torch._C._current_graph_task_id()
            if task == -1:
                self._take_inside(self._newest_inside)
            elif task != self._graph_task:
                self._graph_task = task
                torch.autograd.Variable._execution_engine.queue_callback(functools.partial(self._take_inside, True))
        except Exception as error:  # noqa: BLE001 - no error here may reach the job
            self.session.problem(f"{type(error).__name__}: {error}")

    def done(self, key: int) -> None:
        """Adds the rows of outputs that are there now."""
        outputs = self._pending.pop(key, None)
        if outputs is not None:
            for summarize in outputs.summarize:
                with self.session.guarded():
                    summarize()

    def _waiting(self, original: Any, work: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(work, *args, **kwargs)
        except BaseException:
            self._pending.pop(id(work), None)
            raise
        self.done(id(work))
        return result

    def _asking_for_future(self, original: Any, work: Any) -> Any:
        outputs = self._pending.get(id(work))
        if outputs is not None:
            outputs.waited_inside = True
        return original(work)

    def _starting(self, original: Any, group: Any, *args: Any) -> Any:
        self._coalesced = []
        return original(group, *args)

    def _ending(self, original: Any, group: Any, *args: Any) -> Any:
        summarize, self._coalesced = self._coalesced, None
        work = original(group, *args)
        if summarize and isinstance(work, Work):
            self._pending[id(work)] = PendingOutputs(work, summarize)
        return work

    def _passing(self, op: str, original: Any, group: Any, tensors: list[Any], *args: Any, **kwargs: Any) -> Any:
        """A send or receive: `args` are the peer's rank within the group, if any, and the tag."""
        session = self.session
        session.count_issue()
        issue = functools.partial(self._counted, original, group, tensors, *args, **kwargs)
        if not session.recording:
            return issue()
        facts: dict[str, Any] = {}
        with session.guarded(len(tensors)):
            known = session.group(group)
            facts = self._facts(op, known, args[0] if len(args) > 1 else None)
            for slot, tensor in named_slots("in", tensors if op == "send" else ()):
                session.add(tensor, "p2p", slot, **facts)
        work = issue()
        if op == "recv" and facts and isinstance(work, Work):
            later: list[Callable[[], object]] = [
                functools.partial(session.add, tensor, "p2p", slot, **facts)
                for slot, tensor in named_slots("out", tensors)
            ]
            self.expect(id(work), PendingOutputs(work, later))
        return work

    def _counted(self, original: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
        """Issues a send or receive, and counts it where the group does."""
        before = issued_operations(group)
        work = original(group, *args, **kwargs)
        after = issued_operations(group)
        if before is not None and after is not None and after > before:
            self.session.sends[str(group.group_name)] += after - before
        return work

    def _facts(self, op: str, group: GroupMembers, peer: int | None) -> dict[str, Any]:
        known = {} if peer is None else {"peer": group.ranks[peer]}
        count = self.session.occurrence(op, group.name, peer)
        return {"occurrence": count, "group": group.name, "op": op, **known, **self.session.caller()}

    def _take_inside(self, patient: bool) -> None:
        """Takes works that the job waits for in C++; `patient` where it would wait next, else those that are there."""
        self._graph_task = -1
        try:
            for key, outputs in list(self._pending.items()):
                if outputs.waited_inside and self._is_there(outputs, patient):
                    self.done(key)
        except Exception as error:  # noqa: BLE001 - no error here may reach the job
            self.session.problem(f"{type(error).__name__}: {error}")

    def _is_there(self, outputs: PendingOutputs, patient: bool) -> bool:
        if outputs.is_device and patient:
            # the stream waits, not the host
            outputs.work.synchronize()
            return True
        until = time.monotonic() + WAIT_S
        while not outputs.work.is_completed():
            if not patient or self._gave_up or time.monotonic() > until:
                self._gave_up = self._gave_up or patient
                return False
            time.sleep(_PAUSE_S)
        return True

    def _drop(self) -> None:
        """Drops outputs that nobody waited for until the end of the step: their memory may have been used since."""
        self.session.unwaited += sum(len(outputs.summarize) for outputs in self._pending.values())
        self._pending.clear()


def named_slots(kind: str, tensors: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The tensors with the names of their slots: "in0" for a single tensor, "in0.1" for the second of several."""
    for place, tensor in enumerate(tensors):
        yield (f"{kind}0.{place}" if len(tensors) > 1 else f"{kind}0"), tensor


def issuer_of(depth: int) -> str:
    """The name of the module that called a hook from Python; "" for a thread of C++. `depth`: frames of the hook."""
    try:
        return str(sys._getframe(depth + 1).f_globals.get("__name__", ""))
    except ValueError:
        return ""
