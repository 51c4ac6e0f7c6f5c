"""Repeats the reductions of a job in new processes, and tells which settings repeat their results bit for bit.

Needs torch and nothing else. Run it by itself: it starts a process for each rank on this machine, over NCCL if the job
used it and a device is there, otherwise over gloo. Or start it with torchrun, one process a rank; DETERMINISM_OUT is
then a new directory that all hosts see. Inputs are random, of mixed size, the same in every repetition; the
kind of reduction is not recorded: it takes sums. A result counts as repeated if all of its bits are the same.

Arguments: settings to try instead of the usual ones, as NCCL_ALGO=Ring or NCCL_ALGO=Ring,NCCL_PROTO=LL.
Variables: BACKEND (gloo, nccl, hccl), RANKS, TIMES (repetitions), LIMIT_MB (largest tensor), LIMIT_S (seconds
after which no repetition begins), JSON (a file for the results).
Exit codes: 0 the recorded settings repeat bit for bit, and ranks agree; 1 they do not; 2 it could not run.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

# comparison: begin
from rankscope.capture.bit_comparison import Answer, Variant, closing, code_of, is_played, judged, lines_of, variants

# comparison: end

# job: begin
LIBRARY = ""
"""Library that ran the reductions of the job."""
REDUCTIONS: list[tuple[str, str, int, list[int], str, int]] = []
"""Name, type, elements of the input, members, name of the group, number of calls."""
SETTINGS: dict[str, str] = {}
"""Settings of the job that decide the order of summation."""
TIMES = 3
"""Repetitions of each variant."""
# job: end

TIMES = int(os.environ.get("TIMES", TIMES))

TYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16"}
"""Types of torch by their names in dumps."""
DEVICES = {"gloo": "cpu", "nccl": "cuda", "hccl": "npu"}
MOST_SHARING = 4
"""Processes on one machine, unless it has more devices."""
PARTS = 16
"""Parts of a result that are compared on their own."""
RUN_S = 120
"""Seconds that one repetition may take."""
STEP_S = 0.02
"""Seconds between two ranks that arrive one after the other."""
TAKEN = re.compile(r"\w+: \d+ Bytes -> Algo (\w+) proto (\w+)")
"""The line in which NCCL tells its choice; rank 0 of a group prints it."""


class Repetition(NamedTuple):
    """One run of all reductions."""

    number: int
    """Number of the variant."""
    variant: Variant
    turn: int
    """Number of the repetition."""
    meeting: str
    """Address at which the processes meet."""
    limit: int
    """Bytes of the largest input."""


# One rank of one repetition.


class RankPlayer:
    """A process that plays one rank in one repetition."""

    def __init__(self, run: Repetition, backend: str, rank: int, world: int) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.run, self.rank, self.world = torch, dist, run, rank, world
        self.device = DEVICES.get(backend, "cpu")
        if self.device != "cpu":
            self._take_device()
        dist.init_process_group(
            backend, init_method=run.meeting, rank=rank, world_size=world, timeout=timedelta(seconds=RUN_S // 2)
        )
        # every rank makes every group, in one order
        every = dict.fromkeys(tuple(places(members, world)) for _, _, _, members, _, _ in REDUCTIONS)
        self.groups = {members: dist.new_group(list(members)) for members in every}

    def _take_device(self) -> None:
        """Chooses the device; several ranks on one need names of hosts of their own, or NCCL refuses."""
        if self.device == "npu":
            __import__("torch_npu")
        devices = getattr(self.torch, self.device)
        count = devices.device_count()
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        devices.set_device(local % count)
        if int(os.environ.get("LOCAL_WORLD_SIZE", self.world)) > count:
            os.environ["NCCL_HOSTID"] = f"rank-{self.rank}"
            os.environ.setdefault("NCCL_IB_DISABLE", "1")

    def play(self) -> Iterator[dict[str, Any]]:
        """Runs the reductions one after the other; ends at the first that breaks off."""
        for number, (name, kind, elements, recorded, _, _) in enumerate(REDUCTIONS):
            members = tuple(places(recorded, self.world))
            if self.rank not in members or not is_played(os.environ.get("NCCL_ALGO", ""), name):
                continue
            place = members.index(self.rank)
            owner = self._owner(number, place, len(members))
            told: dict[str, Any] = {"operation": number, "place": place, "owner": owner}
            data = self._data(number, owner, size(elements, len(members), TYPES[kind], self.run.limit), kind)
            told |= {"elements": data.numel(), "inputs": part_hashes(data)[0]}
            self._arrive(number, place, len(members))
            try:
                work, out = self._issue(name, data.to(self.device), members)
            except Exception as error:  # noqa: BLE001 - a backend refuses what it cannot do, on all ranks alike
                yield {**told, "error": short(error)}
                continue
            try:
                work.wait()
                result = out.cpu()
            except Exception as error:
                yield {**told, "error": short(error)}
                raise
            if name != "reduce" or place == 0:
                exact = result.double()
                told |= {"parts": part_hashes(result, PARTS), "sum": exact.sum().item()}
                yield {**told, "scale": exact.abs().sum().item()}

    def _owner(self, number: int, place: int, count: int) -> int:
        """The member whose data a place has."""
        order = list(range(count))
        if self.run.variant.moved:
            random.Random(f"{self.run.turn} {number}").shuffle(order)
        return order[place]

    def _arrive(self, number: int, place: int, count: int) -> None:
        if self.run.variant.late:
            order = random.Random(f"{self.run.turn} {number}").sample(range(count), count)
            time.sleep(STEP_S * order[place])

    def _data(self, number: int, owner: int, elements: int, kind: str) -> Any:
        """Random numbers of mixed size, by reduction and rank; made on the CPU, so equal for all devices."""
        torch = self.torch
        seeded = torch.Generator().manual_seed(1_000_003 * number + owner)
        exact = torch.float64 if kind == "Double" else torch.float32
        powers = torch.randint(-8, 9, (elements,), generator=seeded)
        return torch.ldexp(torch.randn(elements, generator=seeded, dtype=exact), powers).to(getattr(torch, TYPES[kind]))

    def _issue(self, name: str, data: Any, members: tuple[int, ...]) -> tuple[Any, Any]:
        """Starts a reduction; the work and the tensor of its result."""
        dist, group = self.dist, self.groups[members]
        if name == "reduce_scatter":
            out = self.torch.empty(data.numel() // len(members), dtype=data.dtype, device=data.device)
            return dist.reduce_scatter_tensor(out, data, group=group, async_op=True), out
        if name == "reduce":
            return dist.reduce(data, members[0], group=group, async_op=True), data
        return dist.all_reduce(data, group=group, async_op=True), data


def places(members: Sequence[int], world: int) -> list[int]:
    """The processes that play a group: its members, or where there are fewer ranks than in the job, the first ones."""
    return list(members) if max(members) < world else list(range(min(len(members), world)))


def size(elements: int, count: int, kind: str, limit: int) -> int:
    """Elements of an input: as recorded, at most `limit` bytes, and divisible by the number of members."""
    width = {"float64": 8, "float32": 4}.get(kind, 2)
    return max(min(elements, limit // width) // count, 1) * count


def part_hashes(tensor: Any, parts: int = 1) -> list[str]:
    """Hashes of the bytes of a tensor on the CPU, in equal parts."""
    width, count = tensor.element_size(), tensor.numel()
    held = memoryview((ctypes.c_char * (width * count)).from_address(tensor.data_ptr()))
    step = -(-count // parts) * width
    return [hashlib.sha256(held[at : at + step]).hexdigest()[:16] for at in range(0, width * count, step)]


def short(error: Exception) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def play(run: Repetition, backend: str, rank: int, world: int, out: Path) -> int:
    """Plays a rank and leaves its results in a file, then waits for the others: who leaves early breaks connections.

    The exit code, 3 where it broke off.
    """
    told: dict[str, Any] = {"variant": run.number, "turn": run.turn, "rank": rank, "outcomes": [], "error": ""}
    log = out / f"nccl_{run.number}_{run.turn}_{rank}"
    os.environ.update({**SETTINGS, **run.variant.changes})
    # a timeout would leave dumps in a directory that they are for
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
    if backend == "nccl" and "NCCL_DEBUG" not in os.environ:
        os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING", "NCCL_DEBUG_FILE": str(log)}
    try:
        for outcome in RankPlayer(run, backend, rank, world).play():
            told["outcomes"].append(outcome)
        told["taken"] = [" ".join(found) for found in TAKEN.findall(log.read_text())] if log.exists() else []
    except Exception as error:  # noqa: BLE001 - the reason is shown beside the variant
        told["error"] = short(error)
    begun = out / f"begun_{run.number}_{run.turn}_{rank}"
    begun.write_text(json.dumps(told))
    begun.rename(out / f"told_{run.number}_{run.turn}_{rank}.json")
    until = time.monotonic() + RUN_S
    while not told["error"] and time.monotonic() < until:
        if len(list(out.glob(f"told_{run.number}_{run.turn}_*"))) == world:
            return 0
        time.sleep(STEP_S)
    return 3


# Repetitions, each in new processes.


def repeat(run: Repetition, backend: str, ranks: Sequence[int], world: int, out: Path) -> str:
    """Runs one repetition in processes of its own; the problem, if one did not come to its end."""
    alive, ours = os.pipe()
    running: dict[int, int] = {}
    try:
        for rank in ranks:
            child = os.fork()
            if not child:
                try:
                    os.close(ours)
                    _become(alive, out / f"log_{run.number}_{run.turn}_{rank}")
                    os._exit(play(run, backend, rank, world, out))
                finally:
                    os._exit(1)
            running[child] = rank
        return _ended(running, out / f"log_{run.number}_{run.turn}")
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(alive)
        os.close(ours)


def _become(alive: int, log: Path) -> None:
    """Makes a forked process one that writes to a log, and ends with the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    written = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(written, 1)
    os.dup2(written, 2)
    threading.Thread(target=lambda: (os.read(alive, 1), os._exit(1)), daemon=True).start()


