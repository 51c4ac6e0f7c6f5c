"""`rankscope repro fork`: settings, delays and time-outs go into the script, a real run ends and leaves nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.cli import run

Fork = Callable[..., tuple[int, str]]
JOB = Path(__file__).parents[2] / "sample_data" / "early_return"


@pytest.fixture
def fork(capsys: pytest.CaptureFixture[str]) -> Fork:
    """Runs the command: its exit code, and all that it prints."""

    def told(*args: str) -> tuple[int, str]:
        code = run(["repro", "fork", str(JOB), *args])
        return code, "\n".join(capsys.readouterr())

    return told


def test_settings_and_delays_stand_in_the_script_as_data(fork: Fork, tmp_path: Path) -> None:
    script = tmp_path / "f.py"
    hostile = 'NCCL_X="""\\"+evil()+"'
    _, out = fork(
        "--env", hostile, "--delay", "1:default_pg#19:2.5", "--delay", "2:1", "--timeout", "9", "-o", str(script)
    )
    assert "NCCL_* and RCCL_* have no effect" in out
    assert "a delay alone hangs nothing" in out
    values = {
        node.target.id: ast.literal_eval(node.value)
        for node in ast.parse(script.read_text()).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
        if node.target.id in ("SETTINGS", "DELAYS")
    }
    assert values["SETTINGS"] == {"NCCL_X": hostile.partition("=")[2]}
    (one, group, number, seconds), first = values["DELAYS"]
    assert ((one, number, seconds), first) == ((1, "#19", 2.5), (2, "", "", 1.0))
    assert f"{group}  " in script.read_text()
    assert f"\nTIMEOUT_S = {float(9)}\n" in script.read_text()


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--env", "PATH=/tmp"), "only names that begin with NCCL_"),
        (("--env", "NCCL_ALGO"), "not NAME=VALUE"),
        (("--env", "NCCL_ALGO=a\nb"), "printable ASCII"),
        (("--delay", "9:3"), "rank 9 is not in the replay"),
        (("--delay", "1:default_pg#99:3"), "does not hold that operation"),
        (("--delay", "1:50", "--delay", "1:50"), "sleeps longer than 60 s"),
        (("--at", "1:default_pg#18"), "--at OP and --set NAME=VALUE need each other"),
        (("--at", "1:default_pg#18", "--set", "root=1"), "not size=N, dtype=TYPE or op=NAME"),
        (("--at", "1:default_pg#18", "--set", "dtype=Foo"), "not one of Float"),
        (("--sweep", "--release", "3"), "leave the named ones out"),
        (("--release", "1"), "does not stop by itself"),
        (("--run", "-o", "-"), "needs a script in a file"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(fork: Fork, args: tuple[str, ...], reason: str) -> None:
    code, out = fork(*args)
    assert code, out
    assert reason in " ".join(out.split())


def test_the_sweep_says_what_it_does_not_prove(fork: Fork) -> None:
    code, out = fork("--sweep")
    assert (code, out.splitlines()[3].startswith("3 wait     as recorded")) == (0, True)
    assert "all end    rank 3 also issues all_reduce #19" in out
    assert "not proved: that this is the bug" in out


@pytest.mark.torch
def test_a_replay_with_a_time_out_ends_in_the_error_of_the_backend(
    fork: Fork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "f.py"
    monkeypatch.setenv("GRACE", "3")
    code, out = fork("--run", "--timeout", "1", "-o", str(script))
    assert (code, "Operation timed out" in out) == (1, True), out
    assert "verdict: " in out
    assert (tmp_path / "f_run" / "rank_3.json").exists()
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(str(script).encode() in command for command in commands)
