"""A redacted job names no host, user, path or store, in any form of report, and still makes sense."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.report.html import render_html
from rankscope.report.json import render_json
from rankscope.report.markdown import render_markdown
from rankscope.report.redact import Redaction
from rankscope.report.stand_ins import StandInNames
from rankscope.report.text import render_text
from rankscope.schema import Dataset, Frame
from tests.jobs.scenarios import SAMPLE_JOBS
from tests.logs import line, setting, with_logs
from tests.report import samples

SAMPLES = Path(__file__).parents[2] / "sample_data"
Render = Callable[[Dataset, Analysis], str]
SECRETS = (
    "node07", "corp", "alice", "apollo", "10.1.2.3", "fe80", "bob", "wandb", "node", "login", "carol", "dave",
    "hunter2",
)  # fmt: skip


def _job() -> Dataset:
    dataset, _ = samples.hang()
    names = [f"apollo/node07.corp.example/nccl_trace_rank_node07_{r}.tar.gz!alice/rank_{r}" for r in range(4)]
    files = dataset.files.with_columns(
        path=pl.Series(names), host=pl.lit("node07.corp.example"), problem=pl.lit("cut short by alice at /home/alice/x")
    )
    lines = [
        line(3, "node09: bob's /home/bob/apollo/x.so: 10.1.2.3 refused", "root", host="node09.corp.example"),
        line(2, "alice on node11 --password hunter2", "victim", host="node11", values='{"path": "/home/alice/a"}'),
        line(2, "node07 (fe80::1:2) wrote /scratch/apollo/run/a.py; see https://wandb.test/alice, mail bob@corp.test.",
             "victim", values='{"message": "first\\n/home/alice/a\\n~alice/b"}'),
    ]  # fmt: skip
    settings = [
        *(setting(r, "MASTER_ADDR", f"login{r % 2}.corp.example", source="environ") for r in range(2)),
        *(setting(r, "USER", "carol" if r else "dave") for r in range(2)),
        *(setting(r, "NCCL_TOPO_FILE", f"/home/alice/{r}.xml", host="node12") for r in range(2)),
        *(setting(r, "version:cudnn", "9.1.0.70") for r in range(2)),
    ]
    logged = with_logs(dataset, lines, settings)
    return replace(logged, files=pl.concat([files, logged.files[-4:]]), root="/scratch/alice/apollo dumps")


@cache
def _judged(redacted: bool) -> tuple[Dataset, Analysis]:
    """The job with its names or without, and what is said of it."""
    dataset = Redaction().dataset(_job()) if redacted else _job()
    return dataset, analyse(dataset)


@pytest.mark.parametrize("render", [render_text, render_markdown, render_html, lambda d, a: render_json(d, a).decode()])
def test_no_name_is_left(render: Render) -> None:
    assert [s for s in SECRETS if s in render(*_judged(redacted=False))] != []
    assert [s for s in SECRETS if s in render(*_judged(redacted=True))] == []


def test_no_table_has_a_name_left() -> None:
    more = _job()
    comms = pl.DataFrame({"host": ["node13"]}).cast({"host": pl.String})
    threads = pl.DataFrame({"command": ["train --api-key abcabc /home/alice/x"], "thread": ["alice's"]})
    tables = {
        name: pl.concat([getattr(more, name), frame], how="diagonal_relaxed")
        for name, frame in (("comms", comms), ("ras", comms), ("threads", threads))
    }
    redacted = Redaction().dataset(replace(more, **tables))
    shown = "\n".join(
        str(getattr(redacted, name).rows()) for name in ("messages", "comms", "ras", "threads", "settings")
    )
    assert [s for s in (*SECRETS, "abcabc") if s in shown] == []
    assert redacted.settings["value"][-1] == "9.1.0.70", "a version is no address"


def test_one_name_has_one_stand_in() -> None:
    redacted = Redaction().dataset(_job())
    host = redacted.files["host"][0]
    assert host == "host-1"
    assert redacted.files["path"][3] == "dir-1/host-1/nccl_trace_rank_host-1_3.tar.gz!user-1/rank_3"
    said = "\n".join(redacted.messages["text"])
    assert "host-1 (address-" in said and "user-1 on host-" in said


def test_what_analysis_finds_is_the_same() -> None:
    plain, redacted = _job(), Redaction().dataset(_job())
    told = [
        [(f.kind, f.culprit_ranks, f.seq, f.confidence, len(f.evidence)) for f in analyse(job).findings]
        for job in (plain, redacted)
    ]
    assert told[0] == told[1]


def test_a_name_is_whole_when_it_is_replaced() -> None:
    """Rules cut long names: what is left of one would not be recognised."""
    dataset, _ = samples.hang()
    long = f"{'a' * 70}/{'b' * 20}_in_gpu-prod-077_alice.log"
    text = f"RuntimeError: {'x ' * 80}172.31.5.9:29500 refused it"
    logged = with_logs(dataset, [line(3, text, "root", host="gpu-prod-077")])
    files = logged.files.with_columns(path=pl.when(pl.col("kind") == "log").then(pl.lit(long)).otherwise("path"))
    redacted = Redaction(users=["alice"]).dataset(replace(logged, files=files))
    for shown in (render_text(redacted, analyse(redacted)), render_json(redacted, analyse(redacted)).decode()):
        assert "gpu-prod" not in shown and "alice" not in shown and "172." not in shown and "172…" not in shown


def test_source_files_keep_their_names_unless_told_otherwise() -> None:
    kept = Redaction().dataset(_job())
    assert Frame("forward", "/home/user-1/run/dir-2/attention.py", 209) in _frames(kept)
    gone = _frames(Redaction(keep_source_names=False).dataset(_job()))
    assert "forward" in str(gone) and "attention" not in str(gone)


def _frames(dataset: Dataset) -> list[Frame]:
    return [Frame(*row) for row in dataset.stacks.select("function", "file", "line").iter_rows()]


def test_what_names_nobody_stays() -> None:
    dataset, _ = samples.hang()
    redacted, plain = analyse(Redaction().dataset(dataset)), analyse(dataset)
    assert [f.title for f in redacted.findings] == [f.title for f in plain.findings]
    assert redacted.verdict == plain.verdict


def test_jobs_that_are_shown_together_share_what_they_tell() -> None:
    dataset, _ = samples.hang()
    first = with_logs(dataset, [line(0, "carla waits for gpu-prod-3", "root")])
    second = with_logs(dataset, [line(0, "uid=1001(carla) of gpu-prod-4", "root", host="gpu-prod-4")])
    shown = [job.messages["text"][0] for job in Redaction().datasets([first, second])]
    assert shown == ["user-2 waits for host-2", "uid=1001(user-2) of host-3"]


NAMES = {
    "known hosts": ("on gpu12 and GPU12.hpc.test", "on host-1 and host-1"),
    "joined hosts": ("job-gpu-prod-077-3 of x_gpu-prod-078.log", "job-host-1-3 of x_host-2.log"),
    "a rank before it": ("worker0.node17: exit 1", "worker0.host-1: exit 1"),
    "a full name": ("at login.cluster.corp.example now", "at host-1 now"),
    "a cloud's name": ("ip-10-0-3-44.ec2.internal and ip-10-0-3-45", "host-1 and host-2"),
    "a node of a pool": ("gke-train-pool-1a2b3c4d-x9z2 is gone", "host-1 is gone"),
    "a list of Slurm": ("on gpu-prod-[077-080,090] now", "on hosts-1 now"),
    "an address": ("from 10.0.0.7:29500", "from address-1:29500"),
    "an address of NCCL": ("peer 10.0.0.7<29500> ", "peer address-1<29500> "),
    "a cut address": ("10.0.0.7 and 10.0.0…", "address-1 and address-1…"),
    "an IPv6 address": ("[fe80::1%eth0]:1234 and fe80::1:2", "[address-1%eth0]:1234 and address-2"),
    "a MAC address": ("ether 08:c0:eb:12:34:56", "ether address-1"),
    "a GID": ("GID fe80:0000:0000:0000:506b:4b03:00c5:a2e4", "GID address-1"),
    "a GUID": ("node_guid: 506b:4b03:00c5:a2e4, port guid 0x506b4b0300c5a2e4",
               "node_guid: address-1, port guid address-2"),
    "a bucket": ("s3://acme-data/run/x", "url-1"),
    "an account": ("abfs://c@acct.dfs.core.windows.net/x and hdfs://nn:8020/y", "url-1 and url-2"),
    "a store": ("tcp://gpu-prod-077:29500, file:///home/eve/x.py", "tcp://host-1:29500, file:///home/user-1/x.py"),
    "a project": ("https://wandb.ai/acme/apollo/runs/1 of apollo", "url-1 of project-1"),
    "an image": ("image registry.corp.example:5000/team/train:dev", "image url-1"),
    "a share": (r"\\fileserver\team\eve\a.log", r"\\host-1\dir-1\user-1\name-1.log"),
    "a path of Windows": (r"C:\Users\bobby\run\a.py", r"C:\Users\user-1\run\a.py"),
    "a path": ("~eve/run/a.py and ~mallory", "~user-1/run/a.py and ~user-2"),
    "a path with a space": ('File "/home/eve/my run/x.py", line 3', 'File "/home/user-1/dir-1/x.py", line 3'),
    "a mail": ("ask eve.x@corp.example", "ask mail-1"),
    "a login": ("eve@gpu-prod-077: denied", "user-1@host-1: denied"),
    "a user in prose": ("user=mallory uid=1001(trudy), mallory said", "user=user-1 uid=1001(user-2), user-1 said"),
    "a part of a word": ("eve_job and eve's", "user-1_job and user-1's"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), NAMES.values(), ids=NAMES)
def test_names_are_recognised(text: str, shown: str) -> None:
    names = StandInNames(["gpu07", "gpu-prod-01", "node1"], ["eve"])
    names.learn([text], [])
    assert names.text(text) == shown


INNOCENT = (
    "ranks 0-3 at 14:02:11 and/or send/recv 3/4", "std::abort in torch::autograd", "version 2.10.1 of nccl",
    "torch.distributed.run and torch.nn.parallel.distributed", "train.py:12 in main", "2.13.0+cu130",
    "aten::mm, at::native",
    "nccl:all_reduce and c10d.DistributedDataParallel", "0000:17:00.0 and GPU 3", "nvidia-cublas-cu12==12.4.5.8",
    "127.0.0.1:29500 or 0.0.0.0", "mlx5_0:1, eth0", "layers.3.mlp.dense_4h_to_h.weight",
    "model-00001-of-00005.safetensors",
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=800)",
    "0x7f1a2b3c4d5e and commId 0x506b4b0300c5a2e4", "malloc@plt, pthread_cond_wait@@GLIBC_2.3.2",
    "user code of the user",
    "transport/net_ib.cc:1234 and torch/csrc/distributed/c10d/Utils.hpp:3", "https://pytorch.org/docs/stable/x.html",
    "/etc/hosts and /proc/meminfo", "node 3 of host groups, on node", "CUDA error: out of memory", "x[0], layers[0-3]",
    "",
    "{\"rank\": 3, \"state\": \"started\"}", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=1", "python -m torch.distributed.run",
    "total-vm",
)  # fmt: skip


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_no_name_stays(text: str) -> None:
    names = StandInNames(["gpu07", "gpu-prod-01", "vm"], ["eve"])
    names.learn([text], [])
    assert names.text(text) == text


def test_files_of_public_packages_keep_their_place() -> None:
    names = StandInNames()
    assert names.path("/opt/x/site-packages/torch/nn/modules/module.py") == "site-packages/torch/nn/modules/module.py"
    assert names.path("/home/eve/py/lib/python3.11/threading.py") == "lib/python3.11/threading.py"
    assert names.path("asyncio/base_events.py") == "asyncio/base_events.py"
    assert names.path("/opt/x/site-packages/acme/secret.py") == "/opt/dir-1/site-packages/dir-2/secret.py"


def test_hosts_of_two_domains_are_two() -> None:
    names = StandInNames(["node1.rack1.corp.example", "node1.rack2.corp.example"])
    assert names.host("node1.rack1.corp.example") != names.host("node1.rack2.corp.example")


@pytest.mark.parametrize("name", SAMPLE_JOBS)
def test_the_verdict_on_a_redacted_job_is_that_on_the_job(name: str) -> None:
    dataset = load([SAMPLES / name])
    redacted = Redaction().dataset(dataset)
    plain, shown = analyse(dataset), analyse(redacted)
    assert str(SAMPLES) in dataset.root and SAMPLES.parent.name not in redacted.root
    assert (shown.status, shown.verdict) == (plain.status, plain.verdict)
    for one, other in zip(plain.findings, shown.findings, strict=True):
        named = replace(one, stack=other.stack, evidence=other.evidence, next_steps=other.next_steps)
        assert replace(named, culprits=other.culprits) == other
