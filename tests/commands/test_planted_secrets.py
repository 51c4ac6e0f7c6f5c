"""One secret of each kind in a log, a dump, an environment and stacks: no output holds any, whatever the format."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import zstandard

from rankscope.assemble.load import load
from rankscope.cli import run
from rankscope.text.secrets import HIDDEN
from tests.parsers.dumps import job, named

SECRET = "Zq7Xw9Kd2Lm4Tb8R"
KINDS = {
    "assigned": f"api_key={SECRET}",
    "JSON": f'{{"api_key": "{SECRET}"}}',
    "escaped": f'{{\\"api_key\\": \\"{SECRET}\\"}}',
    "quoted": f'password="two words {SECRET}"',
    "option": f"train.py --wandb_key {SECRET}",
    "shape": f"hf_{SECRET * 2}",
    "JWT": f"eyJ{SECRET}.eyJ{SECRET}.{SECRET}",
    "header": f"Authorization: Basic {SECRET}==",
    "login": f"https://eve:{SECRET}@host.test/x",
    "signature": f"https://x.test/a?sv=1&sig={SECRET}%3D",
    "curl": f"curl -u eve:{SECRET} https://x.test",
    "private key": "\n".join(["-----BEGIN " + "RSA PRIVATE KEY-----", SECRET * 4, SECRET * 4, f"{SECRET}="]),
}
ENVIRONMENT = f"NCCL_ALGO=Ring\nHF_TOKEN={SECRET}\nMASTER_ADDR=eve:{SECRET}@h\nCUDA_HOME=/x?token={SECRET}\nRANK=1\n"
STACK = f"""\
Process 103: python train.py --hf-token {SECRET}
Python v3.11.1 (/usr/bin/python3.11)

Thread 103 (idle): "MainThread password={SECRET}"
    wait (threading.py:1)
    main (train.py?token={SECRET}:3)
"""


def log() -> str:
    lines = [
        f"host1:100:200 [0] NCCL INFO NCCL_MY_SECRET_KEY set by environment to {SECRET}",
        f"+ torchrun --nnodes 2 train.py --api-key {SECRET}",
        f"host1:100:200 [0] misc/socket.cc:1 NCCL WARN Connect failed with {KINDS['login']}",
        # cut by the reader of logs in the middle of the secret
        f"[rank3]: RuntimeError: CUDA out of memory {'x' * 1955} hf_{SECRET * 2}",
    ]
    for number, text in enumerate(KINDS.values()):
        rank = f"[rank{number % 4}]: "
        told = ["Traceback (most recent call last):", '  File "train.py", line 3, in main', "    raise"]
        lines += [rank + line for line in [*told, *f"RuntimeError: {text}".split("\n")]]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files of a job that hangs."""
    directory = tmp_path_factory.mktemp("planted")
    recorders = job(4, {"0": (f"dp {KINDS['assigned']}", list(range(4)))})
    for text in KINDS.values():
        for recorder in recorders:
            recorder.collective(frames=[{"name": text, "filename": f"/x/train.py?token={SECRET}", "line": 1}])
    for recorder in recorders[1:]:
        recorder.collective(state="scheduled")
    for name, data in named(recorders).items():
        (directory / name).write_bytes(data)
    (directory / "train.log").write_text(log())
    (directory / "rank_1.env").write_text(ENVIRONMENT)
    (directory / "pyspy_rank_3.txt").write_text(STACK)
    return directory


@pytest.mark.parametrize(
    "command",
    [
        "report -f text", "report -f markdown", "report -f json", "report -f html", "report -f json --redact",
        "report --why 0", "report --only next", "repro -o -", "diff -f text",
        "diff -f markdown", "diff -f json", "diff -f html",
    ],
)  # fmt: skip
def test_no_output_holds_a_secret(planted: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(planted)] * (1 + command.startswith("diff"))
    assert run([*command.split(), *paths]) in (0, 1)
    out = "".join(capsys.readouterr())
    assert len(out) > 50
    assert SECRET[:10] not in out


def test_no_table_holds_a_secret(planted: Path) -> None:
    dataset = load([planted])
    tables = [table for table in vars(dataset).values() if isinstance(table, pl.DataFrame)]
    texts = [str(value) for table in tables for row in table.iter_rows() for value in row if value is not None]
    assert sum(HIDDEN in text for text in texts) > len(KINDS)
    assert not [text for text in texts if SECRET[:10] in text]
    for text in dataset.messages["values"]:
        json.loads(text)


def test_no_session_holds_a_secret(planted: Path, tmp_path: Path) -> None:
    assert run(["ingest", str(planted), "-o", str(tmp_path / "whole")]) == 0
    assert run(["ingest", str(planted), "-o", str(tmp_path / "parts"), "--shard", "1/1"]) == 0
    tables = [pl.read_parquet(path) for path in (tmp_path / "whole").glob("*.parquet")]
    texts = [str(value) for table in tables for row in table.iter_rows() for value in row]
    (part,) = (tmp_path / "parts").glob("*.zst")
    with part.open("rb") as file:
        texts.append(zstandard.ZstdDecompressor().stream_reader(file).read().decode("utf-8", "replace"))
    assert HIDDEN in texts[-1]
    assert not [text for text in texts if SECRET[:10] in text]


def test_errors_hold_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", f"{tmp_path}/missing?token={SECRET}", "-f", "json"]) == 2
    out = "".join(capsys.readouterr())
    assert HIDDEN in out and SECRET not in out


def test_values_of_one_secret_setting_that_differ_keep_different_stand_ins(tmp_path: Path) -> None:
    for rank, value in enumerate(("abc", "xyz", "abc")):
        told = f"host1:{rank}:{rank} [0] NCCL INFO NCCL_MY_SECRET_KEY set by environment to {value}\n"
        (tmp_path / f"rank_{rank}.log").write_text(told * 3)
    dataset = load([tmp_path])
    assert dataset.settings["value"].to_list() == [HIDDEN, "(hidden 2)", HIDDEN]
