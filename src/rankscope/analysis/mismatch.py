"""Members that issued different operations at the same place; replicas and the group itself tell the minority."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from rankscope.analysis.call_sites import CallSites, Program
from rankscope.analysis.facts import UNKNOWN_NAME, Facts
from rankscope.analysis.graph import Root, WaitNode
from rankscope.analysis.instances import Instance, calls_at
from rankscope.analysis.replicas import ReplicaCohorts, Signature, signature
from rankscope.analysis.signatures import SAME_SIZE_LIBRARIES, SAME_SIZE_OPS
from rankscope.schema import Dataset
from rankscope.text.wording import plural, rank_ranges, ranks_text

FEW_REPLICAS = "only two replicas to compare"
EQUAL_SIZE_OPS = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")
"""Operations that can finish with equal sizes on all members, even if the operations differ."""


def find_mismatches(facts: Facts, cohorts: ReplicaCohorts) -> list[Root]:
    """The first disagreement of every group that did not go on together afterwards, oldest first.

    Different types, different operations of equal sizes, and sizes that must be equal and are not, may finish without
    a hang: the results are wrong, which is told, too.
    """
    found = facts.disagreements
    wrong = pl.col("settled") & pl.col("dtypes") & ~pl.col("ops")
    first = pl.concat([found.filter(~pl.col("settled") | wrong), _met(facts), _uneven(facts)])
    first = first.sort("settled", "group", "seq").unique("group", keep="first", maintain_order=True)
    settled = set(first.filter("settled").select("group", "seq").iter_rows())
    instances = calls_at(facts, first)
    roots = [_judge(facts, cohorts, instances[key], key in settled) for key in sorted(instances)]
    if roots and not facts.dataset.stacks.is_empty():
        sites = CallSites(facts)
        roots = [_with_branch(sites, root) for root in roots]
    return sorted(roots, key=lambda root: (root.since_ns, root.culprits))


def _met(facts: Facts) -> pl.DataFrame:
    """Instances in which all members issued different operations with equal numbers of elements, and finished them.

    Without gloo: it marks failed operations as finished, and its dumps may merge two groups.
    """
    other = pl.col("settled") & pl.col("ops") & pl.col("finished") & ~pl.col("sizes")
    other &= ~pl.col("group").is_in(list(facts.gloo_groups))
    found = facts.disagreements.filter(other)
    if found.is_empty():
        return found
    groups = {"group": [g.id for g in facts.groups], "size": [len(g.ranks) for g in facts.groups]}
    sizes = pl.DataFrame(groups, schema={"group": pl.UInt32, "size": pl.UInt32})
    plain = pl.col("key").cast(pl.String).is_in(EQUAL_SIZE_OPS) & pl.col("elements").is_not_null()
    met = (
        facts.calls_at(found)
        .group_by("group", "seq")
        .agg(plain=plain.fill_null(False).all(), size=pl.len())
        .filter("plain")
        .join(sizes, on=["group", "size"], how="semi")
    )
    return found.join(met, on=["group", "seq"], how="semi")


def _uneven(facts: Facts) -> pl.DataFrame:
    """Instances of one operation that all finished, although their sizes must be equal and are not."""
    found = facts.disagreements.filter(pl.col("settled") & pl.col("sizes") & ~pl.col("ops") & pl.col("finished"))
    if found.is_empty():
        return found
    op, library = pl.col("op").cast(pl.String), pl.col("library").cast(pl.String)
    equal = op.is_in(SAME_SIZE_OPS) & library.is_in(SAME_SIZE_LIBRARIES) & pl.col("elements").is_not_null()
    calls = facts.calls_at(found).group_by("group", "seq").agg(equal=equal.fill_null(False).all())
    return found.join(calls.filter("equal"), on=["group", "seq"], how="semi")


def _judge(facts: Facts, cohorts: ReplicaCohorts, instance: Instance, settled: bool) -> Root:
    votes = {rank: signature(e) for rank, e in instance.entries.items() if e.op}
    without_name = instance.group in facts.open_groups and is_unnamed(facts.dataset, instance.group)
    several = without_name and are_several(facts.dataset, instance.group)
    culprits, right, reasons = (
        (sorted(votes), None, (SEVERAL_GROUPS_REASON,))
        if several
        else _accuse(cohorts, instance, votes, _silent(facts, instance, votes))
    )
    kind = _kind(votes)
    reference = right or Counter(votes[r] for r in sorted(votes)).most_common(1)[0][0]
    shifted = kind == "collective-mismatch" and right is not None and _shifted(facts, instance, culprits, reference)
    if shifted:
        kind = "extra-collective"
    root = Root(
        kind=kind,
        culprits=() if right is None and instance.group in facts.open_groups else tuple(culprits),
        nodes=(WaitNode("op", -1, instance.key),),
        focus=instance,
        title=_title(instance, kind, culprits, votes, facts.label(instance.group)),
        explanation=_explain(facts, instance, votes, culprits, shifted),
        candidates=() if right else tuple(culprits),
        notes={rank: f"issued {vote}" for rank, vote in votes.items()},
        needs_stillness=False,
        settled=settled,
        next_steps=("Compare the stacks of the ranks at this operation: the branch that differs is the bug.",),
    )
    if right and instance.group in facts.open_groups:
        reasons += ("members without a log may have called either",)
    if without_name and not several:
        reasons += (UNNAMED_GROUP_REASON,)
    if all(e.state == "unknown" for e in instance.entries.values()):
        reasons += ("logs do not show whether it finished, and a lost line would shift the lines after it",)
    elif all(not e.pending for e in instance.entries.values()) and (settled or instance.group not in facts.gloo_groups):
        reasons += ("it finished anyway: no hang, but wrong results",)
    return root if right and not reasons else root.weaken("medium" if right and not without_name else "low", *reasons)


def _accuse(
    cohorts: ReplicaCohorts, instance: Instance, votes: dict[int, Signature], silent: int
) -> tuple[list[int], Signature | None, tuple[str, ...]]:
    """(culprits, correct signature, reasons for doubt): the minority; in a tie as replicas decide; else everybody.

    `silent` members may be on either side, and must not be able to change the majority: else the minority is only
    suspected, without a correct signature, where most members spoke.
    """
    counts = Counter(votes[r] for r in sorted(votes))
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    if len(ranked) > 1 and ranked[0][1] > ranked[1][1] + silent:
        right = ranked[0][0]
        return sorted(r for r, v in votes.items() if not v.fits(right)), right, ()
    voted = cohorts.expected(instance)
    if voted is not None and any(v.fits(voted[0]) for v in votes.values()):
        right, replicas = voted
        reasons = () if replicas > 1 else (FEW_REPLICAS,)
        return sorted(r for r, v in votes.items() if not v.fits(right)), right, reasons
    if silent and len(ranked) > 1 and ranked[0][1] > ranked[1][1]:
        reason = f"{plural(silent, 'more member')} left no record of the call, which may turn the vote"
        odd = sorted(r for r, v in votes.items() if not v.fits(ranked[0][0]))
        return odd if silent < len(votes) else sorted(votes), None, (reason,)
    return sorted(votes), None, ("the members are evenly split, and no replica of the group decides",)


def _silent(facts: Facts, instance: Instance, votes: dict[int, Signature]) -> int:
    """Number of silent members of a group that is known only from log lines, without its size."""
    if instance.group not in facts.open_groups:
        return 0
    return max(0, len(facts.groups[instance.group].ranks) - len(votes))


def _kind(votes: dict[int, Signature]) -> str:
    if len({v.op for v in votes.values()}) > 1:
        return "collective-mismatch"
    if len({v.dtype for v in votes.values() if v.dtype}) > 1:
        return "dtype-mismatch"
    return "size-mismatch"


def _shifted(facts: Facts, instance: Instance, culprits: list[int], right: Signature) -> bool:
    """Whether the others issued here what the culprits issued next: the culprits inserted one operation."""
    after = pl.DataFrame(
        {"group": [instance.group], "seq": [instance.seq + 1]}, schema={"group": pl.UInt32, "seq": pl.Int64}
    )
    following = calls_at(facts, after).get((instance.group, instance.seq + 1))
    if following is None:
        return False
    entries = [following.entries.get(rank) for rank in culprits]
    others = [e for r, e in following.entries.items() if r not in culprits and e.op]
    moved = all(entry is not None and signature(entry).fits(right) for entry in entries)
    return moved and not any(signature(e).fits(right) for e in others)


def _title(instance: Instance, kind: str, culprits: list[int], votes: dict[int, Signature], label: str) -> str:
    place = _place(instance.seq, label)
    say = {"collective-mismatch": _op, "extra-collective": _op, "dtype-mismatch": _type}.get(kind, _size)
    own = " / ".join(dict.fromkeys(say(votes[r]) for r in culprits))
    if len(culprits) == len(votes):
        return f"{ranks_text(culprits)} disagree at {place}: {own}"
    if kind == "extra-collective":
        return f"{ranks_text(culprits)} issued an extra {own} at {place}"
    others = " / ".join(dict.fromkeys(say(votes[r]) for r in sorted(votes) if r not in culprits))
    where = place if say is _op else f"{instance.op} {place}"
    verb = "issued" if say is _op else "passed"
    return f"{ranks_text(culprits)} {verb} {own} and the others {others} at {where}"


def _place(seq: int, label: str) -> str:
    return f"#{seq} of {label}" if label != UNKNOWN_NAME else f"#{seq}"


def _op(vote: Signature) -> str:
    return vote.op


def _type(vote: Signature) -> str:
    return vote.dtype_text or "nothing"


def _size(vote: Signature) -> str:
    return "no size" if vote.elements is None else plural(vote.elements, "element")


def _explain(facts: Facts, instance: Instance, votes: dict[int, Signature], culprits: list[int], shifted: bool) -> str:
    by_vote: dict[str, list[int]] = {}
    for rank in sorted(votes):
        by_vote.setdefault(str(votes[rank]), []).append(rank)
    sides = "; ".join(f"{ranks_text(ranks)}: {vote}" for vote, ranks in by_vote.items())
    members = rank_ranges(facts.groups[instance.group].ranks)
    text = f"At {_place(instance.seq, facts.label(instance.group))} [{members}] the members do not agree: {sides}."
    if shifted:
        text += (
            f" {ranks_text(culprits).capitalize()} issued the operation of the others one later: there is one "
            "collective too many."
        )
    return text


def _with_branch(sites: CallSites, root: Root) -> Root:
    """The root with the call at which its culprits left the way of their peers, if that is an earlier one.

    Behind a branch, operations and sizes may fit by accident for a while; the call sites differ from it on.
    """
    focus, facts = root.focus, sites.facts
    peer = next((rank for rank in sorted(focus.entries) if rank not in root.culprits), None) if focus else None
    if focus is None or peer is None or not root.culprits or root.candidates:
        return root
    seq = _branch(sites.program(root.culprits[0]), sites.program(peer), focus.group, focus.seq)
    if seq is None:
        return root
    place = pl.DataFrame({"group": [focus.group], "seq": [seq]}, schema={"group": pl.UInt32, "seq": pl.Int64})
    instance = calls_at(facts, place)[focus.group, seq]
    line, theirs = sites.parting(instance.entries[root.culprits[0]].row, instance.entries[peer].row)
    who = ranks_text(root.culprits)
    voters = sites.votes(focus.group, seq)
    alone = voters[root.culprits[0]] <= len(root.culprits) and voters[peer] > len(root.culprits) + 1
    reasons = tuple(reason for reason in root.reasons if not (alone and reason == FEW_REPLICAS))
    return replace(
        root,
        focus=instance,
        title=f"{who} left the way of the others before {instance.name} of {facts.label(focus.group)}: came from "
        f"{line}, not {theirs}; #{focus.seq} does not fit",
        explanation=f"{who.capitalize()} came to {instance.name} from {line} and the others from {theirs}. Operations "
        f"and sizes fit by accident until #{focus.seq}. {root.explanation}",
        notes={rank: f"issued {instance.name} at {line}" for rank, line in sites.lines(instance).items()},
        confidence="high" if alone and not reasons else root.confidence,
        reasons=reasons,
        next_steps=(f"Find out why {who} was at {line} there, and the others at {theirs}.",),
    )


def _branch(one: Program, other: Program, group: int, seq: int) -> int | None:
    """The first sequence number of the last stretch before `seq` in which two members issue a group's calls from
    different sites; None if there is none, or it begins where their records begin."""
    sides = []
    for program in (one, other):
        kept = (program.group == group) & (program.seq < seq)
        sides.append(dict(zip(program.seq[kept].tolist(), program.token[kept].tolist(), strict=True)))
    shared = sorted(sides[0].keys() & sides[1].keys(), reverse=True)
    equal = next((number for number in shared if sides[0][number] == sides[1][number]), None)
    return equal + 1 if equal is not None and equal + 1 < seq and equal + 1 in shared else None


# Lines of torch 2.3 and older do not name the process group, so numbers of several groups share one lane.

UNNAMED_GROUP_REASON = "the lines do not name the group: in a job with several, these may be operations of two"
SEVERAL_GROUPS_REASON = "the lines do not name the group, and there are several: these may be operations of two"


def is_unnamed(dataset: Dataset, group: int) -> bool:
    """Whether a group is known only from lines without a name."""
    found = dataset.group_list[group]
    return not found.name and not found.description and found.membership == "inferred"


def are_several(dataset: Dataset, group: int) -> bool:
    """Whether the unnamed lines of a group are of more than one group.

    Then a rank waits in works that do not follow each other, or its place in a group is not its rank.
    """
    own = dataset.ops.filter((pl.col("group") == group) & pl.col("seq").is_not_null())
    spans = own.group_by("rank").agg(n=pl.col("seq").n_unique(), over=pl.col("seq").max() - pl.col("seq").min() + 1)
    if spans.filter(pl.col("n") < pl.col("over")).height:
        return True
    lines = dataset.messages.filter((pl.col("kind") == "watchdog-timeout") & pl.col("rank").is_not_null())
    return any(_elsewhere(rank, orjson.loads(values)) for rank, values in lines.select("rank", "values").iter_rows())


def _elsewhere(rank: int, values: dict[str, Any]) -> bool:
    return values.get("pg_guid") is None and values.get("rank_in_group") not in (None, rank)


# All-to-alls in which one rank sends another a different amount than that one expects.

Amounts = npt.NDArray[np.int64]
"""Shape (members, members): elements from the row's member to the column's."""
MOST_ALL_TO_ALLS = 64
"""Most all-to-alls examined per group: the first not known to be finished, and the newest."""
MOST_PAIRS = 3


def find_wrong_splits(facts: Facts) -> list[Root]:
    """A root for each group with an inconsistent all-to-all: its first one."""
    roots: list[Root] = []
    for key, instance in sorted(calls_at(facts, _looked_at(facts)).items()):
        if roots and roots[-1].focus is not None and roots[-1].focus.group == instance.group:
            continue
        amounts = _amounts(facts, instance)
        if amounts is not None and (amounts[0] != amounts[1]).any():
            roots.append(_root(facts, instance, *amounts, WaitNode("op", -1, key)))
    return roots


def _looked_at(facts: Facts) -> pl.DataFrame:
    """The all-to-alls in which a group may have stopped: group, seq."""
    calls = facts.calls.select("group", "seq", "key", "state").filter(pl.col("key").cast(pl.String) == "all_to_all")
    found = calls.group_by("group", "seq").agg(done=(pl.col("state") == "completed").all()).sort("group", "seq")
    by_group = found.filter(~pl.col("done")).group_by("group", maintain_order=True)
    newest = found.group_by("group", maintain_order=True).tail(MOST_ALL_TO_ALLS)
    return pl.concat([by_group.head(MOST_ALL_TO_ALLS), newest]).select("group", "seq").unique()


def _amounts(facts: Facts, instance: Instance) -> tuple[Amounts, Amounts] | None:
    """The amounts that each member sends and expects; None unless all members record them."""
    members = facts.groups[instance.group].ranks
    if len(members) < 2 or set(instance.entries) != set(members):
        # an all-to-all of one: the others of the group are not known
        return None
    rows = facts.dataset.ops[[instance.entries[rank].row for rank in members]]
    sent, expected = (_elements(rows[name].to_list(), len(members)) for name in ("in_sizes", "out_sizes"))
    return None if sent is None or expected is None else (sent, expected.T)


def _elements(sizes: list[str | None], count: int) -> Amounts | None:
    lists: list[Any] = [orjson.loads(text) if text else None for text in sizes]
    if any(shapes is None or len(shapes) != count for shapes in lists):
        return None
    return np.array([[min(prod(shape), 2**62) for shape in shapes] for shapes in lists], np.int64)


def _root(facts: Facts, instance: Instance, sent: Amounts, expected: Amounts, node: WaitNode) -> Root:
    members = facts.groups[instance.group].ranks
    wrong = np.argwhere(sent != expected).tolist()
    pairs = [(members[i], members[j], int(sent[i, j]), int(expected[i, j])) for i, j in wrong]
    # the rank common to all inconsistent pairs; all ends if there is no such rank
    ends = Counter(rank for a, b, *_ in pairs for rank in (a, b))
    common = [rank for rank, count in ends.items() if count == len(pairs)]
    culprits = tuple(common) if len(common) == 1 else tuple(sorted(ends))
    label = f"{instance.name} of {facts.label(instance.group)}"
    told = "; ".join(
        f"rank {a} sends rank {b} {n:,} elements, which expects {m:,}" for a, b, n, m in pairs[:MOST_PAIRS]
    )
    more = f"; {len(pairs) - MOST_PAIRS} more pairs do not fit" if len(pairs) > MOST_PAIRS else ""
    root = Root(
        kind="size-mismatch",
        culprits=culprits,
        nodes=(node,),
        focus=instance,
        title=f"the splits of {ranks_text(culprits)} do not fit in {label}",
        explanation=f"In {label}, {told}{more}.",
        candidates=() if len(culprits) == 1 else culprits,
        needs_stillness=False,
        next_steps=("Print the split sizes of these ranks before the all_to_all: the sizes of both sides must agree.",),
    )
    return root if len(culprits) == 1 else root.weaken("low", "one against one: either side may be the wrong one")
