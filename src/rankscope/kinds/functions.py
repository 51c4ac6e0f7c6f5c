"""Functions named in rows of the tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def function(name: str) -> Callable[..., Any]:
    """The function named "module:function", with its module below `rankscope`; the first call imports it.

    Raises ImportError or AttributeError for an unknown name.
    """
    module, _, own = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"rankscope.{module}"), own)
    return found
