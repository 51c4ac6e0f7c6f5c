"""Order in which a job adds up: the settings that decide it, and the distinct reductions of which it shows in bits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import orjson
import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.analysis.settings_comparison import ENV_NAME, ORDER_NAME, ProcessSettings, process_settings
from rankscope.analysis.signatures import with_signatures
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide, value_of
from rankscope.text.wording import plural

Standing = Literal["broken", "open", "fixed"]
"""broken: sums need not repeat, so a replay is not needed; open: a replay may tell; fixed: the rule is kept."""

_BESIDE = re.compile(r"(?:NCCL|RCCL|GLOO|TORCH|HCCL)_[A-Z0-9_]+")
"""Other settings of communication: a replay leaves them as they are where it runs."""
_SAFE = re.compile(r"[\w.,:;^=@+-]{1,100}")


class OrderRule(NamedTuple):
    """One setting, the libraries that it is for, and what its values mean for the order of sums."""

    name: str
    libraries: tuple[str, ...]
    """Empty: all of them."""
    keeps: str
    """Pattern of values that fix the order."""
    unset: Standing
    other: Standing
    effect: str
    """A sentence for values that do not fix it."""


_NCCL = ("nccl", "nccl2", "nccl-lazy", "ncclx", "rccl", "rcclx")
RULES = (
    OrderRule("NCCL_ALGO", _NCCL, r"(?:(?:Ring|CollnetDirect|CollnetChain),?)+", "open", "open",
              "NCCL chooses the algorithm by size, ranks and topology: on other nodes it may add in another order"),
    OrderRule("NCCL_ALGO", _NCCL, r"(?!.*NVLS).*|\^.*NVLS.*", "fixed", "broken",
              "switches add, and results can depend on which memory was allocated before (nccl#2360)"),
    OrderRule("NCCL_PROTO", _NCCL, r"Simple|LL|LL128", "open", "open",
              "NCCL chooses the protocol by size and topology: it cuts data into other pieces"),
    OrderRule("NCCL_COLLNET_ENABLE", _NCCL, "0|false", "fixed", "open",
              "switches may add, and NCCL goes back to other algorithms without a word"),
    OrderRule("NCCL_TUNER_PLUGIN", _NCCL, "none", "fixed", "open", "a plugin chooses algorithm and protocol"),
    OrderRule("HCCL_DETERMINISTIC", ("hccl",), "true|strict", "broken", "broken",
              "HCCL adds in an order that is not fixed: set it to true, or to strict, first"),
    OrderRule("LCCL_DETERMINISTIC", ("hccl",), "1|true", "open", "broken",
              "collectives through LCCL (up to 8 ranks) add in an order that is not fixed: set it to 1 first"),
    OrderRule("CUBLAS_WORKSPACE_CONFIG", _NCCL, ":4096:8|:16:8", "open", "open",
              "matrix products need not repeat: then the inputs of reductions differ, which no replay of them shows"),
)  # fmt: skip
"""NCCL's and Ascend's rules, as Megatron's deterministic mode and the vendors' pages give them."""


@dataclass(frozen=True)
class OrderSettings:
    """Settings of a job that decide the order of its sums."""

    carried: dict[str, str]
    left: tuple[str, ...]
    """Names of settings of communication that a replay does not take over."""
    told: tuple[tuple[Standing, str], ...]
    """What rules say, the worst first."""


def order_settings(dataset: Dataset, library: str) -> OrderSettings:
    """The settings of the job with what rules say of them, for the library that ran its reductions."""
    processes = process_settings(dataset)
    usual = {
        name: _usual(processes, name) for name in sorted({name for process in processes for name in process.values})
    }
    carried = {
        name: value for name, (value, _) in usual.items() if ORDER_NAME.fullmatch(name) and _SAFE.fullmatch(value)
    }
    left = tuple(plain(name, 60) for name in usual if _BESIDE.fullmatch(name) and name not in carried)
    rows = [row for row in _told(processes, usual, library) if row]
    return OrderSettings(carried, left, tuple(sorted(rows, key=lambda row: ("broken", "open", "fixed").index(row[0]))))


def findings_on_order(analysis: Analysis) -> list[str]:
    """Titles of findings on modes and misspelt names that concern determinism."""
    titles = [finding.title for finding in analysis.findings if finding.kind == "settings-mismatch"]
    return [plain(hide(title), 300) for title in titles if "determinis" in title.lower()]


def _usual(processes: Sequence[ProcessSettings], name: str) -> tuple[str, int]:
    """The most common value of a setting, as it may be shown, and the number of processes with another one."""
    counts = Counter(process.values[name] for process in processes if name in process.values)
    value, count = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return value_of(name, value), len(processes) - count


def _told(
    processes: Sequence[ProcessSettings], usual: dict[str, tuple[str, int]], library: str
) -> Iterator[tuple[Standing, str]]:
    """Each rule's sentence on the settings."""
    if library == "gloo":
        yield "fixed", "gloo adds along one ring in the order of the ranks; no setting changes that"
    elif not any(ENV_NAME.fullmatch(name) for name in usual):
        yield "open", "no setting is recorded: logs with NCCL_DEBUG=INFO, or a file with the environment, tell them"
        return
    is_whole = any(process.whole for process in processes)
    for rule in RULES:
        if rule.libraries and library not in rule.libraries:
            continue
        if rule.name not in usual:
            if rule.unset != "fixed":
                standing: Standing = rule.unset if is_whole else "open"
                yield standing, f"{rule.name} is {'not set' if is_whole else 'not recorded'}: {rule.effect}"
            continue
        value, others = usual[rule.name]
        said = f"{rule.name}={plain(value, 40)}"
        if others:
            yield (
                "broken",
                f"{said}, but not in {plural(others, 'process')} of {len(processes)}: ranks choose differently",
            )
        elif not re.fullmatch(rule.keeps, value.strip(), re.IGNORECASE):
            yield rule.other, f"{said}: {rule.effect}"
        elif rule.unset != "fixed":
            yield "fixed", f"{said} fixes its part of the order"


