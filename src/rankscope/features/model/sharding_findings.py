"""Findings on the models of ranks: differences between peers, and what is not sharded, not wrapped or not reduced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis, Evidence, Finding
from rankscope.analysis.places import Places
from rankscope.analysis.verdict import with_records
from rankscope.features.model.model import (
    MODEL_RESULTS,
    HeavyRank,
    LooseParameters,
    ModelAnalysis,
    ModelDifference,
    PartialTensor,
    WholeParameter,
)
from rankscope.features.model.model_peers import find_differences, with_stages
from rankscope.features.model.shard_outliers import find_heavy, find_loose, find_partial, find_whole, held_by_rank
from rankscope.schema import Dataset
from rankscope.text.wording import byte_count, plural, ranks_text

MOST_EVIDENCE = 8
MOST_NAMES = 3
MOST_PEERS = 4
"""Most peers that a title lists."""
_NAMES_ONLY = "only the names tell that these ranks hold the same part of the model: no mesh, wrapper or group does"
_NO_MAJORITY = "no majority tells which side is right"
WARN_SHARE = 0.1
"""Share of the parameters of a rank from which one that is not sharded is a warning."""


def with_models(facts: Facts, analysis: Analysis) -> Analysis:
    """The analysis with findings on models; they stand behind the causes."""
    dataset = facts.dataset
    is_buffer = dataset.parameters["buffer"]
    rows = with_stages(dataset.parameters.filter(~is_buffer), analysis.mesh)
    partial = find_partial(rows)
    differences = [difference for difference in find_differences(rows) if not _is_partial(difference, partial)]
    shared = bool(rows["sure"].all())
    odd = frozenset(rank for difference in differences for rank in difference.odd)
    held = held_by_rank(rows, dataset.parameters.filter(is_buffer))
    model = ModelAnalysis(
        held,
        tuple(differences),
        tuple(find_whole(rows, odd)),
        tuple(find_loose(rows, odd)),
        tuple(partial),
        tuple(find_heavy(rows, held)),
    )
    written = [
        replace(f, id=f"f{at}") for at, f in enumerate(_findings(dataset, model, shared), len(analysis.findings) + 1)
    ]
    alone = "records of the models" if dataset.from_parameters else ""
    known = MODEL_RESULTS.put(analysis, model)
    return with_records(facts, known, written, alone, "no rank holds another model than its peers")


def _is_partial(difference: ModelDifference, partial: Sequence[PartialTensor]) -> bool:
    """Whether a difference of placements is told by a Partial parameter."""
    return difference.aspect == "placements" and any(
        tensor.few and tensor.ranks == difference.odd for tensor in partial
    )


def _findings(dataset: Dataset, model: ModelAnalysis, shared: bool) -> Iterator[Finding]:
    places = Places(dataset)
    paths: list[str] = dataset.files["path"].to_list()
    several: dict[tuple[int, ...], list[ModelDifference]] = defaultdict(list)
    for one in model.differences:
        several[one.odd].append(one)
    yield from (_mismatch(found, places, paths, shared) for found in several.values())
    yield from (_partial(one, places) for one in model.partial)
    whole_names = {one.name for one in model.whole}
    loose = {name: found for found in model.loose for name in found.names}
    yield from (_whole(one, loose.get(one.name)) for one in model.whole)
    for found in model.loose:
        names = tuple(name for name in found.names if name not in whole_names)
        if names:
            yield _loose(found._replace(names=names))
    yield from (_heavy(one, places) for one in model.heavy)


def _mismatch(differences: Sequence[ModelDifference], places: Places, paths: Sequence[str], shared: bool) -> Finding:
    """The finding on ranks that differ from their peers in one or several aspects.

    `shared`: a mesh, a wrapper or a group tells the peers.
    """
    first = differences[0]
    accused = first.accused and first.sure
    peers = ranks_text(first.peers) if len(first.peers) <= MOST_PEERS else f"{len(first.peers):,} peers"
    more = sum(difference.parameters for difference in differences[1:])
    rest = f", and {plural(more, 'more difference')}" if more else ""
    evidence = [
        Evidence(_sentence(difference), file=paths[file], rank=rank, line=line)
        for difference in differences[:MOST_EVIDENCE]
        for rank, file, line in difference.places[:1]
    ]
    reasons = () if accused and shared else (_NAMES_ONLY if not shared else _NO_MAJORITY,)
    return Finding(
        kind="model-mismatch",
        severity="warning" if first.sure else "info",
        title=f"the model of {ranks_text(first.odd)} differs from that of {peers}: {_sentence(first)}{rest}",
        explanation="Ranks that share parameters must hold the same model: collectives on it otherwise hang, fail "
        "or mix different values.",
        culprit_ranks=first.odd if accused else (),
        about=first.odd,
        culprits=tuple(map(places.culprit, first.odd)) if accused else (),
        candidates=() if accused or not first.sure else tuple(sorted((*first.odd, *first.peers))),
        confidence="low" if not accused else "high" if shared else "medium",
        confidence_reasons=reasons,
        evidence=tuple(evidence),
        next_steps=(
            "Build the model from one configuration on all ranks, and print names and shapes before it is wrapped.",
        ),
    )


def _sentence(one: ModelDifference) -> str:
    """The difference in words, with the ranks that have it."""
    who = ranks_text(one.odd)
    names = one.name + (f" and {one.parameters - 1:,} more" if one.parameters > 1 else "")
    verb = "lacks" if len(one.odd) == 1 else "lack"
    if one.aspect == "missing":
        return f"{who} {verb} {names}"
    if one.aspect == "extra":
        return f"only {who} {'has' if len(one.odd) == 1 else 'have'} {names}"
    aspect = {"requires_grad": "", "kind": "device "}.get(one.aspect, f"{one.aspect} ")
    return f"{names}: {aspect}{one.own} on {who}, {one.usual} on {ranks_text(one.peers)}"


def _partial(one: PartialTensor, places: Places) -> Finding:
    sure = one.what == "parameter" or one.stepped
    state = " and the optimizer used it so" if one.stepped else ""
    return Finding(
        kind="partial-tensor",
        severity="warning" if sure else "info",
        title=f"the {one.what} {one.name} is Partial on {ranks_text(one.ranks)}: nobody has reduced it{state}"
        if one.what == "parameter"
        else f"the gradient of {one.name} is Partial on {ranks_text(one.ranks)}: nobody has reduced it{state}",
        explanation="Each rank holds a summand. Operations of DTensor reduce it when they need to; code that takes "
        "to_local() computes with the summand.",
        culprit_ranks=one.ranks if one.few and sure else (),
        about=one.ranks,
        culprits=tuple(map(places.culprit, one.ranks)) if one.few and sure else (),
        confidence="high" if sure else "low",
        confidence_reasons=() if sure else ("the optimizer has not used it yet, and may reduce it",),
        next_steps=("Call redistribute() with Replicate() or Shard() before the values are used.",),
    )


def _whole(one: WholeParameter, loose: LooseParameters | None) -> Finding:
    ignored = one.wrapper == "ignored"
    why = {"ignored": "The wrapper was told to leave it.", "": "No wrapper and no plan took it."}.get(one.wrapper, "")
    reduced = f" The {loose.wrapper} wrapper does not reduce its gradient." if loose is not None else ""
    return Finding(
        kind="unsharded-parameter",
        severity="warning" if one.share >= WARN_SHARE and not ignored else "info",
        title=f"{one.name} is not sharded: each of {ranks_text(one.ranks)} holds all {byte_count(one.size)} of it, "
        f"{one.share:.0%} of its parameters",
        explanation=f"{plural(one.sharded, 'matrix') if one.sharded == 1 else f'{one.sharded:,} matrices'} of its "
        f"size are sharded. {why}{reduced}".strip(),
        about=one.ranks,
        confidence="medium",
        confidence_reasons=("a design may keep it whole",),
        next_steps=("Wrap its module too: fully_shard(model) behind its layers, or an entry in the plan.",),
    )


def _loose(one: LooseParameters) -> Finding:
    names = ", ".join(one.names[:MOST_NAMES]) + (
        f" and {len(one.names) - MOST_NAMES:,} more" if len(one.names) > MOST_NAMES else ""
    )
    return Finding(
        kind="unwrapped-parameter",
        severity="warning",
        title=f"no wrapper took {names} on {ranks_text(one.ranks)}: {one.wrapper} does not reduce "
        f"{'its gradient' if len(one.names) == 1 else 'their gradients'}",
        explanation="They are trained, and other parameters are wrapped. If nothing else reduces their gradients, the "
        "replicas drift apart.",
        about=one.ranks,
        confidence="medium",
        confidence_reasons=("the program may reduce them itself",),
        next_steps=("Wrap the module that holds them, or name them as ignored parameters.",),
    )


def _heavy(one: HeavyRank, places: Places) -> Finding:
    most = f" The most of it is in {', '.join(one.names)}." if one.names else ""
    return Finding(
        kind="uneven-shards",
        severity="warning",
        title=f"rank {one.rank} holds {byte_count(one.held)} of parameters and optimizer state, "
        f"{plural(one.peers, 'peer')} {byte_count(one.usual)}",
        explanation=f"Shards of one model should be of nearly equal size.{most}",
        culprit_ranks=(one.rank,),
        culprits=(places.culprit(one.rank),),
        confidence="medium",
        confidence_reasons=("a parameter whose dimension the ranks do not divide is sharded unevenly",),
        next_steps=("Shard these parameters along another dimension, or pad them.",),
    )
