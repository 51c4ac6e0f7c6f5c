"""Documents of JSON, YAML and TOML as trees of plain values, within bounds.

A tree holds no object but dicts, lists, texts, numbers, truth values, dates and bytes. Tags of YAML build nothing: the
values below them are read, and a note names the tag. Sizes are bounded before anything is expanded.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import date
from functools import cache
from typing import Any, NamedTuple

from rankscope.schema.option_sources import OptionTree

LARGEST_FILE = 4 << 20
MOST_VALUES = 100_000
"""Most values of a document, with those that aliases repeat."""
DEEPEST = 64
SUFFIXES = ("json", "yaml", "yml", "toml")
_MOST_NOTES = 20
_STANDARD = "tag:yaml.org,2002:"
_SILENT_TAGS = ("python/tuple", "python/list", "python/dict", "python/str", "python/unicode", "set", "omap", "pairs")
"""Tags of plain containers and texts, which need no note."""
_FLOAT = re.compile(r"[-+]?(?:\d[\d_]*)(?:\.[\d_]*)?[eE][-+]?\d+|[-+]?\.\d[\d_]*[eE][-+]?\d+")
"""Numbers of YAML 1.2 and JSON that YAML 1.1 takes for texts: 1e-4."""


class NoConfigError(ValueError):
    """The bytes are no document of their kind, or one beyond the bounds; the text is the reason for the user."""


class ConfigDocument(NamedTuple):
    """A document, and what the reader must know of how it was read."""

    tree: OptionTree
    notes: tuple[str, ...] = ()


def config_document(suffix: str, data: bytes) -> ConfigDocument:
    """The document in the bytes of a file with this suffix; raises NoConfigError."""
    if len(data) > LARGEST_FILE:
        raise NoConfigError(f"larger than {LARGEST_FILE >> 20} MiB")
    try:
        return _READERS[suffix](data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise NoConfigError(f"no UTF-8 at byte {error.start:,}") from error
    except RecursionError as error:
        raise NoConfigError(f"nested deeper than {DEEPEST} levels") from error


def plain_tree(document: Any) -> OptionTree:
    """The tree of what JSON, TOML or a Python literal holds; raises NoConfigError beyond the bounds."""
    return _Plain().tree(document, 0)


class _Plain:
    """Converts Python values, and counts them."""

    def __init__(self) -> None:
        self.left = MOST_VALUES

    def tree(self, value: Any, depth: int) -> OptionTree:
        """The tree of one value."""
        self.left -= 1
        _check(depth, self.left >= 0)
        if isinstance(value, Mapping):
            return {str(key): self.tree(own, depth + 1) for key, own in value.items()}
        if isinstance(value, set | frozenset):
            return [self.tree(own, depth + 1) for own in sorted(value, key=repr)]
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return [self.tree(own, depth + 1) for own in value]
        known = value is None or isinstance(value, str | int | float | bytes | date)
        return value if known else str(value)


def _check(depth: int, is_small: bool) -> None:
    if depth > DEEPEST:
        raise NoConfigError(f"nested deeper than {DEEPEST} levels")
    if not is_small:
        raise NoConfigError(f"more than {MOST_VALUES:,} values")


def _json(text: str) -> ConfigDocument:
    notes: list[str] = []

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            notes.extend(f"{_quoted(name)} stands twice: the last one counts" for name in _repeated(names))
        return found

    try:
        return ConfigDocument(plain_tree(json.loads(text, object_pairs_hook=noted)), tuple(notes[:_MOST_NOTES]))
    except ValueError as error:
        raise error if isinstance(error, NoConfigError) else NoConfigError(f"no JSON: {error}") from error


def _toml(text: str) -> ConfigDocument:
    try:
        return ConfigDocument(plain_tree(tomllib.loads(text)))
    except ValueError as error:
        raise error if isinstance(error, NoConfigError) else NoConfigError(f"no TOML: {error}") from error


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _quoted(name: str) -> str:
    return f'"{name[:80]}"'


# YAML.


def yaml_nodes(text: str) -> list[Any]:
    """The root nodes of all documents of a text, with tags resolved and lines; raises NoConfigError.

    Events are counted before a node is made: neither depth nor number of nodes grows beyond the bounds.
    """
    import yaml

    loader = _yaml_loader()
    try:
        depth = 0
        for number, event in enumerate(yaml.parse(text, loader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            _check(depth, number <= 2 * MOST_VALUES)
        return [node for node in yaml.compose_all(text, loader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise NoConfigError(f"no YAML{where}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise NoConfigError(f"no YAML: {str(error).splitlines()[0]}") from error


@cache
def _yaml_loader() -> Any:
    """The safe loader, in C where that is built, with the numbers of JSON."""
    import yaml

    # a subclass: the table of the shared loader stays as it is
    loader: Any = type("ConfigLoader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    loader.add_implicit_resolver(f"{_STANDARD}float", re.compile(rf"^(?:{_FLOAT.pattern})$"), list("-+.0123456789"))
    return loader


def _yaml(text: str) -> ConfigDocument:
    nodes = yaml_nodes(text)
    builder = _YamlTrees()
    trees = [builder.checked(node) for node in nodes]
    if len(trees) == 1:
        return ConfigDocument(trees[0], tuple(builder.notes[:_MOST_NOTES]))
    # several documents: each keeps its number
    return ConfigDocument(
        {f"document {number}": tree for number, tree in enumerate(trees)}, tuple(builder.notes[:_MOST_NOTES])
    )


class _YamlTrees:
    """Builds trees of nodes; a node that aliases repeat is one object of the tree."""

    def __init__(self) -> None:
        import yaml

        self.notes: list[str] = []
        self._kinds = yaml.ScalarNode, yaml.MappingNode
        self._plain = yaml.constructor.SafeConstructor()
        self._built: dict[int, OptionTree] = {}
        self._pairs: dict[int, dict[str, tuple[Any, Any]]] = {}
        self._sizes: dict[int, int] = {}

    def checked(self, node: Any) -> OptionTree:
        """The tree of a root node; raises NoConfigError if aliases make it too large or deep."""
        if self._size(node, frozenset()) > MOST_VALUES:
            raise NoConfigError(f"more than {MOST_VALUES:,} values, with those that aliases repeat")
        return self._tree(node)

    def _size(self, node: Any, above: Set[int]) -> int:
        """The number of values of a node with all aliases in it."""
        if id(node) in above:
            raise NoConfigError(f"line {_line(node)}: an alias in the value that it stands for")
        if isinstance(node, self._kinds[0]):
            return 1
        if id(node) not in self._sizes:
            _check(len(above), True)
            inside = above | {id(node)}
            self._sizes[id(node)] = 1 + sum(self._size(one, inside) for one in self._children(node))
        return self._sizes[id(node)]

    def _children(self, node: Any) -> Iterator[Any]:
        if isinstance(node, self._kinds[1]):
            for pair in node.value:
                yield from pair
        else:
            yield from node.value

    def _tree(self, node: Any) -> OptionTree:
        known = id(node)
        if known not in self._built:
            self._built[known] = self._tagged(node)
        return self._built[known]

    def _tagged(self, node: Any) -> OptionTree:
        """The value of a node, beside its tag if that stands for an object."""
        tag = str(node.tag).removeprefix(_STANDARD)
        if isinstance(node, self._kinds[0]):
            return self._scalar(node, tag)
        is_mapping = isinstance(node, self._kinds[1])
        value: OptionTree = self._mapping(node) if is_mapping else [self._tree(one) for one in node.value]
        if tag in ("map", "seq", *_SILENT_TAGS):
            return value
        self._note_tag(node, tag)
        return {**value, "(tag)": tag} if isinstance(value, dict) else {"": value, "(tag)": tag}

    def _note_tag(self, node: Any, tag: str) -> None:
        self.notes.append(f"line {_line(node)}: the tag {_quoted(tag)} is refused: only the values below it are read")

    def _scalar(self, node: Any, tag: str) -> OptionTree:
        read = getattr(self._plain, f"construct_yaml_{tag}", None) if tag in _SCALARS else None
        is_time = tag in ("int", "float") and ":" in node.value
        if read is not None and not is_time:
            try:
                value: OptionTree = read(node)
            except (ValueError, ArithmeticError):
                return str(node.value)
            return value
        if tag not in ("str", "value", "merge", "int", "float", "timestamp", *_SILENT_TAGS) and tag != "!":
            self._note_tag(node, tag)
            return f"{tag} {node.value}"
        return str(node.value)

    def _mapping(self, node: Any) -> dict[str, OptionTree]:
        return {name: self._tree(value) for name, (_, value) in self._merged(node).items()}

    def _merged(self, node: Any) -> dict[str, tuple[Any, Any]]:
        """The pairs of a mapping by name, with those of its merge keys, which give way."""
        if id(node) in self._pairs:
            return self._pairs[id(node)]
        own: dict[str, tuple[Any, Any]] = {}
        under: dict[str, tuple[Any, Any]] = {}
        for key, value in node.value:
            if key.tag == f"{_STANDARD}merge":
                for one in [value] if isinstance(value, self._kinds[1]) else value.value:
                    if not isinstance(one, self._kinds[1]):
                        raise NoConfigError(f"line {_line(key)}: a merge key with a value that is no mapping")
                    under = {**self._merged(one), **under}
                continue
            name = str(key.value) if isinstance(key, self._kinds[0]) else str(self._tree(key))
            if name in own:
                self.notes.append(f"line {_line(key)}: {_quoted(name)} stands twice: the last one counts")
            own[name] = key, value
        self._pairs[id(node)] = {**under, **own}
        return self._pairs[id(node)]


_SCALARS = ("null", "bool", "int", "float", "timestamp", "binary")
"""Tags whose values the library converts; all else stays text."""


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


_READERS: Mapping[str, Callable[[str], ConfigDocument]] = {"json": _json, "toml": _toml, "yaml": _yaml, "yml": _yaml}
