"""Unpickling of data of strangers: no global is ever resolved."""

from __future__ import annotations

import pickle
from typing import NoReturn

from rankscope.parsers.safe_values import safe_text

NAME_LIMIT = 100
"""Longest name of a global in a message."""


class RefusedError(Exception):
    """The pickle asks for a global; the message names it."""

    def __init__(self, module: str, name: str) -> None:
        super().__init__(f"asks for {safe_text(f'{module}.{name}'[:NAME_LIMIT])}: refused")


class SafeUnpickler(pickle.Unpickler):
    """Unpickler that resolves no global."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raises RefusedError."""
        raise RefusedError(module, name)
