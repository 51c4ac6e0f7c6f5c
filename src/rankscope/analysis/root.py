"""What a rule says of one root before it is written out as a finding."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rankscope.analysis.graph import Node
from rankscope.analysis.instances import Instance
from rankscope.analysis.model import Confidence


@dataclass(frozen=True)
class Root:
    """One root cause: who, at which operation, and how sure."""

    kind: str
    culprits: tuple[int, ...]
    nodes: tuple[Node, ...]
    """Nodes of the graph that stand for it; empty for what is no part of the graph."""
    focus: Instance | None
    """The operation to show."""
    title: str
    explanation: str
    candidates: tuple[int, ...] = ()
    confidence: Confidence = "high"
    reasons: tuple[str, ...] = ()
    notes: dict[int, str] = field(default_factory=dict)
    """What to say of single ranks, as evidence."""
    cycle: tuple[int, ...] = ()
    """Ranks of a deadlock in the order in which they wait for each other."""
    needs_stillness: bool = True
    """Whether it proves nothing about a job that still moves."""
    residual: bool = False
    """Whether it is told only where nothing else accuses anybody: a hook does not record what may hold it up."""
    settled: bool = False
    """Whether the group went on afterwards: it made results wrong, and nobody wait."""
    next_steps: tuple[str, ...] = ()

    @property
    def since_ns(self) -> int:
        """When it began, for sorting; 0 if unknown."""
        times = [e.created_ns for e in self.focus.entries.values() if e.created_ns] if self.focus else []
        return min(times, default=0)

    def weaken(self, confidence: Confidence, *reasons: str) -> Root:
        """The same root, no surer than `confidence`."""
        order = ("high", "medium", "low")
        lower = max(self.confidence, confidence, key=order.index)
        return replace(self, confidence=lower, reasons=(*self.reasons, *reasons))
