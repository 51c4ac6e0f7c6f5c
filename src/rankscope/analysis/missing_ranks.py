"""Ranks without a dump, or with an old one; accused only if nothing recorded explains the wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import polars as pl

from rankscope.analysis.graph import Root, WaitNode
from rankscope.analysis.instances import Instance
from rankscope.analysis.sink_rules import SinkRules
from rankscope.schema.tables import AT_CRASH
from rankscope.text.wording import duration, ranks_text, wait_text

MOST_EVIDENCE = 3
_RECOLLECT_STEP = "Collect the files that could not be read again: they may have been copied before they were whole."
OUTDATED_NS = 10_000_000_000
"""A dump older than the newest by this much was not written with it."""


def find_missing(rules: SinkRules, others: list[Root]) -> list[Root]:
    """Ranks without a dump that others wait for, unless roots with evidence explain all of the waiting.

    A rank without a dump that belongs to an operation held up by such a root may wait there as the others do.
    """
    blocked = {
        instance.key for root in others if not root.residual for node in root.nodes for instance in rules.direct(node)
    }
    nodes = tuple(
        m[0]
        for m in rules.sinks
        if len(m) == 1 and m[0].kind == "no-dump" and not any(i.key in blocked for i in rules.direct(m[0]))
    )
    if not nodes:
        return []
    waiting = rules.held_up(nodes)
    behind = {rank for root in others if root.residual and root.kind == "missing-rank" for rank in root.candidates}
    return [_root(rules, nodes, frozenset(behind))] if waiting - _explained(rules, others) else []


def find_gone(rules: SinkRules, others: list[Root]) -> list[Root]:
    """Ranks whose only dump is older than the operation that others wait in: suspects, not culprits."""
    written = rules.reliability.written_ns
    newest = max(written.values(), default=0)
    suspects = _suspects(rules, others, lambda rank: newest - written.get(rank, newest) > OUTDATED_NS)
    if suspects is None:
        return []
    who, it = ranks_text(suspects.candidates), "it" if len(suspects.candidates) == 1 else "them"
    age = duration(newest - max(written[rank] for rank in suspects.candidates))
    return [
        replace(
            suspects,
            title=f"{who} left no dump since {suspects.title} waits for {it}",
            explanation=(
                f"{suspects.explanation}. The last dump of {who} is older than that wait, and {age} older than the "
                "newest dump: the process ended, died or cannot dump, or its newer dump was not collected."
            ),
            reasons=("an old dump does not show what the rank did afterwards",),
            next_steps=(f"Does the process of {who} still run? Read the end of its log, and dump again if it does.",),
        )
    ]


def find_cut(rules: SinkRules, others: list[Root]) -> list[Root]:
    """Awaited ranks whose dumps were read only in part, so the rest may hold the operation. Suspects, not culprits."""
    suspects = _suspects(rules, others, rules.facts.presence.cut)
    if suspects is None:
        return []
    alone, who = len(suspects.candidates) == 1, ranks_text(suspects.candidates)
    rows = rules.facts.dataset.dumps.select("rank", "path", "problem").drop_nulls()
    problems = {rank: f"{path}: {problem}" for rank, path, problem in rows.iter_rows()}
    dumps, it = ("dump", "it") if alone else ("dumps", "them")
    return [
        replace(
            suspects,
            title=f"the {dumps} of {who} could be read only in part, and {suspects.title} waits for {it}",
            explanation=f"{suspects.explanation}. The unread part would show whether {who} issued it.",
            reasons=("the unread part of a file may show that its rank also waits",),
            notes={rank: problems[rank] for rank in suspects.candidates[:8] if rank in problems},
            next_steps=(_RECOLLECT_STEP, f"Run py-spy dump on {who}, or read the end of its log: what is it doing?"),
        )
    ]


def _suspects(rules: SinkRules, others: list[Root], fits: Callable[[int], bool]) -> Root | None:
    """The ranks in an unknown state that hold up a rank whose wait no other root explains; None if there are none.

    The title is the awaited operation, the explanation the ranks that wait in it.
    """
    nodes = tuple(
        m[0] for m in rules.sinks if len(m) == 1 and m[0].kind == "unknown" and fits(m[0].rank) and rules.direct(m[0])
    )
    if not nodes or not rules.held_up(nodes) - _explained(rules, others):
        return None
    focus, ranks = _awaited(rules, nodes), tuple(sorted(node.rank for node in nodes))
    label = f"{focus.name} of {rules.facts.label(focus.group)}"
    waiting = f"{wait_text(focus.waiting())} in {label}"
    return Root("missing-rank", (), nodes, focus, label, waiting, candidates=ranks, confidence="low")


def _explained(rules: SinkRules, others: list[Root]) -> set[int]:
    return set().union(*(rules.held_up(root.nodes) for root in others if not root.residual))


def _awaited(rules: SinkRules, nodes: tuple[WaitNode, ...]) -> Instance:
    """The first operation that waits for one of the `nodes`."""
    waits = (instance for node in nodes for instance in rules.direct(node)[:1])
    return min(waits, key=lambda i: (i.is_pair, i.since_ns or 0, i.key))


def _root(rules: SinkRules, nodes: tuple[WaitNode, ...], behind: frozenset[int]) -> Root:
    """The root of ranks without a dump; other `behind` ranks that show no wait may be the cause as well."""
    ranks = tuple(sorted(node.rank for node in nodes))
    focus, facts = _awaited(rules, nodes), rules.facts
    label = f"{focus.name} of {facts.label(focus.group)}"
    few = len(ranks) < len(facts.presence.seen)
    looked = facts.dataset.threads.filter(pl.col("tool").ne_missing(AT_CRASH))
    alive = sorted(set(looked["rank"].drop_nulls()) & set(ranks))
    unread = {rank: facts.dataset.unread_dumps[rank] for rank in ranks if rank in facts.dataset.unread_dumps}
    reasons = ["a rank that died leaves no dump, and neither does one whose dump was not collected"]
    if unread:
        # it may wait as the others do
        few, reasons = False, ["a file that cannot be read may show that its rank also waits"]
    unlooked = bool(facts.dataset.unread_directories)
    if unlooked:
        few = False
        path, problem = facts.dataset.unread_directories[0]
        reasons.append(f"a directory that was not read may hold a dump ({path}: {problem})")
    if behind - set(ranks) or any(map(facts.is_blind, focus.waiting())):
        few = False
        reasons.append("the backend does not record whether operations finish: others may be stuck as well")
    if len(ranks) > 1 and len(alive) < len(ranks):
        reasons.append("one of them may have died and taken the others with it")
    return Root(
        kind="missing-rank",
        culprits=ranks if few else (),
        nodes=nodes,
        focus=focus,
        title=f"{_without(ranks, unread, unlooked)}, and {label} waits for {'it' if len(ranks) == 1 else 'them'}",
        explanation=(
            f"{wait_text(focus.waiting())} in {label}. Every member with a readable dump has "
            f"joined{_known(ranks, unread, unlooked, alive, hooked=focus.group in facts.hook_groups)}."
        ),
        candidates=() if few else tuple(sorted({*ranks, *behind})),
        confidence="medium" if few else "low",
        reasons=tuple(reasons),
        notes={rank: f"{unread[rank][0]}: {unread[rank][1]}" if rank in unread else "no dump" for rank in ranks[:8]},
        next_steps=(
            *((_RECOLLECT_STEP,) if unread else ()),
            f"Read the end of the logs of {ranks_text(ranks)} and dmesg of their hosts (out of memory, signals, Xid).",
            "Collect their dumps if they exist, and run again.",
        ),
    )


def _without(ranks: tuple[int, ...], unread: Mapping[int, tuple[str, str]], unlooked: bool) -> str:
    """The absence of dumps in words; `unlooked` says that directories were not read."""
    if unlooked and len(unread) < len(ranks):
        return f"no dump of {ranks_text(ranks)} was read"
    if not unread:
        return f"{ranks_text(ranks)} left no dump"
    if len(unread) == len(ranks):
        dumps = "the dump" if len(ranks) == 1 else "the dumps"
        return f"{dumps} of {ranks_text(ranks)} could not be read"
    return f"no dump of {ranks_text(ranks)} could be read"


def _known(
    ranks: tuple[int, ...], unread: Mapping[int, tuple[str, str]], unlooked: bool, alive: list[int], *, hooked: bool
) -> str:
    """The known facts about ranks without a dump."""
    broken = "; ".join(f"that of rank {rank} could not ({unread[rank][1]})" for rank in sorted(unread)[:MOST_EVIDENCE])
    more = f" and {len(unread) - MOST_EVIDENCE} more" if len(unread) > MOST_EVIDENCE else ""
    none = tuple(rank for rank in ranks if rank not in unread)
    own = [rank for rank in alive if rank in none]
    left = "left none, or it lies in a directory that was not read" if unlooked else "left none"
    left = f"{ranks_text(none)} {left}: {_fate(none, own, hooked=hooked)}" if none else ""
    return "".join(f"; {part}" for part in (f"{broken}{more}", left) if part)


def _fate(ranks: tuple[int, ...], alive: list[int], *, hooked: bool) -> str:
    if not alive:
        if hooked:
            # torch 2.15: each rank dumps when its own watchdog sees a timeout, and no rank tells the others
            who, died = ("it waits", "it died") if len(ranks) == 1 else ("they wait", "they died")
            return f"{who} for nothing, so that no watchdog wrote one, or {died}, or nobody collected it"
        if len(ranks) == 1:
            return "the process died, or was killed before it could write, or nobody collected its dump"
        return "they died, or were killed before they could write, or nobody collected theirs"
    seen = f"stacks show {ranks_text(alive)} alive"
    return seen if len(alive) == len(ranks) else f"{seen}, the others died or were killed before they could write"
