"""How dumps are taken and written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from tests.simulator.instructions import MS, SECOND

Moment = Literal["timeout", "own", "apart", "live", "live-apart", "before", "breaking", "ended"]
"""When the ranks dump: at the first time-out of any; each at its own; some seconds apart; while the job runs, all at
once or moments apart; while it runs, before its marks or right before nothing moves any more; after its end."""
Recorder = Literal["legacy", "hook", "fallback", "gloo", "mixed", "two"]
"""What writes: the native recorder of NCCL; FlightRecorderHook over a backend with and without completion hook; gloo;
the native one on even ranks and the hook on odd ones; gloo and the hook side by side on every rank."""
Job = Literal["legacy", "hook", "mixed", "two"]
"""What the job communicates through: streams differ, and with two backends so do programs."""


@dataclass(frozen=True)
class DumpOptions:
    """What the recorder is set to, and what is asked of a dump."""

    version: str = "2.10"
    json: bool = False
    timing: bool = True
    stacks: bool = True
    only_active: bool = False
    ring: int = 2000
    prefix: str = "nccl_trace_rank_"
    suffix: str = ""
    timeout_ns: int = 600 * SECOND
    poll_ns: int = 100 * MS
    recorder: Recorder = "legacy"
    backend: str = "nccl"
    """What names of operations begin with."""
    torch_pickled: bool = False
    """With the opcodes of the recorder's own pickler, as torch 2.15 writes it, and not those of Python's."""
    copied_ns: int | None = None
    """How long after the last dump the files were copied, all at once and without their times; None: as they were."""
    own_only: bool = False
    """A rank writes only if its own watchdog saw a time-out, the default of nccl2: nobody tells the others."""

    @cached_property
    def release(self) -> tuple[int, int]:
        """The version as numbers."""
        major, minor = self.version.split(".")
        return int(major), int(minor)

    @property
    def job(self) -> Job:
        """The job whose dumps these are."""
        match self.recorder:
            case "legacy" | "mixed" | "two":
                return self.recorder
            case _:
                return "hook"

    @property
    def by_hook(self) -> bool:
        """Whether the hook writes at least some of the files."""
        return self.recorder not in ("legacy", "gloo")

    def files(self, rank: int) -> tuple[DumpOptions, ...]:
        """The options of each file of a rank."""
        hook = replace(self, recorder="hook", backend="nccl2")
        match self.recorder:
            case "mixed":
                return (hook if rank % 2 else replace(self, recorder="legacy"),)
            case "two":
                host = replace(self, recorder="gloo", backend="gloo", prefix="gloo_rank_")
                return host, replace(hook, prefix="nccl2_rank_")
            case _:
                return (self,)


MODES: dict[str, DumpOptions] = {
    "full": DumpOptions(),
    "no-timing": DumpOptions(timing=False),
    "only-active": DumpOptions(timing=False, only_active=True, stacks=False, version="2.9"),
    "wrapped": DumpOptions(timing=False, ring=60),
    "no-stacks": DumpOptions(stacks=False),
    "old": DumpOptions(version="2.2", timing=False),
    "json": DumpOptions(json=True, stacks=False, timing=False),
}
"""Kinds of dump a job may leave, by name."""
_HOOK = DumpOptions(timing=False, prefix="comm_lib_trace_rank_", recorder="hook", backend="nccl2", torch_pickled=True)
HOOK_MODES: dict[str, DumpOptions] = {
    "hook": _HOOK,
    "hook only-active": replace(_HOOK, json=True, stacks=False, only_active=True, suffix=".json"),
    "hook wrapped": replace(_HOOK, ring=60),
    "hook fallback": replace(_HOOK, recorder="fallback", backend="mpi"),
    "hook default": replace(_HOOK, own_only=True),
    "hook copied": replace(_HOOK, copied_ns=7200 * SECOND),
    "mixed": replace(_HOOK, recorder="mixed", backend="nccl"),
    "two backends": replace(_HOOK, recorder="two"),
}
"""Kinds of dump by the hook of torch 2.15, by name."""
ALL_MODES = {**MODES, **HOOK_MODES}
