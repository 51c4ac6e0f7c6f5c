"""Capture inside a training job: each rank writes its flight recorder and its identity to a directory while it runs.

    import rankscope.capture
    rankscope.capture.start("dumps")

or, for a script that cannot be edited, `python -m rankscope.capture -o dumps train.py ...`. This package needs only the
standard library and the trainer's own torch, and can be copied into a container on its own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .agent import describe, dump, start, stop
from .perturbation import perturb

if TYPE_CHECKING:
    from .numbers import NumbersModule

    numbers: NumbersModule
else:

    def __getattr__(name: str) -> object:
        """The recording of numbers, which imports torch, when a script first asks for it."""
        if name != "numbers":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.numbers")


__all__ = ["describe", "dump", "numbers", "perturb", "start", "stop"]
