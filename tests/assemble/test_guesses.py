"""Refusals say what a file seems to be, and what would be readable instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.assemble.load import InputError, load


@pytest.mark.parametrize(
    ("name", "data", "seems", "instead"),
    [
        ("a.txt", b"my training hangs, please help me\n", "text without a line of a job", "first error of each rank"),
        ("a.png", b"\x89PNG\r\n\x1a\n000", "a picture", "paste its text"),
        ("a.yaml", b"# job\napiVersion: v1\nkind: Pod\n", "a manifest of Kubernetes", "kubectl logs"),
        ("a.log", b'time="2024-02-21T09:30:56Z" level=info msg="Job=a"\n', "operator", "kubectl describe pod"),
        ("a.txt", b"import torch\n\ndef main():\n    pass\n", "the source of a program", "what it printed"),
        ("a.sh", b"#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n", "a script that starts a job", "what it printed"),
        ("a.html", b"<!DOCTYPE html><html><body>x</body></html>", "a web page", "raw text"),
        ("a.csv", b"a,b\n1,2\n", "a table", "rankscope diff"),
        ("a.bin", bytes(range(200, 256)) * 9 + b"\0", "binary data", "logs as text"),
    ],
)  # fmt: skip
def test_a_refusal_helps(tmp_path: Path, name: str, data: bytes, seems: str, instead: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as refused:
        load([tmp_path / name])
    assert seems in str(refused.value) and instead in str(refused.value)
