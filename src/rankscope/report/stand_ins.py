"""Stand-ins for names of hosts, users, paths, addresses and stores in text: one name has one stand-in everywhere.

Names are known from the tables of a job and from what its texts call them; the rest is recognised by its shape: an
address, a full host name, the names that clouds and schedulers give to hosts, a URL, a path.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from rankscope.text.secrets import hide

# What a text is taken apart into. Earlier alternatives win.

_HEX2, _HEX4 = r"[0-9a-f]{2}", r"[0-9a-f]{4}"
_TOKENS = re.compile(
    r"(?P<url>(?<![\w+.-])[a-z][a-z0-9+.-]{0,30}://[^\s'\"`()<>{}|,;\\]*[^\s'\"`()<>{}|,;\\.:])"
    r"|(?P<windows>(?<![\w/\\])(?:[a-z]:[\\/]+|\\{2,}[\w.$-]+\\+)"
    r"[^\s'\"`<>|:*?\\/]+(?:[\\/]+[^\s'\"`<>|:*?\\/]+)*[\\/]*)"
    r"|(?P<mail>[\w.+-]+@(?!@)[\w-]+(?:\.[\w-]+)*)"
    rf"|(?P<hardware>(?<![\w:.-])(?:{_HEX2}(?::{_HEX2}){{5,19}}"
    rf"|{_HEX2}(?:-{_HEX2}){{5}}|{_HEX4}(?::{_HEX4}){{3}})(?![\w:-]))"
    r"|(?P<guid>(?<=guid)[\"']?[\s:=]{1,4}[\"']?0x[0-9a-f]{12,16}\b)"
    r"|(?P<cut>(?<![\w.])\d{1,3}(?:\.\d{1,3}){0,2}(?:\.{3}|…))"
    r"|(?<!\w)(?P<address>[0-9a-f]*:[0-9a-f:.]*:[0-9a-f:.]*(?:%[\w.-]+)?|(?<![\d.])\d{1,3}(?:\.\d{1,3}){3})(?![\w])"
    r"|(?P<site>(?<![\w@/.-])[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)+(?::\d{2,5})?(?:/[\w.@+~%=-]+)+(?::[a-z][\w.-]*)?"
    r"(?:@sha256:[0-9a-f]+)?)"
    r"|(?P<path>[~\w.@+!-]*(?:/[\w.@+~=%!#-]+)+/?)"
    r"|(?P<home>~[a-z_][\w-]*)"
    r"|(?P<nodes>[a-z][\w.-]*\[\d[\d,-]*\][\w.-]*(?:,[a-z][\w.-]*(?:\[\d[\d,-]*\][\w.-]*)?)*)"
    r"|(?P<word>\w[\w.-]*)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(?<=\")~?/[^\"\n]*\s[^\"\n]*(?=\")|(?<=')~?/[^'\n]*\s[^'\n]*(?=')")
_SPACES = re.compile(r"(\s+)")
_LONE_NUMBER = re.compile(r"(?<![A-Za-z0-9_-])\d+(?![A-Za-z0-9_])")
_MOST_SHOWN = 200_000
"""Pieces of text that are kept with what they became."""
_JOINTS = re.compile(r"([_.-]+)")
_SOURCE = re.compile(r"\.(?:py|pyx|c|cc|cpp|cxx|cu|cuh|h|hpp)$")
_SEPARATORS = re.compile(r"[\\/]+")

# Names that texts tell.

_USER = re.compile(
    r"(?:[/\\](?:home|users?)[/\\]+|(?<![\w.-])/u/|^~|(?<=[\s=:\"'(])~)"
    r"(?!\w*\.(?:py|cc|cpp|cu|h)\b)([^/\\\s~:,;\"'()<>\[\]]+)",
    re.IGNORECASE,
)
_USER_IN_PROSE = re.compile(
    r"(?:\b(?:user(?:_?name|_?id)?|logname|owner|login)[\"']?(?:=|: ?)[\"']?(?=[a-z_])"
    r"|\buid=\d+\(|\bUserId=|\bfor user )"
    r"([a-z_][\w.-]*)",
    re.IGNORECASE,
)
_HOST_IN_PROSE = re.compile(
    r"(?:\b(?:host(?:_?name)?|node(?:_?name)?|nodelist|server|endpoint|addr(?:ess)?|peer|master_addr)"
    r"[\"']?(?:=|: ?)[\"']?|\b(?:on|from|to|at) (?:host|node|server) "
    r"|\[(?=[\w.-]+\]:\d{2,5}\b)|\((?=[\w.-]+, \d{4,5}\))|^(?=[\w.-]+:\d+:\d+ \[)"
    r"|(?<![\w.-])[\w.-]{1,64}@(?=[\w-]{1,64}:))"
    r"([a-z](?:[\w.-]{0,252}\w)?)(?!\w*\()",
    re.IGNORECASE | re.MULTILINE,
)
_NAMED_IN_PROSE = re.compile(
    r"(?:job_?name|project(?:_?name)?|entity|cluster_?name|namespace|account)[\"']?(?:=|: ?)[\"']?([a-z][\w.-]*\w)",
    re.IGNORECASE,
)
_NO_HOST = re.compile(r"(?:rank|gpu|cuda|npu|xpu|local|ip)[-:]?\d+|v?\d[\d.]*\w*", re.IGNORECASE)
_STORE = re.compile(
    r"\b(?:s3[an]?|gs|gcs|az|abfss?|wasbs?|oss|cos|hdfs|r2|swift|minio)://(?:([\w.-]+)@)?([\w.-]+)", re.IGNORECASE
)
_WANDB = re.compile(r"\bwandb\.ai/([\w.-]+)/([\w.-]+)")
_SERVICE = re.compile(r"(?<![\w.-])((?:[a-z0-9-]{1,63}\.){1,8})svc\b")
_POD = re.compile(r"(.+?)-(?:worker|master|launcher|chief|head|node|server|client|ps)s?(?:-\d+)+$")
_NODE_RANGE = re.compile(r"([a-z][\w.-]*?)\[(\d[\d,-]*)\]([\w.-]*)", re.IGNORECASE)

# Names by shape.

_CLOUD = re.compile(
    r"(?<![a-z0-9])(?:(?:ip|ec2)-\d{1,3}(?:-\d{1,3}){3}|gke-[a-z0-9-]+-[a-z0-9]{4}|aks-[a-z0-9-]+-vmss[a-z0-9]+"
    r"|i-[0-9a-f]{17}|[a-z0-9]+-(?:dy|st)-[a-z0-9-]+-\d+|(?:desktop|laptop|win)-[a-z0-9]{6,}|nid\d{4,}"
    r"|(?:gpu-?|cpu-?)?(?:node|dgx|hgx|login|compute)-?[a-z]?\d{2,})(?![a-z0-9])",
    re.IGNORECASE,
)
_FULL_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+([a-z][a-z-]*)")
_SUFFIXES = frozenset(
    [
        "com",
        "net",
        "org",
        "edu",
        "gov",
        "mil",
        "int",
        "arpa",
        "corp",
        "lan",
        "intra",
        "intranet",
        "localdomain",
        "hpc",
        "example",
        "invalid",
        "cluster",
        "ac",
        "ad",
        "ae",
        "ar",
        "au",
        "br",
        "ca",
        "ch",
        "cl",
        "cn",
        "cz",
        "de",
        "dk",
        "es",
        "eu",
        "fi",
        "fr",
        "gr",
        "hk",
        "hu",
        "ie",
        "il",
        "jp",
        "kr",
        "lt",
        "lu",
        "lv",
        "mx",
        "nl",
        "nz",
        "pt",
        "ro",
        "ru",
        "se",
        "sg",
        "sk",
        "tr",
        "tw",
        "ua",
        "uk",
        "za",
    ]
)
"""Last labels of host names that end nothing else."""
_DOUBTFUL_SUFFIXES = frozenset(
    [
        "local",
        "internal",
        "test",
        "cloud",
        "io",
        "ai",
        "dev",
        "app",
        "site",
        "zone",
        "host",
        "home",
        "in",
        "it",
        "is",
        "to",
        "no",
        "us",
        "me",
        "at",
        "be",
        "my",
        "co",
        "tv",
        "ml",
        "id",
        "svc",
    ]
)
"""Last labels of host names that may end a dotted name of a program, too."""
_PACKAGES = frozenset(
    [
        "torch",
        "numpy",
        "np",
        "nn",
        "os",
        "sys",
        "self",
        "module",
        "model",
        "models",
        "megatron",
        "deepspeed",
        "transformers",
        "accelerate",
        "c10d",
        "c10",
        "aten",
        "nccl",
        "torchvision",
        "torchtitan",
        "functools",
        "asyncio",
        "importlib",
        "logging",
        "multiprocessing",
        "layers",
        "optimizer",
        "optim",
        "jax",
        "xla",
        "triton",
        "vllm",
        "sglang",
        "ray",
        "lightning",
        "pytorch_lightning",
        "cuda",
        "dist",
        "F",
        "tf",
        "tensorflow",
    ]
)
"""First parts of dotted names that are of programs."""
_PUBLIC_SITES = (
    "pytorch.org", "docs.nvidia.com", "developer.nvidia.com", "docs.python.org", "python.org", "pypi.org", "numpy.org",
    "docs.amd.com", "readthedocs.io", "github.com/pytorch", "github.com/nvidia", "github.com/rocm", "nvcr.io/nvidia",
    "docker.io/pytorch", "docker.io/nvidia", "docker.io/library", "kubernetes.io", "kubeflow.org", "slurm.schedmd.com",
    "openai.com", "json-schema.org", "w3.org", "ui.perfetto.dev",
)  # fmt: skip
"""Sites, and parts of sites, that anybody may name."""
_VERSION_BEFORE = re.compile(r"(?:[=<>~!]=|version[\"']?(?: is|[:=])? ?[\"']?|\bcu1\d[ -]|\bv)$", re.IGNORECASE)
_KEPT_ADDRESSES = frozenset({"127.0.0.1", "0.0.0.0", "::", "::1", "255.255.255.255"})
_COMMON_NAMES = frozenset(
    {"root", "localhost", "localhost.localdomain", "unknown", "none", "null", "host", "(unknown)"}
)
_COMMON_USERS = _COMMON_NAMES | {
    "user",
    "users",
    "ubuntu",
    "ec2-user",
    "admin",
    "nobody",
    "docker",
    "jovyan",
    "home",
    "shared",
}
_COMMON_WORDS = frozenset(
    [
        "master",
        "worker",
        "main",
        "head",
        "node",
        "host",
        "rank",
        "train",
        "test",
        "data",
        "gpu",
        "cpu",
        "model",
        "server",
        "client",
        "launcher",
        "default",
        "primary",
        "user",
        "vm",
        "pc",
        "server",
        "laptop",
        "desktop",
        "workstation",
        "ubuntu",
        "dev",
        "local",
        "python",
    ]
)
"""Words that name a host only in a column of hosts: prose is full of them."""
_SHORTEST_USER = 3
"""Shortest user name that is replaced in prose; shorter ones, which match half the words, only in paths."""
_SHORTEST_STEM = 3
"""Letters of a host name without its numbers from which on all hosts of that form are its siblings."""

_SHORTEST_PART = 3
"""Shortest name that is replaced as a part of a word."""

# Paths.

_PUBLIC_PACKAGES = (
    "torch|torchvision|torchdata|torchtitan|numpy|triton|transformers|accelerate|deepspeed|megatron|vllm|sglang"
    "|ray|horovod|lightning|pytorch_lightning|datasets|webdataset|streaming|safetensors|fsspec|s3fs|gcsfs|boto3|botocore"
    "|aiobotocore|smart_open|huggingface_hub|wandb|requests|urllib3|aiohttp|httpx|grpc|zmq|tqdm|pandas|pyarrow|PIL|deep_ep"
    "|transformer_engine|flash_attn|apex|xformers|torchao|peft|trl|nemo|mcore"
)
_PUBLIC = re.compile(
    rf"(?:^|/)(?P<tail>(?:site|dist)-packages/(?:{_PUBLIC_PACKAGES})/.*"
    r"|torch/(?:_\w+|distributed|nn|autograd|utils|optim|multiprocessing|cuda|npu|xpu|accelerator|fx|jit|library|csrc"
    r"|(?:_tensor|serialization)\.py)(?:/.*|$)"
    r"|(?:third_party|aten|c10d?|csrc|(?:src/)?(?:transport|misc|graph|device|include|plugin|register|ras|scheduler|rma"
    r"|gin))"
    r"/[\w./-]+\.(?:c|cc|cpp|cu|cuh|h|hpp)$"
    r"|rankscope/capture/.*|lib(?:64)?/python3[.\d]*/(?!(?:site|dist)-packages/).*)"
    r"|^(?P<system>/(?:etc|proc|sys|usr/(?:bin|include|local/cuda[^/]*|share)|bin|dev/(?!shm/))(?:/.*)?)$"
    rf"|^(?P<whole>(?:{_PUBLIC_PACKAGES}|asyncio|collections|concurrent|ctypes|encodings|http|importlib|json|logging"
    r"|multiprocessing|urllib)/.*\.py)$"
)
"""Files of public packages and of Python itself, from the directory on that names them."""
_PYTHON = re.compile(r"python3?(?:\.\d+)?$")
_COMMON_DIRECTORIES = frozenset({
    ".", "..", "home", "Users", "usr", "lib", "lib64", "opt", "tmp", "var", "mnt", "data", "scratch", "local",
    "bin", "dev", "proc", "sys", "etc", "shm", "run", "log", "logs", "dumps", "traces", "site-packages",
    "dist-packages", "nccl", "torch", "compiler", "runtime", "srt", "distributed", "managers", "util", "collective",
    "datasets", "streaming", "webdataset", "torchdata", "triton", "vllm", "sglang", "horovod", "ray", "safetensors",
    "third_party",
})  # fmt: skip
"""Common directories, which identify nobody; among them those that tell rules what a stack does."""
_COMMON_PARTS = _COMMON_DIRECTORIES | {
    "comm", "trace", "rank", "ranks", "dump", "stack", "stacks", "fr", "gloo", "xccl", "hccl", "torchcomms", "json",
    "jsonl", "pkl", "pickle", "gz", "zst", "tar", "tgz", "zip", "txt", "csv", "md", "out", "err", "stdout",
    "stderr", "attempt", "part", "worker", "job", "slurm", "pyspy", "py-spy", "spy", "py", "folded", "numbers",
    "memory", "snapshot", "environment", "model", "rankscope", "parameters", "events", "tfevents", "pt", "ras",
    "nvlink", "cuda", "so", "sh", "yaml", "yml", "toml", "html", "prom", "checkpoint", "checkpoints", "train",
    "training", "pretrain", "output", "outputs", "input", "inputs", "dmesg", "syslog", "capture", "exception",
    "clog", "host", "node", "history", "merged", "console", "error", "errors", "main", "launch", "step", "iter",
    "debug", "info", "result", "results", "desync", "nvidia", "smi", "metrics", "config", "env", "environ",
    "summary", "report", "recorder", "(kernel)", "(C)",
}  # fmt: skip
"""Common parts of names of dumps and logs, which identify nobody."""
_NUMBERED = re.compile(r"([A-Za-z]+?)\d+$")


class StandInNames:
    """The stand-ins of one job, or of some that are shown together: host-1, user-1, dir-1, by first occurrence."""

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), keep_source_names: bool = True) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._keep_source_names = keep_source_names
        self._hosts: dict[str, set[str]] = defaultdict(set)
        """By short name the full names of a host."""
        self._shapes: set[str] = set()
        self._domains: set[str] = set()
        self._racks: dict[str, tuple[str, ...]] = {}
        self._users: set[str] = set()
        self._others: dict[str, str] = {}
        """Names of switches, buckets, projects and jobs, with their kinds."""
        self._addresses: set[str] = set()
        self._paths: set[str] = set()
        self._odd: dict[str, str] = {}
        self._joints = 1
        """Most joints of a known name."""
        self._shown: dict[str, str] = {}
        """Pieces of texts that were looked up, and what they became."""
        self._words: dict[str, str] = {}
        """The same of words."""
        self.know_hosts(hosts)
        self.know_users(users)

    # What is known.

    def know_hosts(self, hosts: Iterable[str]) -> None:
        """Takes names of hosts; Slurm's lists of them, too."""
        for name in chain.from_iterable(map(_expanded, hosts)):
            host = PurePosixPath(name.lower()).name
            if not re.search(r"[a-z]", host) or len(host) < 2 or host in _COMMON_NAMES or _is_ip(host):
                continue
            short, _, domain = host.partition(".")
            if len(short) < 2 or not re.search(r"[a-z]", short):
                short, domain = host, ""
            self._hosts[short].add(host)
            self._know(short)
            if re.search(r"\d", short):
                self._shapes.add(_shape(short))
            if domain.count(".") > 0 or domain in _SUFFIXES | _DOUBTFUL_SUFFIXES:
                self._domains.add(domain)
            if (pod := _POD.match(short)) is not None:
                self.know_names("job", [pod[1]])

    def know_racks(self, units: Mapping[str, tuple[str, ...]]) -> None:
        """Takes the units of hosts, coarsest first: stand-ins show which hosts share one."""
        self._racks = {self._host_key(host.lower()): units[host] for host in sorted(units)}

    def know_users(self, users: Iterable[str]) -> None:
        """Takes names of users."""
        new = {u for u in users if len(u) >= _SHORTEST_USER and u not in _COMMON_USERS and not u.isdigit()}
        self._users.update(new)
        for user in new:
            self._know(user)

    def know_names(self, kind: str, names: Iterable[str]) -> None:
        """Takes other names that identify somebody; short and common words are left alone in prose."""
        for name in names:
            if (
                len(name) > 3
                and re.search("[A-Za-z]", name)
                and name.lower() not in _COMMON_WORDS | _COMMON_PARTS | _PACKAGES
            ):
                self._others.setdefault(name, kind)
                self._know(name)

    def learn(self, texts: Iterable[str], paths: Iterable[str]) -> None:
        """Collects the names that texts tell, and the paths of files, to recognise them in prose."""
        self._shown.clear()
        self._words.clear()
        every = list(texts)
        self._addresses.update(
            address for text in every for address in re.findall(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])", text)
        )
        # logs repeat their lines with other numbers
        whole = "\n".join(dict.fromkeys(_LONE_NUMBER.sub("0", text) for text in every))
        self.know_users(chain(_USER.findall(whole), (n for n in _USER_IN_PROSE.findall(whole) if not _is_word(n))))
        self.know_hosts(name for name in _HOST_IN_PROSE.findall(whole) if self._may_be_host(name))
        self.know_names("job", _NAMED_IN_PROSE.findall(whole))
        self.know_names("bucket", chain.from_iterable(_STORE.findall(whole)))
        self.know_names("project", chain.from_iterable(_WANDB.findall(whole)))
        self.know_names("service", (label for name in _SERVICE.findall(whole) for label in name.split(".")))
        self._paths.update(paths)
        for path in sorted((p for p in self._paths if re.search(r"\s", p)), key=len, reverse=True):
            self._odd[path] = self.path(path)

    def _know(self, name: str) -> None:
        self._joints = max(self._joints, len(_JOINTS.findall(name)))

    def _may_be_host(self, name: str) -> bool:
        """Whether a word behind "host" or the like is a name: words of the language have neither digits nor joints."""
        if re.search(r"\d|-", name) is None or "_" in name or name.partition(".")[0] in _PACKAGES:
            return False
        return not (_SOURCE.search(name) or _NO_HOST.fullmatch(name))

    # What is shown.

    def text(self, text: str) -> str:
        """`text` with every name and secret in it replaced."""
        text = hide(text)
        for path, stand_in in self._odd.items():
            text = text.replace(path, stand_in)
        shown, at = [], 0
        for quoted in _QUOTED.finditer(text):
            shown += [self._unquoted(text[at : quoted.start()]), self.path(quoted[0])]
            at = quoted.end()
        return "".join([*shown, self._unquoted(text[at:])])

    def _unquoted(self, text: str) -> str:
        if "guid" in text.lower():
            return _TOKENS.sub(self._token, text)
        pieces = _SPACES.split(text)
        for at in range(0, len(pieces), 2):
            before = pieces[at - 2] if at else ""
            pieces[at] = self._piece(pieces[at], before)
        return "".join(pieces)

    def _piece(self, piece: str, before: str) -> str:
        """A part of a text without spaces in it, behind another one."""
        if _VERSION_BEFORE.search(f"{before} "):
            # what looks like an address there is a version
            return piece if _is_ip(piece.strip(".,;()[]'\"")) else self._fresh(piece)
        shown = self._shown.get(piece)
        if shown is None:
            if len(self._shown) > _MOST_SHOWN:
                self._shown.clear()
            shown = self._shown[piece] = self._fresh(piece)
        return shown

    def _fresh(self, piece: str) -> str:
        return _TOKENS.sub(self._token, piece)

    def json(self, text: str) -> str:
        """A JSON text with names replaced in all of its strings."""
        try:
            told = json.loads(text)
        except ValueError:
            return self.text(text)
        shown = self._value(told)
        return text if shown == told else json.dumps(shown, ensure_ascii=False)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self._value(one) for name, one in value.items()}
        return value

    def host(self, name: str) -> str:
        """The stand-in of a host; its short and its full name have the same."""
        if name.lower() in _COMMON_NAMES:
            return name
        if _is_ip(name):
            return self._address(name)
        key = self._host_key(PurePosixPath(name.lower()).name)
        if ("host", key) not in self._given:
            units = self._racks.get(key, ())
            self._alias("host", key)
            racks = "".join(f".{self._alias('rack', unit)}" for unit in reversed(units))
            self._given["host", key] += racks
        return self._given["host", key]

    def path(self, path: str) -> str:
        """A redacted path: common parts stay, users and hosts get their stand-ins, other parts dir-1 and name-1."""
        public = _PUBLIC.search(path)
        if public:
            return public["tail"] or self._within(public["system"] or public["whole"])
        users = set(_USER.findall(path)) - _COMMON_USERS
        return "!".join(self._inner_path(inner, users) for inner in path.split("!"))

    def switches(self, value: str) -> str:
        """Slurm's path of switches to a node, with a stand-in for each of its parts."""
        *above, node = value.split(".")
        return ".".join([*(self._alias("switch", one) for one in above), self.host(node)])

    def _inner_path(self, path: str, users: Collection[str]) -> str:
        *directories, base = path.split("/")
        return "/".join([*(self._directory(part, users) for part in directories), self._base(base, users)])

    def _alias(self, kind: str, name: str) -> str:
        if (kind, name) not in self._given:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._given[kind, name] = f"{kind}-{self._counts[kind]}"
        return self._given[kind, name]

    def _host_key(self, host: str) -> str:
        """The short name of a host; the full one if several hosts share the short one."""
        short = host.partition(".")[0]
        full = {name for name in self._hosts.get(short, ()) if name != short}
        is_known = short in self._hosts or _shape(short) in self._shapes
        return short if is_known and len(full) < 2 else host

    def _known(self, word: str) -> str | None:
        """The stand-in of a word that is a known host, user or other name."""
        if word in self._users:
            return self._alias("user", word)
        if word in self._others:
            return self._alias(self._others[word], word)
        name = word.lower()
        short, _, domain = name.partition(".")
        if name in self._hosts:
            return None if name in _COMMON_WORDS else self.host(word)
        if domain and (domain in self._domains or (short in self._hosts and name in self._hosts[short])):
            return self.host(word)
        return self.host(word) if not domain and _shape(name) in self._shapes else None

    def _has_domain(self, word: str) -> bool:
        """Whether a dotted word is a known host, or one of a form that is known, with a domain behind it."""
        first, dot, rest = word.partition(".")
        last = rest.rpartition(".")[2]
        if not dot or last in _COMMON_PARTS or not last.isalpha() or "_" in rest:
            return False
        return (self._known(first) is not None and first not in self._users | self._others.keys()) or (
            "-" in first and "." in rest and self._within(first) != first
        )

    def _directory(self, part: str, users: Collection[str]) -> str:
        name = part.lstrip("~")
        if not name or name in _COMMON_DIRECTORIES or _PYTHON.match(name) or name in _COMMON_USERS or name.isdigit():
            return part
        if name in users:
            return "~" * part.startswith("~") + self._alias("user", name)
        return self._known(part) or self._alias("dir", part)

    def _base(self, name: str, users: Collection[str] = ()) -> str:
        """The redacted last part of a path: a source file may keep its name, a dump keeps usual words."""
        if name.lstrip("~") in users:
            return "~" * name.startswith("~") + self._alias("user", name.lstrip("~"))
        if _SOURCE.search(name) or name.startswith("<"):
            return self._source(name)
        return self._within(name, self._particle)

    def _source(self, name: str) -> str:
        if self._keep_source_names or name.startswith("<"):
            return self._within(name)
        stem, dot, suffix = name.rpartition(".")
        return self._alias("file", stem) + dot + suffix

    def _particle(self, part: str) -> str:
        if part in _COMMON_PARTS or not part.strip(".-_") or part.isdigit():
            return part
        numbered = _NUMBERED.match(part)
        if numbered and (numbered[1].lower() in _COMMON_PARTS or numbered[1] in ("r", "p")):
            return part
        return self._alias("name", part)

    def _within(self, text: str, rest: Callable[[str], str] = str) -> str:
        """The text with known names between its joints replaced, the longest first; others become what `rest` makes."""
        cloud = _CLOUD.search(text)
        if cloud is not None:
            before, after = text[: cloud.start()], text[cloud.end() :]
            return self._within(before, rest) + self.host(cloud[0]) + self._within(after, rest)
        pieces = _JOINTS.split(text)
        out: list[str] = []
        at = 0
        while at < len(pieces):
            for end in range(min(len(pieces), at + 2 * self._joints + 1), at, -1):
                candidate = "".join(pieces[at:end])
                if (
                    (end - at) % 2
                    and len(candidate) >= _SHORTEST_PART
                    and (known := self._known(candidate)) is not None
                ):
                    out.append(known)
                    at = end
                    break
            else:
                out.append(pieces[at] if at % 2 else rest(pieces[at]))
                at += 1
        return "".join(out)

    # The tokens of a text.

    def _token(self, match: re.Match[str]) -> str:
        kind, token = match.lastgroup or "", match.group()
        if kind == "word":
            return self._word(token)
        if kind == "address" and _VERSION_BEFORE.search(match.string, max(0, match.start() - 16), match.start()):
            return token
        return str(getattr(self, f"_{kind}")(token))

    def _url(self, token: str) -> str:
        scheme, _, rest = token.partition("://")
        end = "]" if rest.endswith("]") and rest.count("]") > rest.count("[") else ""
        rest = rest.removesuffix(end) if end else rest
        if _is_public(rest):
            return token
        if scheme.lower() == "file" and rest.startswith("/"):
            return f"{scheme}://{self.path(rest)}{end}"
        place = re.fullmatch(r"(\[[^\]]+\]|[^:/@]+)(:\d{1,5})?/?", rest)
        if place is not None and scheme.lower() in (
            "tcp",
            "env",
            "udp",
            "unix",
            "grpc",
            "redis",
            "nccl",
            "gloo",
            "zmq",
        ):
            return f"{scheme}://{self._place(place[1])}{place[2] or ''}{end}"
        return self._alias("url", token.removesuffix(end)) + end

    def _place(self, name: str) -> str:
        """The stand-in of the host or address of a URL."""
        if name.startswith("["):
            return f"[{self._address(name[1:-1])}]"
        return name if name in ("*", "") else self.host(name)

    def _windows(self, token: str) -> str:
        drive = re.match(r"[A-Za-z]:[\\/]+", token)
        start = drive[0] if drive else re.match(r"\\+", token)[0]  # type: ignore[index]
        parts = _SEPARATORS.split(token[len(start) :])
        if not drive:
            parts = [self.host(parts[0]), *parts[1:]]
        users = set(_USER.findall(token)) - _COMMON_USERS
        first = [] if drive else parts[:1]
        *directories, base = parts[len(first) :]
        shown = [*first, *(self._directory(one, users) for one in directories), self._base(base, users)]
        joint = re.search(r"\\+|/", token[len(start) :])
        return start + (joint[0] if joint else "\\").join(shown)

    def _mail(self, token: str) -> str:
        who, _, where = token.partition("@")
        if "." in where and where.rpartition(".")[2].isalpha() and not _is_word(where):
            host = self._known(where) or (self.host(where) if where.lower() in self._hosts else None)
            return f"{self._alias('user', who)}@{host}" if host else self._alias("mail", token)
        host, user = self._known(where), self._known(who)
        if host is None and _CLOUD.fullmatch(where):
            host = self.host(where)
        if host is None and user is None:
            return f"{self._word(who)}@{self._word(where)}"
        return f"{user or self._alias('user', who)}@{host or self._alias('host', where)}"

    def _hardware(self, token: str) -> str:
        if re.fullmatch(r"(?:00[:-])+00|[0-9]{4}(?::0{4}){3}", token):
            return token
        return self._alias("address", token.lower())

    def _guid(self, token: str) -> str:
        at = token.lower().index("0x")
        return token[:at] + self._alias("address", token[at:].lower())

    def _cut(self, token: str) -> str:
        head = re.match(r"[\d.]*\d", token)[0]  # type: ignore[index]
        is_sure = "." in head or len(head) == 3
        whole = next((one for one in sorted(self._addresses) if one.startswith(head)), None)
        return self._address(whole) + token[len(head) :] if is_sure and whole else token

    def _address(self, token: str) -> str:
        stem = token.rstrip(":.")
        bare, percent, zone = stem.partition("%")
        if bare in _KEPT_ADDRESSES or (":" in bare and (not re.search(r"\d", bare) or bare.lower().startswith("c10:"))):
            return token
        try:
            address = ipaddress.ip_address(bare)
        except ValueError:
            return token
        return self._alias("address", str(address)) + percent + zone + token[len(stem) :]

    def _site(self, token: str) -> str:
        host = token.partition("/")[0].partition(":")[0]
        if _is_full_name(host):
            return token if _is_public(token) else self._alias("url", token)
        path, colon, tag = token.partition(":")
        return self._path(path) + (f":{self.text(tag)}" if colon else "")

    def _path(self, token: str) -> str:
        stem = token.rstrip(".,/")
        if token[0] in "/~" or _SOURCE.search(stem) or stem in self._paths or token.startswith(("./", "../")):
            return self.path(stem) + token[len(stem) :]
        if token.count("/") > 1 and _is_path(stem):
            return self.path(stem) + token[len(stem) :]
        return "/".join(self._word(part) for part in token.split("/"))

    def _home(self, token: str) -> str:
        return "~" + (self._alias("user", token[1:]) if token[1:] not in _COMMON_USERS else token[1:])

    def _nodes(self, token: str) -> str:
        names = list(_expanded(token))
        if any(self._known(name) or _CLOUD.fullmatch(name) for name in names[:4]):
            return self._alias("hosts", token)
        head, bracket, rest = token.partition("[")
        return self._word(head) + bracket + _TOKENS.sub(self._token, rest)

    def _word(self, token: str) -> str:
        """A word, replaced if it or a part of it is a name."""
        if token not in self._words:
            if len(self._words) > _MOST_SHOWN:
                self._words.clear()
            self._words[token] = self._looked_up(token)
        return self._words[token]

    def _looked_up(self, token: str) -> str:
        stem = token.rstrip(".-")
        end = token[len(stem) :]
        if not stem:
            return token
        if stem in self._paths:
            return self.path(stem) + end
        if _SOURCE.search(stem):
            return self._source(stem) + end
        known = self._known(stem)
        if known is None and (_is_full_name(stem) or self._has_domain(stem)):
            known = stem if _is_public(stem) else self.host(stem)
        return (known if known is not None else self._within(stem)) + end


