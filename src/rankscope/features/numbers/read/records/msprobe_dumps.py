r"""Files of msprobe: dump.json, the stacks and modules that lie beside it, and tables of its monitor.

dump.json has statistics of the inputs and outputs of modules and operations, in the order of the program. Names, in
both orders of the last two parts: "Module.layers.0.Linear.forward.0", "Functional.conv2d.0.forward",
"Distributed.all_reduce.0.forward", "Module.layers.0.Linear.parameters_grad". The arguments are written before the call,
and behind it all arguments again as the output: positional ones first, then those by name. An asynchronous call is
written when the job waits for it.

stack.json: {"0": [[names], [lines]]}, older {name: [lines]}; a line is "File f, line 3, in g, \n code", innermost
first. construct.json: {name: name of the module around it}, newer [name, level]; null at the top. It is only counted:
names of modules hold their parents.

Header of a table: "vpp_stage,name,step[,micro_step],min,max,mean,norm,nans,shape,dtype", or with module_name and scope;
six decimals. The name of the file says what its rows are ("grad_reduced_0-99.csv"): `MONITOR_SITES`.
"""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import orjson

from rankscope.features.numbers.read.model import DEFAULT_GROUP, NumbersContent, NumbersGroup
from rankscope.features.numbers.read.records.record_rows import (
    LARGEST,
    UNSET,
    RecordRows,
    count_of,
    real,
    short_dtype,
    sizes_of,
    statistics,
)
from rankscope.parsers.contents import NotThisKindError, StackFrame
from rankscope.parsers.members import Members, shared_members
from rankscope.parsers.safe_values import RANK_LIMIT, rank_list, safe_text
from rankscope.text.wording import ranks_text

MOST_DEPTH = 4
"""Most lists in one another in which a group or a tensor is looked for."""
LONGEST_NAME = 60
"""Characters of the members in the name of a group."""


class CallForm(NamedTuple):
    """Arguments of a collective: name and position of what it reads, of what it gives, and of its root."""

    op: str
    read: tuple[str, int]
    given: tuple[str, int]
    root: tuple[str, int] | None = None


_OWN = ("tensor", 0)
CALLS = {
    "all_reduce": CallForm("all_reduce", _OWN, _OWN),
    "broadcast": CallForm("broadcast", _OWN, _OWN, ("src", 1)),
    "reduce": CallForm("reduce", _OWN, _OWN, ("dst", 1)),
    "all_gather": CallForm("all_gather", ("tensor", 1), ("tensor_list", 0)),
    "all_gather_into_tensor": CallForm("all_gather", ("input_tensor", 1), ("output_tensor", 0)),
    "_all_gather_base": CallForm("all_gather", ("input_tensor", 1), ("output_tensor", 0)),
    "gather": CallForm("gather", _OWN, ("gather_list", 1), ("dst", 2)),
    "scatter": CallForm("scatter", ("scatter_list", 1), _OWN, ("src", 2)),
    "reduce_scatter": CallForm("reduce_scatter", ("input_list", 1), ("output", 0)),
    "reduce_scatter_tensor": CallForm("reduce_scatter", ("input", 1), ("output", 0)),
    "_reduce_scatter_base": CallForm("reduce_scatter", ("input", 1), ("output", 0)),
    "all_to_all": CallForm("all_to_all", ("input_tensor_list", 1), ("output_tensor_list", 0)),
    "all_to_all_single": CallForm("all_to_all", ("input", 1), ("output", 0)),
}
SENDS, RECEIVES = ("send", "isend"), ("recv", "irecv")
_REDUCING = ("all_reduce", "reduce", "reduce_scatter")


class CallRow(NamedTuple):
    """A tensor of a call: its statistics, and the columns of the call."""

    tensor: dict[str, Any]
    columns: dict[str, Any]


