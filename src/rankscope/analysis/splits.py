"""An all-to-all in which one rank sends another a different amount than that one expects.

The sizes of an all-to-all may differ everywhere, but what a rank sends to a member must be what this member expects
from it. That is recorded where tensors are given as lists, with one for each member: the i-th input goes to the i-th
member, the i-th output comes from it (torch.distributed.all_to_all). One tensor with split sizes is recorded whole.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Node
from rankscope.analysis.instances import Instance, calls_at
from rankscope.analysis.root import Root
from rankscope.analysis.wording import ranks_text

Amounts = npt.NDArray[np.int64]
"""Shape (members, members): elements from the member of the row to that of the column."""
LOOKED_AT = 64
"""So many all-to-alls of each group are looked at: the first that are not known to be finished, and the newest."""
SHOWN = 3


def find_wrong_splits(facts: Facts) -> list[Root]:
    """A root for each group with an all-to-all whose members do not fit together: the first of them."""
    roots: list[Root] = []
    for key, instance in sorted(calls_at(facts, _looked_at(facts)).items()):
        if roots and roots[-1].focus is not None and roots[-1].focus.group == instance.group:
            continue
        amounts = _amounts(facts, instance)
        if amounts is not None and (amounts[0] != amounts[1]).any():
            roots.append(_root(facts, instance, *amounts, Node("op", -1, key)))
    return roots


def _looked_at(facts: Facts) -> pl.DataFrame:
    """The all-to-alls in which a group may have stopped: group, seq."""
    calls = facts.calls.select("group", "seq", "key", "state").filter(pl.col("key").cast(pl.String) == "all_to_all")
    found = calls.group_by("group", "seq").agg(done=(pl.col("state") == "completed").all()).sort("group", "seq")
    by_group = found.filter(~pl.col("done")).group_by("group", maintain_order=True)
    newest = found.group_by("group", maintain_order=True).tail(LOOKED_AT)
    return pl.concat([by_group.head(LOOKED_AT), newest]).select("group", "seq").unique()


def _amounts(facts: Facts, instance: Instance) -> tuple[Amounts, Amounts] | None:
    """What each member sends to each, and what that one expects; None unless all of them say so."""
    members = facts.groups[instance.group].ranks
    if set(instance.entries) != set(members):
        return None
    rows = facts.dataset.ops[[instance.entries[rank].row for rank in members]]
    sent, expected = (_elements(rows[name].to_list(), len(members)) for name in ("in_sizes", "out_sizes"))
    return None if sent is None or expected is None else (sent, expected.T)


def _elements(sizes: list[str | None], count: int) -> Amounts | None:
    lists: list[Any] = [orjson.loads(text) if text else None for text in sizes]
    if any(shapes is None or len(shapes) != count for shapes in lists):
        return None
    return np.array([[min(prod(shape), 2**62) for shape in shapes] for shapes in lists], np.int64)


def _root(facts: Facts, instance: Instance, sent: Amounts, expected: Amounts, node: Node) -> Root:
    members = facts.groups[instance.group].ranks
    wrong = np.argwhere(sent != expected).tolist()
    pairs = [(members[i], members[j], int(sent[i, j]), int(expected[i, j])) for i, j in wrong]
    culprits = _culprits(pairs)
    label = f"{instance.name} of {facts.label(instance.group)}"
    told = "; ".join(f"rank {a} sends rank {b} {n} elements, which expects {m}" for a, b, n, m in pairs[:SHOWN])
    more = f"; {len(pairs) - SHOWN} more pairs do not fit" if len(pairs) > SHOWN else ""
    root = Root(
        kind="size-mismatch",
        culprits=culprits,
        nodes=(node,),
        focus=instance,
        title=f"the splits of {ranks_text(culprits)} do not fit in {label}",
        explanation=f"In {label}, {told}{more}.",
        candidates=() if len(culprits) == 1 else culprits,
        needs_stillness=False,
        next_steps=(
            "Print the split sizes of these ranks in front of the all_to_all: each rank must tell the others.",
        ),
    )
    return root if len(culprits) == 1 else root.weaken("low", "one against one: either side may be the wrong one")


def _culprits(pairs: list[tuple[int, int, int, int]]) -> tuple[int, ...]:
    """The only rank that is an end of all pairs that do not fit; all ends where there is no such rank."""
    ends = Counter(rank for a, b, *_ in pairs for rank in (a, b))
    common = [rank for rank, count in ends.items() if count == len(pairs)]
    return tuple(common) if len(common) == 1 else tuple(sorted(ends))
