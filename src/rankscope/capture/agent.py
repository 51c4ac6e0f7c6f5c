"""Start and stop of the capture of this process, and its last dump at the end of the process."""

from __future__ import annotations

import atexit
import functools
import logging
import multiprocessing
import multiprocessing.process
import multiprocessing.util
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, cast

from . import identity
from .card import SidecarRecord, is_passing
from .end_writer import EndWriter
from .fault_file import fault_file
from .lineage import imports_for_fork_server, is_multiprocessing_child, lineage
from .sampler import JOINING_INTERVAL_S, DumpRequest, Sampler
from .settings import CaptureSettings, checked_settings, turn_recorder_on
from .signals import Signals, die_of, is_free
from .stall_clock import StallClock
from .thread_stacks import take_stacks

_LOG = logging.getLogger("rankscope.capture")
END_WAIT_S = 5.0
"""Longest wait of the end of the process for its last dump."""
TERM_WAIT_S = 8.0
"""Longest wait of its death by SIGTERM; torchrun waits 30 s before it kills."""
TRACEBACK_LIMIT = 1 << 20
"""Characters of the traceback that are kept, the last ones."""
MONITORING_TOOL = 4
"""Number of this tool for `sys.monitoring`; debuggers, coverage and profilers have others."""
_running: dict[int, Agent | None] = {}
"""Agents by process id: a fork inherits its parent's entry, which is not its own. None in a child of a rank."""
_deferred: list[DeferredStart] = []
"""The start that awaits the processes of a fork server."""


