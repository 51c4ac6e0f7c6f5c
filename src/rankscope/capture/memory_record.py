"""Samples of the memory of this process and of its device, as lines of JSON; docs/memory.md describes the form.

Devices are asked only in the trainer's own thread, between two steps of its optimizer: an allocator that waits for a
stuck device holds its lock, and another thread that asks it then would hold the interpreter's lock for ever.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

VERSION = 1
MOST_LINES = 4096
"""Lines of a file; then every second one is dropped, and samples are half as frequent."""
MOST_COST = 0.0005
"""Largest share of time that samples take."""
HOST = "host"
DEVICES = ("cuda", "xpu", "npu")
"""Modules of torch with an allocator that counts. ROCm is "cuda" to torch."""
_STATUS = Path("/proc/self/status")
_KEYS = {"allocated": "allocated_bytes.all.current", "reserved": "reserved_bytes.all.current",
         "peak": "allocated_bytes.all.peak"}  # fmt: skip


class MemoryRecord:
    """The samples of one process. `step` runs in the trainer's thread, all else in the thread that writes."""

    def __init__(self, every: float) -> None:
        self.every = every
        """Least seconds between two samples; 0 for none."""
        self.steps = 0
        """Steps of optimizers so far."""
        self.problem: str | None = None
        self._due = 0.0
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._written = 0
        self._attached = False
        self._capacity: dict[str, int | None] = {}

    def attach(self) -> None:
        """Asks torch to call `step` behind each step of an optimizer, once torch is imported."""
        module: Any = sys.modules.get("torch.optim.optimizer")
        if not self.every or self._attached or not hasattr(module, "register_optimizer_step_post_hook"):
            return
        self._attached = True
        if getattr(module, "_global_optimizer_post_hooks", None):
            module.register_optimizer_step_post_hook(self.step)
            return
        # a new table: the trainer's thread may just walk through the old, empty one
        module._global_optimizer_post_hooks = OrderedDict({id(self): self.step})

    def step(self, *_: object) -> None:
        """Counts a step, and takes a sample if one is due."""
        self.steps += 1
        if time.monotonic() >= self._due:
            self.sample(devices=True)

    def look(self) -> None:
        """Takes a sample of the host if a step has not taken one for long."""
        if time.monotonic() >= self._due + self.every:
            self.sample(devices=False)

    def sample(self, *, devices: bool) -> None:
        """Takes a sample of the host, and of the device of this thread; an error goes to `problem`."""
        if not self.every:
            return
        # on a machine under load the clock on the wall would count what others do
        begin, time_ns = time.thread_time(), time.time_ns()
        try:
            rows = [{"device": HOST, **resident()}]
            rows += self._devices() if devices else []
        except Exception as error:  # noqa: BLE001 - no error here may reach the job
            self.problem = f"memory is not sampled: {type(error).__name__}: {error}"
            rows = []
        lines = [json.dumps({"time_ns": time_ns, "step": self.steps, **row}) for row in rows]
        with self._lock:
            self._lines += lines
            self._due = time.monotonic() + max(self.every, (time.thread_time() - begin) / MOST_COST)

    def _devices(self) -> list[dict[str, Any]]:
        torch = sys.modules.get("torch")
        rows = []
        for kind in DEVICES:
            module = getattr(torch, kind, None)
            if module is None or not hasattr(module, "memory_stats") or not module.is_initialized():
                continue
            name = f"{kind}:{(place := module.current_device())}"
            stats = module.memory_stats(place)
            if name not in self._capacity:
                with contextlib.suppress(Exception):
                    self._capacity[name] = int(module.get_device_properties(place).total_memory)
            values = {key: stats.get(statistic) for key, statistic in _KEYS.items()}
            rows.append({"device": name, **values, "capacity": self._capacity.get(name)})
        return rows

    def write(self, path: Path, head: dict[str, Any]) -> None:
        """Appends new lines to the file, which begins with `head`. Raises OSError."""
        with self._lock:
            if len(self._lines) > MOST_LINES:
                self._thin()
            new, count = self._lines[self._written :], len(self._lines)
        if not new:
            return
        first = [] if self._written else [json.dumps({"rankscope_memory": VERSION, **head})]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if self._written else "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in [*first, *new]))
        self._written = count

    def write_anew(self) -> None:
        """Writes all lines with the next new one, to another file."""
        self._written = 0

    def _thin(self) -> None:
        """Drops every second sample; the file is then written anew."""
        times: dict[str, None] = dict.fromkeys(line.partition(",")[0] for line in self._lines)
        kept = set(list(times)[::2])
        self._lines = [line for line in self._lines if line.partition(",")[0] in kept]
        self.every *= 2
        self._written = 0


def resident() -> dict[str, int]:
    """Bytes of this process in the memory of the host, now (`reserved`) and at most (`peak`); empty without /proc."""
    try:
        text = _STATUS.read_text()
    except OSError:
        return {}
    found = {}
    for name, key in (("VmRSS:", "reserved"), ("VmHWM:", "peak")):
        value = text.partition(name)[2].split(maxsplit=1)[:1]
        if value and value[0].isdigit():
            found[key] = int(value[0]) << 10
    return found
