"""Lines of kernels, drivers and tools about broken or lost hardware: GPUs, NVSwitches, network ports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rankscope.parsers.logs.c10d.event_builder import message_event, shown_text
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = (
    "NVRM: ", "SXid (PCI:", "mlx5_core ", "Link DOWN", "NIC Link is Down", "amdgpu ", "GPU[", "XID ", "DBEs",
    "ouble Bit ECC", "ouble bit ECC", "row remapping failed", "NVLink link", "uncorrectable memory error",
    "GPU 0000", "hca_id:", "# Port counters:",
)  # fmt: skip
KIND = "hardware"
FATAL_XIDS = frozenset(
    {
        46, 48, 54, 61, 62, 64, 74, 79, 94, 95, 110, 119, 120, 123, 136, 140, 142, 143, 144, 145, 146, 147, 148, 149,
        150, 151, 155, 156, 158, 167, 168, 169,
    }
)  # fmt: skip
"""Numbers after which no program runs on with this GPU: it is lost, halted or has broken memory or links."""
BUS = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.\d)?)"
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{4,20})\): (\d{1,4})(?:, pid='?(\d{1,10})\b'?)?(?:, name=([^,]{1,64}))?"
)
_NVRM = re.compile(
    rf"NVRM: .{{0,80}}?{BUS}.{{0,200}}?(?:fallen off the bus|is lost|RmInitAdapter failed|GPU recovery action)",
)
_SXID = re.compile(rf"SXid \(PCI:{BUS}\): (\d{{1,6}}), (Fatal|Non-fatal)?")
_MLX5 = re.compile(
    rf"mlx5_(?:core|\d{{1,3}})\b(?: {BUS})?.{{0,80}}?"
    r"(Link down|link down|Link DOWN|LINK DOWN|Cable unplugged|Cable error|Fatal error|fatal error|health compromised"
    r"|device's health compromised|High temperature|Port: \d{1,3} Link DOWN|port_inactive|firmware tracer fatal)"
)
_NIC = re.compile(rf"{BUS} (\S{{1,32}}): (NIC Link is Down)")
_AMD = re.compile(
    rf"amdgpu {BUS}: .{{0,80}}?"
    r"(GPU reset begin|ring \S{1,40} timeout|[1-9]\d{0,9} uncorrectable hardware errors|GPU is lost|poison"
    r"|fatal error|RAS .{0,40}uncorrectable|device lost from bus|GPU fault detected)"
)
_TOOL_GPU = re.compile(
    r"\bGPU ?\[?(\d{1,3})\]?.{0,120}?\b(XID \d{1,4}|[Dd]ouble.[Bb]it ECC|DBEs?\b|uncorrectable memory errors?"
    r"|row remapping failed|[Uu]ncorrectable [Ee]rrors? ?:? ?[1-9]|NVLink.{0,20}(?:down|inactive)|fell off the bus"
    r"|fallen off the bus|is lost)"
    r"|(XID \d{1,4}|volatile DBEs|[Dd]ouble.[Bb]it ECC|NVLink link \d{1,2}.{0,40}is down|uncorrectable memory errors?)"
    r".{0,60}?\bGPU ?:? ?(\d{1,3})\b"
)
_KERNEL = re.compile(r"(?:^|\b)([A-Za-z][\w.\-]{0,254}) kernel: $")
_DAEMON = re.compile(r"^([A-Za-z][\w.\-]{0,254}) [\w.\-/@]{1,64}(?:\[\d{1,10}\])?: ")


def host_before(record: Record) -> str | None:
    """The host that syslog or journalctl puts before a message; None without one."""
    found = _KERNEL.search(record.label) or _DAEMON.match(record.text)
    return found[1] if found is not None else None


def events(record: Record) -> Iterator[Event]:
    """The event of a line about hardware.

    Values: `device`: "gpu", "switch", "port"; `bus`, its address as printed; `number` of an Xid or SXid; `gpu`, the
    index that a tool gives it; `port`, its name; `fatal`: whether a program cannot go on with it; `pid`, `name` and
    `host`. Unknown values are None.
    """
    made = _xid(record) or _driver(record) or _switch(record) or _network(record) or _amd(record) or _of_tool(record)
    if made is not None:
        yield made


def _made(record: Record, device: str, *, fatal: bool, **values: Any) -> Event:
    blank: dict[str, Any] = dict.fromkeys(("bus", "number", "gpu", "port", "pid", "name"))
    told: dict[str, Any] = {**blank, "host": host_before(record), **values}
    return message_event(KIND, record, device=device, fatal=fatal, **told)


def _xid(record: Record) -> Event | None:
    if (found := _XID.search(record.text)) is None:
        return None
    number = int(found[2])
    name = found[4].strip("'<> ") if found[4] else None
    pid = int(found[3]) if found[3] else None
    return _made(record, "gpu", fatal=number in FATAL_XIDS, bus=found[1], number=number, pid=pid, name=name)


def _driver(record: Record) -> Event | None:
    found = _NVRM.search(record.text)
    return None if found is None else _made(record, "gpu", fatal=True, bus=found[1])


def _switch(record: Record) -> Event | None:
    found = _SXID.search(record.text)
    if found is None:
        return None
    return _made(record, "switch", fatal=found[3] == "Fatal", bus=found[1], number=int(found[2]))


def _network(record: Record) -> Event | None:
    if (found := _MLX5.search(record.text)) is not None:
        port = re.search(r"\b(mlx5_\d{1,3}|ib\d{1,3}|e[nt]\w{2,20})\b", record.text)
        return _made(record, "port", fatal=False, bus=found[1], port=port[1] if port else None)
    if (nic := _NIC.search(record.text)) is not None:
        return _made(record, "port", fatal=False, bus=nic[1], port=nic[2])
    return None


def _amd(record: Record) -> Event | None:
    found = _AMD.search(record.text)
    if found is None:
        return None
    return _made(record, "gpu", fatal="fault detected" not in found[2], bus=found[1])


def _of_tool(record: Record) -> Event | None:
    """A line of dcgmi or rocm-smi, which count the GPUs of a host. It tells a state, not when it came about."""
    found = _TOOL_GPU.search(record.text) if record.rank is None and "NVRM" not in record.text else None
    if found is None:
        return None
    return _made(record, "gpu", fatal=False, gpu=int(found[1] or found[4]))


# Reports of a tool about one device each: `nvidia-smi -q`, `ibv_devinfo`, `perfquery`.

MOST_FACTS = 8
"""Most bad values of a device that are told."""
_HEADS = (
    re.compile(rf"GPU {BUS}\s*$"),
    re.compile(r"hca_id:\s*(\S{1,64})"),
    re.compile(r"# Port counters: (.{1,80}?)(?: \(|$)"),
)
_SECTION = re.compile(r"(\s+)([A-Za-z][\w .()/\-]{1,60}?)\s*$")
_VALUE = re.compile(r"(\s*)([A-Za-z][\w .()/\-]{1,60}?)\s*:[\s.]*(.{1,200}?)\s*$")
_BAD_COUNT = re.compile(r"^[1-9]\d{0,17}$")
_COUNTED = re.compile(
    r"(?:SRAM|DRAM|Device Memory|Total|Register File).{0,20}Uncorrectable|Uncorrectable|Double Bit"
    r"|LinkDownedCounter|LinkErrorRecoveryCounter|PortRcvErrors|ExcessiveBufferOverrunErrors|LocalLinkIntegrityErrors"
)
_FLAGGED = re.compile(r"Pending Page Blacklist|Remapping Failure Occurred|Pending(?! )|Channel Repair Pending")
_PAST = ("Retired Pages", "Remapped Rows")
"""Sections of counts of what was mended; only what is pending or failed in them is bad."""
_AGGREGATE = "Aggregate"
"""Section of counts since the device was made, which tell nothing of this job."""


def begins(record: Record) -> DeviceReport | None:
    """The report that begins with a line, if it names a device."""
    for at, head in enumerate(_HEADS):
        if (found := head.match(record.text)) is not None:
            return DeviceReport(record, found[1], is_gpu=at == 0)
    return None


@dataclass
class DeviceReport:
    """The part of a tool's report about one device."""

    head: Record
    name: str
    is_gpu: bool
    facts: list[str] = field(default_factory=list)
    quotes = False
    patience = 0
    told_rank = None
    _section: str = ""
    _group: str = ""
    _gpu: int | None = None

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to the report; notes a bad value."""
        if any(head.match(record.text) for head in _HEADS):
            return False
        value = _VALUE.match(record.text)
        if value is None:
            section = _SECTION.match(record.text)
            if section is None:
                return not record.text.strip()
            deep = len(section[1]) > 4
            self._section, self._group = (self._section, section[2]) if deep else (section[2], "")
            return True
        if self.is_gpu and not value[1]:
            return False
        self._note(value[2], value[3])
        return True

    def _note(self, name: str, value: str) -> None:
        if name == "Minor Number" and value.isdigit() and len(value) < 4:
            self._gpu = int(value)
        counted = _BAD_COUNT.match(value) and _COUNTED.search(name) and self._group != _AGGREGATE
        bad = counted and self._section not in _PAST
        flagged = value == "Yes" and _FLAGGED.match(name)
        down = name == "state" and value.startswith("PORT_DOWN")
        asked = name == "GPU Recovery Action" and value not in ("None", "N/A")
        if (bad or flagged or down or asked) and len(self.facts) < MOST_FACTS:
            where = f"{self._section}, " if self._section and self.is_gpu else ""
            self.facts.append(f"{where}{name}: {value}")

    def result(self) -> list[Event]:
        """An event with the bad values; none for a device without any. Values: as of a line, and `facts`."""
        if not self.facts:
            return []
        gpu = {"bus": self.name, "gpu": self._gpu} if self.is_gpu else {"port": self.name}
        device = "gpu" if self.is_gpu else "port"
        made = _made(self.head, device, fatal=False, facts=list(self.facts), **gpu)
        return [made._replace(text=shown_text(f"{self.head.text.strip()}: {'; '.join(self.facts)}"))]
