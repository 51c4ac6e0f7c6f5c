"""Messages of allocators that found no memory: their sizes, in every wording that torch has had.

Sources: c10/cuda/CUDACachingAllocator.cpp (since 2.1 "GPU 0 has a total capacity of ... of which ... is free", before
"(GPU 0; ... total capacity; ... already allocated; ... free; ... reserved in total by PyTorch)", before 1.5 "cached"),
its kin for HIP and XPU, torch_npu, and c10/core/impl/alloc_cpu.cpp.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HOST = "host"
_SIZE = r"(\d{1,15}(?:\.\d{1,6})?) ?(bytes|[KMGT]i?B)"
_UNITS = {"bytes": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_BEGIN = re.compile(rf"\b(CUDA|HIP|XPU|NPU) out of memory\. Tried to allocate {_SIZE}")
_DEVICES = {"CUDA": "cuda", "HIP": "cuda", "XPU": "xpu", "NPU": "npu"}
_NUMBER = re.compile(r"\b(?:GPU|NPU|XPU) (\d{1,4})\b")
_CPU = re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory: you tried to allocate (\d{1,18}) bytes")
MARKS = ("out of memory. Tried to allocate", "DefaultCPUAllocator: ")
"""Texts of which each message has one."""
_FIELDS = {
    "capacity": re.compile(rf"total capac(?:i)?ty of {_SIZE}|{_SIZE} total capacity"),
    "free": re.compile(rf"of which {_SIZE} is free|{_SIZE} free"),
    "used": re.compile(rf"this process has {_SIZE} memory in use"),
    "allocated": re.compile(rf"allocated memory {_SIZE} is allocated by PyTorch|{_SIZE} already allocated"),
    "reserved": re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)"),
    "unused": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
    "allowed": re.compile(rf"{_SIZE} allowed"),
}
_PROCESS = re.compile(rf"\bProcess (\d{{1,10}}) has {_SIZE} memory in use")
_OLD_FORM = re.compile(r"max_split_size_mb|total capacity; ")
"""Wordings before torch 2.1, which brought expandable segments."""
_KILLED = re.compile(r"Kill(?:ed)? process (\d{1,10})")
_HELD = re.compile(r"\b(anon|file|shmem)-rss:(\d{1,15})kB")
_CGROUP = re.compile(r"Memory cgroup out of memory|CONSTRAINT_MEMCG")
_CGROUP_NAME = re.compile(r"\boom_memcg=([^,\s]{1,400})")
MOST_PROCESSES = 8
_SETTING = re.compile(r"\bPYTORCH_(?:[A-Z]{3,4}_)?ALLOC_CONF\b")
_DEFAULT_SETTING = {"cuda": "PYTORCH_CUDA_ALLOC_CONF", "npu": "PYTORCH_NPU_ALLOC_CONF"}


class OutOfMemory(NamedTuple):
    """The sizes of a failed request in bytes; None where the message has none."""

    device: str
    """"cuda:3", "npu:0", "cuda" without a number, or `HOST`."""
    asked: int
    capacity: int | None = None
    free: int | None = None
    used: int | None = None
    """Held by this process, with memory that torch does not count."""
    allocated: int | None = None
    """In tensors."""
    reserved: int | None = None
    """Taken by torch, in tensors or not."""
    setting: str = ""
    """The variable of the allocator's settings."""
    limit: int | None = None
    """That torch lets this process take of the device, if it limits it."""
    is_old: bool = False
    """The message is of a torch without expandable segments."""
    others: tuple[tuple[int, int], ...] = ()
    """Process ids and bytes of other processes on the device, by the driver: in a container also of this one."""


class HostKill(NamedTuple):
    """A line of the kernel about a process that it killed for want of memory; bytes, None where it has none."""

    pid: int | None
    anonymous: int | None = None
    """Memory of its own."""
    shared: int | None = None
    of_cgroup: bool = False
    """The limit of a control group was reached, not the memory of the host."""
    cgroup: str = ""


def read_host_kill(text: str) -> HostKill | None:
    """The facts that a line of the kernel tells of a killed process; None for any other text."""
    text = text[:4096]
    killed, cgroup = _KILLED.search(text), _CGROUP_NAME.search(text)
    is_cgroup = _CGROUP.search(text) is not None
    if killed is None and not is_cgroup:
        return None
    held = {kind: int(size) << 10 for kind, size in _HELD.findall(text)}
    pid = int(killed[1]) if killed else None
    return HostKill(pid, held.get("anon"), held.get("shmem"), is_cgroup, cgroup[1] if cgroup else "")


def read_out_of_memory(text: str) -> OutOfMemory | None:
    """The sizes in a message; None for any other text."""
    text = text[:4096]
    host = _CPU.search(text)
    if host is not None:
        return OutOfMemory(HOST, int(host[1]))
    begin = _BEGIN.search(text)
    if begin is None:
        return None
    rest = text[begin.end() :]
    found = {name: _size(pattern.search(rest)) for name, pattern in _FIELDS.items()}
    allocated, reserved, unused = (found[name] for name in ("allocated", "reserved", "unused"))
    if reserved is None and allocated is not None and unused is not None:
        reserved = allocated + unused
    number, kind = _NUMBER.search(rest), _DEVICES[begin[1]]
    setting = _SETTING.search(rest)
    capacity = min((size for size in (found["capacity"], found["allowed"]) if size is not None), default=None)
    return OutOfMemory(
        f"{kind}:{number[1]}" if number else kind, _bytes(begin[2], begin[3]), capacity, found["free"], found["used"],
        allocated, reserved, setting[0] if setting else _DEFAULT_SETTING.get(kind, ""),
        found["allowed"], kind == "cuda" and _OLD_FORM.search(rest) is not None,
        tuple((int(pid), _bytes(size, unit)) for pid, size, unit in _PROCESS.findall(rest)[:MOST_PROCESSES]),
    )  # fmt: skip


def _size(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    number, unit = (value for value in found.groups() if value is not None)
    return _bytes(number, unit)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit if unit == "bytes" else unit[0]])
