"""Tensors of a recorded call of torch.distributed: what it reads, what it gives, its group, root and peer.

msprobe writes the arguments before the call, and behind it all arguments again as the output: positional ones first,
then those by name. An asynchronous call is written when the job waits for it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from rankscope.parsers.members import Members, shared_members
from rankscope.parsers.numbers.model import DEFAULT_GROUP, NumbersGroup
from rankscope.parsers.safe_values import RANK_LIMIT, rank_list
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
        """The tensors of a call of `api`."""
        args, named = _arguments(record)
        group = self._group([*args, *named.values()])
        if api in (*SENDS, *RECEIVES):
            yield from self._transfer(api, args, named, record, group)
        elif (form := CALLS.get(api)) is not None:
            yield from self._collective(form, args, named, record, group)

    def _group(self, arguments: list[Any]) -> str:
        """The name of the group of a call; without one the call uses the default group."""
        ranks = _ranks_in(arguments)
        name = DEFAULT_GROUP if ranks is None else _name(ranks)
        self.groups.setdefault(name, NumbersGroup(name, "", ranks or shared_members(())))
        return name

    def _count(self, *key: Hashable) -> int:
        self._counts[key] += 1
        return self._counts[key] - 1

    def _collective(self, form: CallForm, args: list[Any], named: dict[str, Any], record: dict[str, Any],
                    group: str) -> Iterator[CallRow]:  # fmt: skip
        told: dict[str, Any] = {
            "site": "collective", "op": form.op, "group": group, "occurrence": self._count(group, form.op),
        }  # fmt: skip
        if form.op in _REDUCING:
            told["reduce_op"] = _reduction([*args, *named.values()])
        if form.root is not None:
            told["root"] = _whole(_argument(args, named, form.root))
        yield from _pieces(_argument(args, named, form.read), told | {"slot": "in0"})
        after = _outputs(record, args, named)
        if after is not None:
            yield from _pieces(_argument(*after, form.given), told | {"slot": "out0"})

    def _transfer(self, api: str, args: list[Any], named: dict[str, Any], record: dict[str, Any],
                  group: str) -> Iterator[CallRow]:  # fmt: skip
        is_send = api in SENDS
        peer = _whole(_argument(args, named, ("dst" if is_send else "src", 1)))
        told: dict[str, Any] = {
            "site": "p2p", "op": "send" if is_send else "recv", "peer": peer, "group": group,
            "occurrence": self._count(group, is_send, peer), "slot": "in0" if is_send else "out0",
        }  # fmt: skip
        after = (args, named) if is_send else _outputs(record, args, named)
        if after is not None:
            yield from _pieces(_argument(*after, _OWN), told)


def _name(ranks: Members) -> str:
    """A name that says the members, and is another one for each order of them."""
    text = ranks_text(ranks)
    if len(text) <= LONGEST_NAME and tuple(ranks) == tuple(sorted(ranks)):
        return text
    return f"{ranks_text(ranks, LONGEST_NAME)} ({zlib.crc32(str(list(ranks)).encode()):08x})"


def _arguments(record: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    args, named = record.get("input_args"), record.get("input_kwargs")
    return args if isinstance(args, list) else [], named if isinstance(named, dict) else {}


def _outputs(record: dict[str, Any], args: list[Any], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments after the call; None if the output is not that list."""
    out = record.get("output")
    if not isinstance(out, list) or len(out) != len(args) + len(named):
        return None
    return out[: len(args)], dict(zip(named, out[len(args) :], strict=True))


def _argument(args: list[Any], named: dict[str, Any], place: tuple[str, int]) -> Any:
    name, position = place
    return named[name] if name in named else args[position] if position < len(args) else None


def _pieces(value: Any, told: dict[str, Any]) -> Iterator[CallRow]:
    """A tensor, or the slices of a list of them, one for each member."""
    if isinstance(value, dict) and "shape" in value:
        yield CallRow(value, told)
    elif isinstance(value, list):
        for member, one in enumerate(value[:RANK_LIMIT]):
            if isinstance(one, dict) and "shape" in one:
                yield CallRow(one, told | {"slice": member})


def _ranks_in(value: Any, depth: int = 0) -> Members | None:
    if isinstance(value, dict):
        return rank_list(value.get("group_ranks"))
    if isinstance(value, list) and depth < MOST_DEPTH:
        return next((found for one in value if (found := _ranks_in(one, depth + 1)) is not None), None)
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