class GroupCalls:
    """Groups of the calls of one file, and how often each was used for an operation."""

    def __init__(self) -> None:
        self.groups: dict[str, NumbersGroup] = {}
        self._counts: Counter[Hashable] = Counter()

    def rows(self, api: str, record: dict[str, Any]) -> Iterator[CallRow]:
        """The tensors of a call of `api`; without a group it uses the default group."""
        args, named = record.get("input_args"), record.get("input_kwargs")
        args, named = args if isinstance(args, list) else [], named if isinstance(named, dict) else {}
        ranks = _ranks_in([*args, *named.values()])
        group = DEFAULT_GROUP if ranks is None else _name(ranks)
        self.groups.setdefault(group, NumbersGroup(group, "", ranks or shared_members(())))
        after = _outputs(record, args, named)
        if api in (*SENDS, *RECEIVES):
            is_send = api in SENDS
            peer = _whole(_argument(args, named, ("dst" if is_send else "src", 1)))
            call: dict[str, Any] = {"site": "p2p", "op": "send" if is_send else "recv", "peer": peer, "group": group}
            call |= {"occurrence": self._count(group, is_send, peer), "slot": "in0" if is_send else "out0"}
            after = (args, named) if is_send else after
            if after is not None:
                yield from _pieces(_argument(*after, _OWN), call)
        elif (form := CALLS.get(api)) is not None:
            call = {"site": "collective", "op": form.op, "group": group, "occurrence": self._count(group, form.op)}
            if form.op in _REDUCING:
                call["reduce_op"] = _reduction([*args, *named.values()])
            if form.root is not None:
                call["root"] = _whole(_argument(args, named, form.root))
            yield from _pieces(_argument(args, named, form.read), call | {"slot": "in0"})
            if after is not None:
                yield from _pieces(_argument(*after, form.given), call | {"slot": "out0"})

    def _count(self, *key: Hashable) -> int:
        self._counts[key] += 1
        return self._counts[key] - 1


def _name(ranks: Members) -> str:
    """A name that says the members, and is another one for each order of them."""
    text = ranks_text(ranks)
    if len(text) <= LONGEST_NAME and tuple(ranks) == tuple(sorted(ranks)):
        return text
    return f"{ranks_text(ranks, LONGEST_NAME)} ({zlib.crc32(str(list(ranks)).encode()):08x})"


