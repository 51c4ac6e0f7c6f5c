"""Options of a trainer as logs and configuration files tell them: seed, learning rate, batch size and all others.

Forms of logs: the dotted list of Megatron-LM, `Namespace(...)`, `TrainingArguments(...)` and other calls in one line or
one for each option, a dict or JSON behind a word such as "config", command lines, and lines that tell a seed. Forms of
files: JSON under the usual names of configurations, YAML and TOML, and the configuration in offline files of wandb.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import orjson

from rankscope.features.series.read.json_series import loaded
from rankscope.features.series.read.metric_names import is_measured
from rankscope.parsers.config_documents import MOST_VALUES, NoConfigError, config_document, plain_tree
from rankscope.schema.option_sources import OptionSource, OptionTree

HEAD_BYTES = 4 << 20
"""Bytes of a log that are searched: trainers print their options before they begin."""
MOST_OPTIONS = 5000
_LONGEST_LINE = 200_000
_FILE_NAME = re.compile(
    r"(?:[\w.-]*[_.-])?(?:args|arguments|config|configs|conf|hparams|hyperparameters|hyper_params|params|options|opt|"
    r"overrides|settings|flags)(?:[_.-]\w+)?\.json",
    re.IGNORECASE,
)
"""Names of JSON files with options: `training_args.json`, `ds_config.json`. YAML and TOML are options by their kind."""
_SUFFIX = re.compile(r"\.(json|ya?ml|toml)$", re.IGNORECASE)
_NAME = r"[A-Za-z_][\w./-]{0,119}"
_DOTTED = re.compile(rf"(?:^|\s|:)({_NAME}) \.{{3,}}(?!\.) ?((?!:)[^\n]*)$")
_CALL = re.compile(
    r"\b(?:[A-Za-z_]\w*\.)*(?:Namespace|[A-Z]\w*(?:Arguments|Args|Config|Options|Params))(?:\((?=\w+=|$))"
)
_ANY_CALL = re.compile(r"\b[A-Z]\w*\((?=\w+=)")
_ALONE = re.compile(rf"\s*({_NAME})=(.*?),?\s*")
_DICT = re.compile(
    r"\b(?:config|configs|configuration|args|arguments|options|hparams|hyperparameters|parameters)\b[^{\n]{0,80}(?=\{)",
    re.I,
)
_OBJECT = re.compile(r"<(?:[^<>]|<[^<>]*>)*>")
"""The print of an object, which is no literal: `<function f at 0x7f0c>`."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_COMMAND = re.compile(
    r"\S+\.py(?= |$)|\b(?:torchrun|deepspeed|accelerate launch|torch\.distributed\.run|litgpt|tune run)\b|-m [\w.]+"
)
_FLAG = re.compile(rf"--?({_NAME})(?:=(.*))?", re.DOTALL)
_HYDRA = re.compile(rf"\+{{0,2}}({_NAME})=(.*)", re.DOTALL)
_OVERRIDING = re.compile(rf"Overriding: ({_NAME}) = (.+)")
_SEED = re.compile(
    r"\b((?:[a-z]+[ _])?seed)(?:ing)?(?:\s+(?:is|set|to|with|used|everything))*\s*[:=]?\s*(\d{1,20})\b(?![.:/])", re.I
)
_RESUMED = re.compile(
    r"(?:loaded checkpoint\b.*\bat iteration|resum(?:e|ed|ing)\b.*\b(?:step|iteration)|"
    r"continuing training from global step|loading the checkpoint\b.*\bstep)[-=: ]*(\d{1,12})\b", re.I,
)  # fmt: skip
_WORDS = re.compile(
    rb"\.{3}|\(|[Cc]onfig|[Aa]rg|[Oo]ption|[Pp]arams|--|\.py |[Ss]eed|Overriding|heckpoint|esum|[Cc]ontinuing"
)
_INTEGER = re.compile(r"[-+]?\d{1,4000}")
_WORDS_OF_VALUES: Mapping[str, OptionTree] = {"none": None, "null": None, "true": True, "false": False}


class LogOptions(NamedTuple):
    """The options that a log tells, by the form of its lines, and the steps of checkpoints that it goes on from."""

    forms: Mapping[str, Mapping[str, OptionTree]]
    resumed: tuple[int, ...] = ()


