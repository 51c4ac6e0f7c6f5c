"""Replays the collectives that each rank of a job issued around its failure.

Needs torch and nothing else. Run it by itself: it starts a process for each rank on this machine, over gloo. Or start
it with torchrun or srun, one process a rank; BACKEND=nccl uses devices. It replays who waits for whom, not the cause: a
rank whose host was stuck stops where the dumps say that it stopped. Times, data, roots and reduce operations are not
recorded: sums, roots at the first member of a group, and an all_reduce of one element for all_to_all, gather and
scatter.

Environment: BACKEND (gloo), GRACE (10: seconds without progress after which a rank says where it is), REPRO_OUT (a
folder that keeps what each rank tells; `dumps` in it holds their records, as those of a flight recorder), STEPS (a
file: each rank may begin as many operations as it has bytes).

Exit codes: 0 every rank stops where it is expected to, 1 some do not, 2 it could not run.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

# job: begin
RANKS: list[int] = []
"""Ranks of the job: process i plays RANKS[i]."""
GROUPS: dict[str, tuple[str, list[int]]] = {}
"""Names and members of process groups."""
SCHEDULE = ""
"""Lines `ranks 0 1`, then the operations of these ranks in their order: group, number or pair, name, size, type.

The size of an all_to_all is what goes to each member / what comes from each; it is noted, and not sent.

`+` before an operation: issued together with the one before. `waits`: the rank is expected to stop there. `stop`: the
rank issues it, and its device never begins it. `deaf`: it takes part, and sees no end from there on. `never`: the
operation begins and never ends. `apart`: sizes or types differ between members, over gloo nobody comes out of it.
`unlike`: they differ, and yet it ended; it is played with one byte.
"""
SERIAL = True
"""Whether an operation begins when all before it have ended; otherwise all are issued at once."""
SILENT: list[int] = []
"""Ranks that left no dump: they play, and leave none again."""
STARTS = True
"""Whether the dumps of the job tell when an operation began."""
# job: end

BACKEND = os.environ.get("BACKEND", "gloo")
GRACE_S = float(os.environ.get("GRACE", "10"))
"""Seconds without progress after which a rank says where it is."""
STEPS = os.environ.get("STEPS", "")
TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8",
}  # fmt: skip
"""Types of torch by their names in dumps; others are played by bytes."""


class ScheduledCall:
    """One line of the schedule."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.together = words[0] == "+"
        self.group, self.number, self.name, size, self.type = words[self.together : self.together + 5]
        self.splits = [[int(n) for n in side.split(",")] for side in size.split("/")] if "/" in size else []
        self.size = 1 if self.splits else int(size)
        self.marks = set(words[self.together + 5 :])

    @property
    def place(self) -> list[str]:
        """The place as a rank tells it: name of the group, operation, number or pair."""
        return [GROUPS[self.group][0], self.name, self.number]

    @property
    def is_pair(self) -> bool:
        """Whether it is a send or a receive."""
        return self.name in ("send", "recv")

    @property
    def pair(self) -> tuple[int, int]:
        """Sender and receiver, ranks of the job."""
        sender, receiver = self.number.split(":")[0].split(">")
        return int(sender), int(receiver)

    @property
    def line(self) -> tuple[str, ...]:
        """Operations of one line follow each other: those of a group, or of one direction of a pair."""
        return (self.group, self.number.split(":")[0]) if self.is_pair else (self.group,)

    def times(self, members: int) -> tuple[int, int]:
        """How often its size goes into its input and its output."""
        return {"all_gather": (1, members), "reduce_scatter": (members, 1)}.get(self.name, (1, 1))


def operations_of(rank: int, schedule: str) -> list[ScheduledCall]:
    """The operations of a rank of the job."""
    mine: list[ScheduledCall] = []
    is_mine = False
    for line in filter(None, map(str.strip, schedule.splitlines())):
        if line.startswith("ranks "):
            is_mine = str(rank) in line.split()[1:]
        elif is_mine:
            mine.append(ScheduledCall(line))
    return mine


