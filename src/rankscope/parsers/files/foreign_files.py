"""Files of other tools that are known by name but not read, with what to collect instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

DUMPS = "bring the flight recorder dumps of all ranks"
TRACE = "record a trace of each rank with torch.profiler, or bring the flight recorder dumps"
STACKS = "take py-spy dump of each rank instead"
LOGS = "bring the logs of all ranks"
LATE = "to see what a slow rank is late in, record a trace of each rank with torch.profiler"
BESIDE = "bring the logs of the job, written with NCCL_DEBUG=INFO, to see whether it is the cause"


@dataclass(frozen=True)
class ForeignKind:
    """A kind of file that another tool reads."""

    what: str
    """Its name, as the beginning of a sentence."""
    instead: str
    head: bytes = b""
    """Regular expression over the first bytes, from the beginning on; b"" if the name alone tells it."""
    name: str = ""
    """Regular expression over the end of the file name; "" if the content alone tells it."""


FOREIGN_KINDS = (
    ForeignKind(
        "an execution trace (Chakra), not a profiler trace", TRACE,
        rb'\s*\{(?s:.{0,200}?)"schema"\s*:\s*"\d[\w.\-]{0,40}"(?s:.{0,300}?)"(?:nodes|start_ts|global_meta)"',
    ),
    ForeignKind("an execution trace (Chakra) in its binary form, not a profiler trace", TRACE, name=r"\.et"),
    ForeignKind(
        "a picture of a memory timeline of torch.profiler: export it as .json.gz or .raw.json.gz", TRACE,
        rb"\s*(?:<!DOCTYPE html>\s*)?<html>", r"mem(?:ory)?[_.\-]?timeline[\w.\-]{0,80}\.html",
    ),
    ForeignKind("results of rocprofv3", TRACE, rb'\s*\{\s*"rocprofiler-sdk-tool"'),
    ForeignKind("results of rocprofv3", TRACE, rb'\s*"Kind","(?:Agent_Id|Domain|Function|Process_Id)'),
    ForeignKind("results of rocprof", TRACE, name=r"(?:rocpd|rocprof|results)[\w.\-]{0,80}\.db"),
    ForeignKind("a profile of JAX or TensorFlow (XPlane)", TRACE, name=r"\.xplane\.pb"),
    ForeignKind("a profile of JAX or TensorFlow (XPlane)", TRACE, rb"(?s:.{0,24})/(?:host|device):[A-Z:\w]{3,20}"),
    ForeignKind("a core dump of a process", STACKS, rb"\x7fELF(?s:.{12})(?:\x04\x00|\x00\x04)"),
    ForeignKind("a minidump of a process", STACKS, rb"MDMP"),
    ForeignKind("a report of Nsight Systems", TRACE, name=r"\.(?:nsys-rep|qdrep|qdstrm)"),
    ForeignKind("a report of Nsight Compute", TRACE, name=r"\.ncu-rep"),
    ForeignKind("a database, as Nsight Systems and rocprofv3 export them", TRACE, rb"SQLite format 3\x00"),
    ForeignKind("a trace in Perfetto's binary form", TRACE, name=r"\.(?:pftrace|perfetto-trace)"),
    ForeignKind("samples of perf", STACKS, rb"PERFILE2"),
    ForeignKind("a profile of memray: it holds memory", STACKS, rb"memray\x00"),
    ForeignKind("stacks of austin in its binary form", "convert it with mojo2austin IN OUT.austin", rb"MOJ[\x01-\x09]"),
    ForeignKind("an event file of TensorBoard", LOGS, name=r"events\.out\.tfevents\.[\w.\-]{1,200}"),
    ForeignKind(
        "the database that torchfrtrace writes with -o, which only torch can read", DUMPS,
        rb"\x80[\x02-\x05](?s:.{0,200})torch\.distributed\.flight_recorder",
    ),
    ForeignKind(
        "the result of an attribution by NVRx, not what it looked at", DUMPS,
        rb'\s*\{(?s:.{0,400}?)"(?:hanging_ranks|hanging_rank_list|progress_anomalies)"\s*:',
    ),
    ForeignKind(
        "a report of Megatron's straggler detector: the slowest and the fastest rank of each measure", LATE,
        rb"[^\n]{0,200}MnRtt/Rnk: ",
    ),
    ForeignKind(
        "a table of times by rank: nothing in it tells how ranks wait for each other", LATE,
        rb'[#"\s]{0,4}[Rr]ank"?\s{0,8}[,;|\t][^\n]{0,300}(?i:forward|backward|fwd|bwd|step|comp|comm)\w{0,20}[_ (]{0,2}'
        rb"(?:ms|us|s|sec|seconds|time)\b",
    ),
    ForeignKind(
        "output of nccl-tests: bandwidths by size, and no job. Below those of the hardware, look at its links "
        "(nvidia-smi nvlink -s, ibstat)", BESIDE,
        rb"(?!(?s:.*)(?:NCCL (?:INFO|WARN) |Traceback))#? ?nThread \d(?s:.{1,9000}?)\n#\s{1,20}size\s{1,20}count\s",
    ),
    ForeignKind(
        "output of ibstat: a port that is not Active carries nothing", BESIDE,
        rb"CA '[\w\-]{1,60}'\s{1,4}CA type:",
    ),
    ForeignKind(
        "a diagnosis by DCGM: a device that failed is to be taken out", BESIDE,
        rb"(?s:.{0,200}?)\| Diagnostic {1,40}\| Result |\s{0,8}\{\s{0,8}\"DCGM (?:GPU )?Diagnostic\"",
    ),
    ForeignKind(
        "measurements by DCGM", BESIDE, rb"# ?Entity {1,20}[A-Z]{4,8} |# HELP DCGM_FI_",
    ),
    ForeignKind("a text in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8", rb"\xff\xfe|\xfe\xff"),
    ForeignKind("weights of a model", LOGS, name=r"\.safetensors"),
    ForeignKind("a file packed by lz4", "unpack it with lz4 -d", rb"\x04\x22\x4d\x18"),
    ForeignKind("an archive of 7-Zip", "unpack it with 7z x", rb"7z\xbc\xaf\x27\x1c"),
    ForeignKind("an archive of RAR", "unpack it with unrar x", rb"Rar!\x1a\x07"),
    ForeignKind("a file packed by compress", "unpack it with uncompress", rb"\x1f\x9d"),
    ForeignKind("a file packed by lzip", "unpack it with lzip -d", rb"LZIP\x01"),
    ForeignKind("a file packed by Snappy", "unpack it with snzip -d", rb"\xff\x06\x00\x00sNaPpY"),
)  # fmt: skip

_PACKED = r"(?:\.(?:gz|zst|xz|bz2))?$"
_PATTERNS = tuple(
    (kind, re.compile(kind.head), re.compile(kind.name + _PACKED, re.IGNORECASE)) for kind in FOREIGN_KINDS
)
_ANY_HEAD = re.compile(b"|".join(kind.head for kind in FOREIGN_KINDS if kind.head))
_ANY_NAME = re.compile(f"(?:{'|'.join(kind.name for kind in FOREIGN_KINDS if kind.name)}){_PACKED}", re.IGNORECASE)
"""All together: most files are none of these, and a tree may hold many."""


def foreign_name(head: bytes, path: str) -> str | None:
    """The kind of a file with these first bytes, and what to collect instead; None if it is none of these."""
    name = re.split(r"[/\\!]", path)[-1]
    if not _ANY_HEAD.match(head) and not _ANY_NAME.search(name):
        return None
    for kind, begins, ends in _PATTERNS:
        if (not kind.head or begins.match(head) is not None) and (not kind.name or ends.search(name) is not None):
            return f"{kind.what}: {kind.instead}"
    return None


GUESSED_BYTES = 4096
"""Bytes of the beginning of a file that a guess looks at."""
_GUESSES: tuple[tuple[bytes, str], ...] = (
    (
        rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF.{4}WEBP|BM.{4}\0\0\0\0",
        "a picture: paste its text, or bring the log that it shows",
    ),
    (rb"%PDF-", "a PDF: paste its text"),
    (rb"\x7fELF", "a program or a library: bring what it printed"),
    (rb"(?i)\s*(?:<!DOCTYPE html|<html\b)", "a web page: save the raw text of the log that it shows"),
    (rb"\x80[\x02-\x05]|PK\x03\x04", "a checkpoint or another pickle: bring logs or flight recorder dumps"),
    (rb"\{\\rtf", "a text of a word processor: save it as plain text"),
    (
        rb"(?s)(?:.{0,2000}\n)?(?:apiVersion|kind): \S",
        "a manifest of Kubernetes: bring kubectl logs of each pod, and kubectl describe pod",
    ),
    (
        rb"(?s)time=\"[^\"\n]{8,40}\" level=\w+ msg=|(?:.{0,2000}\n)?I\d{4} [\d:.]{8,15} +\d+ \S+\.go:\d+\]",
        "the log of an operator or a daemon: bring kubectl logs of each worker, or kubectl describe pod",
    ),
    (rb"#!.{0,40}(?:sh|bash)\b|(?s:.{0,1000}\n)?#SBATCH ", "a script that starts a job: bring what it printed"),
    (
        rb"(?s)(?:.{0,2000}\n)?(?:import \w[\w.]{0,60}|from \w[\w.]{0,60} import \w+"
        rb"|def \w{1,60}\(.{0,200}?\).{0,40}?:)\r?\n",
        "the source of a program: bring what it printed, or flight recorder dumps",
    ),
    (
        rb"\s*(?:\{\s*[\"}]|\[\s*[\[{\"])",
        "JSON of another program: bring its log as text, flight recorder dumps or traces of torch.profiler",
    ),
    (
        rb"(?:[^\n,]{1,80}(?:,[^\n, ][^\n,]{0,80}){1,40}\r?\n){2}",
        "a table: rankscope diff compares numbers of runs",
    ),
)
"""Beginnings of files that nothing reads, with what they seem to be and what to bring."""
_TEXT = "text without a line of a job: bring the lines around the first error of each rank, with their prefixes"
_BINARY = "binary data: bring logs as text, flight recorder dumps or traces of torch.profiler"


def guess(head: bytes) -> str:
    """The likely kind of a file that nothing reads, by its first bytes, and what would be readable instead."""
    found = next((words for begin, words in _GUESSES if re.match(begin, head)), None)
    return found or (_BINARY if b"\0" in head or not _is_text(head) else _TEXT)


def _is_text(head: bytes) -> bool:
    return head.decode("utf-8", "replace").count("\ufffd") <= 1
