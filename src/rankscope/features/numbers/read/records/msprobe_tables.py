"""Files that lie beside a dump.json of msprobe (stack.json, construct.json), and tables of its monitor.

stack.json: {"0": [[names], [lines]]}, older {name: [lines]}; a line is "File f, line 3, in g, \\n code", innermost
first. construct.json: {name: name of the module around it}, newer [name, level]; null at the top. It is only counted:
names of modules hold their parents.

Header: "vpp_stage,name,step[,micro_step],min,max,mean,norm,nans,shape,dtype", or with module_name and scope; six
decimals. The name of the file says what its rows are ("grad_reduced_0-99.csv"): `MONITOR_SITES`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from rankscope.features.numbers.read.model import NumbersContent
from rankscope.features.numbers.read.records.record_rows import (
    LARGEST,
    RecordRows,
    count_of,
    real,
    short_dtype,
    sizes_of,
    statistics,
)
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.safe_values import safe_text

MOST_FRAMES = 64
"""Most frames of a stack that are kept, the innermost ones."""
_OWN = "site-packages/msprobe/"
"""Part of the path of the tool's own frames, which are left out."""
_LINE = re.compile(r"File (.{1,1024}?), line (\d{1,9}), in ([^,\n]{1,256})")


@dataclass
class StackDocument:
    """Stacks of entries of a dump.json by name."""

    stacks: list[list[StackFrame]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """The place of the stack of each entry."""
    others: int = 0
    """Entries without a stack."""
    problem: str | None = None

    @property
    def rows(self) -> int:
        """The number of entries."""
        return len(self.places) + self.others

    def header(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        return {
            "stacks": [[list(frame) for frame in one] for one in self.stacks], "places": self.places,
            "others": self.others, "problem": self.problem, "is_stack_document": True,
        }  # fmt: skip

    def body(self) -> list[memoryview]:
        """No arrays."""
        return []


def stack_document_from(header: dict[str, Any]) -> StackDocument:
    """The content whose `header()` this is."""
    stacks = [[StackFrame(*frame) for frame in one] for one in header["stacks"]]
    return StackDocument(stacks, header["places"], header["others"], header["problem"])


def decode_stack_document(data: bytes) -> StackDocument:
    """The stacks of a stack.json, or the number of entries of a construct.json. Raises NotThisKindError without any."""
    try:
        told = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotThisKindError(f"a file of msprobe that cannot be read, or is cut off: {error}") from error
    if not isinstance(told, dict):
        raise NotThisKindError("a file of msprobe that holds no mapping")
    found = StackDocument()
    for names, value in _named(told):
        if isinstance(value, list) and all(isinstance(one, str) and one.startswith("File ") for one in value):
            frames = [frame for line in value[:MOST_FRAMES] if (frame := _frame(line)) is not None]
            found.places.update(dict.fromkeys(names, len(found.stacks)))
            found.stacks.append(frames)
        else:
            found.others += len(names)
    return found


def _named(told: dict[str, Any]) -> Iterator[tuple[list[str], Any]]:
    """Values with the names of their entries."""
    for key, value in told.items():
        if key.isdigit() and isinstance(value, list) and len(value) == 2 and isinstance(value[0], list):
            yield [safe_text(name) or "" for name in value[0] if isinstance(name, str)], value[1]
        else:
            yield [safe_text(key) or ""], value


def _frame(line: str) -> StackFrame | None:
    match = _LINE.match(line)
    own = match is not None and _OWN in match[1]
    return (
        None
        if match is None or own
        else StackFrame(safe_text(match[3]) or "", safe_text(match[1]) or "", int(match[2]))
    )


TOOL = "msprobe-monitor"
NO_SITE, NO_SLOT = "(by the file's name)", "(by the file's name) slot"
"""Texts in place of a site and a slot that only the name of the file tells."""
MONITOR_SITES = (
    ("actv_grad", "backward", "in0"), ("actv", "forward", "out0"), ("module", "forward", "out0"),
    ("grad_unreduced", "gradient", "in0"), ("grad_reduced", "gradient", "out0"), ("grad_acc", "gradient", "in0"),
    ("weight_grad", "gradient", "in0"), ("param_updated", "optimizer", "out0"), ("param", "parameter", "in0"),
    ("exp_avg_sq", "optimizer", "exp_avg_sq"), ("exp_avg", "optimizer", "exp_avg"),
    ("optimizer", "optimizer", "exp_avg"), ("cc", "collective", "out0"),
)  # fmt: skip
"""Beginnings of the names of files, and the site and slot of their rows; the first that fits."""
_SCOPES = {
    "unreduced": ("gradient", "in0"), "reduced": ("gradient", "out0"), "input": ("forward", "in0"),
    "output": ("forward", "out0"), "output_grad": ("backward", "in0"), "input_grad": ("backward", "out0"),
    "exp_avg": ("optimizer", "exp_avg"), "exp_avg_sq": ("optimizer", "exp_avg_sq"),
    "efxp_avg": ("optimizer", "exp_avg"), "param_origin": ("parameter", "in0"), "param_updated": ("optimizer", "out0"),
}  # fmt: skip
_SUFFIX = re.compile(r"(.+)\.(output_grad|input_grad|input|output)(?:\.(\d{1,6}))?$")
_NUMBER = re.compile(r"\d{1,12}")


def decode_monitor_table(data: bytes) -> NumbersContent:
    """The rows of a table. Raises NotThisKindError without a name and a step in its header."""
    rows = RecordRows(TOOL)
    reader = csv.DictReader(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", "replace", newline=""))
    header = reader.fieldnames or []
    if "step" not in header or not {"name", "module_name"} & set(header):
        raise NotThisKindError("a table of msprobe's monitor without names or steps")
    try:
        for row in reader:
            if columns := _columns(row):
                rows.add(reader.line_num, **columns)
            else:
                rows.lost["rows without a name or step"] += 1
    except csv.Error as error:
        rows.ends = [f"the rest cannot be read ({error})"]
    return rows.content()


def _columns(row: dict[str, Any]) -> dict[str, Any] | None:
    """The columns of one row; None without a name or a step."""
    name, step = row.get("module_name") or row.get("name"), row.get("step") or ""
    if not name or not _NUMBER.fullmatch(step):
        return None
    micro = row.get("micro_step") or ""
    shape = sizes_of([int(n) for n in _NUMBER.findall(row.get("shape") or "")]) if row.get("shape") else None
    count, nans = count_of(shape), real(row.get("nans"))
    told: dict[str, Any] = {
        "step": int(step), "shape": shape, "numel": count, "dtype": short_dtype(row.get("dtype")),
        "micro": int(micro) if _NUMBER.fullmatch(micro) and int(micro) < 1 << 31 else None,
        "nan": int(nans) if nans is not None and 0 <= nans < LARGEST else None,
    }  # fmt: skip
    low, high, mean, norm = (real(row.get(key)) for key in ("min", "max", "mean", "norm"))
    return told | _site(name, row.get("scope") or "") | statistics(low, high, mean, norm, count)


def _site(name: str, scope: str) -> dict[str, Any]:
    """Name, site and slot: by the scope, else by the end of the name, else by the name of the file."""
    match = _SUFFIX.fullmatch(name)
    if scope in _SCOPES:
        site, slot = _SCOPES[scope]
    elif match is not None:
        site, slot = _SCOPES[match[2]]
        name, slot = match[1], f"{slot[:-1]}{match[3] or 0}"
    else:
        site, slot = NO_SITE, NO_SLOT
    return {"name": name, "site": site, "slot": slot}
