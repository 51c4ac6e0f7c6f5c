"""Kinds of files: how each is recognised, read, restored from a worker process, and called."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InputKind:
    """A kind of file, as it stands in the column `kind` of `files`.

    Functions are named as "module:function", the module below `rankscope`: they are imported with the first file that
    asks for them.
    """

    name: str
    meaning: str
    """The words of its row in docs/report.md."""
    noun: str = ""
    """Its name in the line that sums up what was read; "" where that leaves it out."""
    place: int = 0
    """Its place in that line."""
    begins: str = ""
    """(first bytes) -> whether a file of this kind can begin so; "" where the registry does not ask for the kind."""
    decode: str = ""
    """(bytes) -> content; raises NotThisKindError, or NotADumpError, if it is something else after all."""
    read: str = ""
    """(stream, size, part) -> content, of a file too large to be held; "" where all are read whole."""
    restore: str = ""
    """(header, body, rows) -> content, as it was in the worker process that read the file."""
    bring: str = ""
    """(tables, sources, attempt, option of ranks) -> number of ranks that these files tell, 0 for none. Puts what they
    say of the attempt into `tables`, by the names of the fields of Dataset; "" for what is assembled with the dumps."""
    most_bytes: int = 1 << 62
    """Larger files are none of this kind."""
    pickled: bool = False
    """It may be a pickle, and not only text."""
    told_if_broken: bool = True
    """A file of it that is damaged is a finding: an operation may be missing because of it."""
    may_be_other: bool = False
    """The file was not read as what it begins like, and may be of the next kind that it can be."""
    may_be_dump: bool = False
    """The file could not be read, and its name may tell whose dump it is."""
    is_ranked: bool = True
    """Its name may say of which rank it is."""


TRACE = InputKind(
    name="torch-profiler", meaning="a trace of torch's profiler", noun="trace", place=6,
    begins="parsers.torch_profiler.recognition:looks_like_trace", decode="parsers.torch_profiler.decode:decode_bytes",
    read="parsers.torch_profiler.decode:read_trace", restore="parsers.torch_profiler.model:trace_from",
)  # fmt: skip
SIDECAR = InputKind(
    name="sidecar", meaning="who wrote the dumps beside it, as `rankscope.capture` says",
    begins="parsers.sidecar.model:looks_like_sidecar", decode="parsers.sidecar.model:decode_sidecar",
    restore="parsers.sidecar.model:sidecar_from",
    told_if_broken=False,
)  # fmt: skip
PY_SPY = InputKind(
    name="py-spy", meaning="stacks of a process", noun="py-spy dump", place=3,
    begins="parsers.py_spy.decode:looks_like_snapshot", decode="parsers.py_spy.decode:decode_snapshot",
    restore="parsers.py_spy.model:snapshot_from",
    told_if_broken=False,
)  # fmt: skip
HEALTH_CHECK = InputKind(
    name="health-check", meaning="the page of a debug server that says which ranks are healthy",
    noun="health check", place=7,
    begins="parsers.health.checks:looks_like_check", decode="parsers.health.checks:decode_check",
    restore="parsers.health.checks:check_from",
    bring="assemble.health_checks:add_check",
    # of all ranks of the largest jobs it is less
    most_bytes=64 << 20,
)  # fmt: skip
DUMP = InputKind(
    name="flight-recorder", meaning="a dump of a flight recorder", noun="dump", place=1,
    begins="parsers.flight_recorder.decode:looks_like_dump", decode="parsers.flight_recorder.decode:decode_dump",
    restore="parsers.flight_recorder.model:dump_from", pickled=True,
)  # fmt: skip
ENVIRONMENT = InputKind(
    name="environ", meaning="the environment of a process, or a list of packages", noun="environment", place=4,
    begins="parsers.environment.decode:looks_like_environment", decode="parsers.environment.decode:decode_environment",
    restore="parsers.environment.decode:environment_from", bring="assemble.environments:add_environments",
    # Linux allows a few MiB
    most_bytes=16 << 20,
)  # fmt: skip
LOG = InputKind(
    name="log", meaning="lines of processes, launchers and schedulers", noun="log", place=2,
    restore="parsers.logs.model:log_from",
)  # fmt: skip
REPORT = InputKind(
    name="collect_env", meaning="a log that holds nothing but the output of collect_env",
    noun="collect_env report", place=5,
)  # fmt: skip
DUPLICATE = InputKind(name="duplicate", meaning="a copy, or an older version, of another file", told_if_broken=False)
ARCHIVE = InputKind(name="archive", meaning="an archive that could not be opened, or holds nothing")
UNKNOWN = InputKind(
    name="unknown", meaning="nothing that can be read", told_if_broken=False, may_be_other=True, is_ranked=False
)
NOT_A_FILE = InputKind(
    name="not-a-file", meaning="a directory, link, pipe or device that is not opened",
    told_if_broken=False, is_ranked=False,
)  # fmt: skip
UNREADABLE = InputKind(name="unreadable", meaning="a file that could not be opened, or asks for too much memory")
PICKLE = InputKind(name="pickle", meaning="a pickle that holds more than plain data, and is refused")
EMPTY = InputKind(name="empty", meaning="a file without a byte", may_be_dump=True)
DAMAGED = InputKind(
    name="damaged", meaning="a file that begins like a dump, and holds none", may_be_other=True, may_be_dump=True
)

INPUTS: dict[str, InputKind] = {
    row.name: row
    for row in (
        # names itself in its first keys, and may have those of a recorder behind them
        TRACE,
        SIDECAR,
        # the mark of the first is the plainer one: its threads as JSON begin like a recorder's entries
        PY_SPY,
        HEALTH_CHECK,
        DUMP,
        ENVIRONMENT,
        LOG,
        REPORT,
        DUPLICATE,
        ARCHIVE,
        UNKNOWN,
        NOT_A_FILE,
        UNREADABLE,
        PICKLE,
        EMPTY,
        DAMAGED,
    )
}
"""Every kind of file there is, by name; those that the registry asks for in the order in which it asks."""
