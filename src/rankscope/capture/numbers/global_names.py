"""Names of modules and parameters over the whole model: with the number of a layer in the model, not in its stage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

_NUMBER = re.compile(r"\.\d+$")
_EXPERTS = "local_expert_indices"


class GlobalNames:
    """Names of a model that may be a stage of a pipeline, or several chunks of one.

    A layer of Megatron-LM knows its number in the whole model (`layer_number`, from 1), and a layer of experts those of
    its own experts (`local_expert_indices`, from 0). Modules of others keep their names.
    """

    def __init__(self, model: Any) -> None:
        self.chunks: Sequence[Any] = model if isinstance(model, list | tuple) else (model,)
        """One for each chunk of a virtual pipeline; else one."""
        self._renamed = [_renamed(chunk) for chunk in self.chunks]

    def modules(self) -> Iterator[tuple[str, Any]]:
        """All modules with their names."""
        for chunk, renamed in zip(self.chunks, self._renamed, strict=True):
            yield from ((_name(name, renamed), module) for name, module in chunk.named_modules())

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """All parameters with their names."""
        for chunk, renamed in zip(self.chunks, self._renamed, strict=True):
            yield from ((_name(name, renamed), parameter) for name, parameter in chunk.named_parameters())


def _renamed(chunk: Any) -> dict[str, str]:
    """The numbered modules of a chunk whose last number is another one in the whole model, by their names."""
    found: dict[str, str] = {}
    for name, module in chunk.named_modules():
        number = getattr(module, "layer_number", None)
        if isinstance(number, int) and number > 0 and _NUMBER.search(name):
            found[name] = str(number - 1)
        experts = getattr(module, _EXPERTS, None)
        if isinstance(experts, list | tuple):
            found |= {
                f"{name}.experts.local_experts.{place}": str(expert)
                for place, expert in enumerate(experts)
                if isinstance(expert, int)
            }
    return {name: number for name, number in found.items() if not name.endswith(f".{number}")}


def _name(name: str, renamed: dict[str, str]) -> str:
    """The name in the whole model."""
    if not renamed:
        return name
    words = name.split(".")
    numbers = (renamed.get(".".join(words[: end + 1])) for end in range(len(words)))
    return ".".join(number or part for number, part in zip(numbers, words, strict=True))