def _ended(running: dict[int, int], logs: Path) -> str:
    """Waits for all, and takes those that have ended out of `running`; the problem, with the last line of its log."""
    until = time.monotonic() + RUN_S
    while running and time.monotonic() < until:
        for child in list(running):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                rank = running.pop(child)
                if status:
                    last = Path(f"{logs}_{rank}").read_text(errors="replace").split("\n")[-2:]
                    return f"rank {rank} ended with {os.waitstatus_to_exitcode(status)}: {''.join(last)[:160]}"
        time.sleep(STEP_S)
    return f"rank {min(running.values())} did not end in {RUN_S} s" if running else ""


def counted_devices() -> int:
    """The number of devices, counted by another process: who has looked at one cannot start processes that use it."""
    child = os.fork()
    if not child:
        import torch

        os._exit(min(torch.cuda.device_count(), 255))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# All repetitions of all variants.


def limit_of(backend: str, world: int, devices: int) -> int:
    """Bytes of the largest input: little where ranks share cores or a device."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return int(os.environ.get("LIMIT_MB", "64" if backend != "gloo" and local <= devices else "4")) << 20


def head(backend: str, world: int, devices: int) -> Iterator[str]:
    """The table of the reductions, and the titles of the answers."""
    yield f"{world} ranks over {backend}, each repetition in new processes; sums of random numbers"
    if LIBRARY not in ("", backend):
        yield f"the job ran over {LIBRARY}, which adds in orders of its own: this shows where the order matters"
    if backend == "nccl" and devices < world:
        yield f"{world} ranks share {devices} device(s): NCCL takes them for hosts that are connected by sockets"
    if SETTINGS:
        yield f"recorded settings: {', '.join(f'{name}={value}' for name, value in SETTINGS.items())}"
    for number, (name, kind, elements, members, group, calls) in enumerate(REDUCTIONS):
        count = len(places(members, world))
        least = size(elements, count, TYPES[kind], limit_of(backend, world, devices))
        played = "" if count == len(members) else f", played by {count}"
        played += f", cut to {least:,}" if least < elements // count * count else ""
        yield f"operation {number + 1}: {name} of {elements:,} {kind}, {len(members)} ranks{played}, {calls} x {group}"
    yield f"\n{'':<34} repeats  ranks equal  as recorded"


def run_all(
    changes: Sequence[str], ranks: Sequence[int], world: int, backend: str, limit: int, out: Path
) -> list[Answer]:
    """Runs all repetitions, and prints the row of each variant; processes with rank 0 print."""
    until = time.monotonic() + float(os.environ.get("LIMIT_S", "600"))
    # ranks of a launcher must all go on, or all not
    launched = "RANK" in os.environ
    answers: list[Answer] = []
    for number, variant in enumerate(variants(backend, changes, SETTINGS)):
        problem = ""
        for turn in range(TIMES):
            if not launched and (problem or time.monotonic() > until):
                problem = problem or "not repeated further: LIMIT_S is over"
                break
            run = Repetition(number, variant, turn, meeting(out, number * TIMES + turn), limit)
            problem = repeat(run, backend, ranks, world, out) or problem
        if 0 in ranks:
            told = [json.loads(path.read_text()) for path in out.glob("told_*.json")]
            answers.append(judged(number, variant.name, told, REDUCTIONS, problem))
            print("\n".join(lines_of(answers[-1], REDUCTIONS)), flush=True)
    return answers


def meeting(out: Path, count: int) -> str:
    """The address at which the processes of one repetition meet: a file, or with a launcher, the next free port."""
    if "RANK" not in os.environ:
        return f"file://{out / f'store_{count}'}"
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 1 + count}"


def check(changes: Sequence[str], out: Path) -> int:
    """Runs everything on the ranks of this process, prints the answers; the exit code."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # imported here, each new process has it; it starts no thread and looks at no device
    __import__("torch.distributed")
    backend = os.environ.get("BACKEND", "")
    devices = counted_devices() if backend in ("", "nccl") else 0
    backend = backend or ("nccl" if LIBRARY == "nccl" and devices else "gloo")
    if backend == "nccl" and not devices:
        print("no device for NCCL here; BACKEND=gloo needs none", file=sys.stderr)
        return 2
    if "RANK" in os.environ:
        world, ranks = int(os.environ["WORLD_SIZE"]), [int(os.environ["RANK"])]
    else:
        largest = max(len(members) for _, _, _, members, _, _ in REDUCTIONS)
        world = int(os.environ.get("RANKS", min(largest, max(MOST_SHARING, devices))))
        ranks = list(range(world))
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    if 0 in ranks:
        print("\n".join(head(backend, world, devices)), flush=True)
    answers = run_all(changes, ranks, world, backend, limit_of(backend, world, devices), out)
    if not answers:
        return 0
    print("", *closing(answers), sep="\n")
    if "JSON" in os.environ:
        whole = {"backend": backend, "ranks": world, "operations": REDUCTIONS, "settings": SETTINGS}
        whole["variants"] = [answer._asdict() for answer in answers]
        Path(os.environ["JSON"]).write_text(json.dumps(whole, indent=1))
    return code_of(answers)


def main() -> int:
    """Runs the script; the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    if "RANK" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            return check(sys.argv[1:], Path(folder))
    out = Path(os.environ.get("DETERMINISM_OUT", "determinism_out"))
    out.mkdir(parents=True, exist_ok=True)
    if any(out.glob("told_*")):
        print(f"{out} holds results of an earlier run: remove them", file=sys.stderr)
        return 2
    return check(sys.argv[1:], out)


if __name__ == "__main__":
    sys.exit(main())
