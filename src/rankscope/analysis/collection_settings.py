"""Variables that make the next run record what a verdict lacks, by backend and version of torch."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import polars as pl

from rankscope.schema import Dataset
from rankscope.schema.tables import HOOK

DIRECTORY = "dumps"
"""Directory of everything that is collected, below the working directory of the job."""
RING = 2000
"""Recorded operations of each rank."""
Version = tuple[int, int]
FR_NAMES: Version = (2, 10)
"""Since then TORCH_FR_* names stand beside TORCH_NCCL_*."""
HOOKED: Version = (2, 15)
"""Since then "nccl" is nccl2, which a hook records."""


@dataclass(frozen=True)
class CollectionSetting:
    """One variable."""

    backends: str
    """Backends that read it, separated by spaces; "*" for all."""
    name: str
    value: str
    why: str
    since: Version = (0, 0)
    """First version of torch that reads it."""
    before: Version = (99, 0)
    """First version that does not need it any more."""


_PREFIX = f'"$PWD/{DIRECTORY}/'
SETTINGS = (
    CollectionSetting("nccl gloo xccl", "TORCH_FR_BUFFER_SIZE", str(RING), "flight recorder", since=FR_NAMES),
    CollectionSetting("nccl nccl2 gloo", "TORCH_NCCL_TRACE_BUFFER_SIZE", str(RING), "flight recorder", before=FR_NAMES),
    CollectionSetting("nccl2", "TORCH_FR_BUFFER_SIZE", str(RING), "flight recorder", since=FR_NAMES),
    CollectionSetting("nccl", "TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "a dump of each rank at a timeout"),
    CollectionSetting("nccl2", "TORCH_FR_DUMP_ON_TIMEOUT", "1", "a dump of each rank at a timeout"),
    CollectionSetting(
        "nccl nccl2", "TORCH_FR_DUMP_TEMP_FILE", f'{_PREFIX}fr_trace_rank_"', "the rank follows", FR_NAMES
    ),
    CollectionSetting(
        "nccl", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", f'{_PREFIX}fr_trace_rank_"', "the rank follows", before=FR_NAMES
    ),
    CollectionSetting("nccl nccl2", "NCCL_DEBUG", "INFO", "log of NCCL: communicators, versions, settings"),
    CollectionSetting("nccl nccl2", "NCCL_DEBUG_SUBSYS", "INIT,ENV", "not every collective"),
    CollectionSetting("hccl", "TORCH_HCCL_TRACE_BUFFER_SIZE", str(RING), "flight recorder"),
    CollectionSetting("hccl", "TORCH_HCCL_DUMP_ON_TIMEOUT", "1", "a dump of each rank at a timeout"),
    CollectionSetting("hccl", "TORCH_HCCL_ENABLE_MONITORING", "1", "also if the watchdog itself stands still"),
    CollectionSetting("hccl", "TORCH_HCCL_DEBUG_INFO_TEMP_FILE", f'{_PREFIX}fr_trace_rank_"', "the rank follows"),
    CollectionSetting("hccl", "HCCL_ENTRY_LOG_ENABLE", "1", "log of HCCL: each call"),
    CollectionSetting("hccl", "ASCEND_PROCESS_LOG_PATH", f'{_PREFIX}plog"', "place of that log"),
    CollectionSetting("xccl", "CCL_LOG_LEVEL", "info", "log of oneCCL"),
    # nccl2 reports no end of operations under DETAIL
    CollectionSetting(
        "nccl gloo xccl hccl", "TORCH_DISTRIBUTED_DEBUG", "DETAIL", "arguments of each collective compared"
    ),
    CollectionSetting("gloo", "TORCH_CPP_LOG_LEVEL", "INFO", "the log that holds these arguments"),
)
"""Source: docs of torch 2.13 and 2.15 on environment variables, of torch_npu, of NCCL, HCCL and oneCCL."""


_WORDS = {
    "hccl": r"HCCL|[Hh]ccl[A-Z_]|\bNPU\b|torch_npu|\bE[A-Z]\d{4}: ",
    "xccl": r"XCCL|oneCCL|CCL_ERROR|\bXPU\b|\b(?:ZE|UR)_RESULT_|[Ll]evel Zero",
    "rccl": r"RCCL|\bHIP (?:error|out of memory)|\bhip(?:Error|Device|Memory)|ROCm|amdgpu|HSA_STATUS_",
}
"""Words of lines that tell the device, and so the backend."""


def backends_of(dataset: Dataset) -> tuple[str, ...]:
    """The backends of the job, sorted: from recorded operations, else settings, else words and layers of errors in its
    logs; nccl if nothing tells. "rccl" is that of AMD, which reads the settings of nccl."""
    known = {name for row in SETTINGS for name in row.backends.split()}
    told = set(dataset.ops["library"].cast(pl.String).drop_nulls().unique()) & known
    if not told:
        names = dataset.settings["name"].drop_nulls().unique().to_list()
        told = {backend for backend in known if any(str(n).startswith(f"{backend.upper()}_") for n in names)}
    versions = dataset.settings.filter(pl.col("name").is_in(["version", "version:nccl"]))
    texts = pl.concat([dataset.messages["text"], versions["value"]])
    device = {name for name, words in _WORDS.items() if bool(texts.str.contains(words).any())}
    if not told:
        told = device or set(_of_values(dataset, "layer")) & known
    elif told == {"nccl"} and device == {"rccl"}:
        # RCCL records as NCCL does
        told = device
    return tuple(sorted(told)) or ("nccl",)


def _of_values(dataset: Dataset, name: str) -> list[str]:
    """The texts that lines of logs and ends of processes have under a name."""
    return dataset.messages["values"].str.json_path_match(f"$.{name}").drop_nulls().to_list()


def torch_version(dataset: Dataset) -> Version | None:
    """The version of torch of most ranks; None if nothing tells. A dump by the hook tells the first that has it."""
    told = dataset.settings.filter(pl.col("name") == "version:torch")["value"].drop_nulls().to_list()
    told = told or _of_values(dataset, "torch")
    found = [match for value in told if (match := re.match(r"(\d{1,3})\.(\d{1,3})", str(value))) is not None]
    if found:
        major, minor = Counter((int(m[1]), int(m[2])) for m in found).most_common(1)[0][0]
        return major, minor
    return HOOKED if (dataset.dumps["recorder"] == HOOK).any() else None


def settings_for(backends: tuple[str, ...], version: Version | None) -> list[CollectionSetting]:
    """The variables for these backends, each name once; of an unknown version, those of every version."""
    if version is not None and version >= HOOKED:
        backends = tuple("nccl2" if backend == "nccl" else backend for backend in backends)
    backends = tuple(dict.fromkeys("nccl" if backend == "rccl" else backend for backend in backends))
    wanted = [row for row in SETTINGS if set(row.backends.split()) & set(backends)]
    if version is not None:
        wanted = [row for row in wanted if row.since <= version < row.before]
    if "nccl2" in backends:
        wanted = [row for row in wanted if row.name != "TORCH_DISTRIBUTED_DEBUG"]
    return list({row.name: row for row in wanted}.values())
