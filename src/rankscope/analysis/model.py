"""Results of the analysis: findings with evidence, and the verdict. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from rankscope.kinds import finding_kinds
from rankscope.schema import Frame

T = TypeVar("T")
Severity = finding_kinds.Severity
Confidence = Literal["high", "medium", "low"]
Status = finding_kinds.Status


@dataclass(frozen=True)
class Culprit:
    """A rank that is accused. A culprit known only by its host or process has no rank."""

    rank: int | None
    host: str | None = None
    pid: int | None = None
    device: str | None = None


@dataclass(frozen=True)
class Wait:
    """An operation a rank waits in."""

    group: str
    seq: int | None
    """Sequence number; the k-th between the two for a send or receive, None if it cannot be counted."""
    op: str
    row: int | None = None
    """Row of `Dataset.ops` of the waiting rank; not part of a report."""


@dataclass(frozen=True)
class ChainStep:
    """One step of a chain: `rank` waits in an operation for `for_rank`."""

    rank: int
    waits_in: Wait
    for_rank: int


@dataclass(frozen=True)
class GroupRef:
    """The process group a finding is about."""

    id: str
    """Name of the group; the pg name of pg_config."""
    description: str
    ranks: tuple[int, ...]
    key: int = -1
    """Row of `Dataset.groups`; not part of a report."""


@dataclass(frozen=True)
class Evidence:
    """A place in a file that supports the finding."""

    text: str
    file: str | None = None
    rank: int | None = None
    record_id: int | None = None
    line: int | None = None
    time_ns: int | None = None


@dataclass(frozen=True)
class BrokenLimit:
    """A rule about numbers that does not hold."""

    rule: str
    """One of analysis.numbers.model.RULES."""
    standing: str
    """"proof", "model" or "heuristic": the ground of the limit."""
    value: float
    limit: float


@dataclass(frozen=True)
class Finding:
    """One finding, in the form of the JSON report."""

    kind: str
    """One of kinds.finding_kinds.FINDINGS."""
    severity: Severity
    title: str
    explanation: str
    id: str = ""
    root_cause: bool = False
    caused_by: str | None = None
    culprit_ranks: tuple[int, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    candidates: tuple[int, ...] = ()
    waiting_ranks: tuple[int, ...] = ()
    blast_radius: int = 0
    """How many ranks it holds up."""
    confidence: Confidence = "high"
    confidence_reasons: tuple[str, ...] = ()
    chain: tuple[ChainStep, ...] = ()
    group: GroupRef | None = None
    seq: int | None = None
    op: str | None = None
    peer: int | None = None
    never_posted: bool = False
    """Whether the accused never posted its side of the send or receive with `peer`; `op` is the side of the peer."""
    stack: tuple[Frame, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    counter_evidence: tuple[Evidence, ...] = ()
    """Evidence against the finding."""
    next_steps: tuple[str, ...] = ()
    limits: tuple[BrokenLimit, ...] = ()
    """Rules about numbers that do not hold, the strictest first."""
    about: tuple[int, ...] = ()
    """Ranks that a finding is about which accuses nobody; not part of a report."""
    step: int | None = None
    """Step of the training at which it begins; not part of a report."""
    row: int | None = None
    """Row of `Dataset.ops` that shows it best, of the first culprit if possible; not part of a report."""


@dataclass(frozen=True)
class Divergence:
    """The first disagreement of the members of one group."""

    group: int
    seq: int
    op: str
    """The operation that most members issued there."""
    joined: tuple[int, ...]
    """Members that issued it."""
    absent: tuple[int, ...]
    """Members proven not to have issued it."""
    unknown: tuple[int, ...]
    """Members in an unknown state: no dump, overwritten, or an older dump."""
    differing: tuple[int, ...]
    """Members that issued another operation than the majority."""
    consequence: bool
    """The group waits because of another group."""
    pending_since_ns: int | None


@dataclass(frozen=True)
class Reason:
    """One line of an explanation."""

    about: str
    """Subject of the line: rule, evidence, against, clears, also, waits, root, state, unlike or close."""
    evidence: Evidence


@dataclass(frozen=True)
class RankExplanation:
    """The reasons why a rank is accused, or why not."""

    rank: int
    accused: bool
    finding: str | None
    """Id of the finding that accuses the rank or explains its wait."""
    title: str
    lines: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Analysis:
    """The verdict with all its grounds."""

    verdict: str
    """One line for a person."""
    status: Status
    findings: tuple[Finding, ...] = ()
    """Root causes first, the largest blast radius first."""
    divergences: tuple[Divergence, ...] = ()
    frozen_for_ns: int | None = None
    """Time without events before the dumps were written; None if it is unknown."""
    hang_since_ns: int | None = None
    """When the first operation that never completed was issued."""
    waits: dict[int, tuple[ChainStep, ...]] = field(default_factory=dict)
    """For each waiting rank, its chain to the root."""
    whys: tuple[RankExplanation, ...] = ()
    """Explanations that the user asked for."""
    mesh: Mesh | None = None
    """The grid that the groups form; None if they do not clearly form one."""
    parts: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Results of features by their names; a feature reads and adds its own by its `FeaturePart`."""

    @property
    def cause(self) -> Finding | None:
        """The first root cause; None if there is none."""
        return next((f for f in self.findings if f.root_cause), None)

    @property
    def suspects(self) -> tuple[int, ...]:
        """The culprits; where nobody is accused, those of whom one is to blame."""
        return self.culprits or (tuple(sorted(self.cause.candidates)) if self.cause else ())

    @property
    def culprits(self) -> tuple[int, ...]:
        """The union of culprit ranks over root causes, sorted."""
        return tuple(sorted({r for f in self.findings if f.root_cause for r in f.culprit_ranks}))

    @property
    def differs(self) -> bool:
        """Whether members of a group issued different operations."""
        return any(divergence.differing for divergence in self.divergences)

    @property
    def is_critical(self) -> bool:
        """Whether any finding is critical."""
        return any(f.severity == "critical" for f in self.findings)