def _outputs(record: dict[str, Any], args: list[Any], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments after the call; None if the output is not that list."""
    out = record.get("output")
    if not isinstance(out, list) or len(out) != len(args) + len(named):
        return None
    return out[: len(args)], dict(zip(named, out[len(args) :], strict=True))


def _argument(args: list[Any], named: dict[str, Any], place: tuple[str, int]) -> Any:
    name, position = place
    return named[name] if name in named else args[position] if position < len(args) else None


def _pieces(value: Any, columns: dict[str, Any]) -> Iterator[CallRow]:
    """A tensor, or the slices of a list of them, one for each member."""
    if isinstance(value, dict) and "shape" in value:
        yield CallRow(value, columns)
    elif isinstance(value, list):
        for member, piece in enumerate(value[:RANK_LIMIT]):
            if isinstance(piece, dict) and "shape" in piece:
                yield CallRow(piece, columns | {"slice": member})


def _ranks_in(value: Any, depth: int = 0) -> Members | None:
    if isinstance(value, dict):
        return rank_list(value.get("group_ranks"))
    if isinstance(value, list) and depth < MOST_DEPTH:
        return next((ranks for part in value if (ranks := _ranks_in(part, depth + 1)) is not None), None)
    return None


def _reduction(arguments: list[Any]) -> str:
    """The reduction of a call: a sum, unless an argument says another."""
    for one in arguments:
        if isinstance(one, dict) and str(one.get("type", "")).endswith("ReduceOp"):
            return str(one.get("value", "")).rpartition(".")[2].lower()[:16] or "sum"
    return "sum"


def _whole(value: Any) -> int | None:
    number = value.get("value") if isinstance(value, dict) else value
    return number if type(number) is int and 0 <= number < RANK_LIMIT else None


TOOL = "msprobe"
_NOT_FINITE = re.compile(rb"(?<=[:\[,\s])(-?(?:NaN|Infinity))(?=\s*[,}\]])")
_NAME = re.compile(r"(.+)\.(?:(forward|backward)\.(\d{1,9})|(\d{1,9})\.(forward|backward))$")
_GRADIENTS = ".parameters_grad"
_WRITES = re.compile(r"(?:fill|zero|copy|normal|uniform|random|set|trunc_normal|constant)_$|^__setitem__$")
"""Operations that overwrite their first input, of which the old values mean nothing."""
_HASH = re.compile(r"[0-9a-fA-F]{8}|[0-9a-fA-F]{32}")
LARGEST_CALL = 16 << 20
"""Bytes of the largest entry that is read."""


class DumpDocument(msgspec.Struct):
    """The whole file; entries are read one by one."""

    data: dict[str, msgspec.Raw]
    task: str = ""
    level: str = ""


_DECODER = msgspec.json.Decoder(DumpDocument)
_INVALID = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def decode_dump_document(data: bytes) -> NumbersContent:
    """The tensors of a dump.json. Raises NotThisKindError for a file that is cut off, or holds something else."""
    if b"NaN" in data or b"Infinity" in data:
        data = _NOT_FINITE.sub(rb'"\1"', data)
    try:
        document = _DECODER.decode(data)
    except _INVALID as error:
        raise NotThisKindError(f"a dump.json of msprobe that cannot be read, or is cut off: {error}") from error
    rows, calls, groups = RecordRows(TOOL), [], GroupCalls()
    for number, (name, raw, line) in enumerate(_entries(data, document)):
        calls.append(name)
        _add_entry(rows, groups, CallEntry(name, line, number), raw)
        if rows.is_full:
            break
    return rows.content(groups.groups.values(), calls)


class CallEntry(NamedTuple):
    """Name of an entry, its line in the file, and its number, by which its stack is found."""

    name: str
    line: int
    number: int


def _entries(data: bytes, document: DumpDocument) -> Iterator[tuple[str, msgspec.Raw, int]]:
    """Names, contents and lines of the entries, in their order; after a name with escapes the line stays the last one:
    each search for one reads the whole file."""
    at, line = 0, 1
    for name, raw in document.data.items():
        found = data.find(b'"' + name.encode("utf-8", "replace") + b'"', at) if at >= 0 else -1
        if found < 0:
            at = -1
        else:
            line += data.count(b"\n", at, found)
            at = found
        yield name, raw, line


def _add_entry(rows: RecordRows, groups: GroupCalls, entry: CallEntry, raw: msgspec.Raw) -> None:
    """Adds the tensors of one entry."""
    try:
        record = msgspec.json.decode(raw) if len(memoryview(raw)) <= LARGEST_CALL else None
    except _INVALID:
        record = None
    if not isinstance(record, dict):
        rows.lost["entries that cannot be read"] += 1
        return
    facts: dict[str, Any] = {"stack_id": entry.number}
    if record.get("is_recompute") is True:
        facts["recompute"] = True
    if entry.name.endswith(_GRADIENTS):
        module = _module(entry.name.removesuffix(_GRADIENTS))
        firsts = {key: value[0] if isinstance(value, list) and value else value for key, value in record.items()}
        for key, tensor_of_key in _tensors(firsts):
            _add(rows, entry, tensor_of_key, facts | {"site": "gradient", "name": f"{module}.{key}", "slot": "in0"})
        return
    match = _NAME.fullmatch(entry.name)
    if match is None:
        rows.lost["entries with a name of another form"] += 1
        return
    kind, _, api = match[1].partition(".")
    facts["occurrence"] = min(int(match[3] or match[4]), (1 << 31) - 1)
    if kind == "Distributed":
        for tensor, columns in groups.rows(api, record):
            _add(rows, entry, tensor, facts | columns)
    elif kind in ("Module", "Cell"):
        module = _module(match[1])
        for key, tensor in _tensors(record.get("parameters")):
            _add(rows, entry, tensor, facts | {"site": "parameter", "name": f"{module}.{key}", "slot": "in0"})
        _add_flow(rows, entry, record, facts | {"name": module, "site": match[2] or match[5]})
    elif not UNSET.search(api):
        _add_flow(rows, entry, record, facts | {"name": match[1], "site": match[2] or match[5]}, _WRITES.search(api))


def _module(name: str) -> str:
    """The dotted name of a module, without "Module." and its class: "layers.0" of "Module.layers.0.Linear"."""
    return name.partition(".")[2].rpartition(".")[0]


def _add_flow(
    rows: RecordRows, entry: CallEntry, record: dict[str, Any], columns: dict[str, Any], writes: object = None
) -> None:
    """Adds inputs, then outputs; the backward pass has no arguments by name."""
    for key, slot in (("input_args", "in"), ("input_kwargs", "in_"), ("input", "in"), ("output", "out")):
        for place, tensor in _tensors(record.get(key)):
            if not writes or slot == "out":
                _add(rows, entry, tensor, columns | {"slot": slot + place})


def _tensors(value: Any, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tensors in nested lists and mappings, each with its place: "0", "0.1", "mask"."""
    if isinstance(value, dict) and "shape" in value and "dtype" in value:
        yield "0", value
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        if isinstance(part, dict) and "shape" in part and "dtype" in part:
            yield str(key), part
        elif isinstance(part, dict | list) and depth < MOST_DEPTH:
            yield from ((f"{key}.{place}", tensor) for place, tensor in _tensors(part, depth + 1))


def _add(rows: RecordRows, entry: CallEntry, tensor: dict[str, Any], columns: dict[str, Any]) -> None:
    """Adds a tensor with its statistics."""
    shape = sizes_of(tensor.get("shape"))
    count = count_of(shape)
    low, high, mean, norm = (real(tensor.get(key)) for key in ("Min", "Max", "Mean", "Norm"))
    rows.add(
        entry.line, **columns, dtype=short_dtype(tensor.get("dtype")), shape=shape, numel=count, md5=_mark(tensor),
        **statistics(low, high, mean, norm, count),
    )  # fmt: skip


def _mark(tensor: dict[str, Any]) -> str | None:
    """The tool's hash with its kind before it: "crc32:0a1b2c3d". Its key is "md5" for both kinds."""
    for key in ("md5", "xor"):
        text = tensor.get(key)
        if isinstance(text, str) and key == "xor" and 0 < len(text) <= 64:
            return f"xor:{text}"
        if isinstance(text, str) and _HASH.fullmatch(text):
            return f"{'crc32' if len(text) == 8 else 'md5'}:{text.lower()}"
    return None


MOST_FRAMES = 64
"""Most frames of a stack that are kept, the innermost ones."""
_OWN_FILES = "site-packages/msprobe/"
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
            "stacks": [[list(frame) for frame in one] for one in self.stacks],
            "places": self.places,
            "others": self.others,
            "problem": self.problem,
            "is_stack_document": True,
        }

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
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotThisKindError(f"a file of msprobe that cannot be read, or is cut off: {error}") from error
    if not isinstance(document, dict):
        raise NotThisKindError("a file of msprobe that holds no mapping")
    stacks = StackDocument()
    for names, value in _named(document):
        if isinstance(value, list) and all(isinstance(text, str) and text.startswith("File ") for text in value):
            frames = [frame for line in value[:MOST_FRAMES] if (frame := _frame(line)) is not None]
            stacks.places.update(dict.fromkeys(names, len(stacks.stacks)))
            stacks.stacks.append(frames)
        else:
            stacks.others += len(names)
    return stacks


