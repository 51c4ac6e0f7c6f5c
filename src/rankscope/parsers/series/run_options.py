"""Options of a trainer as logs and configuration files tell them: seed, learning rate, batch size and all others.

Forms of logs: the dotted list of Megatron-LM, `Namespace(...)` and `TrainingArguments(...)` in one line or one for each
option, a dict or JSON behind a word such as "config", command lines, and lines that tell a seed. Forms of files: JSON,
YAML and TOML under the usual names of configurations, and the configuration in offline files of wandb.
"""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from rankscope.parsers.series.json_series import loaded
from rankscope.text.secrets import clip

HEAD_BYTES = 4 << 20
"""Bytes of a log that are searched: trainers print their options before they begin."""
LARGEST_FILE = 4 << 20
MOST_OPTIONS = 5000
LONGEST_NAME, LONGEST_VALUE = 120, 400
DEEPEST = 8
_LONGEST_DICT = 200_000
FILE_NAME = re.compile(
    r"(?:[\w.-]*[_.-])?(?:args|arguments|config|configs|conf|hparams|hyperparameters|hyper_params|params|options|opt|"
    r"overrides|settings|flags)(?:[_.-]\w+)?\.(?:json|ya?ml|toml)",
    re.IGNORECASE,
)
"""Names of files with options: `config.yaml`, `hparams.yaml`, `training_args.json`, `train_config.toml`."""
_NAME = r"[A-Za-z_][\w./-]{0,119}"
_DOTTED = re.compile(rf"(?:^|\s|:)({_NAME}) \.{{3,}}(?!\.) ?((?!:)[^\n]*)$")
_VALUE = r"""(?:'[^'\n]*'|"[^"\n]*"|\[[^\]\n]*\]|\{[^}\n]*\}|<[^>\n]*>|\([^)\n]*\)|[^,()\n])*"""
_CALL = re.compile(r"\b(?:Namespace|[A-Z]\w*(?:Arguments|Args|Config|Options))\((?=\w+=|$)")
_ASSIGNED = re.compile(rf"({_NAME})=({_VALUE})(?:,\s*|\)|$)")
_ALONE = re.compile(rf"\s*({_NAME})=(.*?),?\s*")
_DICT = re.compile(
    r"\b(?:config|configs|configuration|args|arguments|options|hparams|hyperparameters|parameters)\b[^{\n]{0,80}(?=\{)",
    re.I,
)
_COMMAND = re.compile(
    r"\S+\.py(?= |$)|\b(?:torchrun|deepspeed|accelerate launch|torch\.distributed\.run|litgpt|tune run)\b|-m [\w.]+"
)
_FLAG = re.compile(rf"--?({_NAME})(?:=(.*))?", re.DOTALL)
_HYDRA = re.compile(rf"\+{{0,2}}({_NAME})=(.*)", re.DOTALL)
_OVERRIDING = re.compile(rf"Overriding: ({_NAME}) = (.+)")
_SEED = re.compile(
    r"\b((?:[a-z]+[ _])?seed)(?:ing)?(?:\s+(?:is|set|to|with|used|everything))*\s*[:=]?\s*(\d{1,20})\b(?![.:/])", re.I
)
RESUMED = "resumed_step"
"""Name of the step of the checkpoint from which a run goes on, by what its trainer prints."""
_RESUMED = re.compile(
    r"(?:loaded checkpoint\b.*\bat iteration|resum(?:e|ed|ing)\b.*\b(?:step|iteration)|"
    r"continuing training from global step|loading the checkpoint\b.*\bstep)[-=: ]*(\d{1,12})\b", re.I,
)  # fmt: skip
_YAML = re.compile(r"( *)(?:- )?([\w./-]{1,120}|\"[^\"\n]{1,120}\"|'[^'\n]{1,120}'):(?:[ \t]+(.*?))?[ \t]*")
_WORDS = re.compile(
    rb"\.{3}|\(|[Cc]onfig|[Aa]rg|[Oo]ption|[Pp]arams|--|\.py |[Ss]eed|Overriding|heckpoint|esum|[Cc]ontinuing"
)


def log_options(data: bytes) -> dict[str, str]:
    """The options that the first `HEAD_BYTES` of a log tell; the last one of a name counts."""
    found: dict[str, str] = {}
    inside = False
    for line in data[:HEAD_BYTES].splitlines():
        if inside:
            pair = _ALONE.fullmatch(line.decode("utf-8", "replace"))
            inside = pair is not None
            if pair is not None:
                _put(found, pair[1], pair[2])
                continue
        if _WORDS.search(line) is not None:
            text = line.decode("utf-8", "replace")[:_LONGEST_DICT]
            inside = text.rstrip().endswith("(") and _CALL.search(text.rstrip()) is not None
            for name, value in _line_options(text):
                _put(found, name, value)
        if len(found) >= MOST_OPTIONS:
            break
    return found


