"""Writes the summaries of tensors that their reading is measured on: `python -m benchmarks.make_numbers FOLDER`.

A healthy run of ranks in groups of eight for tensors and for data. In a step each rank has 48 collectives, with inputs
and outputs that add up, and 704 rows of modules, gradients, parameters and the optimizer: 800 rows, as
`rankscope.capture` writes them, or as it wrote them with decimal samples.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser

GROUP = 8
CALLS = 24
"""Collectives of a rank in each of its two groups, in a step."""
MODULES, PARAMETERS = 80, 64
ROWS = 4 * CALLS + 4 * MODULES + 6 * PARAMETERS
"""Rows of a rank in a step."""
SAMPLES = 64
NUMEL = 1 << 20
_POOL = 512
"""Different statistics and samples of rows that no rule adds up."""
Floats = npt.NDArray[np.float32]


class NumbersFolder:
    """Writes the files of all ranks, step after step."""

    def __init__(self, folder: Path, ranks: int, *, decimal: bool, seed: int = 0) -> None:
        self.ranks, self.decimal = ranks, decimal
        self._rng = np.random.default_rng(seed)
        folder.mkdir(parents=True, exist_ok=True)
        self._files = [(folder / f"numbers_rank_{rank}.jsonl").open("w") for rank in range(ranks)]
        self._order = [0] * ranks
        pool = self._rng.standard_normal((_POOL, SAMPLES)).astype(np.float32)
        self._pool, self._squares = (
            [self._summary(one, *_statistics(one)) for one in values] for values in (pool, pool**2)
        )
        for rank, file in enumerate(self._files):
            head = {
                "rankscope_numbers": 1,
                "run": "bench",
                "rank": rank,
                "world_size": ranks,
                "host": f"n{rank // 8}",
                "pid": 100 + rank,
                "level": "modules",
                "every": 1,
                "mode": "faithful",
                "time_ns": 1,
                "part": 0,
            }
            groups = ((f"tp{rank // GROUP}", _tensor_group(rank)), (f"dp{rank % GROUP}", _data_group(rank, ranks)))
            own = [{"group": name, "ranks": members, "description": name[:2]} for name, members in groups]
            stacks = [{"stack": k, "frames": [["step", "train.py", k], ["main", "train.py", 40]]} for k in range(60)]
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in (head, *own, *stacks))

    def step(self, step: int) -> None:
        """Writes a step of all ranks."""
        inputs = self._rng.standard_normal((2, CALLS, self.ranks, SAMPLES)).astype(np.float32)
        inputs[0] = _bfloat(inputs[0])
        for rank, file in enumerate(self._files):
            lines = [*self._collectives(step, rank, inputs), *self._modules(step, rank), *self._updates(step, rank)]
            begin = self._order[rank]
            file.writelines(
                f'{{"step":{step},"order":{begin + k},{line},"stack_id":{k % 60}}}\n' for k, line in enumerate(lines)
            )
            file.write(f'{{"end_of_step":{step},"time_ns":{step}}}\n')
            self._order[rank] += len(lines)

    def close(self) -> None:
        """Ends all files."""
        for file in self._files:
            file.write('{"end":true,"dropped":0,"unwaited":0}\n')
            file.close()

    def _collectives(self, step: int, rank: int, inputs: Floats) -> Iterator[str]:
        """Sums in bfloat16 over the tensor group, averages in float32 over the data group."""
        groups = _tensor_group(rank), _data_group(rank, self.ranks)
        for kind, (members, name, dtype, reduce_op) in enumerate(
            zip(groups, (f"tp{rank // GROUP}", f"dp{rank % GROUP}"), ("bf16", "f32"), ("sum", "avg"), strict=True)
        ):
            for call in range(CALLS):
                own = inputs[kind, call, members]
                told = (
                    f'"site":"collective","name":"","occurrence":{call},"group":"{name}","seq":{step * CALLS + call},'
                    f'"op":"all_reduce","reduce_op":"{reduce_op}","dtype":"{dtype}","numel":{NUMEL},"shape":[{NUMEL}]'
                )
                mine = inputs[kind, call, rank]
                first = f'"slot":"in0",{told},"hash":"{_hash(step, kind, call, rank):016x}"'
                yield f"{first},{self._summary(mine, *_statistics(mine))}"
                total = own.sum(axis=0, dtype=np.float32)
                total = _bfloat(total) if kind == 0 else total / np.float32(len(members))
                share = 1 if kind == 0 else len(members)
                facts = np.array([_statistics(one) for one in own])
                joined = facts.sum(axis=0) / share
                joined[1] = np.sqrt((facts[:, 1] ** 2).sum()) / share
                last = f'"slot":"out0",{told},"hash":"{_hash(step, kind, call, 1000 + members[0]):016x}"'
                yield f"{last},{self._summary(total, *joined.tolist())}"

    def _modules(self, step: int, rank: int) -> Iterator[str]:
        for k in range(MODULES):
            for site, slot in (("forward", "in0"), ("forward", "out0"), ("backward", "in0"), ("backward", "out0")):
                name = f"layers.{k // 8}.{('attention', 'mlp')[k % 2]}.proj{k % 8}"
                yield self._named(site, name, slot, "bf16", _hash(step, k, rank, len(site) * 2 + (slot == "in0")))

    def _updates(self, step: int, rank: int) -> Iterator[str]:
        """Gradients, parameters and states; ranks of a data group hold the same."""
        place = rank // GROUP if self.ranks <= GROUP else rank % GROUP
        for k in range(PARAMETERS):
            name = f"layers.{k // 8}.{('attention', 'mlp')[k % 2]}.proj{k % 8}.weight"
            yield self._named("gradient", name, "in0", "f32", _hash(step, k, rank, 90))
            for site, slot, number, when in (
                ("gradient", "out0", 91, step), ("parameter", "in0", 92, step), ("optimizer", "out0", 92, step + 1),
                ("optimizer", "exp_avg", 93, step), ("optimizer", "exp_avg_sq", 94, step),
            ):  # fmt: skip
                yield self._named(site, name, slot, "f32", _hash(when, k, place, number))

    def _named(self, site: str, name: str, slot: str, dtype: str, bits: int) -> str:
        pool = self._squares if slot == "exp_avg_sq" else self._pool
        return (
            f'"site":"{site}","name":"{name}","occurrence":0,"slot":"{slot}","dtype":"{dtype}","numel":{NUMEL},'
            f'"shape":[1024,1024],"hash":"{bits:016x}",{pool[bits % _POOL]}'
        )

    def _summary(self, samples: Floats, total: float, l2: float, least: float, most: float, projected: float) -> str:
        facts = (
            f'"sum":{total!r},"l2":{l2!r},"min":{least!r},"max":{most!r},"zeros":0,"projection":{projected!r},'
            '"nan":0,"inf":0'
        )
        if self.decimal:
            return f'{facts},"samples":[{",".join(map(repr, samples.tolist()))}]'
        return f'{facts},"samples_f32":"{base64.b64encode(samples.tobytes()).decode()}"'


def _tensor_group(rank: int) -> list[int]:
    return list(range(rank // GROUP * GROUP, rank // GROUP * GROUP + GROUP))


def _data_group(rank: int, ranks: int) -> list[int]:
    return list(range(rank % GROUP, ranks, GROUP))


def _statistics(samples: Floats) -> tuple[float, float, float, float, float]:
    """Sum, norm, smallest, largest and projection of a large tensor that goes on as its samples do."""
    wide, times = samples.astype(np.float64), NUMEL / SAMPLES
    signs = np.where(np.arange(SAMPLES) % 3, 1.0, -1.0)
    norm = float(np.sqrt((wide**2).sum() * times))
    return float(wide.sum() * times), norm, float(wide.min()), float(wide.max()), float((wide * signs).sum())


def _bfloat(values: Floats) -> Floats:
    """Values rounded to bfloat16, ties to even."""
    bits = values.view(np.uint32).astype(np.uint64)
    even = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return even.astype(np.uint32).view(np.float32)


def _hash(*parts: int) -> int:
    """64 bits for a few small numbers."""
    bits = 0x9E3779B97F4A7C15
    for part in parts:
        bits = ((bits ^ part) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        bits ^= bits >> 31
    return bits


def make(folder: Path, ranks: int, steps: int, *, decimal: bool = False) -> int:
    """Writes a run; the number of its rows."""
    out = NumbersFolder(folder, ranks, decimal=decimal)
    for step in range(steps):
        out.step(step)
    out.close()
    return ranks * steps * ROWS


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes a run into a folder."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=64, help="a multiple of eight")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--decimal", action="store_true", help="samples as decimal numbers")
    args = parser.parse_args(arguments)
    print(make(args.folder, args.ranks, args.steps, decimal=args.decimal), "rows")


if __name__ == "__main__":
    run_program(main)
