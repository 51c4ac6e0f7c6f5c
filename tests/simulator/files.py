"""The bytes of each file, by what wrote it."""

from __future__ import annotations

from typing import Any

from tests.parsers.torch_pickle import torch_pickle
from tests.simulator import dump, hook
from tests.simulator.dump import View


def written(view: View) -> bytes:
    """The file that the recorder of these options would write."""
    document = content(view)
    if view.options.torch_pickled and not view.options.json:
        return torch_pickle(document)
    return dump.encode(document, view.options)


def content(view: View) -> dict[str, Any]:
    """The dump as a document."""
    match view.options.recorder:
        case "legacy":
            state: dict[str, Any] = {"nccl_comm_state": {}} if view.options.torch_pickled else {}
            return {**dump.content(view), **state}
        case "gloo":
            return hook.host_content(view)
        case _:
            return hook.content(view)
