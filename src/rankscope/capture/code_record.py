"""Code that a process runs, for a comparison of two runs: command line, own source files, commit, package versions.

Names, numbers and hashes only: no source text leaves the machine. Everything is read from modules that the job has
imported anyway, on the thread that writes the sidecar; git runs once, on a thread of its own, and only for the first
process of a host.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HIDDEN = "(hidden)"
MOST_ARGUMENTS, LONGEST_ARGUMENT = 256, 400
MOST_FILES, LARGEST_FILE = 256, 4 << 20
MOST_PACKAGES = 256
GIT_LIMIT_S = 10.0
"""Longest time for one command of git."""
MOST_DIFF = 64 << 20
"""Bytes of uncommitted changes that are hashed; of more, no hash is noted."""
_SECRET = re.compile(
    r"(?:^|[^a-z])(?:\w*secret\w*|\w*passw(?:or)?d\w*|\w*passphrase|pass|pwd|\w*cred(?:ential)?s?|\w*auth"
    r"|\w*authorization|\w*auth\w*[_-]?header|(?:set-)?cookie|(?:\w*[_-])?key|\w*(?:api|access|secret|private)[_-]?keys?"
    r"|\w*token|\w*(?:auth|api|access|secret|hf|bearer)[_-]?tokens)$",
    re.IGNORECASE,
)
"""Names of options whose values are not written. A reader hides more of them, by their shapes."""
_OF_TOKENIZER = re.compile(r"(?:pad|eos|bos|unk|sep|cls|mask|max|min|num|new)\w*[_-]token$", re.IGNORECASE)
"""Names of options about a token of text."""
_NAME = re.compile(r"""([\w-]{1,80})["']?\s*[:=]\s*(?![{\[])""")
_VALUE = re.compile(r""""[^"]*(?:"|$)|'[^']*(?:'|$)|[^\s,;}&]+""")
"""A name and its value inside of an argument, as in JSON or a URL."""
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+\S+", re.IGNORECASE)
_HEADER_REST = re.compile(r"\b((?:Authorization|Cookie):\s*\S+\s+)\S.*", re.IGNORECASE | re.DOTALL)
"""A header of HTTP whose value has several words."""
_LOGIN, _CUT_LOGIN = (
    re.compile(rf"(?<=://)(?:[^/?#\s]+|[^@/?#\s:]*:(?!\d{{1,5}}(?:/[^@?\s]*)?\?[^@\s]*=)\S+)(?={end})")
    for end in ("@", "@|$")
)
"""User and password of a URL, and of one that is cut, maybe inside of them. A password may hold a slash; a port that
stands before a query is none."""
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,63}")
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - compared with names of modules
_command: list[str] = []
"""The command line of the runner, without its own options; empty where a script starts the capture by itself."""