def _put(found: dict[str, str], name: str, value: str) -> None:
    name = name.strip("-").replace("-", "_").lower()
    if name and len(name) <= LONGEST_NAME and len(found) < MOST_OPTIONS:
        found[name] = clip(value.strip().strip("'\""), LONGEST_VALUE)


def _line_options(text: str) -> Iterator[tuple[str, str]]:
    """The options of one line, of the first form that it has."""
    if (dotted := _DOTTED.search(text)) is not None:
        yield dotted[1], dotted[2]
    elif (resumed := _RESUMED.search(text)) is not None:
        yield RESUMED, resumed[1]
    elif (over := _OVERRIDING.search(text)) is not None:
        yield over[1], over[2]
    elif (call := _CALL.search(text)) is not None:
        yield from ((pair[1], pair[2]) for pair in _ASSIGNED.finditer(text, call.end()))
    elif (told := _DICT.search(text)) is not None:
        yield from flat_options(_document(text[told.end() : text.rfind("}") + 1]))
    elif (command := _COMMAND.search(text)) is not None and (" -" in text or "=" in text):
        yield from command_options(text[command.end() :])
    else:
        yield from ((seed[1].replace(" ", "_"), seed[2]) for seed in _SEED.finditer(text))


def command_options(text: str) -> Iterator[tuple[str, str]]:
    """The options of a command line: `--name value`, `--name=value`, `--flag`, and `name=value` of Hydra."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    for number, word in enumerate(words):
        flag = _FLAG.fullmatch(word)
        if flag is not None and flag[2] is not None:
            yield flag[1], flag[2]
        elif flag is not None:
            after = words[number + 1] if number + 1 < len(words) else "-"
            yield flag[1], "true" if _FLAG.fullmatch(after) and not _is_number(after) else after
        elif (pair := _HYDRA.fullmatch(word)) is not None:
            yield pair[1], pair[2]


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-?[\d.]+(?:e-?\d+)?", word) is not None


def _document(text: str) -> Any:
    """A dict that JSON or Python printed; None for any other text."""
    with contextlib.suppress(orjson.JSONDecodeError):
        return loaded(text)
    # a literal runs no code, but a deep one overflows the parser
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return ast.literal_eval(text) if text.count("{") + text.count("[") + text.count("(") < MOST_OPTIONS else None
    return None


def flat_options(document: Any, above: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Names with dots, and values as texts. wandb keeps `{"value": 1}` under each name."""
    if not isinstance(document, Mapping) or depth > DEEPEST:
        return
    for key, value in document.items():
        name = f"{above}{key}"
        is_wrapped = isinstance(value, Mapping) and "value" in value and set(value) <= {"value", "desc"}
        inner = value["value"] if is_wrapped else value
        if isinstance(inner, Mapping):
            yield from flat_options(inner, f"{name}.", depth + 1)
        else:
            yield name, _text(inner)


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(_text(one) for one in value[:50])
    return str(value)


def file_options(name: str, data: bytes) -> dict[str, str]:
    """The options of a file of JSON, YAML or TOML; none if it is damaged or of another form."""
    found: dict[str, str] = {}
    if len(data) > LARGEST_FILE:
        return found
    text = data.decode("utf-8-sig", "replace")
    kind = name.rpartition(".")[2].lower()
    if kind in ("yaml", "yml"):
        pairs = list(_yaml_options(text))
    else:
        document: Any = None
        with contextlib.suppress(orjson.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError):
            document = tomllib.loads(text) if kind == "toml" else loaded(text)
        pairs = list(flat_options(document))
    for key, value in pairs[:MOST_OPTIONS]:
        _put(found, key, value)
    return found


def _yaml_options(text: str) -> Iterator[tuple[str, str]]:
    """The scalars of block mappings, with their path; lists, anchors and texts of several lines are left out."""
    path: list[tuple[int, str]] = []
    for line in text.splitlines()[: 4 * MOST_OPTIONS]:
        pair = _YAML.fullmatch(line.partition(" #")[0])
        if pair is None:
            continue
        indent, name, value = len(pair[1]), pair[2].strip("'\""), pair[3] or ""
        while path and path[-1][0] >= indent:
            path.pop()
        if value in ("", "|", ">", "{}", "[]"):
            path = [*path[:DEEPEST], (indent, name)]
            continue
        above = [one for _, one in path]
        names = above if name == "value" and above else [*above, name]
        yield ".".join(names), value


def tracked_options(config: Mapping[str, object]) -> dict[str, str]:
    """The options in the configuration that a run of wandb or trackio keeps."""
    found: dict[str, str] = {}
    for name, value in flat_options(config):
        if not name.startswith("_wandb"):
            _put(found, name, value)
    return found
