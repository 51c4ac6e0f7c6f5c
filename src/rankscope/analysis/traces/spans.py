"""Spans by what they are: what ran on devices, and what hosts did; both on each file's own clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.schema import Dataset

WHATS = ("compute", "communication", "memory")
What = pl.Enum(WHATS)
_COMMUNICATES = re.compile(r"^(nccl|rccl).*kernel|^oneccl", re.IGNORECASE)
"""Kernels that communicate, where no call of the host is known for them, as in CUDA graphs."""
_ISSUES = re.compile(r"c10d::|record_param_comms|gloo:")
"""Operators that issue communication and compute nothing."""
_COPIES = ("gpu_memcpy", "gpu_memset")
_MARKS = ("gpu_user_annotation", "overhead", "cuda_sync", "cuda_profiler_range", "Trace")
"""Rows of devices that are no work."""
_LAUNCHES = ("cuda_runtime", "cuda_driver", "xpu_runtime", "mtia_runtime", "privateuse1_runtime")
Places = npt.NDArray[np.int64]


def among(column: str, names: Sequence[str]) -> pl.Expr:
    """Whether a categorical column is one of some names, without making a text of each of its values."""
    return pl.col(column).is_in(pl.Series(names, dtype=pl.Categorical).implode())


@dataclass(frozen=True)
class Spans:
    """The spans of a dataset with the file, track and lane they are of."""

    dataset: Dataset

    @property
    def on_host(self) -> bool:
        """Whether hosts compute and communicate themselves, for there is no device."""
        return bool(self.dataset.tracks["device"].is_null().all())

    @cached_property
    def whole(self) -> frozenset[int]:
        """Files of which everything was read: of the others only what communicates and steps are known."""
        return frozenset(self.dataset.traces.filter(pl.col("detail") == "all")["file"])

    @cached_property
    def _all(self) -> pl.DataFrame:
        tracks = self.dataset.tracks.select("track", "file", "lane", "device", "kind")
        return (
            self.dataset.spans.with_row_index("row").join(tracks, on="track", maintain_order="left")
            .with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
        )  # fmt: skip

    @cached_property
    def device(self) -> dict[int, pl.DataFrame]:
        """By file what ran on its devices, by start: row, track, lane, what, name, start_ns, end_ns, correlation.

        Where a host communicates itself (gloo) and there is no device: its communication, and its operators as
        computing.
        """
        used = self._all.filter(pl.col("device").is_not_null() & ~among("category", _MARKS))
        kernels = pl.concat([used, self._on_host(used["file"].unique())])
        names = kernels["name"].unique().cast(pl.String).drop_nulls()
        nccl = [name for name in names if _COMMUNICATES.search(name)]
        communicates = pl.col("op").is_not_null() | among("name", nccl)
        what = (
            pl.when(communicates).then(pl.lit("communication"))
            .when(among("category", _COPIES)).then(pl.lit("memory")).otherwise(pl.lit("compute")).cast(What)
        )  # fmt: skip
        columns = ("row", "file", "track", "lane", what.alias("what"), "name", "start_ns", "end_ns", "correlation")
        return _by_file(kernels.select(*columns).sort("file", "start_ns", maintain_order=True))

    def _on_host(self, on_device: pl.Series) -> pl.DataFrame:
        host = self._all.filter(pl.col("device").is_null() & ~pl.col("file").is_in(on_device.implode()))
        names = host["name"].unique().cast(pl.String).drop_nulls()
        computes = among("category", ["cpu_op"]) & ~among("name", [n for n in names if _ISSUES.match(n)])
        return host.filter(pl.col("op").is_not_null() | computes)

    @cached_property
    def host(self) -> dict[int, pl.DataFrame]:
        """By file what its host did, by track, then start: row, track, category, name, start_ns, end_ns, depth."""
        host = self._all.filter(pl.col("device").is_null())
        columns = ("row", "file", "track", "category", "name", "start_ns", "end_ns", "depth")
        return _by_file(host.select(*columns))

    @cached_property
    def launches(self) -> dict[int, pl.DataFrame]:
        """By file the calls that started something on a device: correlation, name, start_ns, end_ns."""
        calls = self._all.filter(
            pl.col("device").is_null() & pl.col("correlation").is_not_null()
            & among("category", _LAUNCHES)
        )  # fmt: skip
        return _by_file(calls.select("file", "correlation", "name", "start_ns", "end_ns"))

    def launched(self, file: int) -> pl.DataFrame:
        """What ran on the devices of a file with `call_ns` and `called_ns`: start and end of its launch, or null."""
        kernels = self.device.get(file)
        if kernels is None:
            return pl.DataFrame(schema={"call_ns": pl.Int64, "called_ns": pl.Int64})
        calls = self.launches.get(file)
        if calls is None:
            null = pl.lit(None, dtype=pl.Int64)
            return kernels.with_columns(call_ns=null, called_ns=null)
        calls = calls.select("correlation", call_ns="start_ns", called_ns="end_ns").unique("correlation", keep="first")
        return kernels.join(calls, on="correlation", how="left", maintain_order="left")


def _by_file(table: pl.DataFrame) -> dict[int, pl.DataFrame]:
    parts = table.partition_by("file", as_dict=True, maintain_order=True)
    return {int(key[0]): part for key, part in parts.items()}
