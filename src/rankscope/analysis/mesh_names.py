"""What the descriptions of process groups say of the parallel dimension they belong to.

Megatron-LM (core/parallel_state.py) calls its groups TENSOR_MODEL_PARALLEL_GROUP, DATA_PARALLEL_GROUP_WITH_CP and so
on; DeviceMesh calls the groups of a dimension "mesh_" and the name of the dimension, torch.distributed.device_mesh.
"""

from __future__ import annotations

import re

from rankscope.schema import Group

UNNAMED = ""
"""The name of a dimension that no description tells."""
_WORDS = {
    "tensor": "tp", "tp": "tp", "pipeline": "pp", "pipe": "pp", "pp": "pp", "data": "dp", "dp": "dp",
    "context": "cp", "cp": "cp", "sequence": "sp", "sp": "sp", "ulysses": "sp", "expert": "ep", "ep": "ep",
    "moe": "ep", "edp": "edp", "etp": "etp", "replicate": "dp_replicate", "replica": "dp_replicate",
    "shard": "dp_shard", "fsdp": "dp_shard",
}  # fmt: skip
_EXPERT = {"tensor": "etp", "tp": "etp", "data": "edp", "dp": "edp", "model": "ep"}
_FILLERS = {
    "group", "groups", "parallel", "model", "mesh", "comm", "communicator", "pg", "process", "with", "and", "world",
    "ranks", "size",
}  # fmt: skip
LONGEST = 24
"""Characters kept of a name."""
_NOTHING = ("", "undefined", "none")
_SIMPLE = ("pp", "dp_replicate", "dp_shard", "dp", "cp", "sp", "tp")
EXPERT = ("ep", "edp", "etp")
"""Dimensions of a second grid over the same ranks."""


def is_told(description: str) -> bool:
    """Whether a description says anything."""
    return description.strip().lower() not in _NOTHING


def name_of(description: str) -> str:
    """The dimension a description tells of: "tp"; "dp_cp" of a product of two; UNNAMED if it says nothing."""
    if not is_told(description):
        return UNNAMED
    own = re.fullmatch(r"mesh_(.*[a-zA-Z].*)", description.strip())
    if own:
        return own[1][:LONGEST]
    words = [w for w in re.split(r"[^a-z]+", description.lower()) if w]
    expert = "expert" in words and {"tensor", "tp", "data", "dp", "model"} & set(words)
    parts = [_EXPERT.get(w) or _word(w) for w in words if w != "expert"] if expert else [_word(w) for w in words]
    told = [p for p in dict.fromkeys(parts) if p]
    return "_".join(told)[:LONGEST] if told else "mp" if "model" in words else UNNAMED


def _word(word: str) -> str:
    return "" if word in _FILLERS else _WORDS.get(word, word)


def score(name: str) -> int:
    """How likely a name is one of a dimension, the likeliest lowest: tp, then others, experts, products."""
    if name in _SIMPLE:
        return 0
    if name in EXPERT:
        return 2
    if name == UNNAMED:
        return 3
    return 4 if "embedding" in name else 3 if "_" in name or name == "mp" else 1


def kinds(groups: tuple[Group, ...]) -> dict[str, list[Group]]:
    """Groups of the same kind together: by description, without its number where each group has one of its own.

    What says nothing is told apart by how its members lie to each other.
    """
    by_text: dict[str, list[Group]] = {}
    for group in groups:
        by_text.setdefault(group.description if is_told(group.description) else "", []).append(group)
    out: dict[str, list[Group]] = {}
    for text, members in by_text.items():
        alone = len({g.ranks for g in members}) == 1
        for group in members:
            key = text if text and not alone else f"{text.rstrip('0123456789')}\0{_shape(group.ranks)}"
            out.setdefault(key, []).append(group)
    return out


def _shape(ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(rank - ranks[0] for rank in ranks)
