"""Commands in the text of a next step, for a shell."""

from __future__ import annotations

import re
from collections.abc import Iterable

ALL_STACKS = "rankscope stacks -o dumps"
"""Command that takes the stacks of all processes of a job that run on a host."""
# only known programs, with words that can be nothing but arguments: names in a step may come from a hostile file
_ARGUMENT = r"(?: (?:--?[A-Za-z][\w-]*|[A-Z][A-Z0-9_]+|\d+))"
COMMAND = re.compile(
    rf"(?<![\w./-])(?:py-spy dump{_ARGUMENT}*|nvidia-smi(?: nvlink)?{_ARGUMENT}+|dcgmi diag{_ARGUMENT}*"
    rf"|rankscope stacks -o dumps"
    rf"|rankscope(?> report --only (?:numbers|memory|next)| report| stacks| export)?{_ARGUMENT}+)(?![\w/-])"
)
_PROCESS = re.compile(r"--pid \d")
_SETTING = re.compile(r"(?<![\w./-])[A-Z][A-Z0-9_]{5,}=\w+(?:[:,]\w+)*")


def command_of(step: str) -> str:
    """The first command in a step, or its settings as one; "" if there is neither.

    Where a step names no process, the stacks of all that run on the host are taken.
    """
    found = COMMAND.search(step)
    if found is None:
        settings = _SETTING.findall(step)
        return f"export {' '.join(settings)}" if settings else ""
    command = found[0]
    return ALL_STACKS if command.startswith("py-spy") and not _PROCESS.search(command) else command


def first_command(steps: Iterable[str]) -> str:
    """The command of the first step with one; "" if there is none."""
    return next(filter(None, map(command_of, steps)), "")
