"""Decoder of environments: the bytes of a file to an Environment.

Forms: proc(5), env(1), bash's export and declare, docker inspect, manifests and descriptions of Kubernetes pods, a JSON
object of strings (msprobe's config_check packs os.environ so, and the list of pip's packages beside it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from rankscope.kinds.input_kinds import ENVIRONMENT
from rankscope.parsers.config_documents import NoConfigError, yaml_nodes
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.safe_values import RANK_LIMIT
from rankscope.parsers.variables import NAME, VALUE_LIMIT, VariablePair, is_kept, pair_of, pairs_of_lines, pairs_of_nul
from rankscope.text.secrets import clip

# Settings of containers, as docker and Kubernetes print them; a process may have more variables than these.

_BLOCK = re.compile(r"^(\s*)Environment:\s*$")
_DESCRIBED_CONTAINER = re.compile(r"^\s+([A-Za-z_]\w{0,199}):\s+(.*)$")
MOST_DEPTH = 64


def pairs_of_json(document: Any) -> list[list[VariablePair]]:
    """Each list of variables in a document: `Env` of docker, `env` of Kubernetes, or the document itself."""
    if isinstance(document, dict) and document and all(isinstance(value, str) for value in document.values()):
        return [[VariablePair(str(name), value, 1) for name, value in document.items()]]
    return list(_pair_lists(document, MOST_DEPTH))


def _pair_lists(node: Any, depth: int) -> Iterator[list[VariablePair]]:
    if depth == 0:
        return
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("Env", "env") and isinstance(value, list) and (found := list(_pairs(value))):
                yield found
            else:
                yield from _pair_lists(value, depth - 1)
    elif isinstance(node, list):
        for value in node:
            yield from _pair_lists(value, depth - 1)


def _pairs(rows: list[Any]) -> Iterator[VariablePair]:
    for row in rows:
        if isinstance(row, str) and (pair := pair_of(row, 1)) is not None:
            yield pair
        elif isinstance(row, dict) and isinstance(row.get("name"), str) and isinstance(row.get("value"), str):
            yield VariablePair(row["name"], row["value"], 1)


def pairs_of_yaml(text: str) -> list[list[VariablePair]]:
    """Variables of a manifest of Kubernetes, of each container; none if it is no YAML."""
    try:
        nodes = yaml_nodes(text)
    except NoConfigError:
        return []
    return [pairs for node in nodes for pairs in _node_lists(node, {})]


def _node_lists(node: Any, seen: dict[int, Any]) -> Iterator[list[VariablePair]]:
    """The lists `env` below a node; a node that aliases repeat is visited once."""
    if id(node) in seen or not isinstance(node.value, list):
        return
    seen[id(node)] = node
    for pair in node.value:
        key, value = pair if isinstance(pair, tuple) else (None, pair)
        rows = value.value if key is not None and key.value == "env" and isinstance(value.value, list) else []
        if found := [pair for row in rows if (pair := _node_pair(row)) is not None]:
            yield found
        else:
            yield from _node_lists(value, seen)


def _node_pair(row: Any) -> VariablePair | None:
    """The variable of one row: its name and its value, both plain texts."""
    if not isinstance(row.value, list):
        return None
    own = {one[0].value: one[1] for one in row.value if isinstance(one, tuple) and isinstance(one[1].value, str)}
    if "name" not in own or "value" not in own:
        return None
    return VariablePair(own["name"].value, own["value"].value, own["name"].start_mark.line + 1)


def pairs_of_description(text: str) -> list[list[VariablePair]]:
    """The lists that kubectl describe prints, one for each container."""
    found: list[list[VariablePair]] = []
    indent: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        begun = _BLOCK.match(line)
        if begun is not None:
            indent = len(begun[1])
            found.append([])
        elif indent is not None:
            row = _DESCRIBED_CONTAINER.match(line)
            if row is None or len(line) - len(line.lstrip()) <= indent:
                indent = None
            elif not row[2].startswith("<set to"):
                found[-1].append(VariablePair(row[1], row[2].strip(), number))
    return [pairs for pairs in found if pairs]


def load_json(data: bytes) -> Any:
    """The decoded document; None if it is damaged."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