@dataclass(frozen=True)
class FeaturePart(Generic[T]):
    """The place of a feature's result in an analysis."""

    name: str
    """Name of the row of the feature."""

    def find(self, analysis: Analysis) -> T | None:
        """The result; None if the job had nothing for it."""
        return analysis.parts.get(self.name)

    def of(self, analysis: Analysis) -> T:
        """The result; KeyError if the job had nothing for it."""
        result: T = analysis.parts[self.name]
        return result

    def put(self, analysis: Analysis, result: T) -> Analysis:
        """The analysis with this result."""
        return replace(analysis, parts={**analysis.parts, self.name: result})


# The device mesh: parallel dimensions that form a grid, and the place of each rank on it. Plain frozen data.


@dataclass(frozen=True)
class Dimension:
    """One parallel dimension of a job."""

    name: str
    """Usual name: "tp", "pp", "dp", "ep", "cp"; or the name in a mesh; "dim0" if no group tells."""
    size: int
    stride: int | None
    """Distance in ranks from one place to the next; None if it varies."""

    def __str__(self) -> str:
        return f"{self.name} {self.size}"


@dataclass(frozen=True)
class Misfit:
    """A group that differs from what the others of its kind imply."""

    group: int
    """Row of `Dataset.groups`."""
    members: tuple[int, ...]
    expected: tuple[int, ...]
    duplicated: tuple[int, ...]
    """Ranks that belong to another group of its kind, or are in it twice."""
    missing: tuple[int, ...]
    """Ranks that belong to it, but are in no group of its kind."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The misplaced ranks, sorted."""
        return tuple(sorted({*self.duplicated, *self.missing}))


@dataclass(frozen=True)
class Mesh:
    """A grid of ranks. Coordinates are in the order of `dimensions`."""

    dimensions: tuple[Dimension, ...]
    """Outermost first: the last one runs fastest over the ranks."""
    places: Mapping[int, tuple[int, ...]]
    """The coordinates of each rank on the grid."""
    world_size: int
    """Ranks of the job; more than the places if some ranks are outside of the grid."""
    also: tuple[tuple[Dimension, Mapping[int, int]], ...] = ()
    """Dimensions that cross those of the grid (expert parallel), each with the place of every rank in it."""
    misfits: tuple[Misfit, ...] = field(default=())

    def place(self, rank: int) -> tuple[int, ...] | None:
        """The coordinates of a rank; None if it is not on the grid."""
        return self.places.get(rank)

    def along(self, name: str) -> dict[int, int] | None:
        """The place of every rank in one dimension; None if there is no such dimension."""
        for axis, dimension in enumerate(self.dimensions):
            if dimension.name == name:
                return {rank: place[axis] for rank, place in self.places.items()}
        return next((dict(places) for dimension, places in self.also if dimension.name == name), None)

    def where(self, rank: int) -> str:
        """The place of a rank in words: "pp 1, dp 2, tp 0"; "" if it has none."""
        place = self.places.get(rank)
        if place is None:
            return ""
        parts = [f"{d.name} {at}" for d, at in zip(self.dimensions, place, strict=True)]
        parts += [f"{d.name} {places[rank]}" for d, places in self.also if rank in places]
        return ", ".join(parts)

    def __str__(self) -> str:
        """The grid in words: "pp 2 x dp 4 x tp 2, tp innermost"."""
        text = " x ".join(str(d) for d in self.dimensions)
        if self.dimensions and self.dimensions[-1].stride == 1:
            text += f", {self.dimensions[-1].name} innermost"
        if self.also:
            text += "; also " + ", ".join(str(d) for d, _ in self.also)
        if len(self.places) < self.world_size:
            text += f"; {len(self.places):,} of {self.world_size:,} ranks are on it"
        return text
