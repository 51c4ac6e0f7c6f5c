"""What a command line tells of a process: which rank it is, or that it only starts ranks."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

LAUNCHERS = frozenset({
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed", "deepspeed.launcher.launch",
    "deepspeed.launcher.runner", "accelerate", "accelerate.commands.launch", "accelerate.commands.accelerate_cli",
    "horovodrun", "torchx",
})  # fmt: skip
"""Programs and modules that start one process for each rank and wait for them."""
_INTERPRETER = re.compile(r"^(?:python|pypy)[\d.]*t?$")
_WITH_VALUE = frozenset({"-X", "-W"})
_RANK = re.compile(r"(?:^|\s)(?:--?(?:global[_-])?rank(?:=|\s+)|(?:GLOBAL_)?RANK=)(\d{1,6})(?=\s|$)")
_LOCAL_RANK = re.compile(r"(?:^|\s)(?:--?local[_-]rank(?:=|\s+)|LOCAL_RANK=)(\d{1,6})(?=\s|$)")
_ONE_NODE = re.compile(r"(?:^|\s)(?:--standalone|--nnodes(?:=|\s+)1(?:[:]1)?)(?=\s|$)")
_PER_NODE = re.compile(r"(?:^|\s)--nproc[_-]per[_-]node(?:=|\s+)(\d{1,6})(?=\s|$)")


def rank_in(command: str, parent: str) -> int | None:
    """The global rank, if one and only one is given. Under a launcher it would be the script's own business."""
    return None if is_launcher(parent) else _only(_RANK, command)


def local_rank_in(command: str) -> int | None:
    """The rank within the node, if one and only one is given."""
    return _only(_LOCAL_RANK, command)


def says_rank(command: str) -> bool:
    """Whether any rank is given."""
    return _RANK.search(command) is not None or _LOCAL_RANK.search(command) is not None


def is_launcher(command: str) -> bool:
    """Whether the program that runs is one that starts ranks."""
    words = iter(command.split(maxsplit=16)[:16])
    for word in words:
        if word in _WITH_VALUE:
            next(words, "")
        elif word == "-c":
            return False
        elif not word.startswith("-") and not _INTERPRETER.match(PurePosixPath(word).name):
            return PurePosixPath(word).name in LAUNCHERS
    return False


def on_one_node(command: str, world: int) -> bool:
    """Whether a launcher was told to start all ranks of a job of `world` ranks (0: unknown) on its own node."""
    each = _only(_PER_NODE, command)
    return is_launcher(command) and (_ONE_NODE.search(command) is not None or (world > 0 and each == world))


def _only(pattern: re.Pattern[str], command: str) -> int | None:
    found = {int(number) for number in pattern.findall(command)}
    return found.pop() if len(found) == 1 else None
