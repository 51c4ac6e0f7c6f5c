"""A schedule as Chakra traces, one file a rank: protobuf messages, each behind its length.

The format is `et_def.proto` of MLCommons Chakra: GlobalMetadata, then a Node for each operation. The numbers below are
the fields of its messages. Nodes depend on those before them in the order of the rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from rankscope.features.replay.replay_sizes import BYTES, SCATTERED, ReplaySizes, type_name
from rankscope.features.replay.schedule import Schedule, Step
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide

VERSION = "0.0.4"
_SEND, _RECV, _COLLECTIVE = 5, 6, 7
"""NodeType."""
_COMM_TYPES = {
    "all_reduce": 0, "reduce": 1, "all_gather": 2, "gather": 3, "scatter": 4, "broadcast": 5, "all_to_all": 6,
    "reduce_scatter": 7, "barrier": 9,
}  # fmt: skip
"""CollectiveCommType; others are played by an all_reduce."""
_ID, _NAME, _TYPE, _CTRL_DEPS, _ATTR = 1, 2, 3, 4, 10
"""Fields of Node."""
_INT32, _INT64, _BOOL, _STRING = 7, 9, 27, 29
"""Fields of AttributeProto with a value; its name is field 1."""
_VARINT, _BYTES = 0, 2
"""Wire types of protobuf."""


def chakra_traces(dataset: Dataset, schedule: Schedule, sizes: ReplaySizes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files; ranks are counted from 0 in the order of the job.

    `comm_group.json` holds the members of each group, by the name that nodes have: simulators read them from there.
    """
    numbers = {rank: at for at, rank in enumerate(sorted(schedule.steps))}
    groups = {group: at + 1 for at, group in enumerate(sorted(schedule.groups))}
    for rank, number in numbers.items():
        yield f"repro.{number}.et", b"".join(_framed(_messages(dataset, schedule, sizes, numbers, groups, rank)))
    members = {str(at): [numbers[rank] for rank in schedule.groups[group]] for group, at in groups.items()}
    yield "comm_group.json", json.dumps(members, indent=1).encode()


def _framed(messages: Iterable[bytes]) -> Iterator[bytes]:
    for message in messages:
        yield _varint(len(message)) + message


def _messages(
    dataset: Dataset, schedule: Schedule, sizes: ReplaySizes, numbers: dict[int, int], groups: dict[int, int], rank: int
) -> Iterator[bytes]:
    yield _text(1, VERSION)
    count = 0
    before: list[int] = []
    for unit in schedule.units(rank):
        here = list(range(count, count + len(unit)))
        for number, step in zip(here, unit, strict=True):
            name = f"{plain(step.op, 40)} {_number(step)} of {_group_name(dataset, step.group)}"
            members = len(schedule.members[step.key])
            sent = sum(step.splits[0]) if step.splits else sizes.of(step) * (members if step.op == SCATTERED else 1)
            size = sent * BYTES.get(type_name(step), 1)
            attributes = [*_attributes(step, size, numbers), _attribute("pg_name", _STRING, str(groups[step.group]))]
            kind = {"send": _SEND, "recv": _RECV}.get(step.op, _COLLECTIVE)
            deps = b"".join(map(_varint, before))
            parts = [_integer(_ID, number), _text(_NAME, name), _integer(_TYPE, kind)]
            parts += [_field(_CTRL_DEPS, deps)] if before else []
            yield b"".join((*parts, *(_field(_ATTR, attribute) for attribute in attributes)))
        count, before = count + len(unit), here


def _number(step: Step) -> str:
    return f"{step.key[1]}>{step.key[2]}:{step.key[3]}" if step.is_p2p else f"#{step.key[1]}"


def _group_name(dataset: Dataset, group: int) -> str:
    known = dataset.group_list[group]
    return plain(hide(known.description or known.name or f"g{group}"), 60)


def _attributes(step: Step, size: int, numbers: dict[int, int]) -> list[bytes]:
    """Attributes of a communication node; sizes are in bytes, of what the rank gives in."""
    attributes = [_attribute("is_cpu_op", _BOOL, 0)]
    if not step.is_p2p:
        return [
            *attributes,
            _attribute("comm_type", _INT64, _COMM_TYPES.get(step.op, 0)),
            _attribute("comm_size", _INT64, size),
        ]
    sender, receiver = (numbers[rank] for rank in step.key[1:3])
    return [
        *attributes, _attribute("comm_src", _INT32, sender), _attribute("comm_dst", _INT32, receiver),
        _attribute("comm_tag", _INT32, step.key[3]), _attribute("comm_size", _INT64, size),
    ]  # fmt: skip


def _attribute(name: str, field: int, value: int | str) -> bytes:
    return _text(1, name) + (_text(field, value) if isinstance(value, str) else _integer(field, value, always=True))


# The wire format of protobuf: https://protobuf.dev/programming-guides/encoding


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int, *, always: bool = False) -> bytes:
    """A number that is not negative; zero is left out, unless it is the chosen one of several fields."""
    return _varint(field << 3 | _VARINT) + _varint(value) if value or always else b""


def _field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _field(field, value.encode())
