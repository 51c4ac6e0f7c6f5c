"""Causes of tensors that differ: summaries name the operation, so they tell more than loss and gradient norm do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankscope.analysis.comparison.model import Hypothesis
from rankscope.analysis.comparison.tensor_differences import TensorDifference
from rankscope.analysis.comparison.value_causes import Grounds, by_changes, one_of

_EXPERIMENTS: Mapping[str, str] = {
    "data": "Compare sampler, seed and number of workers of both data loaders; run A with the batches of B.",
    "dropout": "Run both without dropout, or with one seed for it: equal numbers then show that it is the dropout.",
    "order": "Fix algorithm and protocol of the backend (NCCL_ALGO, NCCL_PROTO), and run A twice: does it repeat?",
    "kernel": "Run this module twice on its recorded input: does it repeat? (rankscope repro --determinism)",
    "optimizer": "Print the optimizer's options and its learning rate in that step of both runs.",
    "seed": "Print seed and a norm of the parameters before the first step in both runs.",
    "lr": "Log the learning rate and a hash of each batch, and print the optimizer's options in both runs.",
    "precision": "Compare the precision options of both runs (autocast, reduce_dtype), and run A with those of B.",
    "initial-values": 'Record modules, which has the parameters: numbers.start(model, level="modules") in both runs.',
    "code": "Compare the code of both runs at that line.",
}
"""Experiments by the first kind of cause."""
_MORE_ROLES: Mapping[str, tuple[str, ...]] = {
    "data": ("seed", "data", "batch"),
    "dropout": ("seed", "dropout"),
    "initial-values": ("seed", "model"),
}
"""Roles of options that may bring about a kind, beside the one of its own name."""
_RECORD = 'Record modules around this place in both runs: numbers.start(model, every=1, level="modules").'
_JUDGE = "Run rankscope numbers on both runs: its rules tell whose result is none of these inputs."
_UNTOLD = "what was recorded does not tell what made this difference"


def tensor_causes(grounds: Grounds) -> Iterator[Hypothesis]:
    """Causes of the first tensor that differs: options and settings that fit, else the kinds that its place tells."""
    if grounds.tensors is None or not grounds.tensors.differences:
        return
    first = grounds.tensors.differences[0]
    said = first.title
    kinds = _left(grounds, first)
    changed = by_changes(grounds, _roles(kinds), said, ())
    yield from changed
    if changed:
        return
    out = tuple(grounds.equal[one] for one in first.kinds if one in grounds.equal and one not in kinds)
    cause = one_of(kinds) if kinds else _UNTOLD
    experiment = _EXPERIMENTS[kinds[0]] if kinds else _JUDGE if first.is_root else _RECORD
    yield Hypothesis(cause, (said, *((first.reason,) if first.reason else ())), out, experiment, kinds)


def _left(grounds: Grounds, first: TensorDifference) -> tuple[str, ...]:
    """The kinds of the difference without those whose options are equal, unless none is left."""
    if first.kinds in (("data",), ("order",)) or first.is_root:
        return first.kinds
    left = tuple(one for one in first.kinds if one not in grounds.equal and not (one == "lr" and grounds.is_equal(one)))
    return left or first.kinds


def _roles(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """The roles of options and settings that may bring about one of the kinds."""
    return tuple(dict.fromkeys(role for one in kinds for role in (*_MORE_ROLES.get(one, ()), one)))
