"""Sends and receives that one rank never matched, told by all who wait for it, where there are no replicas.

Of one unmatched send nobody can say whether its receive was left out or it is one too many. Two that wait for the same
rank, or two ranks that never matched the same one, leave a single rank that explains both.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Node
from rankscope.analysis.instances import Instance
from rankscope.analysis.root import Root
from rankscope.analysis.wording import ranks_text


def find_common(facts: Facts, unmatched: Sequence[Instance], component: tuple[Node, ...]) -> Root | None:
    """The rank that is an end of all that is unmatched, always the one that posted it, or never."""
    posted = {rank for i in unmatched for rank in i.entries}
    absent = {rank for i in unmatched for rank in i.key[1:3] if rank not in i.entries}
    one, many = (absent, posted) if len(absent) == 1 else (posted, absent)
    if len(one) != 1 or len(many) < 2 or not all(i.counted for i in unmatched):
        return None
    rank, others = min(one), ranks_text(sorted(many))
    focus = min(unmatched, key=lambda i: (i.since_ns or 0, i.key))
    label, names = facts.label(focus.group), " and ".join(sorted(i.name for i in unmatched))
    left_out = one == absent
    if left_out:
        did = f"left out its side of {names}"
        told = f"{others.capitalize()} posted {names}; rank {rank} did not post the other sides, and went on."
    else:
        did = f"alone issued {names}"
        told = f"Rank {rank} posted {names}; {others} did not post the other sides, and went on."
    return Root(
        kind="p2p-unmatched",
        culprits=(rank,),
        nodes=component,
        focus=focus,
        title=f"rank {rank} {did} in {label}",
        explanation=f"{told} Now they wait for each other. Rank {rank} is the only one that explains all of it.",
        notes={rank: "never posted its side; this is the last it issued"} if left_out else {},
        confidence="medium",
        reasons=(f"no replica to compare with: {others} may be wrong in the same way",),
        next_steps=(f"Compare the stacks of rank {rank} and {others} with the schedule.",),
    )
