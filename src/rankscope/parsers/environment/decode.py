"""The bytes of a file to an Environment.

Forms: proc(5), env(1), bash's export and declare, docker inspect, manifests and descriptions of Kubernetes pods, a JSON
object of strings (msprobe's config_check packs os.environ so, and beside it what pip has installed).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rankscope.kinds.input_kinds import ENVIRONMENT
from rankscope.parsers.decoded import NotThisKindError
from rankscope.parsers.environment import containers, pairs
from rankscope.parsers.environment.families import NAME, VALUE_LIMIT, kept
from rankscope.parsers.environment.model import Environment, Process, Variable
from rankscope.parsers.environment.pairs import Pair
from rankscope.parsers.flight_recorder.values import RANK_LIMIT

LEAST = 2
LOST_SHARE = 0.1
"""A text in which more lines are of something else is no environment."""
_NAMED = rb"(?:export |declare -x )?[A-Za-z_][\w.%()\-]{0,199}="
_NUL = re.compile(_NAMED + rb"[^\0\n]*(?:\n[^\0]*)?\0" + _NAMED)
_LINES = re.compile(rb"(?:\s*\n)?" + _NAMED + rb"[^\0\n]*\n" + _NAMED)
_OBJECT = re.compile(rb'\s*\{\s*"[A-Z_][A-Z0-9_]{1,199}"\s*:\s*"')
_DOCKER = re.compile(rb'\s*\[\s*\{\s*"Id"\s*:\s*"[0-9a-f]{64}"')
_POD = re.compile(rb'\s*\{\s*"(?:apiVersion|kind|items|metadata)"|(?:---\s*\n)?(?:apiVersion|kind): ')
_DESCRIBED = re.compile(rb"Name: +\S+\s*\nNamespace: ")
_PIP = re.compile(rb"[A-Za-z0-9][\w.\-]{0,99}==\S+\n[A-Za-z0-9][\w.\-]{0,99}==")
_INSTALLED = re.compile(r"([A-Za-z0-9][\w.\-]{0,99})==(\S{1,100})")
_LIBRARY = re.compile(
    r"(?:torch|nvidia|nccl|triton|megatron|deepspeed|accelerate|transformer|flash|apex|xformers|vllm|sglang|mamba|causal"
    r"|numpy|pytorch|lightning|mindspore|mindspeed|msprobe|cuda|cupy|ray|mpi4py|horovod)", re.IGNORECASE
)  # fmt: skip
"""Packages whose versions should agree."""
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_HOSTS = ("SLURMD_NODENAME", "HOSTNAME")
_LONG = re.compile(rb"[A-Z_][A-Z0-9_]{1,60}=[^\0\n]{400,}\Z")
"""The first variable may be longer than what is looked at."""
_FORMS = (_NUL, _LINES, _LONG, _OBJECT, _DOCKER, _POD, _DESCRIBED, _PIP)


def looks_like_environment(head: bytes) -> bool:
    """Whether a file with these first bytes may be one."""
    return any(form.match(head) for form in _FORMS)


def decode(data: bytes) -> Environment:
    """The environments in `data`. Raises NotThisKindError."""
    if len(data) > ENVIRONMENT.most_bytes:
        raise NotThisKindError("too large for an environment")
    if b"\0" in data:
        return _made([list(pairs.of_nul(_text(data)))], whole=True)
    if _OBJECT.match(data) or _DOCKER.match(data) or data.lstrip()[:1] == b"{":
        document = containers.loads(data)
        plain = isinstance(document, dict) and all(isinstance(value, str) for value in document.values())
        return _made(containers.of_json(document), whole=plain)
    if _PIP.match(data):
        return _installed(_text(data))
    for form, read in _TEXTS:
        if form.match(data):
            return _made(read(_text(data)), whole=False)
    found, lost = pairs.of_lines(_text(data))
    if lost > LOST_SHARE * len(found):
        raise NotThisKindError("not a kind of file that is known")
    return _made([found], whole=True)


_TEXTS: tuple[tuple[re.Pattern[bytes], Callable[[str], list[list[Pair]]]], ...] = (
    (_POD, containers.of_yaml),
    (_DESCRIBED, containers.of_description),
)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _made(lists: Iterable[list[Pair]], whole: bool) -> Environment:
    found = [_process(own, whole) for own in lists]
    told = [process for process in found if process.variables]
    if not told:
        raise NotThisKindError("not a kind of file that is known")
    return Environment(told)


def _process(own: list[Pair], whole: bool) -> Process:
    values = {pair.name: pair.value for pair in own if NAME.fullmatch(pair.name)}
    lines = {pair.name: pair.line for pair in own}
    if len(values) < LEAST or len(values) < len(own) * (1 - LOST_SHARE) - 1:
        return Process([])
    return Process(
        [Variable(name, value[:VALUE_LIMIT], lines[name]) for name, value in values.items() if kept(name)],
        rank=next((n for n in map(_number, map(values.get, _RANKS)) if n is not None), None),
        world_size=next((n for n in map(_number, map(values.get, _SIZES)) if n), None),
        host=next((values[name] for name in _HOSTS if values.get(name)), "")[:255],
        whole=whole,
    )


def _number(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return None
    return int(text) if int(text) < RANK_LIMIT else None


def _installed(text: str) -> Environment:
    """Versions that pip lists, of libraries that matter."""
    found = [
        Variable(f"version:{match[1].lower()}", match[2], number)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _INSTALLED.fullmatch(line.strip())) and _LIBRARY.match(match[1])
    ]
    if not found:
        raise NotThisKindError("not a kind of file that is known")
    return Environment([Process(found)])
