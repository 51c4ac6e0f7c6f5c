"""A redacted report names no host, user or path, in any format, and still makes sense."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis.model import Analysis, Culprit, Evidence
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.redact import StandInNames, redact
from rankscope.report.text import render_text
from rankscope.schema import Dataset, Frame
from tests.logs import line, setting, with_logs
from tests.report import samples

SECRETS = (
    "node07",
    "corp",
    "alice",
    "apollo",
    "10.1.2.3",
    "fe80",
    "bob",
    "wandb",
    "node",
    "login",
    "carol",
    "dave",
    "hunter2",
)


def _job() -> tuple[Dataset, Analysis]:
    dataset, analysis = samples.hang()
    names = [f"apollo/node07.corp.example/nccl_trace_rank_node07_{r}.tar.gz!alice/rank_{r}" for r in range(4)]
    files = dataset.files.with_columns(
        path=pl.Series(names), host=pl.lit("node07.corp.example"), problem=pl.lit("cut short by alice at /home/alice/x")
    )
    first = analysis.findings[0]
    finding = replace(
        first,
        explanation=f"node07 (10.1.2.3, fe80::1:2) wrote {names[3]}; see https://wandb.test/alice, mail bob@corp.test.",
        title="node08 of x-node07 failed in /scratch/apollo/run/train.py:3",
        culprits=(Culprit(3, "node07.corp.example"),),
        evidence=(Evidence("alice's /home/alice/apollo/log.txt says 14:02:11 std::abort", names[2], 2, 1),),
        next_steps=("Drain node07.", f"Read {names[3]}."),
    )
    root = "/scratch/alice/apollo dumps"
    lines = [
        line(3, "node09: bob's /home/bob/apollo/x.so: 10.1.2.3 refused", "root", host="node09.corp.example"),
        line(2, "alice on node11 --password hunter2", "victim", host="node11", values='{"path": "/home/alice/a"}'),
    ]
    settings = [
        *(setting(r, "MASTER_ADDR", f"login{r % 2}.corp.example", source="environ") for r in range(2)),
        *(setting(r, "USER", "carol" if r else "dave") for r in range(2)),
        *(setting(r, "NCCL_TOPO_FILE", f"/home/alice/{r}.xml", host="node12") for r in range(2)),
    ]
    logged = with_logs(dataset, lines, settings)
    files = pl.concat([files, logged.files[-4:]])
    job = replace(logged, files=files, root=root)
    return job, replace(analysis, findings=(finding, *analysis.findings[1:]))


@pytest.mark.parametrize("render", [render_text, render_markdown, lambda d, a: render_json(d, a).decode()])
def test_no_name_is_left(render: object) -> None:
    assert callable(render)
    shown = render(*redact(*_job()))
    assert [s for s in SECRETS if s in shown] == []


def test_what_logs_say_is_redacted_also_where_no_report_shows_it() -> None:
    dataset, analysis = _job()
    more = with_logs(dataset, [line(0, "alice said hello", "context"), *dataset.messages.to_dicts()])
    comms = pl.DataFrame({"host": ["node13"]}).cast({"host": pl.String})
    threads = pl.DataFrame({"command": ["train --api-key abc /home/alice/x"], "thread": ["alice's"]})
    tables = {
        name: pl.concat([getattr(more, name), frame], how="diagonal_relaxed")
        for name, frame in (("comms", comms), ("ras", comms), ("threads", threads))
    }
    redacted, _ = redact(replace(more, **tables), analysis)
    shown = "\n".join(getattr(redacted, name).write_csv() for name in ("messages", "comms", "ras", "threads"))
    assert [s for s in (*SECRETS, "abc") if s in shown] == []
    assert redacted.messages.height == 3


def test_one_name_has_one_stand_in() -> None:
    _, analysis = redact(*_job())
    finding = analysis.findings[0]
    assert finding.culprits == (Culprit(3, "host-1"),)
    assert finding.next_steps[0] == "Drain host-1."
    assert finding.explanation.startswith("host-1 (address-1, address-2) wrote ")


def test_files_are_called_the_same_in_the_table_and_in_prose() -> None:
    dataset, analysis = redact(*_job())
    path = dataset.files["path"][3]
    assert path == "dir-1/host-1/nccl_trace_rank_host-1_3.tar.gz!user-1/rank_3"
    assert analysis.findings[0].next_steps[1] == f"Read {path}."


def test_source_files_keep_their_names_unless_told_otherwise() -> None:
    _, kept = redact(*_job())
    assert kept.findings[0].stack[0] == Frame("forward", "/home/user-1/dir-3/dir-4/attention.py", 211)
    _, gone = redact(*_job(), keep_source_names=False)
    assert gone.findings[0].stack[0].file.endswith("/file-2.py")
    assert "attention" not in render_text(*redact(*_job(), keep_source_names=False))


def test_what_names_nobody_stays() -> None:
    dataset, analysis = samples.hang()
    _, redacted = redact(dataset, analysis)
    assert redacted.findings[1:] == analysis.findings[1:]
    assert redacted.findings[0].title == analysis.findings[0].title
    assert redacted.verdict == analysis.verdict


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ranks 0-3 at 14:02:11 and/or send/recv 3/4", "ranks 0-3 at 14:02:11 and/or send/recv 3/4"),
        ("std::abort in torch::autograd", "std::abort in torch::autograd"),
        ("on gpu12 and GPU12.hpc.test", "on host-1 and host-1"),
        ("version 2.10.1 of nccl", "version 2.10.1 of nccl"),
        ("from 10.0.0.7:29500", "from address-1:29500"),
        ("eve_job and eve's", "user-1_job and user-1's"),
        ("/opt/x/site-packages/torch/nn/modules/module.py:3", "site-packages/torch/nn/modules/module.py:3"),
        ("~eve/run/a.py", "~user-1/dir-1/a.py"),
        ("", ""),
    ],
)
def test_text_is_taken_apart_with_care(text: str, shown: str) -> None:
    assert StandInNames(["gpu07"], ["eve"]).text(text) == shown


def test_whole_logs_keep_the_lines_that_no_report_shows() -> None:
    dataset, analysis = _job()
    quiet = line(1, "NCCL INFO from node07, as /home/alice/x", "context", host="node07.corp.example")
    told = replace(dataset, messages=pl.concat([dataset.messages, pl.DataFrame([quiet]).select(
        pl.col(name).cast(dtype) if name in quiet else pl.lit(None, dtype).alias(name)
        for name, dtype in dataset.messages.schema.items()
    )]))  # fmt: skip
    kept, _ = redact(told, analysis, whole_logs=True)
    assert kept.messages["text"][-1].startswith("NCCL INFO from host-")
    assert not [secret for secret in SECRETS if secret in str(kept.messages.rows())]
    dropped, _ = redact(told, analysis)
    assert dropped.messages["text"][-1] == ""
