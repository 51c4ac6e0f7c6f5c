"""Names and secrets that are planted in every kind of input stand in no redacted output of any command.

Outputs that keep names show each of them, so that the search proves something, and still no secret.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any

import click
import numpy as np
import pytest

from rankscope.assemble import load as loading
from rankscope.cli import run
from rankscope.commands import view
from rankscope.commands.agent_tools import AgentTools
from rankscope.commands.kept_jobs import KeptJobs, PathError
from rankscope.commands.source import JobSource
from rankscope.commands.watch import FollowOptions, report_of, watcher_for
from rankscope.report.agent_answers import QuestionError
from rankscope.report.next_commands import offered_commands
from rankscope.report.prometheus_text import FollowedState, render_metrics
from rankscope.report.redact import Redaction, distinct_texts
from rankscope.report.watch_lines import render_line_json, render_line_text
from rankscope.schema import Dataset
from rankscope.schema.tables import TABLES
from rankscope.tui.controllers.exports import copied_text
from rankscope.tui.selection import Selection
from rankscope.watching.update import FollowProgress, JobUpdate
from tests.commands.conftest import every_command
from tests.features.stacks.py_spy.dumps import process
from tests.features.traces.read.documents import about, all_reduce, document
from tests.memory_writer import GIB, _snapshot, sample_file
from tests.model_writer import model_file, transformer
from tests.numbers_writer import NumbersJob
from tests.parsers.dumps import Groups, job, named

HOST, LONG_HOST = "gpu-prod-077", "gpu-prod-078.corp.example"
SECRETS = {
    "a token of Hugging Face": "hf_abcdefghijklmnopqrstuvwx",
    "a token of GitHub": "ghp_ABCDEFghijkl0123456789mnop",
    "a key of AWS": "AKIAIOSFODNN7EXAMPLE",
    "a key of OpenAI": "sk-proj-abcdefghijklmnop123456",
    "a token of Slack": "xoxb-1234567890-abcdefghij",
    "a password": "password=hunter2hunter",
    "a bearer": "Authorization: Bearer abcdef.ghijkl.mnopqr",
    "a login": "https://svc:hunter3hunter@git.example.net/x",
}
"""What is planted as a secret: a row for each shape that `text.secrets` knows."""
HIDDEN = (
    *(text.rsplit("=", 1)[-1].rsplit(" ", 1)[-1] for text in SECRETS.values() if "://" not in text),
    "hunter3hunter", "svcsecretvalue",
)  # fmt: skip
"""What of them no output may show."""
PLANTED = {
    "hosts in columns": (HOST, "gpu-prod"),
    "a full host name": ("gpu-prod-078", "corp.example"),
    "an unknown host": ("login.cluster.acme.net", "acme.net"),
    "a joined host": ("job-gpu-prod-077-3", "gpu-prod-077-3"),
    "a host of a cloud": ("ip-10-0-3-44.ec2.internal", "ip-10-0-3"),
    "an address": ("172.31.5.9", "172.31"),
    "an IPv6 address": ("fe80::5054:ff:fe12:3456", "5054:ff"),
    "a hardware address": ("08:c0:eb:12:34:56", "08:c0:eb"),
    "a list of Slurm": ("gpu-prod-[077-080]", "[077-080]"),
    "a user": ("/home/alice/", "alice"),
    "a user in prose": ("uid=1001(mallory)", "mallory"),
    "a mail": ("bob.b@corp.example", "bob.b"),
    "a project": ("wandb.ai/acme-team/apollo-llm", "apollo-llm", "acme-team"),
    "a bucket": ("s3://acme-weights/", "acme-weights"),
    "a share": (r"\\fileserver\team", "fileserver"),
    "a path": ("/opt/zeus/train", "zeus"),
    "a Windows path": (r"C:\Users\trudy", "trudy"),
    "an image": ("registry.corp.example:5000/zeus", "registry"),
    "a job": ("JobName=zeus-pretrain", "zeus-pretrain"),
}
"""What is planted as a name: as it is shown with names, and pieces that no redacted output may show."""
INPUTS = ("dumps", "logs", "environments", "stacks", "profiles", "traces", "numbers", "snapshots", "models", "ras")
"""What is written below; each input has a host or a user of its own, by which its outputs are recognised."""
OF_INPUT = {
    "dumps": "dumpuser", "logs": "mallory", "environments": "envuser", "stacks": "stackuser", "profiles": "foldeduser",
    "traces": "traceuser", "numbers": "numuser", "snapshots": "snapuser",
    "ras": "gpu-prod-099", "models": "gpu-prod-098",
}  # fmt: skip
GROUPS: Groups = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("dumpuser_tp", [2, 3])}


def log_lines() -> Iterator[str]:
    """Lines that are kept: warnings of NCCL of all ranks, one for each name, and an exception."""
    said = [f"Connect to {shown[0]} failed" for shown in PLANTED.values()]
    for number, text in enumerate([*said, *(f"refused, {secret}" for secret in SECRETS.values())]):
        host = HOST if number % 2 else LONG_HOST
        rank = number % 4
        yield f"{host}:{4000 + rank}:{5000 + rank} [{rank}] misc/socket.cc:{number + 1} NCCL WARN {text}"
    yield from (
        "[rank3]: Traceback (most recent call last):",
        '[rank3]:   File "/home/mallory/apollo-llm/train.py", line 88, in main',
        "[rank3]:     step()",
        f"[rank3]: ConnectionError: {'no answer ' * 12}of {HOST} and 172.31.5.9, uid=1001(mallory), "
        f"{SECRETS['a password']}",
        f"step 10 loss 2.5 lr 0.1 | {HOST}",
    )


def environment(rank: int) -> dict[str, str]:
    return {
        "RANK": str(rank), "WORLD_SIZE": "4", "HOSTNAME": LONG_HOST, "USER": "envuser", "MASTER_ADDR": HOST,
        "NCCL_TOPO_FILE": f"/opt/zeus/train/topo{rank}.xml", "SLURM_JOB_NODELIST": "gpu-prod-[077-080]",
        "WANDB_PROJECT": "apollo-llm", "SLURM_JOB_NAME": "zeus-pretrain", "HF_TOKEN": "svcsecretvalue",
        "NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG_FILE": f"/home/envuser/nccl{rank}.log",
        "WANDB_API_KEY": "svcsecretvalue",
    }  # fmt: skip


def snapshot(rank: int) -> bytes:
    told = json.dumps(_snapshot(rank, {"forward": GIB, "cache": GIB}, True))
    return pickle.dumps(json.loads(told.replace("/job/", "/home/snapuser/zeus/")))


def ras_answer() -> dict[str, Any]:
    ranks = [
        {"rank": rank, "host": f"gpu-prod-099-{rank}", "pid": 900 + rank, "cuda_dev": rank, "nvml_dev": rank,
         "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
                    "abort_flag": False},
         "collective_counts": {"AllReduce": 41 - rank // 3}}
        for rank in range(4)
    ]  # fmt: skip
    comm = {"hash": "0xaa01", "secondary_hash": "0x1:0x2", "size": 4, "ranks_count": 4, "missing_ranks_count": 0}
    head = {"nccl_version": "2.28.9", "cuda_runtime_version": 12090, "cuda_driver_version": 13000,
            "timestamp": "2026-02-03 09:15:00", "communicators_count": 1}  # fmt: skip
    return {**head, "communicators": [{**comm, "ranks": ranks}]}


def hang() -> dict[str, bytes]:
    """The dumps of a job in which rank 3 never comes."""
    recorders = job(4, GROUPS)
    for one in recorders:
        one.frames = [{"name": "step", "filename": "/home/dumpuser/apollo-llm/train.py", "line": 7}]
        for _ in range(3):
            one.collective("0")
        if one.rank == 2:
            one.collective("1", state="scheduled")
        if one.rank < 2:
            one.collective("0", state="scheduled")
    return named(recorders)


def write_job(folder: Path) -> None:
    """Everything that a job leaves, below a directory that is called like a host."""
    place = folder / HOST / "apollo-llm"
    place.mkdir(parents=True)
    files: dict[str, bytes] = {**hang()}
    files[f"train_{HOST}_alice.log"] = "\n".join(log_lines()).encode()
    files["ras.json"] = json.dumps(ras_answer()).encode()
    for rank in range(4):
        files[f"environment_rank_{rank}.env"] = "".join(f"{k}={v}\n" for k, v in environment(rank).items()).encode()
        files[f"capture_rank_{rank}.json"] = json.dumps({
            "rankscope_capture": 1, "rank": rank, "world_size": 4, "host": LONG_HOST, "groups": [], "dumps": [],
            "pid": 4000 + rank, "started_ns": 1,
        }).encode()  # fmt: skip
        files[f"pyspy_rank_{rank}.txt"] = process(
            4000 + rank, (f"load (/home/stackuser/zeus/data.py:{rank})", "main (/opt/zeus/train/run.py:5)"),
            f"python /home/stackuser/run.py --host {HOST} --api-key svcsecretvalue",
        ).encode()  # fmt: skip
        files[f"pyspy_rank_{rank}.folded"] = (
            b"<module> (/home/foldeduser/zeus/run.py:5);wait (/home/foldeduser/zeus/data.py:%d) 90\n" % (rank // 3)
        )
        events = [event for number in range(1, 6) for event in all_reduce(1000.0 * number, number)]
        events.append({**events[0], "name": f"/home/traceuser/zeus/data.py(3): load {HOST}", "cat": "cpu_op"})
        files[f"{HOST}_{rank}.pt.trace.json"] = document(events, about(rank % 2))
        files[f"snapshot_rank_{rank}.pickle"] = snapshot(rank)
        files[f"memory_rank_{rank}.jsonl"] = sample_file(
            rank, [{"device": f"cuda:{rank}", "allocated": GIB, "peak": GIB, "capacity": 2 * GIB}] * 3
        ).replace(b"node1", HOST.encode())
        files[f"model_rank_{rank}.jsonl"] = model_file(rank, transformer(1)).replace(b"node", b"gpu-prod-098-")
    for name, data in files.items():
        (place / name).write_bytes(data)
        os.utime(place / name, (1_760_000_900, 1_760_000_900))
    numbers = NumbersJob({"dp": [0, 1]})
    numbers.all_reduce("dp", [np.ones(4), np.ones(4)])
    numbers.all_reduce("dp", [np.ones(4), np.ones(4)], spoil=lambda outs, _own: outs[1].__setitem__(0, 9))
    numbers.write(place)
    for path in place.glob("numbers_*"):
        told = path.read_text().replace("train.py", "/home/numuser/zeus/train.py").replace('"node', '"gpu-prod-07')
        path.write_text(told)


class Outputs:
    """Runs commands on the job, and keeps all that they show and write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = str(folder / HOST)

    def of(self, name: str, arguments: list[str], redact: bool, capsys: pytest.CaptureFixture[str]) -> str:
        """What a command prints, and the files that it writes: `{job}` and `{out}` in the arguments are paths."""
        out = self.folder / f"out-{name}-{redact}"
        out.mkdir(exist_ok=True)
        words = [one.format(job=self.job, out=out) for one in arguments]
        run([*name.split(), *words, "--redact" if redact else "--no-redact"])
        shown = capsys.readouterr()
        written = [_text(path) for path in sorted(out.rglob("*")) if path.is_file()]
        return "\n".join([shown.out, shown.err.replace(str(out), ""), *written])


