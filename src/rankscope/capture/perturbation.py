"""Noise of the size of rounding on the first weights of a model, which tells how far rounding alone drives a training.

    import rankscope.capture
    rankscope.capture.perturb(model, seed=1)  # once, before training; other seeds for further runs

or `python -m rankscope.capture --perturb 1 ... train.py`. Limits of differences are learned from such runs.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from typing import Any

_LOG = logging.getLogger("rankscope.capture")
__all__ = ["perturb", "perturb_first_model", "when_first_model_runs"]


def perturb(model: Any, seed: int = 1) -> int:
    """Multiplies each element of the embeddings, else of the first weight, by 1 plus half an epsilon times noise.

    `model` may be a list of chunks. The noise of a seed is the same on all ranks, so that replicas stay equal. Returns
    the number of changed tensors; raises ValueError for a model without floating-point parameters.
    """
    torch: Any = importlib.import_module("torch")
    source = torch.Generator().manual_seed(seed)
    count = 0
    with torch.no_grad():
        for parameter in _first_weights(torch, model if isinstance(model, list | tuple) else (model,)):
            local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            count += 1
            if not local.numel():
                # a shard of it is on other ranks only
                continue
            noise = torch.randn(local.shape, generator=source).to(local)
            local.add_(local * noise, alpha=torch.finfo(local.dtype).eps / 2)
    if not count:
        raise ValueError("the model has no floating-point parameter that could be perturbed")
    return count


def _first_weights(torch: Any, chunks: Any) -> Iterator[Any]:
    """The weights of all embeddings; without any the first weight."""
    every = [module for chunk in chunks for module in chunk.modules()]
    embeddings = [module.weight for module in every if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag)]
    found = embeddings or [parameter for chunk in chunks for parameter in chunk.parameters()]
    usable = (parameter for parameter in found if parameter.is_floating_point())
    # tied ones once
    distinct = {id(parameter): parameter for parameter in usable}
    yield from distinct.values() if embeddings else list(distinct.values())[:1]


def perturb_first_model(seed: int) -> None:
    """Perturbs the model that runs first, before it does, in a script that nobody edits. It imports torch.

    A model that cannot be perturbed runs as it is, with a warning.
    """

    def change(model: Any, _args: Any) -> None:
        try:
            perturb(model, seed)
        except Exception as error:  # noqa: BLE001 - no error here may reach the job
            _LOG.warning("rankscope.capture: --perturb changed nothing: %s", error)

    when_first_model_runs(change)


def when_first_model_runs(call: Any) -> Any:
    """Calls a function once with the first module with parameters that is called, and with its positional arguments,
    before its forward pass.

    That is the outermost one, with all wrappers. Returns a handle that takes the hook back (`remove()`).
    """
    modules: Any = importlib.import_module("torch.nn.modules.module")

    def before_forward(module: Any, args: Any) -> None:
        if any(parameter.requires_grad for parameter in module.parameters()):
            handle.remove()
            call(module, args)

    handle = modules.register_module_forward_pre_hook(before_forward)
    return handle