class Agent:
    """The capture of one process."""

    def __init__(self, settings: CaptureSettings) -> None:
        self.pid = os.getpid()
        self.card = SidecarRecord()
        self.sampler = Sampler(settings, self.card)
        self.end_writer = EndWriter(self.sampler)
        self.signals = self._take_signals(settings.signal)
        self.sampler.look = self._look
        self.sampler.faults = fault_file()
        if self.sampler.faults.problem is not None:
            self.card.problem(self.sampler.faults.problem)
        self.clock = StallClock(self.sampler, self.sampler.faults, settings.stall_after)
        self._previous_hook = sys.excepthook
        self._unhandled: BaseException | None = None
        self._problem(turn_recorder_on(identity.initialized()))

    def start(self) -> None:
        """Starts the threads and the hooks at the end of the process."""
        sys.excepthook = self._on_exception
        atexit.register(self._on_exit)
        if is_multiprocessing_child():
            # a process of multiprocessing ends without its exit handlers
            multiprocessing.util.Finalize(None, self._on_exit, exitpriority=100)
            self._problem(_watch_child(self._on_child_exception))
        if identity.distributed() is not None:
            self._hook_destroy()
        else:
            threading.Thread(target=self._wait_for_torch, name="rankscope-hook", daemon=True).start()
        self.sampler.start()
        self.end_writer.start()
        if self.sampler.settings.stall_after:
            self.clock.start()
        if self.signals is not None:
            self.signals.start()

    def stop(self) -> None:
        """Writes a last dump and removes all hooks."""
        self.clock.stop()
        self.sampler.forget_stacks()
        self.sampler.ask("stop", False, END_WAIT_S, last=True)
        atexit.unregister(self._on_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook
        if self.signals is not None and threading.current_thread() is threading.main_thread():
            self.signals.restore()

    def _problem(self, text: str | None) -> None:
        if text is not None:
            self.card.problem(text)
            _LOG.warning("rankscope.capture: %s", text)

    def _look(self) -> None:
        """Notes other handlers of its signals; SIGTERM is the trainer's own matter."""
        for number in self.signals.lost if self.signals is not None else ():
            if number != signal.SIGTERM:
                self.card.problem(f"no dump at {number.name}: other code handles it now")

    def _take_signals(self, name: str | None) -> Signals | None:
        if threading.current_thread() is not threading.main_thread():
            self._problem("no dump at a signal: start() was not called in the main thread")
            return None
        wanted = [] if name is None else [signal.Signals[name]]
        for number in [n for n in wanted if not is_free(n)]:
            self._problem(f"no dump at {number.name}: other code handles it")
            wanted.remove(number)
        wanted += [signal.SIGTERM] * is_free(signal.SIGTERM)
        return Signals(wanted, self._on_signal) if wanted else None

    def _on_signal(self, number: signal.Signals) -> None:
        if number != signal.SIGTERM:
            self.sampler.ask("signal", True, 0.0)
            return
        self.card.end("terminated")
        if not self.clock.has_taken:
            # those of a standstill stay: by now its peers may have ended, and have woken it
            self.sampler.keep_stacks(take_stacks(number.name, self.clock.moment))
        self._end("terminated", None, TERM_WAIT_S, last=True)
        die_of(number)

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if os.getpid() == self.pid:
            self._failed(error)
        self._previous_hook(kind, error, trace)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            self.card.end("interrupted")
        else:
            if threading.current_thread() is threading.main_thread():
                # the tensors of the frames that failed still live
                self.sampler.memory.sample(devices=True)
            self._end("exception", error, END_WAIT_S)

    def _end(self, reason: str, error: BaseException | None, wait: float, last: bool = False) -> None:
        """Writes how the process ends, and then a last dump; both take at most `wait` seconds."""
        until = time.monotonic() + wait
        self.card.end(reason, error)
        text = "" if error is None else "".join(traceback.format_exception(error))[-TRACEBACK_LIMIT:]
        self.end_writer.end(DumpRequest(reason, False, text))
        self.sampler.ask(reason, error is not None, wait, text, last)
        self.end_writer.told.wait(max(0.0, until - time.monotonic()))

    def _on_exit(self) -> None:
        if _running.pop(os.getpid(), None) is self:
            self.clock.stop()
            error, self._unhandled = _unhandled(sys.exc_info()[1]) or self._unhandled, None
            if error is not None:
                self._failed(error)
            else:
                # who comes to its end stands still nowhere
                self.sampler.forget_stacks()
            self._end("exit", None, END_WAIT_S, last=True)

    def _on_child_exception(self, error: BaseException) -> None:
        if os.getpid() == self.pid:
            self._unhandled = _unhandled(error)

    def _wait_for_torch(self) -> None:
        while identity.distributed() is None:
            time.sleep(JOINING_INTERVAL_S)
        self._hook_destroy()

    def _hook_destroy(self) -> None:
        """Hooks `destroy_process_group`: NCCL's records are lost after it, so the last dump is written before."""
        module = identity.distributed()
        for place in (module, module.distributed_c10d):
            original = getattr(place, "destroy_process_group", None)
            if original is not None and not hasattr(original, "rankscope"):
                place.destroy_process_group = _with_dump(original)


def _unhandled(error: BaseException | None) -> BaseException | None:
    """The exception that ends a child of multiprocessing, which never reaches `sys.excepthook`.

    `torch.multiprocessing.spawn` catches it and exits with 1.
    """
    while isinstance(error, SystemExit):
        error = error.__context__ if error.code not in (None, 0) else None
    return error


def _watch_child(note: Callable[[BaseException], None]) -> str | None:
    """Calls `note` with the exception that ends this child of multiprocessing; says why it cannot, if so.

    Since Python 3.13 the exit functions of a child run when its exception is forgotten. Only the handlers of
    `BaseProcess._bootstrap` see it, so each of their lines is an event; nothing else of the job is followed.
    """
    monitoring: Any = getattr(sys, "monitoring", None)  # since 3.12
    if monitoring is None:
        return None

    def at_line(_code: CodeType, _line: int) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            note(error)

    try:
        monitoring.use_tool_id(MONITORING_TOOL, "rankscope.capture")
    except ValueError:
        other = monitoring.get_tool(MONITORING_TOOL)
        return f"the exception that ends this process may stay unknown: {other} has the place of rankscope"
    line = monitoring.events.LINE
    monitoring.register_callback(MONITORING_TOOL, line, at_line)
    bootstrap = cast(Any, multiprocessing.process.BaseProcess)._bootstrap.__code__
    monitoring.set_local_events(MONITORING_TOOL, bootstrap, line)
    return None


def _with_dump(original: Any) -> Any:
    """A `destroy_process_group` that first asks the current capture of this process for a dump."""

    @functools.wraps(original)
    def destroy_process_group(group: Any = None, *args: Any, **kwargs: Any) -> Any:
        agent = _running.get(os.getpid())
        if group is None and agent is not None and identity.initialized():
            is_passing(sys.exc_info()[1])
            agent.card.leave()
            agent.sampler.ask("destroy", False, END_WAIT_S)
        return original(group, *args, **kwargs)

    cast(Any, destroy_process_group).rankscope = True
    return destroy_process_group


def start(
    directory: str | os.PathLike[str],
    *,
    interval: float = 10.0,
    keep: int = 2,
    signal: str | None = "SIGUSR2",
    stacks: str = "auto",
    share: float = 0.005,
    memory: float = 1.0,
    stall_after: float = 60.0,
) -> None:
    """Makes this rank write its flight recorder to `directory` every `interval` seconds, at a signal, and at its end.

    It also samples its memory, at most once in `memory` seconds, and takes the stacks of its threads at a crash, and
    after `stall_after` seconds without progress; 0 for never.
    Call it once before or after `init_process_group`, best before; again in a forked process. In a child of a rank, as
    a worker of a DataLoader that imports the script again, it does nothing. Raises ValueError for invalid settings;
    later errors never reach the job.
    """
    settings = checked_settings(
        CaptureSettings(os.fspath(directory), interval, keep, signal, stacks, share, memory, stall_after)
    )
    if _running.get(os.getpid()) is not None:
        raise RuntimeError("rankscope.capture was started already")
    if imports_for_fork_server() and not lineage(identity.initialized()).is_child_of_rank:
        deferred = DeferredStart(settings)
        _deferred.append(deferred)
        multiprocessing.util.register_after_fork(deferred, DeferredStart.start)
    else:
        _start(settings)


def _start(settings: CaptureSettings) -> None:
    """Starts the capture, unless this process is the child of a rank."""
    joined = identity.initialized()
    if lineage(joined).is_child_of_rank:
        _running[os.getpid()] = None
        return
    lineage(joined).mark(joined)
    agent = _running[os.getpid()] = Agent(settings)
    agent.start()


class DeferredStart:
    """The start of the capture in each process that a fork server makes, which has imported the script for them."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings

    def start(self) -> None:
        """Starts it in this process, before its function is called."""
        if os.getpid() not in _running:
            _start(self._settings)


def stop() -> None:
    """Ends the capture, with a last dump."""
    agent = _running.pop(os.getpid(), None)
    if agent is not None:
        agent.stop()


def dump(reason: str = "asked", wait: float = 10.0) -> bool:
    """Writes a dump now; returns whether it was written within `wait` seconds."""
    agent = _agent()
    return agent is not None and agent.sampler.ask(reason, True, wait)


def _agent() -> Agent | None:
    """The capture of this process, None in a child of a rank; raises RuntimeError if it was not started."""
    if os.getpid() not in _running:
        raise RuntimeError("rankscope.capture.start() was not called in this process")
    return _running[os.getpid()]


def describe(model: Any, optimizer: Any = None, group: Any = None, wait: float = 10.0) -> bool:
    """Writes the parameters of this rank to `model_rank_N.jsonl` beside the dumps; returns whether that was done.

    `model` is a module, or a sequence of them; `optimizer` an optimizer, or a sequence of them; `group` a
    process group whose ranks hold the same model, where no wrapper tells it. Call it on every rank, in the thread that
    trains, once the model is wrapped; again, and the newest one counts. Raises RuntimeError without
    `start`; other errors never reach the job: they stand in the sidecar and in the log.
    """
    agent = _agent()
    if agent is None:
        return False
    from .model_record import model_lines

    agent.card.update()
    if agent.card.rank is None:
        agent._problem("the model is not described: no rank is known before init_process_group()")
        return False
    try:
        data = model_lines(model, optimizer, group, agent.card.process)
    except Exception as error:  # noqa: BLE001 - wrappers of any version of torch, whose tables may change
        agent._problem(f"the model is not described: {type(error).__name__}: {error}")
        return False
    agent.sampler.model = data
    agent.sampler.ask("describe", False, wait)
    return agent.sampler.model is None