class Recording:
    """The record of one rank: what it issued, what began and what ended, in the form of a flight recorder's dump."""

    def __init__(
        self, rank: int, operations: list[ScheduledCall], groups: dict[str, tuple[str, list[int]]], starts: bool
    ) -> None:
        self.rank, self.groups, self.starts = rank, groups, starts
        self.entries: list[dict[str, Any]] = []
        self.of = {id(operation): self._entry(operation, at) for at, operation in enumerate(operations)}

    def _entry(self, operation: ScheduledCall, at: int) -> dict[str, Any]:
        name, members = self.groups[operation.group]
        told = operation.name
        if operation.is_pair:
            sender, receiver = (members.index(rank) for rank in operation.pair)
            told += f" {sender}->{receiver}" if told == "send" else f" {receiver}<-{sender}"
        number = 0 if operation.is_pair else int(operation.number[1:])
        counts = operation.splits or [[operation.size * times] for times in operation.times(len(members))]
        sizes: dict[str, Any] = {}
        for side, each in zip(("input", "output"), counts, strict=True):
            sizes[f"{side}_sizes"], sizes[f"{side}_dtypes"] = [[count] for count in each], [operation.type] * len(each)
        return {
            "pg_id": list(self.groups).index(operation.group), "process_group": [operation.group, name],
            "collective_seq_id": number, "p2p_seq_id": at + 1 if operation.is_pair else 0, "op_id": at + 1,
            "is_p2p": operation.is_pair, "profiling_name": f"replay:{told}", "timeout_ms": 1_800_000,
            "retired": False, "state": "scheduled", "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None, **sizes,
        }  # fmt: skip

    def issued(self, operation: ScheduledCall) -> None:
        """The rank comes to an operation."""
        entry = self.of[id(operation)]
        entry.update(time_created_ns=time.time_ns(), record_id=len(self.entries))
        self.entries.append(entry)

    def began(self, operation: ScheduledCall) -> None:
        """The operation is under way."""
        if self.starts:
            self.of[id(operation)].update(state="started", time_discovered_started_ns=time.time_ns())

    def ended(self, operation: ScheduledCall) -> None:
        """The operation has ended."""
        self.of[id(operation)].update(state="completed", time_discovered_completed_ns=time.time_ns(), retired=True)

    def write(self, folder: Path) -> Path:
        """Replaces the file of the rank."""
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            key: {"name": key, "desc": name, "ranks": str(members)}
            for key, (name, members) in self.groups.items()
            if self.rank in members
        }
        text = json.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": self.entries})
        part = folder / f".fr_trace_rank_{self.rank}.part"
        part.write_text(text)
        return part.replace(folder / f"fr_trace_rank_{self.rank}")


class Player:
    """Plays one rank."""

    def __init__(self, index: int) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.rank = torch, dist, RANKS[index]
        self.operations = operations_of(self.rank, SCHEDULE)
        self.recording = Recording(self.rank, self.operations, GROUPS, STARTS)
        self.left = list(self.operations)
        self.moved = time.monotonic()
        self.error = ""
        self.deaf = False
        if BACKEND == "nccl":
            self._choose_device(int(os.environ.get("LOCAL_RANK", index)), index)
        self.device = "cuda" if BACKEND == "nccl" else "cpu"
        dist.init_process_group(BACKEND)
        # every rank makes every group, in one order
        self.groups = {
            key: dist.new_group([RANKS.index(rank) for rank in members]) for key, (_, members) in GROUPS.items()
        }
        dist.barrier()

    def _choose_device(self, local: int, index: int) -> None:
        count = self.torch.cuda.device_count()
        if count < int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
            # NCCL refuses two ranks of one host on one device
            os.environ.setdefault("NCCL_HOSTID", f"rank{index}")
        self.torch.cuda.set_device(local % count)

    def play(self) -> None:
        """Issues all operations; returns when they have ended, or when one of them failed."""
        self.moved = time.monotonic()
        for operation in [] if STEPS else self.operations:
            self.recording.issued(operation)
        try:
            if SERIAL or STEPS:
                self._one_after_the_other()
            else:
                self._all_at_once()
        except Exception as error:  # noqa: BLE001 - gloo raises on what NCCL waits in for ever
            self.error = f"{type(error).__name__}: {error}"[:300]

    def _one_after_the_other(self) -> None:
        at = step = 0
        while at < len(self.operations):
            last = at + 1
            while last < len(self.operations) and self.operations[last].together:
                last += 1
            self._held(self.operations[at:last], step)
            self._end(self._issue(self.operations[at:last]))
            at, step = last, step + 1

    def _held(self, operations: list[ScheduledCall], step: int) -> None:
        """Notes operations as issued, and waits until the rank may begin them, if it goes step by step."""
        if not STEPS:
            return
        for operation in operations:
            self.recording.issued(operation)
        while Path(STEPS).stat().st_size <= step:
            time.sleep(0.05)
            self.moved = time.monotonic()

    def _all_at_once(self) -> None:
        lines: dict[tuple[str, ...], list[ScheduledCall]] = {}
        for operation in self.operations:
            lines.setdefault(operation.line, []).append(operation)
        ends = [threading.Thread(target=self._play_line, args=(line,)) for line in lines.values()]
        for one in ends:
            one.start()
        for one in ends:
            one.join()

    def _play_line(self, line: list[ScheduledCall]) -> None:
        for operation in line:
            self._end(self._issue([operation]))

    def _issue(self, operations: list[ScheduledCall]) -> list[tuple[ScheduledCall, Any]]:
        works = []
        for operation in operations:
            if "stop" in operation.marks:
                threading.Event().wait()
            self.recording.began(operation)
            if operation.marks & ({"never", "apart"} if BACKEND == "gloo" else {"never"}):
                threading.Event().wait()
            works.append((operation, self._one(operation)))
        return works

    def _end(self, works: list[tuple[ScheduledCall, Any]]) -> None:
        for operation, work in works:
            work.wait()
            if BACKEND == "nccl":
                self.torch.cuda.current_stream().synchronize()
            self.deaf |= "deaf" in operation.marks
            if not self.deaf:
                self.recording.ended(operation)
                self.left.remove(operation)
            self.moved = time.monotonic()

    def _one(self, operation: ScheduledCall) -> Any:
        """Issues an operation without waiting for it."""
        dist, group = self.dist, self.groups[operation.group]
        members = [RANKS.index(rank) for rank in GROUPS[operation.group][1]]
        count = len(members)
        if operation.is_pair:
            sender, receiver = map(RANKS.index, operation.pair)
            tensor = self._tensor(operation, 1)
            return (
                dist.isend(tensor, receiver, group) if operation.name == "send" else dist.irecv(tensor, sender, group)
            )
        whole, out = (self._tensor(operation, times) for times in operation.times(count))
        if operation.name == "all_gather":
            return dist.all_gather_into_tensor(out, whole, group, async_op=True)
        if operation.name == "reduce_scatter":
            return dist.reduce_scatter_tensor(out, whole, group=group, async_op=True)
        tensor = whole
        if operation.name in ("broadcast", "reduce"):
            return getattr(dist, operation.name)(tensor, members[0], group=group, async_op=True)
        if operation.name == "barrier":
            return dist.barrier(group, async_op=True)
        return dist.all_reduce(tensor, group=group, async_op=True)

    def _tensor(self, operation: ScheduledCall, times: int) -> Any:
        unlike = "unlike" in operation.marks
        kind = getattr(self.torch, "uint8" if unlike else TYPES.get(operation.type, "uint8"))
        return self.torch.ones((1 if unlike else operation.size) * times, dtype=kind, device=self.device)

    def report(self) -> dict[str, Any]:
        """Where the rank is, and where it is expected to be."""
        at = self.left[0].place if self.left else None
        due = expected_place(self.operations)
        return {"rank": self.rank, "at": at, "expected": due, "same": at == due, "error": self.error}


