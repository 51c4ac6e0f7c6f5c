"""Finds host names, users and paths in text and puts stand-ins in their place, the same ones everywhere."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

_SPLIT = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+]*://[^\s'\"`()<>]+)"
    r"|(?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
    r"|(?P<path>[~\w.@+!-]*(?:/[\w.@+~=%!#-]+)+/?)"
    r"|(?<!\w)(?P<address>[0-9a-f]*:[0-9a-f:.]*:[0-9a-f:.]*|\d{1,3}(?:\.\d{1,3}){3})(?!\w)"
    r"|(?P<word>\w[\w.-]*)",
    re.IGNORECASE,
)
_USER = re.compile(r"(?:/(?:home|users?|u)/+|^~)([^/\s~]+)", re.IGNORECASE)
_SOURCE = re.compile(r"\.(?:py|pyx|c|cc|cpp|cxx|cu|cuh|h|hpp)$")
_PUBLIC = re.compile(r"(?:site|dist)-packages/torch/")
_PYTHON = re.compile(r"python3?(?:\.\d+)?$")
_KEPT = frozenset({
    ".", "..", "home", "Users", "usr", "lib", "lib64", "opt", "tmp", "var", "mnt", "data", "scratch", "local", "bin",
    "site-packages", "dist-packages", "nccl", "comm", "trace", "rank", "dump", "fr", "gloo", "xccl", "hccl", "torch",
    "torchcomms", "json", "pkl", "pickle", "gz", "zst", "tar", "tgz", "zip", "log", "txt",
})  # fmt: skip
"""Parts of paths and names of dumps that tell nothing of anybody."""
_JOINTS = re.compile(r"([_.-]+)")
_NO_SECRET = frozenset({"root", "localhost"})
_SHORTEST = 3
"""Users of one or two letters are replaced in paths only: in prose they would be half the words."""


class Names:
    """The stand-ins of one report: host-1, user-1, dir-1, name-1, handed out in the order of first sight."""

    def __init__(self, hosts: Iterable[str], users: Iterable[str], keep_source_names: bool = True) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._keep_source_names = keep_source_names
        self._hosts = {h for h in map(_short, hosts) if re.search(r"[a-z]", h) and len(h) > 1} - _NO_SECRET
        self._shapes = {_shape(h) for h in self._hosts if re.search(r"\d", h)}
        self._users = set[str]()
        self._add_users(users)
        self._paths = set[str]()
        self._odd: dict[str, str] = {}

    def learn(self, texts: Iterable[str], paths: Iterable[str]) -> None:
        """Takes users out of all text, and notes the paths of files, to know them in prose."""
        for text in texts:
            self._add_users(_USER.findall(text))
        self._paths.update(paths)
        for path in sorted((p for p in self._paths if re.search(r"\s", p)), key=len, reverse=True):
            self._odd[path] = self.path(path)

    def _add_users(self, users: Iterable[str]) -> None:
        self._users.update(u for u in users if len(u) >= _SHORTEST and u not in _NO_SECRET)

    def text(self, text: str) -> str:
        """`text` with every name in it replaced."""
        for path, stand_in in self._odd.items():
            text = text.replace(path, stand_in)
        return _SPLIT.sub(self._token, text)

    def host(self, name: str) -> str:
        """The stand-in of a host; its short and its full name have the same."""
        return name if name in _NO_SECRET else self._alias("host", _short(name))

    def path(self, path: str) -> str:
        """A path part by part: what is common stays, users and hosts become theirs, other parts dir-1 and name-1."""
        public = _PUBLIC.search(path)
        if public:
            return f"site-packages/{path[public.end() - len('torch/') :]}"
        users = set(_USER.findall(path)) - _NO_SECRET
        return "!".join(self._inner_path(inner, users) for inner in path.split("!"))

    def _inner_path(self, path: str, users: set[str]) -> str:
        *directories, base = path.split("/")
        return "/".join([*(self._directory(part, users) for part in directories), self._base(base)])

    def _alias(self, kind: str, name: str) -> str:
        if (kind, name) not in self._given:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._given[kind, name] = f"{kind}-{self._counts[kind]}"
        return self._given[kind, name]

    def _known(self, word: str) -> str | None:
        """The stand-in of a word that is a host or a user."""
        if word in self._users:
            return self._alias("user", word)
        return self.host(word) if _short(word) in self._hosts or _shape(_short(word)) in self._shapes else None

    def _directory(self, part: str, users: set[str]) -> str:
        name = part.lstrip("~")
        if not name or name in _KEPT or _PYTHON.match(name):
            return part
        if name in users:
            return "~" * part.startswith("~") + self._alias("user", name)
        return self._known(part) or self._alias("dir", part)

    def _base(self, name: str) -> str:
        """The last part of a path: a source file may keep its name, of a dump's the usual words stay."""
        if _SOURCE.search(name) or name.startswith("<"):
            return self._source(name)
        return "_".join(self._piece(piece) for piece in name.split("_"))

    def _source(self, name: str) -> str:
        if self._keep_source_names or name.startswith("<"):
            return "_".join(self._known(piece) or piece for piece in name.split("_"))
        stem, dot, suffix = name.rpartition(".")
        return self._alias("file", stem) + dot + suffix

    def _piece(self, piece: str) -> str:
        return self._known(piece) or "".join(map(self._particle, _JOINTS.split(piece)))

    def _particle(self, part: str) -> str:
        if part in _KEPT or not part.strip(".-_") or part.isdigit():
            return part
        return self._known(part) or self._alias("name", part)

    def _token(self, match: re.Match[str]) -> str:
        kind, token = match.lastgroup or "", match.group()
        if kind == "url":
            return self._alias("url", token)
        if kind == "mail":
            return self._alias("mail", token)
        if kind == "address":
            return self._address(token)
        return self._in_prose(token) if kind == "word" else self._path_in_prose(token)

    def _address(self, token: str) -> str:
        try:
            address = ipaddress.ip_address(token.rstrip(":."))
        except ValueError:
            return token
        return self._alias("address", str(address)) + token[len(token.rstrip(":.")) :]

    def _path_in_prose(self, token: str) -> str:
        stem = token.rstrip(".,/")
        if token[0] in "/~" or _SOURCE.search(stem) or stem in self._paths:
            return self.path(stem) + token[len(stem) :]
        return "/".join(self._in_prose(part) for part in token.split("/"))

    def _in_prose(self, token: str) -> str:
        """A word: as it is unless it, or a piece of it, is a name that is known."""
        stem = token.rstrip(".-")
        if _SOURCE.search(stem):
            return self._source(stem) + token[len(stem) :]
        known = self.path(stem) if stem in self._paths else self._known(stem)
        if known:
            return known + token[len(stem) :]
        pieces = _JOINTS.split(token)
        return "".join(self._known(piece) or piece for piece in pieces) if len(pieces) > 1 else token


def _short(host: str) -> str:
    """A host name without its domain, for comparison."""
    return PurePosixPath(host.lower()).name.split(".")[0]


def _shape(host: str) -> str:
    """A host name with its numbers taken out: node07 and node12 are of one shape."""
    return re.sub(r"\d+", "#", host)
