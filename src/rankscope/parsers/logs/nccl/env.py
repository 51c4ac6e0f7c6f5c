"""Lines of settings and versions."""

from __future__ import annotations

import re

_ENV = re.compile(
    r"(?P<name>(?:NCCL|RCCL|OFI_NCCL|MSCCL|HSA)_\w{1,100}) set by environment to (?P<value>.{0,1000}?)\.?\s*$"
)
_VERSION = re.compile(r"(?P<library>NCCL|RCCL) version\s*:? (?P<value>\S{1,100}(?: compiled with \S+ \S{1,20})?)")
_OTHERS = (
    ("cuda-driver", re.compile(r"cudaDriverVersion (\d{1,9})")),
    ("network", re.compile(r"Using network (.{1,100})")),
    ("net-plugin", re.compile(r"NET/Plugin: Loaded net plugin (.{1,100})")),
    ("bootstrap", re.compile(r"Bootstrap ?: Using (.{1,200})")),
)


def setting(message: str) -> tuple[str, str] | None:
    """Name and value of a setting; the version is `version`. A number is printed with a dot behind it."""
    if found := _ENV.match(message):
        return found["name"], found["value"]
    if told := version(message):
        return told
    for name, pattern in _OTHERS:
        if found := pattern.match(message):
            return name, found[1].strip()
    return None


def version(message: str) -> tuple[str, str] | None:
    """The version of the library: a line without a head up to 2.21."""
    found = _VERSION.match(message)
    return ("version", f"{found['library']} {found['value']}") if found else None