def note_command(arguments: Sequence[str]) -> None:
    """Notes the script, or `-m` and the module, with its arguments; `sys.argv` still has those of the runner."""
    _command[:] = arguments


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, without values of options whose names announce a secret."""
    shown, hides = list[str](), False
    for argument in arguments[:MOST_ARGUMENTS]:
        name, equals, _ = argument.partition("=")
        # a value may begin with one dash
        is_option = argument.startswith("--") or (argument.startswith("-") and not hides)
        if hides and not is_option:
            shown.append(HIDDEN)
        elif equals and _is_secret(name):
            shown.append(f"{_without_values(name)}={HIDDEN}")
        else:
            shown.append(_without_values(argument))
        hides = is_option and not equals and _is_secret(name)
    return shown


def _is_secret(option: str) -> bool:
    end = option[-LONGEST_ARGUMENT:]
    return _SECRET.search(end) is not None and _OF_TOKENIZER.search(end) is None


def _without_values(argument: str) -> str:
    """The beginning of an argument without the values of secrets that stand inside of it."""
    login = _LOGIN if len(argument) <= LONGEST_ARGUMENT else _CUT_LOGIN
    # cut before it is searched, as the time grows with the square of the length
    text = _HEADER_REST.sub(rf"\1{HIDDEN}", _SCHEME.sub(rf"\1 {HIDDEN}", argument[:LONGEST_ARGUMENT]))
    text = login.sub(HIDDEN, text)
    at = 0
    while (name := _NAME.search(text, at)) is not None:
        at = name.end()
        # another name may stand in the value of one that is none of a secret
        if _is_secret(name[1]) and (value := _VALUE.match(text, at)) is not None:
            text = text[:at] + HIDDEN + text[value.end() :]
            at += len(HIDDEN)
    return text[:LONGEST_ARGUMENT]


class CodeRecord:
    """The code of this process. Nothing in it raises: what cannot be read is left out."""

    def __init__(self) -> None:
        self._arguments = without_secrets(_command or sys.argv)
        self._modules = -1
        """The number of imported modules when these were last looked at."""
        self._hashes: dict[str, str | None] = {}
        self._packages: dict[str, str] = {}
        self._git: dict[str, str] = {}
        self._asks = threading.Lock()
        self._lock = threading.Lock()

    def facts(self, is_first: bool, *, asks_git: bool = True) -> dict[str, Any]:
        """The facts so far, as JSON values; `is_first`: this is the first process of its host, which also asks git."""
        with self._lock:
            return self._facts(is_first, asks_git)

    def _facts(self, is_first: bool, asks_git: bool) -> dict[str, Any]:
        main = vars(sys.modules["__main__"]).get("__file__")
        # until the runner of a script has started it, the main module is its own
        script = os.path.abspath(main) if isinstance(main, str) else ""  # noqa: PTH100 - resolve() may hang
        script = "" if script.startswith(_OURS) else script
        if script and len(sys.modules) != self._modules:
            count = len(sys.modules)
            self._look(os.path.dirname(script))  # noqa: PTH120 - as the names of modules
            self._modules = count
        if is_first and asks_git and script and self._asks.acquire(blocking=False):
            # the lock stays taken: git is asked once
            with contextlib.suppress(RuntimeError):  # no thread can be started at the end of the interpreter
                threading.Thread(target=self._ask_git, args=(script,), name="rankscope-code", daemon=True).start()
        files = {name: value for name, value in sorted(self._hashes.items()) if value is not None}
        found: dict[str, Any] = {"command": self._arguments, "files": files, **self._git}
        return {**found, "packages": dict(sorted(self._packages.items()))} if is_first else found

    def settings(self, is_first: bool) -> dict[str, str]:
        """The facts but those of git by the names that a reader of sidecars gives them."""
        facts = self.facts(is_first, asks_git=False)
        files = {f"code file {name}": value for name, value in facts["files"].items()}
        versions = {f"version:{name}": version for name, version in facts.get("packages", {}).items()}
        return {"command line": shlex.join(facts["command"]), **files, **versions}

    def _look(self, folder: str) -> None:
        """Hashes new source files below a folder, and notes the versions of new packages."""
        for name, module in list(sys.modules.items()):
            try:
                # a module that loads itself late would do so if it were asked for an attribute
                facts = object.__getattribute__(module, "__dict__")
                file = facts.get("__file__") if name == "__main__" else getattr(facts.get("__spec__"), "origin", None)
                if isinstance(file, str):
                    self._note_file(file, folder)
                if "." not in name and not name.startswith("_") and len(self._packages) < MOST_PACKAGES:
                    self._note_package(name, facts)
            except Exception:  # noqa: BLE001 - anything may stand among modules, and no error here may reach the job
                continue

    def _note_file(self, file: str, folder: str) -> None:
        path = os.path.abspath(file)  # noqa: PTH100 - resolve() may hang
        is_near = path.startswith(folder + os.sep) and not path.startswith(_OURS)
        if not is_near or not path.endswith(".py") or _is_installed(path):
            return
        name = path[len(folder) + 1 :].replace(os.sep, "/")
        if name not in self._hashes and len(self._hashes) < MOST_FILES:
            self._hashes[name] = _file_hash(path)

    def _note_package(self, name: str, facts: dict[str, Any]) -> None:
        """Notes the version of a package, by the attributes of its module."""
        if name in self._packages or name in sys.stdlib_module_names or facts.get("__spec__") is None:
            return
        version = facts.get("__version__")
        if not isinstance(version, str):
            try:
                version = importlib.metadata.version(name)
            except Exception:  # noqa: BLE001 - a module without metadata, or with broken metadata
                return
        if isinstance(version, str) and _VERSION.fullmatch(version):
            self._packages[name] = version

    def _ask_git(self, script: str) -> None:
        """Notes the commit of the repository that holds the script, and a hash of what is not committed."""
        folder = os.path.dirname(script)  # noqa: PTH120 - as the names of modules
        head = _git_output(folder, "rev-parse", "HEAD")
        commit = head.decode("ascii", "replace").strip() if head is not None else ""
        if not re.fullmatch(r"[0-9a-f]{40,64}", commit):
            return
        changes = _git_output(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD")
        found = {"commit": commit}
        if changes is not None:
            found["changes"] = hashlib.sha256(changes).hexdigest()[:16] if changes else "none"
        self._git = found


_records: dict[int, CodeRecord] = {}
"""By process id: a forked process has a record of its own."""


def process_record() -> CodeRecord:
    """The record of this process, which the sidecar and the header of numbers share: each file is read once."""
    return _records.setdefault(os.getpid(), CodeRecord())


def _is_installed(path: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    places = (sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    return any(path.startswith(place + os.sep) for place in places) or f"{os.sep}site-packages{os.sep}" in path


def _file_hash(path: str) -> str | None:
    try:
        data = Path(path).read_bytes() if Path(path).stat().st_size <= LARGEST_FILE else None
    except OSError:
        return None
    return None if data is None else hashlib.sha256(data).hexdigest()[:16]


def _git_output(folder: str, *arguments: str) -> bytes | None:
    """The output of a command of git in a folder; None without git, a repository, or an answer in time."""
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder, *arguments]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
    except OSError:
        return None
    clock = threading.Timer(GIT_LIMIT_S, process.kill)
    clock.daemon = True
    clock.start()
    try:
        with process:
            data = b"".join(_limited(process))
            if len(data) > MOST_DIFF:
                process.kill()
    finally:
        clock.cancel()
    return data if process.returncode == 0 else None


def _limited(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The output of a process in blocks, up to a little more than the limit."""
    assert process.stdout is not None
    count = 0
    while count <= MOST_DIFF and (block := process.stdout.read(1 << 20)):
        count += len(block)
        yield block
