"""`graph-breaks`: places where torch.compile splits a function, how often, why, and what keeps it whole.

Nobody is accused: a split function is slower, and fails nobody.
"""

from __future__ import annotations

import re
from typing import Any

import orjson
import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Evidence, Finding
from rankscope.features.compile.recompiling import FunctionPlace
from rankscope.text.wording import duration, plural, ranks_text

KIND = "graph-breaks"
BREAK = "graph-break"
MOST_PLACES = 5
RESUMED = "torch_dynamo_resume_in_"
"""How torch.compile calls the function behind a break."""
_TEXT = (
    "torch.compile makes a graph of its own before and behind each such place, and Python runs between them: more and "
    "smaller kernels, and more to compile."
)
# fmt: off
_ADVICE = tuple((re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in (
    (r"data.dependent (?:branching|jump)|generic_jump|control flow",
     "Replace a branch on the value of a tensor by torch.where or torch.cond."),
    (r"data.dependent operator|_local_scalar_dense|Tensor\.item|\.tolist|dynamic shape operator|nonzero|masked_select",
     "Keep .item(), .tolist() and operators whose output depends on values out of the compiled function, or set "
     "torch._dynamo.config.capture_scalar_outputs (capture_dynamic_output_shape_ops for nonzero)."),
    (r"\.backward\(\)|autograd\.grad",
     "Compile the forward alone and call .backward() outside of it, or use compiled autograd."),
    (r"disable\(\)",
     "The function is excluded by torch.compiler.disable: call it outside of the compiled one, if the split costs."),
    (r"graph_break\(\)", "Remove the call of torch._dynamo.graph_break()."),
    (r"print|logging|logger|warnings?\.warn|reorderable",
     "Take printing and logging out of the compiled function, or list it in "
     "torch._dynamo.config.reorderable_logging_functions."),
    (r"skipp?ed|skipfiles|skip function|C/C\+\+|builtin|C function|custom op|pybind",
     "Wrap code that torch.compile cannot trace as torch.library.custom_op, or call it outside."),
))
# fmt: on
_DEFAULT = "fullgraph=True makes the first break an error that tells the reason and the stack."


def graph_breaks(facts: Facts) -> list[Finding]:
    """One finding on all places where functions are split, the most often split first; none without any."""
    breaks = facts.dataset.compilations.filter(pl.col("what") == BREAK)
    if breaks.is_empty():
        return []
    places = (
        breaks.group_by("path", "code_line", maintain_order=True)
        .agg(
            pl.len().alias("times"), pl.col("rank").drop_nulls().unique().sort().alias("ranks"),
            pl.col("reason").filter(pl.col("reason") != "").first(), pl.col("file").first(), pl.col("line").first(),
        )
        .sort("times", descending=True, maintain_order=True)
    )  # fmt: skip
    ranks = tuple(sorted(set(breaks["rank"].drop_nulls().to_list())))
    first = places.row(0, named=True)
    where = plural(places.height, "place")
    often = "" if breaks.height == places.height else f", {breaks.height:,} times"
    most = "first" if first["times"] == places["times"].min() else "most often"
    reasons = [reason for reason in places["reason"].to_list() if reason]
    return [
        Finding(
            kind=KIND,
            severity="info",
            title=f"torch.compile splits its graphs at {where}{often}, {most} {_place_text(first)}",
            explanation=" ".join(filter(None, (_TEXT, _resumed(facts), _restarts(facts)))),
            about=ranks,
            confidence="high",
            evidence=tuple(_evidence(facts, row) for row in places.head(MOST_PLACES).iter_rows(named=True)),
            next_steps=tuple(dict.fromkeys(break_advice(reason) for reason in reasons or [""]))[:3],
        )
    ]


def break_advice(reason: str) -> str:
    """The change that keeps a graph whole; for an unknown reason, the way to learn more."""
    return next((advice for pattern, advice in _ADVICE if pattern.search(reason)), _DEFAULT)


def _place_text(row: dict[str, Any]) -> str:
    code = FunctionPlace("", row["path"], row["code_line"]).line
    return f"{f'at {code}' if code else 'at an untold line'}{': ' + row['reason'] if row['reason'] else ''}"


def _evidence(facts: Facts, row: dict[str, Any]) -> Evidence:
    paths = dict(facts.dataset.files.select("file", "path").iter_rows())
    who = f" on {ranks_text(row['ranks'])}" if row["ranks"] else ""
    rank = row["ranks"][0] if len(row["ranks"]) == 1 else None
    return Evidence(
        f"{plural(row['times'], 'break')} {_place_text(row)}{who}", paths.get(row["file"]), rank, line=row["line"]
    )


def _resumed(facts: Facts) -> str:
    """The time of compiling what stands behind breaks, where it is recorded."""
    behind = facts.dataset.compilations.filter(pl.col("function").str.starts_with(RESUMED))
    spent = behind["duration_ns"].sum()
    if behind.is_empty() or not isinstance(spent, int) or not spent:
        return ""
    return f"Compiling what stands behind breaks took {duration(spent)} ({plural(behind.height, 'compilation')})."


def _restarts(facts: Facts) -> str:
    """How often tracing started again, where a log tells it."""
    values = facts.dataset.messages.filter(pl.col("kind") == BREAK)["values"]
    count = sum(orjson.loads(text).get("what") == "restart" for text in values)
    return f"Tracing started again {plural(count, 'time')}." if count else ""
