"""Graph breaks: where, how often, why and at what cost, from logs and structured logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.assemble.load import load
from rankscope.features.compile.graph_breaks import break_advice
from tests.compiler_logs import CompilerLog
from tests.features.compile.test_recompiling import of_log, of_traces, recompiles

HEAD = "V0120 22:19:48.783000 2343082 site-packages/torch/_dynamo/symbolic_convert.py:611]"
STEP = "I0120 22:19:40.1 2343082 site-packages/torch/_dynamo/symbolic_convert.py:5335]"
RESTART = "I0120 22:19:41.1 2343082 torch/_dynamo/convert_frame.py:1602] [1/0] Restarting analysis due to x.py:277 in f"
OLD = "[2023-10-04 16:31:40,313] torch._dynamo.symbolic_convert: [INFO]"


def broken(place: str, reason: str, frame: str = "0/0") -> str:
    """The lines of a break, as TORCH_LOGS=graph_breaks writes them."""
    front = f"{HEAD} [{frame}] [__graph_breaks]"
    return (
        f"{front} Graph break in user code at {place}\n{front} Graph Break Reason: {reason}\n"
        f"{front}   Hint: This graph break is fundamental.\n{front} User code traceback:\n"
        f'{front}   File "/ws/net.py", line 8, in forward\n'
    )


def test_breaks_are_told_with_place_number_and_reason(tmp_path: Path) -> None:
    backward, item = "Unsupported Tensor.backward() call", "Data dependent operator"
    text = broken("/ws/train.py:62", backward) + 3 * broken("/ws/net.py:102", item, "1/0")
    analysis = of_log(tmp_path, text)
    assert analysis.verdict == (
        "no failure in these logs; torch.compile splits its graphs at 2 places, 4 times, most often at net.py:102: "
        "Data dependent operator"
    )
    (found,) = analysis.findings
    assert (found.kind, found.severity, analysis.culprits, found.candidates) == ("graph-breaks", "info", (), ())
    assert [one.text for one in found.evidence] == [
        f"3 breaks at net.py:102: {item}", f"1 break at train.py:62: {backward}"
    ]  # fmt: skip
    assert "capture_scalar_outputs" in found.next_steps[0] and ".backward()" in found.next_steps[1]


def test_a_break_with_its_stack_is_no_failure(tmp_path: Path) -> None:
    front = "V1112 13:10:18.379000 52923 torch/_dynamo/convert_frame.py:1282] [5/0] [__graph_breaks]"
    lines = (
        "Graph break: skip: from user code at:", '  File "/ws/common.py", line 85, in _hook', "    if not ok:",
        '  File "/ws/tensor_specs.py", line 2263, in is_in', "    bounds = (val >= low).all() and (",
        "Traceback (most recent call last):",
        '  File "/venv/torch/_dynamo/convert_frame.py", line 1232, in __call__', "    result = self._inner_convert(",
        "torch._dynamo.exc.Unsupported: generic_jump TensorVariable()",
    )  # fmt: skip
    analysis = of_log(tmp_path, "".join(f"{front} {line}\n" for line in lines))
    assert analysis.verdict == (
        "no failure in these logs; torch.compile splits its graphs at 1 place, first at tensor_specs.py:2263: "
        "generic_jump TensorVariable()"
    )
    old = "[2024-02-06 10:32:24,334] [0/0] torch._dynamo.symbolic_convert.__graph_breaks: [DEBUG]"
    analysis = of_log(tmp_path, "".join(f"{old} {line}\n" for line in lines))
    assert [one.kind for one in analysis.findings] == ["graph-breaks"]


def test_frames_below_a_told_place_do_not_move_it(tmp_path: Path) -> None:
    assert "first at train.py:62: print" in of_log(tmp_path, broken("/ws/train.py:62", "print")).verdict


def test_the_limit_on_windows_tells_its_function(tmp_path: Path) -> None:
    front = "W1029 21:16:44.769000 20836 Lib\\site-packages\\torch\\_dynamo\\convert_frame.py:844] [1/8]"
    lines = (
        "torch._dynamo hit config.cache_size_limit (8)", "   function: 'forward' (G:\\ui\\dit\\joint.py:320)",
        "   last reason: 1/0: L['packed']['max_seqlen'] == 31868",
    )  # fmt: skip
    analysis = of_log(tmp_path, "".join(f"{front} {line}\n" for line in lines))
    assert "recompiles forward (joint.py:320) again and again (at least 8 times): L['packed']" in analysis.verdict


def test_structured_logs_tell_what_breaks_cost(tmp_path: Path) -> None:
    log = CompilerLog(1)
    log.compile()
    log.lines += [
        'V1126 17:50:33.1 1 torch/_dynamo/x.py:1] {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "s"}, '
        '"rank": 1, "frame_id": 0, "frame_compile_id": 0, "has_payload": "x"}',
        "\tGraph break in user code at /ws/net.py:9",
        "\tReason: Data-dependent branching",
    ]
    log.compile("1/0", co_name="torch_dynamo_resume_in_block_at_9", duration_us=1_500_000)
    analysis = of_traces(tmp_path, {"rank_1_a": log})
    assert "splits its graphs at 1 place, first at net.py:9: Data-dependent branching" in analysis.verdict
    assert "Compiling what stands behind breaks took 1.5 s (1 compilation)" in analysis.findings[0].explanation


def test_breaks_stand_behind_what_is_worse(tmp_path: Path) -> None:
    lines = "".join(recompiles("", n, f"L['stop'] == {n}") for n in range(1, 5))
    analysis = of_log(tmp_path, broken("/ws/net.py:102", "print") + lines)
    assert [one.kind for one in analysis.findings] == ["recompilation", "graph-breaks"]
    assert "recompile" in analysis.verdict and "splits" not in analysis.verdict


def test_logs_of_dynamo_tell_compilations_recompilations_and_restarts(tmp_path: Path) -> None:
    lines = [f"{STEP} [0/0] Step 1: torchdynamo start tracing block /ws/net.py:16", RESTART]
    lines += [f"{STEP} [0/{n}] Step 1: torchdynamo start tracing block /ws/net.py:16" for n in range(1, 5)]
    lines += [f"{STEP} [0/4_1] Step 1: torchdynamo start tracing block /ws/net.py:16"]
    (tmp_path / "job.log").write_text("\n".join(lines) + "\n" + broken("/ws/net.py:18", "print"))
    dataset = load([tmp_path])
    rows = dataset.compilations.select("what", "compile_id", "function", "code_line").rows()
    assert rows[:-1] == [
        ("compile", "0/0", "block", 16), *(("recompile", f"0/{n}", "block", 16) for n in range(1, 5))
    ]  # fmt: skip
    analysis = of_log(tmp_path, (tmp_path / "job.log").read_text())
    assert "recompiles block (net.py:16) again and again (at least 4 times)" in analysis.verdict
    assert "Tracing started again 1 time." in analysis.findings[-1].explanation


def test_a_recompilation_with_its_guard_is_counted_once(tmp_path: Path) -> None:
    lines = "".join(
        recompiles("", n, f"L['stop'] == {n}")
        + f"{STEP} [3/{n}] Step 1: torchdynamo start tracing step /ws/net.py:150\n"
        for n in range(1, 5)
    )
    assert "(at least 4 times): L['stop'] == 4" in of_log(tmp_path, lines).verdict


def test_logs_of_dynamo_before_places_were_written(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        "".join(f"{OLD} Step 1: torchdynamo start tracing {name}\n" for name in ("forward", "pos_encoding"))
    )
    assert load([tmp_path]).compilations["function"].to_list() == ["forward", "pos_encoding"]


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("Data-dependent branching", "torch.where"),
        ("generic_jump TensorVariable()", "torch.cond"),
        ("Skip calling `torch.compiler.disable()`d function", "torch.compiler.disable"),
        ("Call to `torch._dynamo.graph_break()`", "Remove the call"),
        ("call_function BuiltinVariable(print) [ConstantVariable(str)] {}", "reorderable_logging_functions"),
        ("Attempted to call function marked as skipped", "custom_op"),
        ("something new", "fullgraph=True"),
    ],
)
def test_advice_by_reason(reason: str, advice: str) -> None:
    assert advice in break_advice(reason)
