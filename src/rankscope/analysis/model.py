"""What an analysis says: findings with their evidence, and the verdict over them. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from rankscope.analysis.mesh import Mesh
from rankscope.kinds import finding_kinds
from rankscope.schema import Frame

if TYPE_CHECKING:
    from rankscope.analysis.traces.model import TraceAnalysis

Severity = finding_kinds.Severity
Confidence = Literal["high", "medium", "low"]
Status = finding_kinds.Status


@dataclass(frozen=True)
class Culprit:
    """Who is accused. A culprit known only by its host or process has no rank."""

    rank: int | None
    host: str | None = None
    pid: int | None = None
    device: str | None = None


@dataclass(frozen=True)
class Wait:
    """An operation a rank waits in."""

    group: str
    seq: int | None
    """Sequence number; for a send or receive the k-th between the two, None where that cannot be counted."""
    op: str
    row: int | None = None
    """Row of `Dataset.ops` of the rank that waits; not part of a report."""


@dataclass(frozen=True)
class Step:
    """One step of a chain: `rank` waits in an operation for `for_rank`."""

    rank: int
    waits_in: Wait
    for_rank: int


@dataclass(frozen=True)
class GroupRef:
    """The process group a finding is about."""

    id: str
    """Its name; what pg_config calls it."""
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
class Finding:
    """One thing that was found, in the form of the JSON report."""

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
    chain: tuple[Step, ...] = ()
    group: GroupRef | None = None
    seq: int | None = None
    op: str | None = None
    peer: int | None = None
    stack: tuple[Frame, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    counter_evidence: tuple[Evidence, ...] = ()
    """What speaks against it."""
    next_steps: tuple[str, ...] = ()
    row: int | None = None
    """Row of `Dataset.ops` that shows it best, of the first culprit if it has one; not part of a report."""


@dataclass(frozen=True)
class Divergence:
    """Where the members of one group first stop agreeing."""

    group: int
    seq: int
    op: str
    """What most members issued there."""
    joined: tuple[int, ...]
    """Members that issued it."""
    absent: tuple[int, ...]
    """Members proven not to have issued it."""
    unknown: tuple[int, ...]
    """Members of which it cannot be told: no dump, overwritten, or an older dump."""
    differing: tuple[int, ...]
    """Members that issued something else than the majority."""
    consequence: bool
    """The group waits because of another group."""
    pending_since_ns: int | None


@dataclass(frozen=True)
class Reason:
    """One line of an answer."""

    about: str
    """What it tells: rule, evidence, against, clears, also, waits, root, state, unlike or close."""
    evidence: Evidence


@dataclass(frozen=True)
class Why:
    """Why a rank is accused, or why not."""

    rank: int
    accused: bool
    finding: str | None
    """Id of the finding that accuses it, or that explains what it waits for."""
    title: str
    lines: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Analysis:
    """The verdict and everything it rests on."""

    verdict: str
    """One line for a person."""
    status: Status
    findings: tuple[Finding, ...] = ()
    """Root causes first, the largest blast radius first."""
    divergences: tuple[Divergence, ...] = ()
    frozen_for_ns: int | None = None
    """How long nothing had happened when the dumps were written; None where nothing tells."""
    hang_since_ns: int | None = None
    """When the first operation that never completed was issued."""
    waits: dict[int, tuple[Step, ...]] = field(default_factory=dict)
    """For each waiting rank, its chain to the root."""
    whys: tuple[Why, ...] = ()
    """Answers for ranks that somebody asked about."""
    mesh: Mesh | None = None
    """The grid that the groups form; None where they do not clearly form one."""
    traces: TraceAnalysis | None = None
    """What profilers' traces say; None where there are none."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """The union of culprit ranks over root causes, sorted."""
        return tuple(sorted({r for f in self.findings if f.root_cause for r in f.culprit_ranks}))

    @property
    def differs(self) -> bool:
        """Whether members of a group issued different things."""
        return any(divergence.differing for divergence in self.divergences)

    @property
    def is_critical(self) -> bool:
        """Whether any finding is critical."""
        return any(f.severity == "critical" for f in self.findings)
