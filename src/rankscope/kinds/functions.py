"""Functions that rows of the tables name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def function(name: str) -> Callable[..., Any]:
    """The function named "module:function", its module below `rankscope`, which is imported with the first call.

    Raises ImportError or AttributeError where there is none.
    """
    module, _, own = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"rankscope.{module}"), own)
    return found
