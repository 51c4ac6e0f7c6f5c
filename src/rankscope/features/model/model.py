"""Results of the analysis of models. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import FeaturePart


class ModelDifference(NamedTuple):
    """A value of parameters in which ranks differ from their peers."""

    aspect: str
    """A column of `Dataset.parameters`, or "missing" or "extra" for names."""
    odd: tuple[int, ...]
    """The ranks that differ."""
    peers: tuple[int, ...]
    """The ranks that agree with each other."""
    accused: bool
    """Whether the odd ones are clearly few; else nobody knows who is right."""
    sure: bool
    """Whether it is known that they hold the same model: by a mesh or a group, or since nearly all else is equal."""
    name: str
    """The first parameter."""
    parameters: int
    """How many parameters differ so."""
    own: str
    usual: str
    """The value of the odd ranks and of their peers."""
    places: tuple[tuple[int, int, int], ...]
    """Rank, row of `files` and line of an odd one and of a peer, where a record has the parameter."""


class WholeParameter(NamedTuple):
    """A large parameter that each rank holds whole, where others of its size are sharded."""

    name: str
    ranks: tuple[int, ...]
    size: int
    """Bytes on each rank."""
    share: float
    """Its share of the bytes of all parameters there."""
    sharded: int
    """Number of others of its size that are sharded."""
    wrapper: str


class LooseParameters(NamedTuple):
    """Trainable parameters that no wrapper took, where wrappers took others."""

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    wrapper: str
    """The wrapper of most others."""


class PartialTensor(NamedTuple):
    """A parameter or gradient that is a summand which nobody reduced."""

    name: str
    ranks: tuple[int, ...]
    few: bool
    """Whether most peers hold it reduced."""
    what: str
    """"parameter" or "gradient"."""
    stepped: bool
    """Whether an optimizer used it so."""


class HeavyRank(NamedTuple):
    """A rank whose shards hold more bytes than those of its peers."""

    rank: int
    held: int
    usual: int
    peers: int
    names: tuple[str, ...]
    """Parameters that make the most of the difference."""


@dataclass(frozen=True)
class ModelAnalysis:
    """Results from records of models."""

    held: pl.DataFrame
    """A row for each rank, as `shard_outliers.held_by_rank` makes them."""
    differences: tuple[ModelDifference, ...]
    whole: tuple[WholeParameter, ...]
    loose: tuple[LooseParameters, ...]
    partial: tuple[PartialTensor, ...]
    heavy: tuple[HeavyRank, ...]

    @property
    def odd_ranks(self) -> frozenset[int]:
        """Ranks that findings tell apart from their peers."""
        odd = {rank for difference in self.differences for rank in difference.odd}
        few = {rank for tensor in self.partial if tensor.few for rank in tensor.ranks}
        return frozenset(odd | few | {heavy.rank for heavy in self.heavy})


MODEL_RESULTS = FeaturePart[ModelAnalysis]("model")
"""Results on models in an analysis."""
