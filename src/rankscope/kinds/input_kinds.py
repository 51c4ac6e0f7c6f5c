"""Kinds of files: how each is recognised, read, restored from a worker process, and called."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.kinds.functions import KindTable


@dataclass(frozen=True, slots=True, kw_only=True)
class InputKind:
    """A kind of file, as in the column `kind` of `files`.

    Functions are named as "module:function", with the module below `rankscope`: the first file of a kind imports them.
    """

    name: str
    meaning: str
    """Text of its row in docs/report.md."""
    noun: str = ""
    """Its noun in the summary line of the files; "" if the line omits it."""
    place: int = 0
    """Its position in that line."""
    begins: str = ""
    """Function (first bytes) -> whether a file of this kind can begin so; "" without such a test."""
    begins_later: str = ""
    """Function (all bytes of a small file) -> whether a file is of this kind that no test of first bytes knows: people
    write above what they paste."""
    decode: str = ""
    """Function (bytes) -> content; raises NotThisKindError, or NotADumpError, for another kind."""
    read: str = ""
    """Function (stream, size, part) -> content, for a file too large for memory; "" if all are read whole."""
    restore: str = ""
    """Function (header, body, rows) -> content, as in the worker process that read the file."""
    add_rows: str = ""
    """Function (tables, sources, run) -> number of ranks in these files, 0 for none. Adds their rows for the chosen run
    to `tables`, by the names of the fields of Dataset; "" for kinds that are gathered, or assembled with the dumps."""
    gather: str = ""
    """Function (job) -> what these files tell of it, or None: see `assemble.gathering`; "" for kinds of one table."""
    join: str = ""
    """Class that takes the ranges of a large file in their order, and gives the whole; "" if none is read in ranges."""
    arrange: str = ""
    """Function (source) that does what needs no other file while others are still being read."""
    tells: str = ""
    """Function (content) -> whether it says anything; "" if all contents do."""
    shown_as: str = ""
    """Function (content) -> name of the kind that the table of files gives it; "" for its own."""
    origin: str = ""
    """Function (content) -> its host and the version of its library, each None if it names none."""
    settles_ranks: bool = False
    """Its `gather` finds out whose the files are; else the name of the file, or the content, says it."""
    most_bytes: int = 1 << 62
    """Larger files are not of this kind."""
    pickled: bool = False
    """It may be a pickle, and not only text."""
    told_if_broken: bool = True
    """A damaged file of it is a finding: an operation may be missing because of it."""
    may_be_other: bool = False
    """The file could not be read as its first kind, and may be of the next possible kind."""
    may_be_dump: bool = False
    """The file could not be read, and its name may say whose dump it is."""
    is_ranked: bool = True
    """Its name may hold a rank."""
    leads_out: bool = False
    """It is a link out of what was named, which `--follow-links` follows."""
    holds_files: bool = False
    """It is a directory that was not read: it may hold files of any rank."""


TRACE = InputKind(
    name="torch-profiler",
    meaning="a trace of torch's profiler",
    noun="trace",
    place=6,
    begins="features.traces.read.recognition:looks_like_trace",
    decode="features.traces.read.decode:decode_bytes",
    read="features.traces.read.decode:read_trace",
    restore="features.traces.read.model:trace_from",
    gather="features.traces.rows.trace_dataset:gather_traces",
    join="features.traces.read.range_joiner:TraceJoiner",
    arrange="features.traces.rows.trace_dataset:arrange_trace",
    origin="features.traces.read.model:origin_of",
    settles_ranks=True,
)
SIDECAR = InputKind(
    name="sidecar",
    meaning="the rank and process that wrote the dumps beside it, from `rankscope.capture`",
    begins="parsers.sidecar:looks_like_sidecar",
    decode="parsers.sidecar:decode_sidecar",
    restore="parsers.sidecar:sidecar_from",
    told_if_broken=False,
    add_rows="features.logs.rows.process_ends:add_ends",
)
PY_SPY = InputKind(
    name="py-spy",
    meaning="stacks of a process",
    noun="py-spy dump",
    place=3,
    begins="features.stacks.py_spy.decode:looks_like_snapshot",
    begins_later="features.stacks.py_spy.decode:holds_stacks",
    decode="features.stacks.py_spy.decode:decode_snapshot",
    restore="features.stacks.py_spy.model:snapshot_from",
    shown_as="features.stacks.py_spy.model:shown_kind",
    told_if_broken=False,
    gather="features.stacks.py_spy_snapshots:gather_stacks",
    settles_ranks=True,
)
HEALTH_CHECK = InputKind(
    name="health-check",
    meaning="the page of a debug server that says which ranks are healthy",
    noun="health check",
    place=7,
    begins="features.logs.read.health_check:looks_like_check",
    decode="features.logs.read.health_check:decode_check",
    restore="features.logs.read.health_check:check_from",
    add_rows="features.logs.rows.health_checks:add_check",
    # for all ranks of the largest jobs it is less
    most_bytes=64 << 20,
)
TENSOR_NUMBERS = InputKind(
    name="numbers",
    meaning="summaries of the tensors of a rank, from `rankscope.capture`",
    noun="numbers file",
    place=8,
    begins="features.numbers.read.decode:looks_like_numbers",
    decode="features.numbers.read.decode:decode_numbers",
    read="features.numbers.read.decode:read_numbers",
    restore="features.numbers.read.model:numbers_from",
    add_rows="features.numbers.rows.tensor_tables:add_tensors",
    told_if_broken=False,
)
TENSOR_RECORD = InputKind(
    name="tensor-record",
    meaning="summaries of tensors, or their stacks, that another tool wrote",
    noun="tensor record",
    place=9,
    begins="features.numbers.read.records.record_formats:looks_like_record",
    decode="features.numbers.read.records.record_formats:decode_record",
    restore="features.numbers.read.records.record_formats:record_from",
    add_rows="features.numbers.rows.tensor_tables:add_tensors",
    told_if_broken=False,
    most_bytes=1 << 30,
)
MEMORY_SAMPLES = InputKind(
    name="memory",
    meaning="samples of the memory of a rank, from `rankscope.capture`",
    noun="memory file",
    place=10,
    begins="features.memory.memory_samples:looks_like_samples",
    decode="features.memory.memory_samples:decode_samples",
    restore="features.memory.memory_samples:samples_from",
    add_rows="features.memory.memory_rows:add_samples",
    # a capture keeps a megabyte
    most_bytes=64 << 20,
    told_if_broken=False,
)
MODEL_RECORD = InputKind(
    name="model",
    meaning="the parameters of the model of a rank, from `rankscope.capture`",
    noun="model record",
    place=14,
    begins="features.model.model_records:looks_like_model",
    decode="features.model.model_records:decode_model",
    restore="features.model.model_records:record_from",
    add_rows="features.model.parameter_rows:add_parameters",
    most_bytes=128 << 20,
    told_if_broken=False,
)
TORCH_TRACE = InputKind(
    name="torch-trace",
    meaning="compilations of a rank, from TORCH_TRACE, or as tlparse's raw.jsonl",
    noun="compiler log",
    place=11,
    begins="features.compile.torch_trace.decode:looks_like_torch_trace",
    decode="features.compile.torch_trace.decode:decode_torch_trace",
    read="features.compile.torch_trace.decode:read_torch_trace",
    restore="features.compile.torch_trace.model:trace_log_from",
    add_rows="features.compile.compilations:add_compilations",
    told_if_broken=False,
)
STACK_PROFILE = InputKind(
    name="stack-profile",
    meaning="stacks of a process over time, folded or for speedscope, from `py-spy record`",
    noun="stack profile",
    place=12,
    begins="features.stacks.samples.decode:looks_like_profile",
    decode="features.stacks.samples.decode:decode_profile",
    restore="features.stacks.samples.model:profile_from",
    add_rows="features.stacks.stack_samples:add_samples",
    told_if_broken=False,
)
MEMORY_SNAPSHOT = InputKind(
    name="memory-snapshot",
    meaning="allocations of a rank, from `torch.cuda.memory._dump_snapshot`",
    noun="memory snapshot",
    place=13,
    begins="features.memory.snapshots.decode:looks_like_snapshot",
    decode="features.memory.snapshots.decode:decode_bytes",
    read="features.memory.snapshots.decode:read_snapshot",
    restore="features.memory.snapshots.model:snapshot_from",
    add_rows="features.memory.memory_snapshots:add_snapshots",
    pickled=True,
    told_if_broken=False,
)
DUMP = InputKind(
    name="flight-recorder",
    meaning="a dump of a flight recorder, or the log of torchcomms' hook",
    noun="dump",
    place=1,
    begins="parsers.flight_recorder.decode:looks_like_dump",
    decode="parsers.flight_recorder.decode:decode_dump",
    restore="parsers.flight_recorder.model:dump_from",
    pickled=True,
)
ENVIRONMENT = InputKind(
    name="environ",
    meaning="the environment of a process, or a list of packages",
    noun="environment",
    place=4,
    begins="parsers.environment:looks_like_environment",
    decode="parsers.environment:decode_environment",
    restore="parsers.environment:environment_from",
    add_rows="assemble.environments:add_environments",
    # Linux allows a few MiB
    most_bytes=16 << 20,
)
LOG = InputKind(
    name="log",
    meaning="lines of processes, launchers and schedulers",
    noun="log",
    place=2,
    restore="features.logs.read.model:log_from",
    gather="features.logs.rows.log_tables:gather_logs",
    join="features.logs.read.stretches:LogJoiner",
    tells="features.logs.read.model:tells_anything",
    shown_as="features.logs.read.model:shown_kind",
    settles_ranks=True,
)
STEP_TRACE = InputKind(
    name="step-trace",
    meaning="operations of all workers by step, as Parquet: `dp_rank`, `stage`, `optype`, `duration`, ...",
    noun="step trace",
    place=16,
    begins="features.whatif.step_trace:looks_like_step_trace",
    decode="features.whatif.step_trace:decode_step_trace",
    restore="features.whatif.step_trace:step_trace_from",
    add_rows="features.whatif.step_rows:add_step_ops",
    most_bytes=1 << 30,
    is_ranked=False,
    told_if_broken=False,
)
UNKNOWN_KIND = "not a kind of file that is known"
"""The problem of a file that nothing recognises."""
REPORT = InputKind(
    name="collect_env",
    meaning="a log that holds nothing but the output of collect_env",
    noun="collect_env report",
    place=5,
)
CAPTURED_STACKS = InputKind(
    name="captured-stacks",
    meaning="stacks of the threads of a rank at a standstill or at its end, from `rankscope.capture`",
    noun="stack file",
    place=15,
)
DUPLICATE = InputKind(name="duplicate", meaning="a copy, or an older version, of another file", told_if_broken=False)
ARCHIVE = InputKind(name="archive", meaning="an archive that could not be opened, or holds nothing")
UNKNOWN = InputKind(
    name="unknown", meaning="no content that can be read", told_if_broken=False, may_be_other=True, is_ranked=False
)
NOT_A_FILE = InputKind(
    name="not-a-file",
    meaning="a directory, link, pipe or device that is not opened",
    told_if_broken=False,
    is_ranked=False,
)
FILE_LINK_OUT = InputKind(
    name="file-link-out",
    meaning="a link to a file outside of the given paths, followed only with `--follow-links`",
    told_if_broken=False,
    is_ranked=False,
    leads_out=True,
)
DIRECTORY_LINK_OUT = InputKind(
    name="directory-link-out",
    meaning="a link to a directory outside of the given paths, followed only with `--follow-links`",
    told_if_broken=False,
    is_ranked=False,
    leads_out=True,
    holds_files=True,
)
UNREAD_DIRECTORY = InputKind(
    name="unread-directory", meaning="a directory that could not be listed", is_ranked=False, holds_files=True
)
UNREADABLE = InputKind(name="unreadable", meaning="a file that could not be opened, or asks for too much memory")
PICKLE = InputKind(name="pickle", meaning="a pickle that holds more than plain data, and is refused")
EMPTY = InputKind(name="empty", meaning="a file without a byte", may_be_dump=True)
DAMAGED = InputKind(
    name="damaged", meaning="a file that begins like a dump, and holds none", may_be_other=True, may_be_dump=True
)

INPUTS: KindTable[InputKind] = KindTable(
    # its first keys name it; later keys may be those of a recorder
    TRACE,
    SIDECAR,
    # py-spy first: its threads as JSON begin like entries of a recorder
    PY_SPY,
    HEALTH_CHECK,
    TENSOR_NUMBERS,
    # before environments: its names of modules are texts under texts
    TENSOR_RECORD,
    MEMORY_SAMPLES,
    MODEL_RECORD,
    TORCH_TRACE,
    STACK_PROFILE,
    # before dumps: both are pickles
    MEMORY_SNAPSHOT,
    DUMP,
    ENVIRONMENT,
    STEP_TRACE,
    LOG,
    REPORT,
    CAPTURED_STACKS,
    DUPLICATE,
    ARCHIVE,
    UNKNOWN,
    NOT_A_FILE,
    FILE_LINK_OUT,
    DIRECTORY_LINK_OUT,
    UNREAD_DIRECTORY,
    UNREADABLE,
    PICKLE,
    EMPTY,
    DAMAGED,
)
"""Every kind of file, by name; kinds with a test are in the order of the tests."""
GATHERED: tuple[InputKind, ...] = (LOG, TRACE, PY_SPY)
"""Kinds whose files are gathered, in the order in which they add to the tables: stacks may stand in logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextKind:
    """The reading of a text that no test of first bytes knows, and of files that programs go on writing."""

    read: str
    """Function (stream, size, part, named, given) -> content, or None if it is no such text."""
    is_marked: str
    """Function (stream, end, mark) -> whether the part up to there is what was read before."""
    read_tail: str
    """Function (stream, size, start, mark, ended) -> contents and stretches behind `start`."""
    is_growable: str
    """Function (stream, size, named, given) -> whether it can be read on from any line."""
    growing: str
    """Class that takes the stretches of a file in their order, and gives the content so far."""
    user_table: str
    """Function (path) -> environment of the processes that read, for the user's own table; raises TableError."""


TEXT = TextKind(
    read="features.logs.read.log_files:read_log",
    is_marked="features.logs.read.log_files:is_marked",
    read_tail="features.logs.read.log_files:read_tail",
    is_growable="features.logs.read.log_files:is_growable",
    growing="features.logs.read.stretches:GrowingLog",
    user_table="features.logs.read.c10d.known_errors:checked_environment",
)
"""How logs are read."""