def _expanded(text: str) -> Iterator[str]:
    """The hosts of one of Slurm's lists: node[01-03,7] are four; a plain name is itself."""
    found = list(_NODE_RANGE.finditer(text))
    rest = _NODE_RANGE.sub("", text)
    yield from (name for name in re.split(r"[,\s]+", rest) if name)
    for one in found:
        for part in one[2].split(","):
            first, dash, last = part.partition("-")
            if not first.isdigit() or (dash and not last.isdigit()):
                continue
            numbers = range(int(first), min(int(last or first), int(first) + 65_536) + 1)
            yield from (f"{one[1]}{number:0{len(first)}d}{one[3]}" for number in numbers)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_full_name(word: str) -> bool:
    """Whether a dotted word is a host with its domain, and no name of a module, file or version."""
    if not (word.islower() or word.isupper()):
        return False
    found = _FULL_NAME.fullmatch(word.lower())
    if found is None:
        return False
    *labels, suffix = word.lower().split(".")
    if labels[0] in _PACKAGES or any(label.isdigit() for label in labels):
        return False
    if suffix in _SUFFIXES:
        return True
    telling = len(labels) > 1 or re.search(r"\d|-", "".join(labels)) is not None
    return suffix in _DOUBTFUL_SUFFIXES and telling


