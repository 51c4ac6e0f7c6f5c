"""Functions that are compiled again and again without anybody to accuse, compilations that fail, and runs of logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.features.compile.guards import guard_advice
from tests.builders import START_NS
from tests.compiler_logs import CompilerLog

HOUR_NS = 3600 * 10**9


def of_traces(folder: Path, logs: dict[str, CompilerLog]) -> Analysis:
    """The analysis of structured logs, by the ends of their names."""
    for name, log in logs.items():
        (folder / f"dedicated_log_torch_trace_{name}.log").write_bytes(log.text())
    return analyse(load([folder]))


def of_log(folder: Path, text: str, name: str = "job.log") -> Analysis:
    """The analysis of one log."""
    (folder / name).write_text(text)
    return analyse(load([folder]))


def compiled(rank: int, times: int, at_ns: int = START_NS) -> CompilerLog:
    """The log of a rank that compiles `block` so often."""
    log = CompilerLog(rank)
    for number in range(times):
        log.compile(f"0/{number}", at_ns=at_ns + number * 10**9)
    return log


def recompiles(rank: str, number: int, guard: str) -> str:
    """The lines of one recompilation, as TORCH_LOGS=recompiles writes them."""
    front = f"{rank}V1024 16:27:03.578000 70 torch/_dynamo/guards.py:2813] [3/{number}] [__recompiles]"
    return f"{front} Recompiling function step in /ws/net.py:150\n{front}     - 3/{number - 1}: {guard}\n"


def test_a_later_run_in_the_same_folder_is_judged_alone(tmp_path: Path) -> None:
    old = {f"rank_{rank}_a": compiled(rank, 6) for rank in range(4)}
    new = {f"rank_{rank}_b": compiled(rank, 1, START_NS + 3 * HOUR_NS) for rank in range(2)}
    analysis = of_traces(tmp_path, {**old, **new})
    assert not analysis.findings and analysis.verdict.startswith("compiler logs of 2 ranks: nobody compiles alone;")


def test_a_rank_that_begins_late_is_of_the_same_run(tmp_path: Path) -> None:
    logs = {"rank_0_a": compiled(0, 1), "rank_0_b": compiled(0, 1, START_NS + HOUR_NS)}
    logs["rank_1_b"] = compiled(1, 6, START_NS + HOUR_NS + 30 * 10**9)
    assert of_traces(tmp_path, logs).culprits == (1,)


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        (compiled(3, 1), "compiler log of rank 3: nothing is compiled again and again; it does not show"),
        (
            compiled(3, 9),
            "compiler log of rank 3: rank 3 recompiles block (net.py:6) again and again (at least 8 times",
        ),
        (CompilerLog(3), "compiler log of rank 3: without a compilation"),
    ],
)
def test_the_log_of_one_rank(tmp_path: Path, log: CompilerLog, verdict: str) -> None:
    log.lines = log.lines or ['V1126 17:50:33.1 1 torch/_dynamo/x.py:1] {"str": ["/ws/net.py", 1], "rank": 3}']
    analysis = of_traces(tmp_path, {"rank_3_a": log})
    assert analysis.verdict.startswith(verdict) and not analysis.suspects


def test_the_log_of_a_process_without_a_rank(tmp_path: Path) -> None:
    log = compiled(0, 1)
    log.lines = [line.replace(', "rank": 0', "") for line in log.lines]
    assert of_traces(tmp_path, {"x": log}).verdict.startswith("compiler log of 1 process without a known rank: nothing")


def test_all_ranks_that_recompile_are_told(tmp_path: Path) -> None:
    analysis = of_traces(tmp_path, {f"rank_{rank}_a": compiled(rank, 6) for rank in range(3)})
    assert "nobody compiles alone, but ranks 0-2 recompile block (net.py:6) again and again" in analysis.verdict
    (found,) = analysis.findings
    assert not found.candidates and "mark_dynamic" in found.next_steps[0]


def test_a_failed_compilation_names_its_rank_and_its_error(tmp_path: Path) -> None:
    failed = CompilerLog(2)
    failed.compile(
        fail_type="<class 'torch._dynamo.exc.BackendCompilerFailed'>", fail_reason="backend='x' raised:\nE: no"
    )
    analysis = of_traces(tmp_path, {"rank_0_a": compiled(0, 1), "rank_1_a": compiled(1, 1), "rank_2_a": failed})
    (found,) = analysis.findings
    assert found.kind == "compilation-failed" and found.candidates == (2,) and not analysis.culprits
    assert (
        found.title
        == "torch.compile fails on block (net.py:6) on rank 2: BackendCompilerFailed: backend='x' raised: E: no"
    )


@pytest.mark.parametrize("error", ["BackendCompilerFailed", "torch._inductor.exc.InductorError"])
def test_a_compilation_that_fails_on_all_ranks_suspects_nobody(tmp_path: Path, error: str) -> None:
    logs = {f"rank_{rank}_a": CompilerLog(rank) for rank in range(2)}
    for log in logs.values():
        log.compile(fail_type=error, fail_reason="no compiler")
    analysis = of_traces(tmp_path, logs)
    assert "fails on block (net.py:6) on ranks 0,1" in analysis.verdict and not analysis.suspects


def test_a_function_that_runs_uncompiled_is_no_failure(tmp_path: Path) -> None:
    log = CompilerLog(0)
    log.compile(fail_type="Unsupported", fail_reason="print")
    analysis = of_traces(tmp_path, {"rank_0_a": log, "rank_1_a": compiled(1, 1)})
    assert [f.severity for f in analysis.findings] == ["info"] and not analysis.suspects
    assert "nobody compiles alone; they do not show" in analysis.verdict


def test_the_limit_has_the_function_of_its_frame(tmp_path: Path) -> None:
    log = compiled(0, 3)
    log.compile("0/3", co_name=None, co_filename=None, co_firstlineno=None, fail_type="RecompileLimitExceeded")
    (tmp_path / "dedicated_log_torch_trace_rank_0_a.log").write_bytes(log.text())
    last = load([tmp_path]).compilations.select("what", "function", "path", "error").row(-1)
    assert last == ("limit", "block", "/ws/net.py", "RecompileLimitExceeded")


def test_logs_that_hold_only_recompilations(tmp_path: Path) -> None:
    lines = "".join(recompiles(f"[rank{r}]:", n, f"L['stop'] == {n}") for n in range(1, 5) for r in (0, 1))
    analysis = of_log(tmp_path, lines)
    assert (
        "ranks 0,1 recompile step (net.py:150) again and again (at least 4 times): L['stop'] == 4" in analysis.verdict
    )
    assert not analysis.suspects and "integer" in analysis.findings[0].next_steps[0]


def test_a_process_without_a_rank_that_recompiles(tmp_path: Path) -> None:
    analysis = of_log(tmp_path, "".join(recompiles("", n, f"L['stop'] == {n}") for n in range(1, 5)))
    assert "a process recompiles step (net.py:150) again and again" in analysis.verdict


LIMIT = """[rank5]:W0110 12:27:06.3 158 torch/_dynamo/convert_frame.py:1551] [2/8]    function: 'polar' (/ws/opt.py:621)
[rank5]:W0110 12:27:06.3 158 torch/_dynamo/convert_frame.py:1551] [2/8]    last reason: 2/7: tensor 'X' size mismatch
[rank1]:W0110 12:27:06.4 158 torch/_dynamo/convert_frame.py:1551] [2/8] torch._dynamo hit config.recompile_limit (8)
[rank1]:W0110 12:27:06.4 158 torch/_dynamo/convert_frame.py:1551] [2/8]    function: 'polar' (/ws/opt.py:621)
[rank1]:W0110 12:27:06.4 158 torch/_dynamo/convert_frame.py:1551] [2/8]    last reason: 2/7: tensor 'X' size mismatch
"""


def test_a_rank_whose_first_line_of_the_limit_is_cut_off(tmp_path: Path) -> None:
    analysis = of_log(tmp_path, LIMIT)
    assert "ranks 1,5 recompile polar (opt.py:621) again and again (at least 8 times)" in analysis.verdict
    assert not analysis.suspects


@pytest.mark.parametrize("rank", ["", "[rank1]:"])
def test_an_exception_at_the_limit_without_its_traceback(tmp_path: Path, rank: str) -> None:
    warning = "".join(line.replace("[rank1]:", rank) for line in LIMIT.splitlines(keepends=True)[2:])
    error = "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with fullgraph=True. Excessive\n"
    analysis = of_log(tmp_path, f"{warning}\n{rank}{' ' if rank else ''}{error}")
    assert analysis.status == "failed" and analysis.culprits == ((1,) if rank else ())
    assert "recompile limit of torch.compile hit" in analysis.verdict and "polar (opt.py:621)" in analysis.verdict
    assert any("size mismatch" in e.text for e in analysis.findings[0].evidence)


def test_an_exception_of_the_compiler_without_its_traceback(tmp_path: Path) -> None:
    text = "step 3\ntorch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nRuntimeError: no gcc\n"
    text += "\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace\n"
    analysis = of_log(tmp_path, text)
    assert analysis.status == "failed"
    assert "BackendCompilerFailed: backend='inductor' raised: RuntimeError: no gcc (job.log:2)" in analysis.verdict


@pytest.mark.parametrize(
    ("guard", "word"),
    [
        ("tensor 'L['x']' size mismatch at index 2. expected 4, actual 5", "mark_dynamic"),
        ("tensor 'x' stride mismatch at index 0. expected 8, actual 1", "contiguous"),
        ("tensor 'x' dtype mismatch. expected Float, actual Half", "one type"),
        ("L['end'] == 11", "integer"),
        ("L['self'].lr == 0.001", "float"),
        ("L['mode'] == 'train'", "flag or a text"),
        ("len(L['xs']) == 3", "number of entries"),
        ("___check_obj_id(L['self'].act, 140212)", "another object"),
        ("GLOBAL_STATE changed: grad_mode", "global state"),
        ("something of tomorrow", "recompiles_verbose"),
    ],
)
def test_each_guard_has_its_advice(guard: str, word: str) -> None:
    assert word in guard_advice(guard)


_RECOMPILES = "V0703 10:34:13.273000 14 torch/_dynamo/guards.py:2590] [{}/1] [__recompiles] {}\n"
_BY_GUARD = "[2023-04-13 21:42:57,808] torch._dynamo.convert_frame.__recompiles: [DEBUG] "
_AT_LIMIT = "W0930 08:14:56.601000 22 torch/_dynamo/convert_frame.py:1016] [0/1] "


def test_functions_that_are_compiled_again_once_or_twice_are_a_note(tmp_path: Path) -> None:
    guard = "    - 0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"
    lines = [(0, "Recompiling function f in /d/b.py:3"), (0, guard), (1, "Recompiling function g in /d/b.py:9")]
    (tmp_path / "a.log").write_text("".join(_RECOMPILES.format(*line) for line in lines))
    analysis = analyse(load([tmp_path]))
    assert [(one.kind, one.severity) for one in analysis.findings] == [("few-recompilations", "info")]
    title = analysis.findings[0].title
    assert "2 functions, first f (b.py:3) again, once" in title and "expected 4" in title


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "".join(
                f"{_BY_GUARD}('Recompiling function step in /d/kf.py', "
                f"\"triggered by the following guard failure: L['t'] == {n}\")\n"
                for n in range(4)
            ),
            "step (kf.py) again and again (at least 4 times): L['t'] == 3",
        ),
        (
            "[2023-04-13 21:42:57,808] torch._dynamo.convert_frame: [WARNING] "
            "torch._dynamo hit config.cache_size_limit (64)\n"
            "   function: 'toy' (example.py:5)\n   reasons:  ['___guarded_code.valid']\n",
            "toy (example.py:5) up to its limit: ___guarded_code.valid",
        ),
        (
            f"{_AT_LIMIT}torch._dynamo hit config.recompile_limit (1)\n"
            f"{_AT_LIMIT}   function: 'fn' (/h/re.py:14)\n{_AT_LIMIT}   last reason: 0/0: \n",
            "fn (re.py:14) up to its limit (at least 1 time)",
        ),
    ],
)
def test_lines_of_torch_2_0_and_limits_of_one(lines: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(lines)
    titles = [one.title for one in analyse(load([tmp_path])).findings]
    assert titles == [f"a process recompiles {words}"]