def expected_place(operations: list[ScheduledCall]) -> list[str] | None:
    """Where a rank is expected to stop; operations that are issued together wait as one, at the first of them."""
    place = next((at for at, operation in enumerate(operations) if "waits" in operation.marks), None)
    while SERIAL and place and operations[place].together:
        place -= 1
    return None if place is None else operations[place].place


def play(index: int, out: Path) -> None:
    """Plays one rank until it stands still; never returns."""
    player = Player(index)
    threading.Thread(target=player.play, daemon=True).start()
    until_still(player, out / "dumps")
    told = player.report()
    print("REPRO " + json.dumps(told), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"rank_{player.rank}.json").write_text(json.dumps(told))
    # who leaves early breaks connections of others that are not yet there
    until = time.monotonic() + 2 * GRACE_S
    while time.monotonic() < until and len(list(out.glob("rank_*.json"))) < len(RANKS):
        time.sleep(0.2)
    os._exit(0)


def until_still(player: Player, dumps: Path) -> None:
    """Writes the record of a rank each second, until it stands still."""
    written = 0.0
    while True:
        still = time.monotonic() - player.moved >= GRACE_S
        if player.rank not in SILENT and (still or time.monotonic() - written >= 1.0):
            player.recording.write(dumps)
            written = time.monotonic()
        if still:
            return
        time.sleep(0.2)


def start_all(out: Path) -> int:
    """Starts a process for each rank on this machine, and says where each of them stopped."""
    for old in (*out.glob("rank_*.json"), *out.glob("dumps/fr_trace_rank_*")):
        old.unlink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        "WORLD_SIZE": str(len(RANKS)),
        "LOCAL_WORLD_SIZE": str(len(RANKS)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "REPRO_OUT": str(out),
        "PYTHONWARNINGS": "ignore",
    }
    if BACKEND == "gloo":
        common["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    command = [sys.executable, str(Path(sys.argv[0]).resolve())]
    running = [
        subprocess.Popen(
            command, env={**os.environ, **common, "RANK": str(index), "LOCAL_RANK": str(index), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        for index in range(len(RANKS))
    ]  # fmt: skip
    try:
        for process in running:
            process.wait(timeout=60 + 4 * GRACE_S + 2 * len(RANKS))
    except subprocess.TimeoutExpired:
        print("it did not end in time", file=sys.stderr)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return say(out)


def say(out: Path) -> int:
    """Prints where each rank stopped; the exit code."""
    told = [json.loads(path.read_text()) for path in out.glob("rank_*.json")]
    for one in sorted(told, key=lambda entry: int(entry["rank"])):
        where = " ".join([*one["at"][1:], "of", one["at"][0]]) if one["at"] else "the end"
        verdict = "as expected" if one["same"] else f"expected: {one['expected'] or 'the end'}"
        print(f"rank {one['rank']:<6} stops at {where:<50} {verdict} {one['error']}".rstrip())
    same = sum(one["same"] for one in told)
    print(f"{same} of {len(RANKS)} ranks stop as expected")
    return 2 if len(told) < len(RANKS) else 0 if same == len(RANKS) else 1


if __name__ == "__main__":
    if "RANK" in os.environ:
        play(int(os.environ["RANK"]), Path(os.environ.get("REPRO_OUT", "repro_out")))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(start_all(Path(os.environ.get("REPRO_OUT", folder)).resolve()))
