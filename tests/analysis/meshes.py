"""Jobs whose groups form a grid, with dumps of all ranks and without an operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

import polars as pl

from rankscope.schema import Dataset
from tests.builders import JobBuilder

Groups = dict[str, list[int]]
TP, PP, DP = "TENSOR_MODEL_PARALLEL_GROUP", "PIPELINE_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP"
CP, DP_CP, EP = "CONTEXT_PARALLEL_GROUP", "DATA_PARALLEL_GROUP_WITH_CP", "EXPERT_MODEL_PARALLEL_GROUP"
MP, EMB = "MODEL_PARALLEL_GROUP", "EMBEDDING_GROUP"


def grid(sizes: Mapping[str, int], kinds: Mapping[str, Sequence[str]]) -> Groups:
    """The groups of each kind ("TP:0", "TP:1", ...) over a grid whose last dimension runs fastest.

    `kinds` says for each description along which dimensions its groups run.
    """
    names = list(sizes)
    places = dict(enumerate(product(*map(range, sizes.values()))))
    out: Groups = {}
    for kind, along in kinds.items():
        rest = [names.index(name) for name in names if name not in along]
        members: dict[tuple[int, ...], list[int]] = {}
        for rank, place in places.items():
            members.setdefault(tuple(place[i] for i in rest), []).append(rank)
        out |= {f"{kind}:{number}": ranks for number, ranks in enumerate(members.values())}
    return out


def job_of(
    world: int, groups: Mapping[str, Sequence[int]], no_dump: Sequence[int] = (), inferred: bool = False
) -> Dataset:
    """A job with these groups; what stands before ":" is the description. Groups of ranks without dumps are unknown."""
    known = {name: ranks for name, ranks in groups.items() if set(ranks) - set(no_dump)}
    job = JobBuilder(world, known)
    job.descriptions |= {name: name.partition(":")[0] for name in known}
    job.no_dump = set(no_dump)
    dataset = job.build()
    if not inferred:
        return dataset
    return replace(dataset, groups=dataset.groups.with_columns(membership=pl.lit("inferred")))


def megatron(**sizes: int) -> tuple[int, Groups]:
    """World size and groups of a job of Megatron-LM, dimensions outermost first."""
    kinds = {TP: ["tp"], PP: ["pp"], DP: ["dp"], CP: ["cp"], DP_CP: ["dp", "cp"], MP: ["pp", "tp"]}
    return prod(sizes.values()), grid(sizes, {k: along for k, along in kinds.items() if set(along) & set(sizes)})
