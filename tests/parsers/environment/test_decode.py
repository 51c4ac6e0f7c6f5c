"""Environments of processes in the forms in which they are written down."""

from __future__ import annotations

import json

import orjson
import pytest

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.environment import (
    Environment,
    decode_environment,
    environment_from,
    looks_like_environment,
)

RANK3 = {
    "SHELL": "/bin/bash", "HOME": "/root", "RANK": "3", "WORLD_SIZE": "8", "HOSTNAME": "node07", "NCCL_ALGO": "Ring",
    "HCC_DETERMINISTIC": "true", "DATABASE_URL": "postgres://me:hunter2@db/x", "WANDB_API_KEY": "0123456789",
    "NCCL_AUTH_TOKEN": "hunter3", "VLLM_API_KEY": "hunter4",
}  # fmt: skip
KEPT = {"RANK": "3", "WORLD_SIZE": "8", "HOSTNAME": "node07", "NCCL_ALGO": "Ring", "HCC_DETERMINISTIC": "true"}


def told(found: Environment, at: int = 0) -> dict[str, str]:
    return {variable.name: variable.value for variable in found.processes[at].variables}


def of_nul() -> bytes:
    return "".join(f"{name}={value}\0" for name, value in RANK3.items()).encode()


def of_env() -> bytes:
    return "".join(f"{name}={value}\n" for name, value in RANK3.items()).encode()


def of_declare() -> bytes:
    return "".join(f'declare -x {name}="{value}"\n' for name, value in RANK3.items()).encode()


def of_export() -> bytes:
    return "".join(f"export {name}='{value}'\n" for name, value in RANK3.items()).encode()


def of_json() -> bytes:
    return json.dumps(RANK3, indent=4).encode()


@pytest.mark.parametrize("data", [of_nul(), of_env(), of_declare(), of_export(), of_json()])
def test_each_form_says_the_same_of_a_process(data: bytes) -> None:
    assert looks_like_environment(data[:512])
    found = decode_environment(data)
    (process,) = found.processes
    assert told(found) == KEPT
    assert (process.rank, process.world_size, process.host, process.whole) == (3, 8, "node07", True)


@pytest.mark.parametrize("data", [of_nul(), of_env(), of_json()])
def test_no_secret_leaves_the_file(data: bytes) -> None:
    crossed = orjson.dumps(decode_environment(data).header())
    assert not any(secret in crossed for secret in (b"hunter", b"0123456789", b"postgres"))


def test_it_crosses_from_a_worker_process() -> None:
    found = decode_environment(of_env())
    assert environment_from(orjson.loads(orjson.dumps(found.header()))) == found


def test_lines_are_told_and_values_may_have_several() -> None:
    text = "A=1\nBASH_FUNC_module%%=() {  eval `modulecmd bash $*`\n}\nRANK=2\nNCCL_ALGO=Tree\n"
    (process,) = decode_environment(text.encode()).processes
    assert [(v.name, v.line) for v in process.variables] == [("RANK", 4), ("NCCL_ALGO", 5)]


@pytest.mark.parametrize(
    ("name", "rank"), [("SLURM_PROCID", 5), ("OMPI_COMM_WORLD_RANK", 5), ("PMI_RANK", 5), ("LOCAL_RANK", None)]
)
def test_ranks_of_launchers(name: str, rank: int | None) -> None:
    (process,) = decode_environment(f"HOME=/root\n{name}=5\nNCCL_DEBUG=INFO\n".encode()).processes
    assert process.rank == rank


def test_docker_inspect_tells_of_each_container_a_part() -> None:
    rows = [
        {"Id": "0" * 64, "Config": {"Env": ["PATH=/bin", f"RANK={rank}", "NCCL_ALGO=Ring"], "Cmd": ["python"]}}
        for rank in (0, 1)
    ]
    data = json.dumps(rows, indent=4).encode()
    assert looks_like_environment(data[:512])
    found = decode_environment(data)
    assert [(p.rank, p.whole) for p in found.processes] == [(0, False), (1, False)]


def test_manifests_and_descriptions_of_pods() -> None:
    manifest = (
        'apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - env:\n    - name: RANK\n      value: "4"\n'
        '    - name: NCCL_IB_DISABLE\n      value: "1"\n    - name: FROM\n      valueFrom: x\n'
    )
    described = (
        "Name:         worker-4\nNamespace:    jobs\nContainers:\n  pytorch:\n    Environment:\n"
        "      RANK:             4\n      NCCL_IB_DISABLE:  1\n      API:  <set to the key 'x' in secret 'y'>\n"
        "    Mounts:\n      /data from data (rw)\n"
    )
    for text in (manifest, described):
        assert looks_like_environment(text.encode()[:512])
        found = decode_environment(text.encode())
        assert told(found) == {"RANK": "4", "NCCL_IB_DISABLE": "1"}
        assert (found.processes[0].rank, found.processes[0].whole) == (4, False)


def test_what_pip_has_installed() -> None:
    data = b"absl-py==2.1\nnumpy==1.26.4\ntorch==2.11.0+cu126\nnvidia-nccl-cu12==2.28.9\n"
    assert looks_like_environment(data)
    assert told(decode_environment(data)) == {
        "version:numpy": "1.26.4", "version:torch": "2.11.0+cu126", "version:nvidia-nccl-cu12": "2.28.9",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "A=1\nB=2\ntorchrun train.py\npython x.py\n",
        "lr=0.1\nbatch=4\n",
        '{"LOSS": "1"}',
        "NCCL_ALGO\nRing\n",
        "A=1\0",
        "apiVersion: v1\nkind: Pod\n",
    ],
)
def test_other_texts_are_none(text: str) -> None:
    with pytest.raises(NotThisKindError):
        decode_environment(text.encode())


def test_hostile_bytes_are_refused_or_bounded() -> None:
    deep = b'{"apiVersion": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    with pytest.raises(NotThisKindError):
        decode_environment(deep)
    found = decode_environment(b"RANK=" + b"9" * 400 + b"\nNCCL_ALGO=" + b"x" * 100_000 + b"\n")
    assert found.processes[0].rank is None
    assert max(len(v.value) for v in found.processes[0].variables) <= 4096


def test_block_texts_of_a_manifest_hold_no_variables() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    note: |\n      - name: NCCL_ALGO\n        value: Tree\n"  # noqa: E501
        "spec:\n  containers:\n  - env: &env\n    - {name: NCCL_ALGO, value: Ring}\n    - name: NCCL_DEBUG\n      value: 'INFO'\n"  # noqa: E501
        "  - env: *env\n"
    )
    first, again = decode_environment(text.encode()).processes
    assert first == again
    assert [tuple(one) for one in first.variables] == [("NCCL_ALGO", "Ring", 11), ("NCCL_DEBUG", "INFO", 12)]