def log_options(data: bytes) -> LogOptions:
    """The options that the first `HEAD_BYTES` of a log tell; of one name in one form the last one counts."""
    forms: dict[str, dict[str, OptionTree]] = {}
    resumed: list[int] = []
    inside = ""
    count = 0
    for line in data[:HEAD_BYTES].splitlines():
        if inside:
            pair = _ALONE.fullmatch(line.decode("utf-8", "replace"))
            if pair is not None:
                _put(forms.setdefault(inside, {}), pair[1], plain_value(pair[2]))
                continue
            inside = ""
        if _WORDS.search(line) is not None:
            text = line.decode("utf-8", "replace")[:_LONGEST_LINE].rstrip()
            call = _CALL.search(text)
            inside = call[0].rstrip("(") if call is not None and call.end() == len(text) else ""
            if (again := _RESUMED.search(text)) is not None:
                resumed.append(int(again[1]))
                continue
            for form, name, value in _line_options(text):
                _put(forms.setdefault(form, {}), name, value)
                count += 1
        if count >= MOST_OPTIONS:
            break
    return LogOptions(forms, tuple(dict.fromkeys(resumed)))


def _put(found: dict[str, OptionTree], name: str, value: OptionTree) -> None:
    name = name.strip("-").replace("-", "_").lower()
    if name and len(found) < MOST_OPTIONS:
        found[name] = value


def plain_value(text: str) -> OptionTree:
    """The value that a log or a command line prints: a number, a truth value, a literal of Python, or the text."""
    told = text.strip()
    if told.lower() in _WORDS_OF_VALUES:
        return _WORDS_OF_VALUES[told.lower()]
    if _INTEGER.fullmatch(told):
        return int(told)
    try:
        return float(told)
    except ValueError:
        pass
    if told[:1] in ("'", '"', "[", "(", "{") and (found := _literal(told)) is not None:
        return found
    return told.strip("'\"")


def _literal(text: str) -> OptionTree:
    """A literal of Python or JSON as a tree; None for any other text."""
    try:
        return plain_tree(_evaluated(text))
    except (NoConfigError, ValueError):
        return None


def _line_options(text: str) -> Iterator[tuple[str, str, OptionTree]]:
    """Form, name and value of the options of one line, of the first form that it has."""
    if (dotted := _DOTTED.search(text)) is not None:
        yield "dotted list", dotted[1], plain_value(dotted[2])
    elif (over := _OVERRIDING.search(text)) is not None:
        yield "overrides", over[1], plain_value(over[2])
    elif (call := _CALL.search(text)) is not None:
        name = call[0].rstrip("(")
        yield from ((name, key, value) for key, value in _call_options(text[call.start() :]).items())
    elif (told := _DICT.search(text)) is not None:
        yield from (("config", name, value) for name, value in _dict_options(text[told.end() :]).items())
    elif (command := _COMMAND.search(text)) is not None and (" -" in text or "=" in text):
        yield from (("command line", *pair) for pair in command_options(text[command.end() :]))
    else:
        yield from (("seed", seed[1].replace(" ", "_"), int(seed[2])) for seed in _SEED.finditer(text))


