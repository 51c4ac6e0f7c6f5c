"""Which ranks a job has, and which groups they form: tensor x expert x data x pipeline parallel, or one group."""

from __future__ import annotations

from dataclasses import dataclass, field

WORLD = "0"


@dataclass(frozen=True)
class Layout:
    """The sizes of a job's dimensions; `tp` runs fastest, then `dp`, then `pp`."""

    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    """Expert groups are made of neighbouring tensor and data parallel ranks; divides tp x dp."""
    ranks_per_host: int = 8

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.dp * self.pp

    def rank(self, tp: int, dp: int, pp: int) -> int:
        """The global rank at these coordinates."""
        return tp + self.tp * (dp + self.dp * pp)

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(tp, dp, pp) of a rank."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)


@dataclass(frozen=True)
class Topology:
    """The groups of a job, and for each rank its group of each kind."""

    layout: Layout
    groups: dict[str, tuple[int, ...]]
    descriptions: dict[str, str]
    of: dict[int, dict[str, str]] = field(default_factory=dict)
    """rank -> kind ("world", "tp", "dp", "pp", "ep", "mp", "emb") -> name of its group of two or more."""

    def host(self, rank: int) -> int:
        """Number of the node a rank runs on."""
        return rank // self.layout.ranks_per_host


_KINDS = {
    "dp": "DATA_PARALLEL_GROUP_WITH_CP",
    "mp": "MODEL_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "emb": "EMBEDDING_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
}


def _members(layout: Layout, kind: str) -> list[tuple[int, ...]]:
    tps, dps, pps = range(layout.tp), range(layout.dp), range(layout.pp)
    match kind:
        case "dp":
            return [tuple(layout.rank(t, d, p) for d in dps) for p in pps for t in tps]
        case "tp":
            return [tuple(layout.rank(t, d, p) for t in tps) for p in pps for d in dps]
        case "pp":
            return [tuple(layout.rank(t, d, p) for p in pps) for d in dps for t in tps]
        case "mp":
            return [tuple(layout.rank(t, d, p) for p in pps for t in tps) for d in dps]
        case "emb":
            ends = (0, layout.pp - 1) if layout.pp > 1 else (0,)
            return [tuple(layout.rank(t, d, p) for p in ends) for d in dps for t in tps]
        case _:
            block = layout.tp * layout.dp
            starts = range(0, layout.world, layout.ep) if block % layout.ep == 0 else ()
            return [tuple(range(s, s + layout.ep)) for s in starts]


def build(layout: Layout) -> Topology:
    """The groups of a layout, named by a counter over all of them as torch does."""
    world = tuple(range(layout.world))
    groups, descriptions = {WORLD: world}, {WORLD: "default_pg"}
    of: dict[int, dict[str, str]] = {rank: {"world": WORLD} for rank in world}
    counter = 0
    for kind, description in _KINDS.items():
        for ranks in _members(layout, kind):
            counter += 1
            if len(ranks) < 2:
                continue
            groups[str(counter)], descriptions[str(counter)] = ranks, description
            for rank in ranks:
                of[rank][kind] = str(counter)
    return Topology(layout, groups, descriptions, of)
