"""Gains of mending, in words."""

from __future__ import annotations

from rankscope.features.whatif.model import Gain, WhatIf
from rankscope.text.wording import duration, ranks_text

MOST_LISTED_RANKS = 8


def gain_line(told: WhatIf, gain: Gain) -> str:
    """One thing that is worth mending, as "without rank 0: 46.6 -> 23.1 s a step (-51 %)"."""
    unit = "a step" if told.steps else "for what was recorded"
    return f"without {gain_noun(gain)}: {span(told.measured_ns, gain.step_ns)} {unit} (-{100 * gain.share:.0f} %)"


def gain_noun(gain: Gain) -> str:
    """The thing that is mended."""
    few = len(gain.ranks) <= MOST_LISTED_RANKS
    ranks = ranks_text(gain.ranks) if few else f"{len(gain.ranks):,} ranks"
    return {
        "worker": ranks,
        "stage": f"the imbalance of stages (stage {gain.stage} is the longest: {ranks})",
        "sequence": "the imbalance of sequence lengths",
        "link": f"the slow link of {ranks} ({gain.what})",
        "launch": "time between operations that no operation explains",
    }[gain.cause]


def span(before_ns: int, after_ns: int) -> str:
    """Two durations, with one unit where they share it: "46.3 -> 23.5 s"."""
    before, after = duration(before_ns), duration(after_ns)
    number, _, unit = before.partition(" ")
    return f"{number} -> {after}" if after.endswith(f" {unit}") else f"{before} -> {after}"


def part_text(share: float) -> str:
    """A part of a slowdown: "all", "none", or its percentage. Shares beyond 1 mean that a step gets shorter still."""
    return "all" if share >= 0.995 else "none" if share < 0.005 else f"{100 * share:.0f} %"


def slowdown_line(told: WhatIf) -> str:
    """The slowdown, and what it is of."""
    unit = "a step" if told.steps else "what was recorded"
    return (
        f"{unit} takes {duration(told.step_ns)}, {duration(told.ideal_ns)} if each operation were as long as is "
        f"typical of its kind: slowdown {told.slowdown:.3f}"
    )