def _named(document: dict[str, Any]) -> Iterator[tuple[list[str], Any]]:
    """Values with the names of their entries."""
    for key, value in document.items():
        if key.isdigit() and isinstance(value, list) and len(value) == 2 and isinstance(value[0], list):
            yield [safe_text(name) or "" for name in value[0] if isinstance(name, str)], value[1]
        else:
            yield [safe_text(key) or ""], value


def _frame(line: str) -> StackFrame | None:
    match = _LINE.match(line)
    is_msprobe = match is not None and _OWN_FILES in match[1]
    return (
        None
        if match is None or is_msprobe
        else StackFrame(safe_text(match[3]) or "", safe_text(match[1]) or "", int(match[2]))
    )


MONITOR_TOOL = "msprobe-monitor"
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
    rows = RecordRows(MONITOR_TOOL)
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
    columns: dict[str, Any] = {
        "step": int(step),
        "shape": shape,
        "numel": count,
        "dtype": short_dtype(row.get("dtype")),
        "micro": int(micro) if _NUMBER.fullmatch(micro) and int(micro) < 1 << 31 else None,
        "nan": int(nans) if nans is not None and 0 <= nans < LARGEST else None,
    }
    low, high, mean, norm = (real(row.get(key)) for key in ("min", "max", "mean", "norm"))
    return columns | _site(name, row.get("scope") or "") | statistics(low, high, mean, norm, count)


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
