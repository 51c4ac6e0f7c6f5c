"""Text of `DebugMode.debug_string()` of torch, saved to a file: a line for each operation.

"aten::mm(t: f32[2, 3], t: f32[3, 4])  ->  t: f32[2, 4]  # {'input_hash': ((6.0, 2.5), {}), 'hash': 13.9}". Modules
stand as "[nn.Mod] Net.fc" above what they call, which is indented deeper; "# File: f:3 in g, code: ..." is the line of
Python. Hashes are L1 norms in float64, or those of torch.hash_tensor, which are integers.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.numbers.model import NumbersContent
from rankscope.parsers.numbers.records.activation_logs import hash_columns
from rankscope.parsers.numbers.records.record_rows import UNSET, RecordRows, count_of, sizes_of
from rankscope.parsers.safe_values import safe_text

TOOL = "DebugMode"
_TENSOR = re.compile(r"(?<![\w.])(?:dt|ft|t)(?:\$\d{1,12})?: ([a-z]\w{0,16})\[([\d, ]{0,200})\]")
_CALL = re.compile(r"(\s*)([A-Za-z_]\w{0,60}::[\w.]{1,200})\((.*)")
_MODULE = re.compile(r"(\s*)\[nn\.Mod\] (\S.{0,400})")
_PLACE = re.compile(r"\s*# File: (.{1,1024}?):(\d{1,9}) in ([\w.<>]{1,256}), code:")
_TOKEN = re.compile(r"(?<![\w.])-?(?:\d+\.\d*(?:e[+\-]?\d{1,4})?|\d+e[+\-]?\d{1,4}|nan|inf|\d+)(?![\w.])")
LONGEST_LINE = 1 << 16
MOST_TENSORS = 256
"""Most tensors of one operation."""
OPS = {
    "allreduce_": "all_reduce", "all_reduce": "all_reduce", "all_reduce_": "all_reduce", "allgather_": "all_gather",
    "_allgather_base_": "all_gather", "all_gather_into_tensor": "all_gather", "broadcast_": "broadcast",
    "broadcast": "broadcast", "reduce_scatter_": "reduce_scatter", "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter", "alltoall_": "all_to_all", "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
}  # fmt: skip
"""Names of operations of torch.distributed, by the name of torch's dispatcher."""


def decode_debug_text(data: bytes) -> NumbersContent:
    """The operations of a text. Raises NotThisKindError without any."""
    rows, stacks, counts = RecordRows(TOOL), dict[int, StackFrame](), Counter[str]()
    modules: list[tuple[int, str]] = []
    place = 0
    for number, raw in enumerate(io.BytesIO(data), 1):
        line = raw.decode("utf-8", "replace").rstrip("\r\n") if len(raw) <= LONGEST_LINE else ""
        if (called := _CALL.match(line)) is not None:
            while modules and modules[-1][0] >= len(called[1]):
                modules.pop()
            name = f"{modules[-1][1]}/{called[2]}" if modules else called[2]
            told = {"name": name, "occurrence": counts[name], "stack_id": place or None}
            counts[name] += 1
            _add_call(rows, number, called[2], called[3], told)
        elif (module := _MODULE.match(line)) is not None:
            modules = [one for one in modules if one[0] < len(module[1])] + [(len(module[1]), module[2])]
        elif (found := _PLACE.match(line)) is not None:
            place = number
            stacks[number] = StackFrame(safe_text(found[3]) or "", safe_text(found[1]) or "", int(found[2]))
    content = rows.content(stacks=stacks)
    if not content.rows:
        raise NotThisKindError("a text of DebugMode that holds no tensor")
    return content


def _add_call(rows: RecordRows, line: int, op: str, rest: str, told: dict[str, Any]) -> None:
    """Adds the inputs and outputs of one operation."""
    if UNSET.search(op):
        return
    call, _, log = rest.partition("  # {")
    before, _, after = call.partition("  ->  ")
    inside, _, given = log.rpartition("'hash': ")
    library, _, word = op.partition("::")
    if library in ("c10d", "_c10d_functional") and (known := OPS.get(word.partition(".")[0])) is not None:
        told = told | {"site": "collective", "op": known, "name": ""}
    else:
        told = told | {"site": "forward"}
    for slot, text, hashes in (("in", before, inside), ("out", after, given)):
        tensors = _TENSOR.findall(text)[:MOST_TENSORS]
        marks = list(_marks(hashes, len(tensors)))
        for number, (dtype, sizes) in enumerate(tensors):
            shape = sizes_of([int(n) for n in re.findall(r"\d{1,15}", sizes)])
            mark = hash_columns(marks[number][1]) if marks and marks[number][0] == "l1" else {}
            own = mark or ({"md5": f"xor:{marks[number][1]}"} if marks else {})
            rows.add(line, **told, slot=f"{slot}{number}", dtype=dtype, shape=shape, numel=count_of(shape), **own)


def _marks(text: str, count: int) -> Iterator[tuple[str, str]]:
    """The kind and text of a hash for each of `count` tensors; none where it cannot be told which is whose.

    Numbers with a point are norms, those without are of torch.hash_tensor; with both kinds the exact one is taken, but
    for a norm that is not finite.
    """
    tokens = _TOKEN.findall(text)
    whole = [one for one in tokens if one.lstrip("-").isdigit()]
    norms = [one for one in tokens if not one.lstrip("-").isdigit()]
    for number in range(count):
        norm = norms[number] if len(norms) == count else None
        if norm is not None and (len(whole) != count or norm.lstrip("-") in ("nan", "inf")):
            yield "l1", norm
        elif len(whole) == count:
            yield "xor", whole[number]
        else:
            return
