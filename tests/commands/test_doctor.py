"""`rankscope doctor`: judgement of facts that are made up, and facts of the machine that runs the tests."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from rankscope import __version__
from rankscope.assemble.machine_memory import MemoryLimits
from rankscope.cli import run
from rankscope.commands import doctor, machine_facts
from rankscope.commands.machine_checks import MachineCheck, all_checks
from rankscope.commands.machine_facts import (
    FolderFacts,
    LimitFacts,
    MachineFacts,
    PolarsFacts,
    TerminalFacts,
    control_group,
    folder_facts,
    gathered,
)

UTF8 = {"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}
FREE = LimitFacts(None, 300, None, 1024, MemoryLimits(64 << 30), 8, 8)
FINE = MachineFacts(
    terminal=TerminalFacts(True, (120, 40), UTF8), limits=FREE, data=FolderFacts("dumps", "xfs", 1 << 40, True),
    cache=FolderFacts("/home/u/.cache/rankscope", "xfs", 1 << 40, True), polars=PolarsFacts(0, ""),
    versions={"rankscope": __version__, "torch": "2.13.0"}, python="3.12.1", machine="x86_64", py_spy="/bin/py-spy",
    ptrace_scope=0, is_root=False, watches=65536,
)  # fmt: skip


def troubles(**changes: Any) -> dict[str, MachineCheck]:
    """The checks that are not good, by name, of a fine machine with changes."""
    return {check.name: check for check in all_checks(dataclasses.replace(FINE, **changes)) if check.state != "good"}


def on_terminal(environment: Mapping[str, str], tmux: Mapping[str, str] | None = None) -> dict[str, MachineCheck]:
    return troubles(terminal=TerminalFacts(True, (120, 40), {**UTF8, **environment}, tmux or {}))


def test_a_fine_machine_has_no_trouble_and_good_checks_give_no_advice() -> None:
    assert troubles() == {}
    assert all(not check.better and check.value for check in all_checks(FINE))


@pytest.mark.parametrize(("size", "fits"), [((80, 24), True), ((79, 24), False), ((80, 23), False)])
def test_a_terminal_has_80_columns_and_24_lines(size: tuple[int, int], fits: bool) -> None:
    assert ("size" not in troubles(terminal=TerminalFacts(True, size, UTF8))) == fits


def test_few_colours_have_the_advice_for_where_they_come_from() -> None:
    assert "xterm-256color" in on_terminal({"TERM": "xterm"})["colours"].better
    settings = {"escape-time": "10", "set-clipboard": "on"}
    assert "tmux.conf" in on_terminal({"TERM": "screen", "TMUX": "/tmp/s"}, settings)["colours"].better
    assert on_terminal({"NO_COLOR": "1"}) == {}
    assert list(on_terminal({"LANG": "C"})) == ["characters"]


def test_settings_of_tmux_that_hold_keys_or_copies_back_are_named() -> None:
    slow = on_terminal({"TMUX": "/tmp/s"}, {"escape-time": "500", "set-clipboard": "external"})
    assert set(slow) == {"tmux escape-time", "tmux set-clipboard"}
    assert on_terminal({"TMUX": "/tmp/s"}, {"escape-time": "10", "set-clipboard": "on"}) == {}
    assert on_terminal({"TMUX": "/tmp/s"}) == {}
    assert list(on_terminal({"STY": "1.pts"})) == ["screen"]


def test_a_network_file_system_is_polled_and_a_local_one_is_not() -> None:
    for kind in ("nfs4", "lustre", "fuse.sshfs"):
        assert "looks every 2 s" in troubles(data=FolderFacts("dumps", kind, 1, True))["--watch"].value
    assert list(troubles(watches=100)) == ["--watch"]


def test_limits_are_held_against_what_rankscope_starts() -> None:
    tight = dataclasses.replace(
        FREE, processes=330, control_group_processes=20, open_files=64,
        memory=MemoryLimits(1 << 30, 1 << 30, 1 << 30, 1 << 30),
    )  # fmt: skip
    assert set(troubles(limits=tight)) == {
        "threads (ulimit -u)", "threads (cgroup)", "open files (ulimit -n)", "memory", "memory (cgroup)",
        "address space (ulimit -v)", "memory (RANKSCOPE_MEMORY)",
    }  # fmt: skip
    assert troubles(limits=dataclasses.replace(FREE, processes=4096, control_group_processes=4096)) == {}


def test_the_entries_that_fit_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checks = {check.name: check for check in all_checks(FINE)}
    assert checks["entries of dumps"].value.startswith("about 92,000,000 fit")
    monkeypatch.setenv("RANKSCOPE_MEMORY", "much")
    wrong = {check.name: check for check in all_checks(gathered(tmp_path)) if check.state == "bad"}
    assert wrong["memory"].value == "RANKSCOPE_MEMORY='much' is no size; 4G is 4 GiB"


@pytest.mark.parametrize(
    ("facts", "value", "better"),
    [
        (PolarsFacts(0, "", ("avx2", "fma")), "lacks avx2, fma", "polars[rtcompat]"),
        (PolarsFacts(-signal.SIGILL, ""), "SIGILL", "polars[rtcompat]"),
        (PolarsFacts(1, "ImportError: no polars"), "ImportError: no polars", "--force-reinstall"),
    ],
)
def test_polars_that_cannot_run_is_broken(facts: PolarsFacts, value: str, better: str) -> None:
    check = troubles(polars=facts)["polars"]
    assert check.state == "bad" and value in check.value and better in check.better


def test_py_spy_needs_the_right_to_read_other_processes() -> None:
    assert "SYS_PTRACE" in troubles(ptrace_scope=1)["py-spy"].better
    assert troubles(ptrace_scope=1, is_root=True) == {}
    assert "pip install py-spy" in troubles(py_spy=None)["py-spy"].better


def test_a_cache_needs_room_and_the_right_to_write() -> None:
    assert "cannot be written" in troubles(cache=FolderFacts("/c", "xfs", 1 << 40, False))["folder"].value
    assert list(troubles(cache=FolderFacts("/c", "xfs", 1, True))) == ["folder"]


def test_words_of_the_environment_are_escaped() -> None:
    hostile = dataclasses.replace(FINE, terminal=TerminalFacts(True, (120, 40), {"TERM": "\x1b]0;x\x07", "LANG": "C"}))
    checks = all_checks(hostile)
    assert "\x1b" not in "\n".join(doctor.as_lines(checks))
    assert b"\\u001b" not in doctor.as_json(checks)


def test_each_trouble_stands_with_its_advice_and_is_counted() -> None:
    lines = list(
        doctor.as_lines(all_checks(dataclasses.replace(FINE, polars=PolarsFacts(0, "", ("avx2",)), watches=1)))
    )
    at = next(number for number, line in enumerate(lines) if line.startswith("  X"))
    assert "avx2" in lines[at] and "better: pip install" in lines[at + 1]
    assert "1 broken (X), 1 with advice (!)" in lines[-1]
    assert max(map(len, lines)) < 80


def test_a_blank_stands_between_a_name_and_its_value() -> None:
    checks = list(all_checks(FINE))
    words = [line.split() for line in doctor.as_lines(checks)]
    assert all(any(line[1 : 1 + len(name)] == name for line in words) for name in [one.name.split() for one in checks])


def test_an_empty_value_and_a_long_word_keep_their_line() -> None:
    lines = list(doctor.as_lines([MachineCheck("t", "empty", ""), MachineCheck("t", "long", "x" * 200)]))
    assert [line.split() for line in lines[1:3]] == [["ok", "empty"], ["ok", "long", "x" * 200]]


def test_facts_of_this_machine(tmp_path: Path) -> None:
    facts = gathered(tmp_path / "not" / "there", {"TERM": "vt100"})
    assert facts.polars == PolarsFacts(0, "")
    assert {"rankscope", "polars", "textual"} <= set(facts.versions)
    assert facts.limits.cores >= 1 and (facts.limits.running or 0) >= 1
    assert facts.data.free and facts.data.writable
    assert facts.terminal.environment == {"TERM": "vt100"}


def test_an_import_of_polars_that_ends_the_process_is_a_fact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    warning = (
        "Missing required CPU features.\n\nThe following required CPU features were not detected:\n    avx2, fma\n"
    )
    code = f"import sys; sys.stderr.write({warning!r}); import os; os.kill(os.getpid(), 4)"
    monkeypatch.setattr(machine_facts, "_IMPORT_POLARS", code)
    assert gathered(tmp_path).polars == PolarsFacts(-signal.SIGILL, "avx2, fma", ("avx2", "fma"))


def test_files_of_the_kernel_are_read(tmp_path: Path) -> None:
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    (root / "job").mkdir(parents=True)
    own.write_text("1:memory:/old\n0::/job\n")
    assert control_group(own, root) is None
    (root / "pids.max").write_text("max")
    assert control_group(own, root) == root
    (root / "job" / "pids.max").write_text("1000")
    assert control_group(own, root) == root / "job"
    assert folder_facts(tmp_path / "new").path == str(tmp_path / "new")


def test_the_command_prints_text_and_json(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["doctor", str(tmp_path)]) == 0
    text = capsysbinary.readouterr().out
    assert text.startswith(b"terminal\n") and b"file system" in text
    assert run(["doctor", str(tmp_path), "-f", "json"]) == 0
    told = orjson.loads(capsysbinary.readouterr().out)
    assert told["rankscope"] == __version__ and told["works"] is True
    assert {"topic", "name", "value", "state", "better"} == set(told["checks"][0])
    assert run(["doctor", str(tmp_path / "none")]) == 2
    assert b"No such file" in capsysbinary.readouterr().err
