"""Writes dumps as msprobe does: a directory for each step and rank, statistics and CRC-32 of every tensor."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.numbers.read.records.record_formats import decode_record, looks_like_record, record_from
from rankscope.kinds.input_kinds import TENSOR_RECORD
from rankscope.schema import Dataset

Values = npt.NDArray[np.float32]


def statistic(values: Values, crc: bool = True) -> dict[str, Any]:
    """A tensor as msprobe writes it."""
    with np.errstate(all="ignore"):
        told: dict[str, Any] = {
            "type": "torch.Tensor", "dtype": "torch.float32", "shape": list(values.shape), "Max": float(values.max()),
            "Min": float(values.min()), "Mean": float(values.mean()), "Norm": float(np.linalg.norm(values.ravel())),
            "requires_grad": False,
        }  # fmt: skip
    return told | ({"md5": f"{zlib.crc32(values.tobytes()):08x}"} if crc else {})


def group(ranks: list[int]) -> dict[str, Any]:
    """A process group as msprobe writes it."""
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": f"{zlib.crc32(str(ranks).encode()):08x}"}


class MsprobeJob:
    """Dumps of a data-parallel job: each step a layer on each rank, then an all_reduce of its gradient."""

    def __init__(self, world: int = 4, crc: bool = True, grouped: bool = True) -> None:
        self.world, self.crc, self.grouped = world, crc, grouped
        self.steps: list[list[dict[str, Any]]] = []

    def step(self, nan_on: int | None = None, spoiled: int | None = None) -> None:
        """Adds a step: `nan_on` makes a NaN in its layer, `spoiled` gets another sum than the others."""
        seed = len(self.steps)
        weight = np.random.default_rng(seed).standard_normal((8, 4), np.float32)
        inputs = [np.random.default_rng([seed, rank]).standard_normal((8, 4), np.float32) for rank in range(self.world)]
        outputs: list[Values] = [np.multiply(one, weight) for one in inputs]
        if nan_on is not None:
            outputs[nan_on][1, 1] = np.nan
        total: Values = np.asarray(np.sum(outputs, axis=0), np.float32)
        sums = [total.copy() for _ in inputs]
        if spoiled is not None:
            sums[spoiled][2, 2] += 1
        self.steps.append([
            self._calls(inputs[rank], weight, outputs[rank], sums[rank]) for rank in range(self.world)
        ])  # fmt: skip

    def _calls(self, x: Values, weight: Values, y: Values, total: Values) -> dict[str, Any]:
        x_told, w_told, y_told, sum_told = (statistic(one, self.crc) for one in (x, weight, y, total))
        own = {"group": group(list(range(self.world)))} if self.grouped else {}
        return {
            "Module.net.fc.Linear.forward.0": {
                "input_args": [x_told], "input_kwargs": {}, "output": [y_told], "parameters": {"weight": w_told},
                "is_recompute": False,
            },
            "Distributed.all_reduce.0.forward": {
                "input_args": [y_told, {"type": "torch.distributed.ReduceOp", "value": "RedOpType.SUM"}],
                "input_kwargs": own, "is_recompute": False,
                "output": [sum_told, {"type": "torch.distributed.ReduceOp", "value": "RedOpType.SUM"}, *own.values()],
            },
            "Module.net.fc.Linear.parameters_grad": {"weight": [sum_told]},
        }  # fmt: skip

    def files(self, names: str = "rank{}") -> dict[str, bytes]:
        """All files by path; `names` gives the directory of a rank its name."""
        found: dict[str, bytes] = {}
        for step, ranks in enumerate(self.steps):
            for rank, calls in enumerate(ranks):
                where = f"step{step}/{names.format(rank)}"
                told = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
                lines = ["File /job/net.py, line 12, in forward, \n y = self.fc(x)"]
                found[f"{where}/dump.json"] = json.dumps(told | {"data": calls}, indent=1).encode()
                found[f"{where}/stack.json"] = json.dumps({"0": [list(calls), lines]}).encode()
                found[f"{where}/construct.json"] = json.dumps(dict.fromkeys(calls)).encode()
        return found


def read_records(files: dict[str, bytes]) -> Dataset:
    """The dataset of these files, by path, as a worker process hands them over."""
    sources = []
    for path, data in sorted(files.items()):
        assert looks_like_record(data[:512]), path
        found = decode_record(data)
        body = memoryview(b"".join(bytes(part) for part in found.body()))
        header = orjson.loads(orjson.dumps(found.header()))
        whole = record_from(header, body, found.rows)
        sources.append(SourceFile(path, TENSOR_RECORD.name, len(data), 1, found.problem, whole))
    return assemble(sources, "run", None, None, None)
