"""The job as findings of dumps leave it to other evidence."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.analysis.facts import Facts
from rankscope.analysis.places import Places


@dataclass(frozen=True, slots=True)
class Scene:
    """All that a feature needs beside the findings to join them with evidence of its own."""

    facts: Facts
    places: Places
    still: bool
    """Whether the job is known to have stopped, and all dumps are of that time."""
    moves: bool
    """Whether it is watched and goes on: missing lines may still come."""
