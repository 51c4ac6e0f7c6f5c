"""Gains of mending, in words."""

from __future__ import annotations

from rankscope.features.whatif.model import Gain, WhatIf
from rankscope.text.wording import duration, ranks_text

MOST_LISTED_RANKS = 8
_UNITS_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
EXPLANATIONS = {
    "worker": "A simulated step keeps all else as recorded, and has these ranks compute as long as the others of their "
    "stage.",
    "stage": "A simulated step keeps all else as recorded, and gives all stages equally much to compute. Each rank of "
    "the stage takes as long, so no rank is the cause.",
    "sequence": "A simulated step keeps all else as recorded, and gives all micro batches equally much to compute. "
    "Times vary in forward and backward alike, and on no rank more than on others.",
    "link": "A simulated step keeps all else as recorded, and has these transfers take as long as "
    "others of their kind.",
    "launch": "A step is simulated in which each operation begins when all that it waits for has ended.",
}
"""By cause how its gain was simulated."""
ADVICE = {
    "worker": "Look at clocks, temperature and other processes of these ranks, and take their host out if it stays",
    "stage": "Move layers from the longest stage to others; the last has the loss, the first the embedding",
    "sequence": "Balance the sum of squared sequence lengths over ranks and micro batches when they are packed",
    "link": "Look at the network between these ranks: cables, routes, counters of errors",
    "launch": "Look at what the host does there: data loading, garbage collection, launches",
}
"""By cause what one does about it."""


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
    """Two durations of three digits in the unit of the first: "46.3 -> 23.5 s"."""
    unit = duration(before_ns).partition(" ")[2]
    if unit not in _UNITS_NS:
        return f"{duration(before_ns)} -> {duration(after_ns)}"
    before, after = (f"{value / _UNITS_NS[unit]:#.3g}".rstrip(".") for value in (before_ns, after_ns))
    return f"{before} -> {after} {unit}"


def part_text(share: float) -> str:
    """A part of a slowdown: "all", "none", or its percentage. Shares beyond 1 mean that a step gets shorter still."""
    return "all" if share >= 0.995 else "none" if share < 0.005 else f"{100 * share:.0f} %"


def slowdown_line(told: WhatIf) -> str:
    """The slowdown, and what it is of."""
    unit = "a step" if told.steps else "what was recorded"
    return (
        f"{unit} takes {duration(told.step_ns)} on average, {duration(told.ideal_ns)} if each operation were as long "
        f"as is typical of its kind: slowdown {told.slowdown:.3f}"
    )
