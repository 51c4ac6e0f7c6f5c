"""Tables of msprobe's monitor: CSV with a row for each module, gradient, parameter or collective of a step.

Header: "vpp_stage,name,step[,micro_step],min,max,mean,norm,nans,shape,dtype", or with module_name and scope; six
decimals. The name of the file says what its rows are ("grad_reduced_0-99.csv"): `MONITOR_SITES`.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.numbers.model import NumbersContent
from rankscope.parsers.numbers.records.record_rows import (
    LARGEST,
    RecordRows,
    count_of,
    real,
    short_dtype,
    sizes_of,
    statistics,
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
