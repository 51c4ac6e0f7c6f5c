"""Ends of processes and broken hardware, as srun, slurmstepd, kernels, drivers, torchrun and tools print them.

Hardware is a GPU, an NVSwitch or a network port. Reports of a tool are about one device each: `nvidia-smi -q`,
`ibv_devinfo`, `perfquery`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rankscope.features.logs.read.log_record import Event, Record, matched_number, message_event, shown_text

_END_WORDS = (
    "srun: error: ", "slurmstepd: error: ", "oom-kill", "oom_kill", "Killed process ", "closing signal SIG",
    "failed (exitcode: ", "Fatal Python error: ", "got signal: ", "Process received signal", "Signal: ",
    "core dumped", " Killed ", " Aborted ", "restart_count=", "will restart worker group",
    "exits with return code = ", " terminated with ",
    " died, exit code", " noticed that process rank ", "Kill process ", "oom_reaper: reaped process ",
    "\": badness ", *(
        f"{before} {word} "
        for before in ("=", "#", "*", "-", "tarting", "aunching")
        for word in ("attempt", "Attempt", "ATTEMPT", "restart", "Restart", "RESTART")
    ),
)  # fmt: skip
_ABORT_WORDS = ("terminate called ", "terminating due to uncaught exception", "what():  ")
_HARDWARE_WORDS = (
    "NVRM: ", "*ERROR* ring ",
    "SXid (PCI:", "mlx5_core ", "Link DOWN", "NIC Link is Down", "amdgpu ", "GPU[", "XID ", "DBEs",
    "ouble Bit ECC", "ouble bit ECC", "row remapping failed", "NVLink link", "uncorrectable memory error",
    "PCIe Bus Error", ": AER: ", "GPU 0000", "GPU0000", "the device handle for", "hca_id:", "# Port counters:",
)  # fmt: skip
LITERALS = (*_END_WORDS, *_HARDWARE_WORDS, *_ABORT_WORDS)
_RESTART = re.compile(r"\brestart_count=(\d{1,6})\b|(\d{1,6})/(\d{1,6}) attempts left; will restart worker group")
_ATTEMPT = re.compile(
    r"[=#*\-]{2,80} (?:[Ss]tarting |[Ll]aunching )?(?:[Aa]ttempt|ATTEMPT|[Rr]estart|RESTART) ?[#:=]? ?(\d{1,4})"
    r"(?: ?(?:/|of) ?\d{1,4})?(?: [=#*\-]{2,80})?\s*$"
)
"""A line that a script prints between attempts: `=== attempt 2 ===`."""
_SRUN = re.compile(r"srun: error: ([\w.\-]{1,255}): tasks? ([\d,\-]{1,2000}): (.{1,200})")
_EXIT = re.compile(r"Exited with exit code (\d{1,5})")
_CANCELLED = re.compile(
    r"slurmstepd: error: \*{3} (?:STEP|JOB) (\S{1,60}) ON (\S{1,255}) CANCELLED AT \S{1,30}"
    r"(?: DUE TO (.{1,60}?))? \*{3}"
)
_KILLED = re.compile(
    r"(?:Kill(?:ed)?|oom_reaper: reaped) process (\d{1,10})(?:,? \(([^)]{0,64})\))?"
    r"|oom-kill:.{0,600}?\btask=([^,]{1,64}),pid=(\d{1,10})"
    r"|sending SIG(?:TERM|KILL) to process (\d{1,10})(?: uid \d{1,10})? \"([^\"]{1,64})\": badness"
)
"""Lines of the kernel, the first of old and new ones, and of earlyoom."""
_STEP = re.compile(r"Detected (\d{1,6}) oom.kill event")
_CHILD = re.compile(r"failed \(exitcode: (-?\d{1,5})\) local_rank: (\d{1,6}) \(pid: (\d{1,10})\)")
_AGENT = re.compile(r"[WEI]\d{4} [\d:.]{8,18} (\d{1,10}) torch/distributed/elastic/")
_LAUNCHED = re.compile(r"\bexits with return code = (-?\d{1,5})\b")
_SPAWNED = re.compile(r"\bprocess (\d{1,6}) terminated with (?:signal (SIG[A-Z]{2,8})|exit code (\d{1,5}))")
_WORKER = re.compile(r"Worker \S{1,80} pid (\d{1,10}) died, exit code: (-?\d{1,5})")
_POD = re.compile(
    r"(?:\[([\w.\-]{1,253})\] |\b[Cc]ommand |\b[Cc]ontainer (?:([\w.\-]{1,253}) )?)"
    r"terminated with exit code \(?(\d{1,3})\)?"
)
"""What Flyte, kubectl and their like say of a container that ended."""
_MPIRUN = re.compile(
    r" noticed that process rank (\d{1,7}) with PID (\d{1,10}) on node (\S{1,255}) exited on signal (\d{1,3})\b"
)
_CLOSING = re.compile(r"Sending process (\d{1,10}) closing signal (SIG[A-Z]{2,8})")
_FATAL = re.compile(r"Fatal Python error: ([^\n]{1,200})")
_GOT_SIGNAL = re.compile(r"Process (\d{1,10}) got signal: (\d{1,3})")
_SIGNAL_NAME = re.compile(r"(?:^|\] )Signal: ([A-Z][\w ]{1,40}) \((\d{1,3})\)")
_SHELL = re.compile(
    r": line \d{1,6}: {1,8}(\d{1,10}) (Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|Floating point exception"
    r"|Killed)\b"
)
"""The end of a process as bash prints it."""
_CORE = re.compile(
    r"(Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception) +\(core dumped\)"
)
_SIGNAL_BY_NAME = {
    "SIGHUP": 1, "SIGINT": 2, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11,
    "SIGTERM": 15,
}  # fmt: skip
_SIGNAL_BY_WORDS = {
    "Segmentation fault": 11, "Aborted": 6, "Bus error": 7, "Illegal instruction": 4, "Floating point exception": 8,
    "Killed": 9,
}  # fmt: skip


def events(record: Record) -> Iterator[Event]:
    """The events in a record."""
    if any(word in record.text for word in _END_WORDS):
        yield from _end_events(record)
    if any(word in record.text for word in _HARDWARE_WORDS):
        yield from _hardware_events(record)


def _end_events(record: Record) -> Iterator[Event]:
    text = record.text
    if (task := _SRUN.search(text)) is not None:
        # values: `host`, `tasks` (first and last of ranges; ranks only where srun starts each), `how`, `exitcode`
        how = task[3].strip()
        code = _EXIT.search(how)
        yield message_event(
            "srun-exit", record, host=task[1], tasks=ranges_in(task[2]), how=how, exitcode=matched_number(record, code)
        )
    elif (step := _STEP.search(text)) is not None:
        host = host_before(record)
        yield message_event("oom-kill", record, pid=None, name=None, count=matched_number(record, step), host=host)
    elif (killed := _KILLED.search(text)) is not None:
        # values: `pid`, None if the line is cut there; `name` of the process; `host`, where syslog tells it
        group = next(group for group in (1, 4, 5) if killed[group])
        name = killed[2] or killed[3] or killed[6]
        pid = matched_number(record, killed, group)
        yield message_event("oom-kill", record, pid=pid, name=name, count=1, host=host_before(record))
    elif (cancelled := _CANCELLED.search(text)) is not None:
        yield message_event("job-cancelled", record, step=cancelled[1], host=cancelled[2], why=cancelled[3])
    elif (child := _child(record)) is not None:
        yield child
    elif (header := _ATTEMPT.match(text)) is not None:
        yield message_event("restart", record, count=int(header[1]), begun=True, header=True)
    elif (again := _RESTART.search(text)) is not None:
        # values: `count`, the number of the restart; `begun`: its workers are started, not only to be
        count = int(again[1]) if again[1] else int(again[3]) - int(again[2]) + 1
        if count > 0:
            yield message_event("restart", record, count=count, begun=again[1] is not None)
    else:
        yield from _signals(record)


def _child(record: Record) -> Event | None:
    """The end of a child, as its launcher prints it. Values: `exitcode`, `local_rank`, `pid`, and the process id of
    torchrun, `agent`, None if unknown.

    DeepSpeed prints the command of the child that it started last, not of the one that ended.
    """
    text = record.text
    if (child := _CHILD.search(text)) is not None:
        code, local_rank, pid = map(int, child.groups())
        agent = _AGENT.search(text[: child.start()])
        made = _ended(record, code, local_rank, pid)
        return made._replace(values={**made.values, "agent": int(agent[1]) if agent else None})
    if (launched := _LAUNCHED.search(text)) is not None:
        return _ended(record, int(launched[1]), None, None)
    if (worker := _WORKER.search(text)) is not None:
        made = _ended(record, int(worker[2]), None, int(worker[1]))
        return made._replace(values={**made.values, "of_server": True})
    if (noticed := _MPIRUN.search(text)) is not None:
        made = _ended(record, -int(noticed[4]), None, int(noticed[2]) or None)
        # one process of mpirun is one rank wherever mpirun starts the ranks itself
        return made._replace(rank=int(noticed[1]), values={**made.values, "host": noticed[3]})
    if (pod := _POD.search(text)) is not None:
        code, name = int(pod[3]), pod[1] or pod[2]
        # a shell adds 128 to the number of a signal
        made = _ended(record, 128 - code if code > 128 else code, None, None)
        return made._replace(values={**made.values, "label": name}) if name else made
    if (spawned := _SPAWNED.search(text)) is not None:
        code = int(spawned[3]) if spawned[3] else -_SIGNAL_BY_NAME.get(spawned[2], 0)
        return _ended(record, code, int(spawned[1]), None) if code else None
    return None


def _ended(record: Record, code: int, local_rank: int | None, pid: int | None) -> Event:
    names = [f"local rank {local_rank}"] if local_rank is not None else []
    names += [f"process {pid}"] if pid is not None else []
    text = f"{', '.join(names) or 'a child'} ended with exit code {code}"
    return message_event("child-exit", record, text, exitcode=code, local_rank=local_rank, pid=pid)


def ranges_in(listed: str) -> list[list[int]]:
    """First and last of each range in `0-2,5`."""
    found = re.findall(r"(?:^|,)(\d{1,9})(?:-(\d{1,9}))?(?=,|$)", listed)
    return [[int(low), int(high or low)] for low, high in found]


def _signals(record: Record) -> Iterator[Event]:
    """Values: `signal` as a number, `pid`, `sender`: "launcher" where torchrun ends a bystander."""
    text = record.text
    if (closing := _CLOSING.search(text)) is not None:
        agent, signal = _AGENT.search(text[: closing.start()]), _SIGNAL_BY_NAME.get(closing[2])
        pid, teller = int(closing[1]), int(agent[1]) if agent else None
        yield message_event("signal", record, signal=signal, pid=pid, sender="launcher", agent=teller)
    elif (got := _GOT_SIGNAL.search(text)) is not None:
        yield message_event("signal", record, signal=int(got[2]), pid=int(got[1]), sender="outside")
    elif (shell := _SHELL.search(text)) is not None:
        yield message_event("signal", record, signal=_SIGNAL_BY_WORDS[shell[2]], pid=int(shell[1]), sender=None)
    elif (named := _SIGNAL_NAME.search(text)) is not None:
        yield message_event("signal", record, signal=int(named[2]), pid=None, sender=None)
    elif (words := _FATAL.search(text) or _CORE.search(text)) is not None:
        yield message_event("signal", record, signal=_SIGNAL_BY_WORDS.get(words[1].strip()), pid=None, sender=None)


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
_SMI = re.compile(rf"(?:device handle for )?(?:GPU|gpu) ?{BUS}: (?:Unknown Error|GPU is lost|.{{0,40}}is lost)")
"""A GPU that nvidia-smi does not find any more."""
_SXID = re.compile(rf"SXid \(PCI:{BUS}\): (\d{{1,6}}), (Fatal|Non-fatal)?")
_MLX5 = re.compile(
    rf"mlx5_(?:core|\d{{1,3}})\b(?: {BUS})?.{{0,80}}?"
    r"(Link down|link down|Link DOWN|LINK DOWN|Cable unplugged|Cable error|Fatal error|fatal error|health compromised"
    r"|Health issue observed|device's health compromised|High temperature|Port: \d{1,3} Link DOWN|port_inactive"
    r"|firmware tracer fatal)"
)
_NIC = re.compile(rf"{BUS} (\S{{1,32}}): (NIC Link is Down)")
_PCIE = re.compile(
    rf"(?:(\w{{1,32}}) )?{BUS}: (?:AER: (?:Multiple )?(Un)?correct(?:ed|able) ?(\((?:Non-)?[Ff]atal\))? error"
    rf"(?: message)? received(?: from)?:? {BUS}"
    r"|PCIe Bus Error: severity=(Un)?[Cc]orrect(?:ed|able)(?: (\((?:Non-)?[Ff]atal\)))?)"
)
"""Reports of the kernel on errors of the PCIe bus: of the port above a device, and of the device."""
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


def _hardware_events(record: Record) -> Iterator[Event]:
    """The event of a line about hardware.

    Values: `device`: "gpu", "switch", "port", "pcie"; `bus`, its address as printed; `number` of an Xid or SXid; `gpu`,
    the index that a tool gives it; `port`, its name; `fatal`: whether a program cannot go on with it; `corrected`,
    whether the PCIe bus mended it; `pid`, `name` and `host`. Unknown values are None.
    """
    made = (
        _xid(record)
        or _driver(record)
        or _switch(record)
        or _pcie(record)
        or _network(record)
        or _amd(record)
        or _of_tool(record)
    )
    if made is not None:
        yield made


def _made(record: Record, device: str, *, fatal: bool, **values: Any) -> Event:
    blank: dict[str, Any] = dict.fromkeys(("bus", "number", "gpu", "port", "pid", "name"))
    filled: dict[str, Any] = {**blank, "host": host_before(record), **values}
    return message_event(KIND, record, device=device, fatal=fatal, **filled)


def _xid(record: Record) -> Event | None:
    if (found := _XID.search(record.text)) is None:
        return None
    number = int(found[2])
    name = found[4].strip("'<> ") if found[4] else None
    pid = int(found[3]) if found[3] else None
    return _made(record, "gpu", fatal=number in FATAL_XIDS, bus=found[1], number=number, pid=pid, name=name)


def _driver(record: Record) -> Event | None:
    found = _NVRM.search(record.text) or _SMI.search(record.text)
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


def _pcie(record: Record) -> Event | None:
    found = _PCIE.search(record.text)
    if found is None:
        return None
    driver, own, _, _, below, _, severity = found.groups()
    device = {"nvidia": "gpu", "amdgpu": "gpu", "mlx5_core": "port"}.get(driver or "", "pcie")
    fatal = (severity or found[4]) == "(Fatal)"
    return _made(record, device, fatal=fatal, bus=below or own, corrected=not (found[3] or found[6]))


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


def begins(record: Record) -> DeviceReport | AbortReport | DriverReport | None:
    """The report that begins with a line, if it names a device, or the end of a process by an exception of C++."""
    if _DRIVER_HEAD.search(record.text) is not None:
        return DriverReport(record)
    if any(word in record.text for word in _ABORT_WORDS):
        return AbortReport.begun(record)
    for at, head in enumerate(_HEADS):
        if (found := head.match(record.text)) is not None:
            return DeviceReport(record, found[1], is_gpu=at == 0)
    return None


_DRIVER_HEAD = re.compile(
    rf"NVRM: (?:The NVIDIA GPU {BUS}\s*$|Xid \((?:PCI:)?[0-9A-Fa-f:.]{{4,20}}\):\s*$)"
    rf"|\*ERROR\* ring \S{{1,40}} timeout"
)
"""Messages of drivers that go on in their next lines."""
_DRIVER_PART = re.compile(
    r"NVRM: (?!Xid |The NVIDIA |GPU )(.{1,300})|\*ERROR\* (Process information: .{1,200})"
    r"|(amdgpu [0-9a-f]{4}:\S{7,12} .{0,60}GPU reset begin)"
)
_RING = re.compile(rf"ring (\S{{1,40}}) timeout.*?(?:process (\S{{0,64}}) pid (\d{{1,10}}).*?)?amdgpu {BUS}", re.DOTALL)


@dataclass
class DriverReport:
    """A message of a driver over several lines: of NVRM, or of amdgpu on a ring, its process and its device."""

    head: Record
    parts: list[str] = field(default_factory=list)
    last: Record | None = None
    patience: int = 2
    quotes = False
    named_rank = None

    def consumes(self, record: Record) -> bool:
        """Whether a line belongs to the message; keeps its words if so."""
        part = _DRIVER_PART.search(record.text)
        if part is None or self.patience == 0:
            return False
        self.parts.append(part[1] or part[2] or part[3])
        self.last = record
        self.patience = 0 if part[3] else self.patience
        return True

    def result(self) -> list[Event]:
        """One event at its last line, where the fault stands, if the parts tell the device."""
        if self.last is None:
            return []
        whole = self.last._replace(text=" ".join((self.head.text.rstrip(), *self.parts)))
        if (ring := _RING.search(whole.text)) is not None:
            pid = int(ring[3]) if ring[3] and int(ring[3]) else None
            return [_made(whole, "gpu", fatal=True, bus=ring[4], pid=pid, name=ring[2] or None)]
        return [event for event in (_xid(whole) or _driver(whole),) if event is not None]


_UNCAUGHT = re.compile(
    r"terminate called (?:after throwing an instance of '([^']{1,200})'|recursively|without an active exception)"
    r"|terminating due to uncaught exception of type ([\w:<>, ]{1,200}?)(?:: (.*))?$"
)
_WHAT = re.compile(r"^ {0,2}what\(\):  (.*)")
_BETWEEN = 8
"""Most lines of other processes between the two lines of an uncaught exception."""


@dataclass
class AbortReport:
    """Report of the C++ runtime on an exception that nobody caught, which ends its process by SIGABRT.

    Two lines of libstdc++, of which one may be lost among those of other processes; one of libc++. Values: `exception`,
    the name of its class, "" if unknown; `message`, "" without one.
    """

    head: Record
    exception: str = ""
    message: str = ""
    patience: int = _BETWEEN
    quotes = False
    named_rank = None

    @classmethod
    def begun(cls, record: Record) -> AbortReport | None:
        """The report that begins with a line; None for a line that only has one of its words."""
        if (what := _WHAT.match(record.text)) is not None:
            return cls(record, message=what[1], patience=0)
        if (uncaught := _UNCAUGHT.search(record.text)) is not None:
            return cls(record, uncaught[1] or uncaught[2] or "", uncaught[3] or "")
        return None

    def consumes(self, record: Record) -> bool:
        """Whether a line is its message; reads it if so."""
        what = _WHAT.match(record.text) if not self.message else None
        if what is not None:
            self.message, self.patience = what[1], 0
        return what is not None

    def result(self) -> list[Event]:
        """One event at its first line."""
        text = f"{self.exception or 'an exception of C++'}: {self.message}" if self.message else self.head.text
        message = shown_text(self.message)
        return [message_event("abort", self.head, text, exception=self.exception, message=message)]


@dataclass
class DeviceReport:
    """The part of a tool's report about one device."""

    head: Record
    name: str
    is_gpu: bool
    facts: list[str] = field(default_factory=list)
    quotes = False
    patience = 0
    named_rank = None
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