LEAST_VARIABLES = 2
FOREIGN_SHARE = 0.1
"""Largest share of foreign lines in the text of an environment."""
_ASSIGNMENT = rb"(?:export |declare -x )?[A-Za-z_][\w.%()\-]{0,199}="
_NUL = re.compile(_ASSIGNMENT + rb"[^\0\n]*(?:\n[^\0]*)?\0" + _ASSIGNMENT)
_LINES = re.compile(rb"(?:\s*\n)?" + _ASSIGNMENT + rb"[^\0\n]*\n" + _ASSIGNMENT)
_OBJECT = re.compile(rb'\s*\{\s*"[A-Z_][A-Z0-9_]{1,199}"\s*:\s*"')
_DOCKER = re.compile(rb'\s*\[\s*\{\s*"Id"\s*:\s*"[0-9a-f]{64}"')
_POD = re.compile(rb'\s*\{\s*"(?:apiVersion|kind|items|metadata)"|(?:---\s*\n)?(?:apiVersion|kind): ')
_DESCRIPTION_HEAD = re.compile(rb"Name: +\S+\s*\nNamespace: ")
_ENDED_POD = re.compile(rb"\n +(?:Last )?State: +Terminated\s*\n|\nReason: +(?:Evicted|Preempt|Node)")
_PIP = re.compile(rb"[A-Za-z0-9][\w.\-]{0,99}==\S+\n[A-Za-z0-9][\w.\-]{0,99}==")
_PACKAGE = re.compile(r"([A-Za-z0-9][\w.\-]{0,99})==(\S{1,100})")
_LIBRARY = re.compile(
    r"(?:torch|nvidia|nccl|triton|megatron|deepspeed|accelerate|transformer|flash|apex|xformers|vllm|sglang|mamba|causal"
    r"|numpy|pytorch|lightning|mindspore|mindspeed|msprobe|cuda|cupy|ray|mpi4py|horovod)", re.IGNORECASE
)  # fmt: skip
"""Packages whose versions must agree between ranks."""
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_HOSTS = ("SLURMD_NODENAME", "HOSTNAME")
_LONG = re.compile(rb"[A-Z_][A-Z0-9_]{1,60}=[^\0\n]{400,}\Z")
"""A first variable that is longer than the head of the file."""
_FORMS = (_NUL, _LINES, _LONG, _OBJECT, _DOCKER, _POD, _DESCRIPTION_HEAD, _PIP)


def looks_like_environment(head: bytes) -> bool:
    """Whether a file with these first bytes may hold an environment."""
    return any(form.match(head) for form in _FORMS)


def decode_environment(data: bytes) -> Environment:
    """The environments in `data`. Raises NotThisKindError if there is none."""
    if len(data) > ENVIRONMENT.most_bytes:
        raise NotThisKindError("too large for an environment")
    if b"\0" in data:
        return _environment_of([list(pairs_of_nul(_text(data)))], whole=True)
    if _OBJECT.match(data) or _DOCKER.match(data) or data.lstrip()[:1] == b"{":
        document = load_json(data)
        plain = isinstance(document, dict) and all(isinstance(value, str) for value in document.values())
        return _environment_of(pairs_of_json(document), whole=plain)
    if _PIP.match(data):
        return _installed(_text(data))
    if _DESCRIPTION_HEAD.match(data) and _ENDED_POD.search(data):
        raise NotThisKindError("a pod that ended, which is read as a log")
    for form, read in _TEXTS:
        if form.match(data):
            return _environment_of(read(_text(data)), whole=False)
    found, lost = pairs_of_lines(_text(data))
    if lost > FOREIGN_SHARE * len(found):
        raise NotThisKindError("not a kind of file that is known")
    return _environment_of([found], whole=True)


_TEXTS: tuple[tuple[re.Pattern[bytes], Callable[[str], list[list[VariablePair]]]], ...] = (
    (_POD, pairs_of_yaml),
    (_DESCRIPTION_HEAD, pairs_of_description),
)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _environment_of(lists: Iterable[list[VariablePair]], whole: bool) -> Environment:
    found = [_process(own, whole) for own in lists]
    told = [process for process in found if process.variables]
    if not told:
        raise NotThisKindError("not a kind of file that is known")
    return Environment(told)


def _process(own: list[VariablePair], whole: bool) -> EnvironmentProcess:
    values = {pair.name: pair.value for pair in own if NAME.fullmatch(pair.name)}
    lines = {pair.name: pair.line for pair in own}
    if len(values) < LEAST_VARIABLES or len(values) < len(own) * (1 - FOREIGN_SHARE) - 1:
        return EnvironmentProcess([])
    return EnvironmentProcess(
        [Variable(name, clip(value, VALUE_LIMIT), lines[name]) for name, value in values.items() if is_kept(name)],
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
    """Versions of the relevant libraries in a list of pip."""
    found = [
        Variable(f"version:{match[1].lower()}", match[2], number)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _PACKAGE.fullmatch(line.strip())) and _LIBRARY.match(match[1])
    ]
    if not found:
        raise NotThisKindError("not a kind of file that is known")
    return Environment([EnvironmentProcess(found)])


# The content of one file, and its form between processes.


class Variable(NamedTuple):
    """A variable that is set, or a version that is installed."""

    name: str
    value: str
    line: int
    """Counts from 1; it is 1 where the file has no lines."""


class EnvironmentProcess(NamedTuple):
    """The environment of one process or container."""

    variables: list[Variable]
    rank: int | None = None
    """Global rank, as the launcher set it."""
    world_size: int | None = None
    host: str = ""
    whole: bool = False
    """The file holds the whole environment: an absent variable is unset."""


@dataclass
class Environment:
    """The content of one file. It keeps only variables of known families."""

    processes: list[EnvironmentProcess] = field(default_factory=list)
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of variables."""
        return sum(len(process.variables) for process in self.processes)

    def header(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        rows = [[list(map(tuple, process.variables)), *process[1:]] for process in self.processes]
        return {"processes": rows, "problem": self.problem}

    def body(self) -> list[memoryview]:
        """Empty: the header holds everything."""
        return []


def environment_from(header: dict[str, Any], *_: object) -> Environment:
    """The environment whose `header()` this is."""
    rows = header["processes"]
    processes = [EnvironmentProcess([Variable(*one) for one in variables], *rest) for variables, *rest in rows]
    return Environment(processes, header["problem"])