def _is_public(address: str) -> bool:
    """Whether an address, without its scheme, is of a public site."""
    place = address.lower()
    host = place.partition("/")[0]
    return any(
        place.startswith(site) and place[len(site) : len(site) + 1] in ("", "/")
        if "/" in site
        else host == site or host.endswith(f".{site}")
        for site in _PUBLIC_SITES
    )


def _is_path(text: str) -> bool:
    """Whether a relative text with slashes is a path: one that ends in a file name."""
    return re.search(r"\.(?:log|txt|json|jsonl|gz|pkl|pickle|pt|err|out|zip|tar|yaml|yml|sh|so)$", text) is not None


def _is_word(name: str) -> bool:
    """Whether a word behind "user" says something else."""
    return name.lower() in _COMMON_USERS | {
        "defined",
        "code",
        "error",
        "warning",
        "specified",
        "process",
        "frame",
        "frames",
        "function",
        "script",
        "space",
        "id",
        "name",
        "input",
        "is",
        "has",
        "not",
        "stopped",
        "interrupt",
        "provided",
        "default",
        "the",
        "true",
        "false",
    }


def _shape(host: str) -> str:
    """A host name without its numbers: node07 and node12 have one shape; a name of one or two letters keeps how long
    they are."""
    stem = re.sub(r"\d+", "#", host)
    return stem if len(re.sub("[^a-z]", "", stem)) >= _SHORTEST_STEM else re.sub(r"\d", "#.", host)