def _text(path: Path) -> str:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        import gzip

        data = gzip.decompress(data)
    return data.decode("utf-8", "replace")


READING = ["{job}", "--no-cache", "--jobs", "1"]
RUNS: dict[str, list[list[str]]] = {
    "view": [READING],
    "report": [[*READING, "-f", form, "--why", "3"] for form in ("text", "markdown", "html", "json")],
    "report --only next": [READING],
    "report --only numbers": [[*READING, "-f", form] for form in ("text", "markdown", "html", "json")],
    "report --only memory": [[*READING, "-f", form] for form in ("text", "markdown", "html", "json")],
    "diff": [
        ["{job}", "{job}/apollo-llm", "--no-cache", "--jobs", "1", "-f", form]
        for form in ("text", "markdown", "json", "html")
    ],
    "export": [[*READING, "-o", "{out}/merged.json.gz"]],
    "repro script": [
        [*READING, "-o", "{out}/repro.py"], [*READING, "--format", "chakra", "-o", "{out}/chakra"],
        [*READING, "--format", "param", "-o", "{out}/param"], [*READING, "--determinism", "-o", "{out}/determinism.py"],
    ],
    "repro fork": [[*READING, "-o", "{out}/fork.py"], [*READING, "--fill", "3"]],
    "stacks": [["{job}", "--export", "{out}/a.json"], ["{job}", "--export", "{out}/a.folded"]],
    "ingest": [["{job}", "-o", "{out}/session"]],
}  # fmt: skip
"""Command lines of every command that reads a job."""
COMMANDS = {name.partition(" --")[0] for name in RUNS}
ELSEWHERE = {"watch", "tool mcp"}
"""Commands that wait for somebody: what they show is asked of their parts below."""
OF_THIS_MACHINE = {"doctor", "demo", "config", "tool completion", "tool schema"}
"""Commands that read no job of somebody."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outputs]:
    """Commands on the job, whose files are read once for all commands that read them alike: each command replaces names
    only in what was read."""
    folder = tmp_path_factory.mktemp("planted")
    write_job(folder)
    read: dict[tuple[object, ...], Dataset] = {}

    def read_once(paths: list[Path], options: loading.LoadOptions, *others: Any) -> Dataset:
        key = *paths, options
        if key not in read:
            read[key] = loading_anew(paths, options, *others)
        return read[key]

    loading_anew = loading.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "load", read_once)
        yield Outputs(folder)


def test_every_command_is_searched() -> None:
    assert {name for name, _ in every_command()} == {*COMMANDS, *ELSEWHERE, *OF_THIS_MACHINE}
    for name, command in every_command():
        told = {option for one in command.params if isinstance(one, click.Option) for option in one.opts}
        assert ("--redact" in told) == (name not in {"config", "tool completion", "tool schema"}), name


def left(text: str) -> list[str]:
    """The planted names that a text shows."""
    pieces = [*(piece for _, *own in PLANTED.values() for piece in own), *OF_INPUT.values()]
    return [piece for piece in pieces if piece in text]


def secrets_in(text: str) -> list[str]:
    return [secret for secret in HIDDEN if secret in text]


@pytest.mark.parametrize("name", RUNS)
def test_of_a_command(name: str, outputs: Outputs, capsys: pytest.CaptureFixture[str]) -> None:
    for number, arguments in enumerate(RUNS[name]):
        one = [word.replace("{out}", f"{{out}}/{number}") for word in arguments]
        for redact in (True, False):
            (outputs.folder / f"out-{name}-{redact}" / str(number)).mkdir(parents=True)
        hidden = outputs.of(name, one, True, capsys)
        shown = outputs.of(name, one, False, capsys)
        if name == "ingest":
            hidden, shown = (session_text(outputs, redact, capsys) for redact in (True, False))
        assert left(hidden) == [], arguments
        assert left(shown) != [], arguments
        assert secrets_in(hidden) == secrets_in(shown) == [], arguments
        assert len(hidden) > 100, arguments


def session_text(outputs: Outputs, redact: bool, capsys: pytest.CaptureFixture[str]) -> str:
    """What a session tells that was written with or without names."""
    session = outputs.folder / f"out-ingest-{redact}" / "0" / "session"
    return outputs.of("report", [str(session), "-f", "json"], False, capsys).replace(str(outputs.folder), "")


def loaded(outputs: Outputs, redaction: Redaction | None) -> tuple[Any, Any]:
    return JobSource((outputs.job,), jobs=1, no_cache=True, redaction=redaction).load(lambda _step: None)


def test_columns_of_words_of_our_own_hold_none_of_a_file(outputs: Outputs) -> None:
    dataset, _ = loaded(outputs, None)
    held: dict[str, str] = {}
    for name, table in TABLES.items():
        for column, row in table.columns.items():
            if row.holds is not None:
                kind = "ours" if row.holds == "ours" else "theirs"
                held[kind] = held.get(kind, "") + "\n".join(distinct_texts(getattr(dataset, name)[column]))
    assert left(held["ours"]) == secrets_in(held["ours"]) == [] and len(held["ours"]) > 100
    assert left(held["theirs"]) != []


def app_texts(outputs: Outputs, redaction: Redaction | None, folder: Path) -> Iterator[str]:
    """What the screen exports and copies."""
    dataset, analysis = loaded(outputs, redaction)
    reports = [partial(view.export_report, form) for form in view.EXPORTS.values()]
    exports: list[Callable[..., Path]] = [*reports, view._export_traces]
    for export in exports:
        yield _text(export(dataset, analysis, folder))
    for number, finding in enumerate(analysis.findings):
        yield copied_text(dataset, analysis, Selection(3, finding=number))
        yield offered_commands(dataset, analysis, finding)
    yield copied_text(dataset, analysis, Selection(0, row=0, group=0, seq=1))


def watch_texts(outputs: Outputs, redaction: Redaction | None, _folder: Path) -> Iterator[str]:
    """What a followed job says: its lines, its metrics, and what the command of --on-freeze reads."""
    source = JobSource((outputs.job,), jobs=1, no_cache=True, redaction=redaction)
    watcher = watcher_for(source, FollowOptions(freeze_after=1.0))
    news: list[JobUpdate] = []

    def take(update: JobUpdate | FollowProgress) -> None:
        if isinstance(update, JobUpdate):
            news.append(update)
            watcher.stop()

    watcher.run(take)
    update = news[0]
    yield render_line_json(update.dataset, update.analysis, update.live, time_ns()).decode()
    yield render_line_text(update.analysis, update.live, time_ns())
    yield report_of(update).decode()
    state = FollowedState(update.dataset, update.analysis, update.live, update.number, update.reading.trouble)
    yield render_metrics(state, source.title, time_ns()).decode()


def agent_texts(outputs: Outputs, redaction: Redaction | None, _folder: Path) -> Iterator[str]:
    """What agents are answered, to every question; the directory is that of the job, whose name they need."""
    tools = AgentTools(KeptJobs([Path(outputs.job)], redaction))
    names = [name for name in dir(AgentTools) if not name.startswith("_")]
    for name in names:
        ask = getattr(tools, name)
        for arguments in ({}, {"rank": 3}):
            try:
                yield json.dumps(ask(**arguments, **({"only_differing": False} if name == "settings" else {})))
            except (TypeError, QuestionError, PathError):
                continue


PARTS = {"app": app_texts, "watch": watch_texts, "mcp": agent_texts}


@pytest.mark.parametrize("part", PARTS)
def test_of_what_waits_for_somebody(part: str, outputs: Outputs, tmp_path: Path) -> None:
    texts = {}
    for redaction in (None, Redaction.here()):
        folder = tmp_path / str(redaction is None)
        folder.mkdir()
        texts[redaction is None] = "\n".join(PARTS[part](outputs, redaction, folder))
    assert left(texts[False]) == []
    assert left(texts[True]) != []
    assert secrets_in(texts[False]) == secrets_in(texts[True]) == []


def test_every_name_of_every_input_is_shown_somewhere(outputs: Outputs, capsys: pytest.CaptureFixture[str]) -> None:
    """Else the search above would prove nothing of it."""
    shown = [
        outputs.of(name, RUNS[name][-1], False, capsys)
        for name in ("report", "report --only memory", "report --only numbers")
    ]
    shown += [outputs.of("stacks", ["{job}", "--export", "{out}/every.json", "--force"], False, capsys)]
    shown += [outputs.of("export", [*READING, "-o", "{out}/every.json", "--force"], False, capsys)]
    shown += agent_texts(outputs, None, outputs.folder)
    text = "\n".join(shown).replace("\\\\", "\\")
    assert [what for what, (whole, *_) in PLANTED.items() if whole not in text] == []
    assert [name for name, own in OF_INPUT.items() if own not in text] == []