KINDS = ("all_reduce", "reduce_scatter", "reduce")
"""Operations that add up, as they must agree between members."""
FLOATS = ("Float", "Double", "Half", "BFloat16")
"""Types that round; sums of integers have the same bits in every order."""
MOST = 12
"""Reductions that are repeated: those that move most."""
_WIDTHS = {"Float": 4, "Double": 8, "Half": 2, "BFloat16": 2}


@dataclass(frozen=True)
class Reduction:
    """A reduction with its size and type, of groups of one number of members."""

    op: str
    dtype: str
    elements: int
    """Elements of the input of one member."""
    group: int
    """The row in `Dataset.groups` of one of the groups that ran it."""
    members: tuple[int, ...]
    calls: int
    """Recorded calls, over all groups of that number of members."""

    @property
    def size(self) -> int:
        """Bytes of the input of one member."""
        return self.elements * _WIDTHS[self.dtype]


@dataclass(frozen=True)
class Reductions:
    """The reductions that are repeated, and the number of those that are not."""

    chosen: tuple[Reduction, ...]
    library: str
    """The library that ran most of them."""
    fewer: int
    """Distinct reductions beyond MOST."""
    exact: int
    """Distinct reductions of integers and other types: they add up exactly, or their type is unknown here."""


def reductions_of(dataset: Dataset) -> Reductions:
    """The distinct reductions in dumps, or without dumps in profiles; ValueError if there are none."""
    rows = dataset.ops.filter(pl.col("source") == "flight-recorder")
    rows = _calls(dataset, rows if rows.height else dataset.traced)
    if rows.is_empty():
        raise ValueError("no dump or profile holds a reduction of a known group with its size: there is none to repeat")
    names = pl.Series("kind", [_kind(text) for text in rows["dtype"].to_list()], dtype=pl.String)
    rows = rows.with_columns(names)
    floats = rows.filter(pl.col("kind").is_in(FLOATS))
    if floats.is_empty():
        raise ValueError("all reductions are of integers: they have the same bits in every order")
    members = {group.id: group.ranks for group in dataset.group_list}
    reductions = [
        Reduction(op, kind, elements, group, members[group], calls)
        for op, kind, elements, group, calls in floats.select("op", "kind", "elements", "group", "calls").iter_rows()
    ]
    reductions.sort(key=lambda reduction: (-reduction.size * reduction.calls, -reduction.size, reduction.op))
    library = floats.group_by("library").agg(pl.col("calls").sum()).sort("calls", "library")["library"][-1]
    return Reductions(tuple(reductions[:MOST]), library, len(reductions[MOST:]), rows.height - floats.height)


def _calls(dataset: Dataset, ops: pl.DataFrame) -> pl.DataFrame:
    """A row for each distinct reduction: op, elements, dtype, library, its first group, and the number of calls."""
    counts = {group.id: len(group.ranks) for group in dataset.group_list if len(group.ranks) > 1}
    rows = with_signatures(ops.filter(~pl.col("is_p2p"))).select(
        "rank", "group", "elements", pl.col("key").cast(pl.String).alias("op"), pl.col("dtype").cast(pl.String),
        pl.col("library").cast(pl.String).fill_null(""),
        count=pl.col("group").replace_strict(counts, default=0, return_dtype=pl.Int64),
    ).filter(pl.col("op").is_in(KINDS) & (pl.col("elements") > 0) & (pl.col("count") > 1))  # fmt: skip
    same = ["op", "elements", "dtype", "count"]
    by_rank = rows.group_by(*same, "group", "rank").agg(pl.len(), pl.col("library").first())
    by_group = by_rank.group_by(*same, "group").agg(pl.col("len").max(), pl.col("library").first()).sort("group")
    return by_group.group_by(same, maintain_order=True).agg(
        pl.col("group").first(), pl.col("library").first(), calls=pl.col("len").sum()
    )


def _kind(dtype: str | None) -> str:
    """The type of a JSON list of one type; "" for none, or several."""
    names = orjson.loads(dtype) if dtype else []
    return str(names[0]) if isinstance(names, list) and len(names) == 1 else ""