def command_options(text: str) -> Iterator[tuple[str, OptionTree]]:
    """The options of a command line: `--name value`, `--name=value`, `--flag`, and `name=value` of Hydra.

    Several words behind a name are a list.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    flags = [_flag(word) for word in words]
    for number, (word, flag) in enumerate(zip(words, flags, strict=True)):
        if flag is not None and flag[2] is not None:
            yield flag[1], plain_value(flag[2])
        elif flag is not None:
            end = number + 1
            while end < len(words) and not _ends_values(words[end], flags[end], end == number + 1):
                end += 1
            values = [plain_value(one) for one in words[number + 1 : end]]
            yield flag[1], True if not values else values[0] if len(values) == 1 else values
        elif (pair := _HYDRA.fullmatch(word)) is not None:
            yield pair[1], plain_value(pair[2])


def _ends_values(word: str, flag: re.Match[str] | None, is_next: bool) -> bool:
    """Whether a word is no value of the flag before it: the next flag, a script, or a pair of Hydra behind a value."""
    return flag is not None or word.endswith(".py") or (not is_next and _HYDRA.fullmatch(word) is not None)


def _flag(word: str) -> re.Match[str] | None:
    return None if isinstance(plain_value(word), int | float) else _FLAG.fullmatch(word)


def is_printed_config(text: str) -> bool:
    """Whether a line of a log prints a configuration, and no values of a step."""
    if "(" in text and (call := _ANY_CALL.search(text)) is not None:
        found = _call_options(text[call.start() :])
        return bool(found) and not _is_measured(found)
    told = _DICT.search(text)
    return told is not None and bool(found := _dict_options(text[told.end() :])) and not _is_measured(found)


def _is_measured(options: Mapping[str, OptionTree]) -> bool:
    return any(is_measured(name) and isinstance(value, float) for name, value in options.items())


def _dict_options(text: str) -> dict[str, OptionTree]:
    """The options of a dict or a JSON object at the beginning of a text; none if it is neither."""
    found = _document(text[: text.rfind("}") + 1])
    try:
        tree = plain_tree(found) if isinstance(found, Mapping) else {}
    except NoConfigError:
        return {}
    return tree if isinstance(tree, dict) else {}


def _document(text: str) -> Any:
    """A dict that JSON or Python printed; None for any other text."""
    try:
        return loaded(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return _evaluated(text)
    except ValueError:
        return None


def _call_options(text: str) -> dict[str, OptionTree]:
    """The keywords of a call that Python printed, such as a dataclass; none if it is cut off."""
    try:
        found = _evaluated(_closed(text))
        tree = plain_tree(found)
    except (NoConfigError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _closed(text: str) -> str:
    """A text up to the bracket that closes its first one; raises ValueError if none does."""
    depth, quote, skip = 0, "", False
    for at, sign in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip, quote = sign == "\\", "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            if depth == 0:
                return text[: at + 1]
    raise ValueError("no bracket closes the first one")


def _evaluated(text: str) -> Any:
    """The value of a printed literal; raises ValueError. No code runs: calls are mappings of their keywords."""
    # a deep one overflows the parser of Python
    if text.count("{") + text.count("[") + text.count("(") > MOST_VALUES // 20:
        raise ValueError("too many brackets")
    try:
        tree = ast.parse(_OBJECT.sub(lambda found: repr(_ADDRESS.sub("", found[0])), text).strip(), mode="eval")
        return _node_value(tree.body)
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("no literal") from error


def _node_value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Dict):
        keys = [None if key is None else _node_value(key) for key in node.keys]
        return {str(key): _node_value(value) for key, value in zip(keys, node.values, strict=True)}
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        values = [_node_value(one) for one in node.elts]
        return sorted(values, key=repr) if isinstance(node, ast.Set) else values
    if isinstance(node, ast.Call) and node.keywords and not node.args:
        return {one.arg or "": _node_value(one.value) for one in node.keywords}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _node_value(node.operand)
        return -value if isinstance(value, int | float) else ast.unparse(node)
    return float(node.id) if isinstance(node, ast.Name) and node.id in ("nan", "inf") else ast.unparse(node)


# Files.


def is_config_name(name: str) -> bool:
    """Whether a file of this name holds options, if it is of no other kind."""
    suffix = _SUFFIX.search(name)
    return suffix is not None and (suffix[1].lower() != "json" or _FILE_NAME.fullmatch(name) is not None)


def config_suffix(name: str) -> str:
    """The suffix that tells the form of a configuration; "" for other files."""
    found = _SUFFIX.search(name)
    return found[1].lower() if found is not None else ""


class FileOptions(NamedTuple):
    """The options of a configuration file, and notes on how it was read."""

    source: OptionSource
    notes: tuple[str, ...] = ()


def file_options(shown: str, data: bytes) -> FileOptions:
    """The options of a file of JSON, YAML or TOML by its path; raises NoConfigError with the reason."""
    document = config_document(config_suffix(PurePosixPath(shown).name), data)
    tree = document.tree
    if isinstance(tree, dict):
        tree = _unwrapped(tree)
    return FileOptions(OptionSource(shown, tree if isinstance(tree, dict | list) else {"": tree}), document.notes)


def _unwrapped(tree: dict[str, OptionTree]) -> dict[str, OptionTree]:
    """The values of a configuration that wandb wrote: it keeps `{"value": 1}` under each name."""
    own = {name: value for name, value in tree.items() if name not in ("_wandb", "wandb_version")}
    wrapped = {
        name: value["value"]
        for name, value in own.items()
        if isinstance(value, dict) and "value" in value and value.keys() <= {"value", "desc"}
    }
    return wrapped if own and len(wrapped) == len(own) else tree


def tracked_options(config: Mapping[str, object]) -> dict[str, OptionTree]:
    """The options in the configuration that a run of wandb or trackio keeps; none beyond the bounds of a document."""
    try:
        tree = plain_tree({name: value for name, value in config.items() if not name.startswith("_wandb")})
    except NoConfigError:
        return {}
    return _unwrapped(tree) if isinstance(tree, dict) else {}
