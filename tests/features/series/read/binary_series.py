"""Files of TensorBoard and wandb, as their writers make them; checksums are zeros."""

from __future__ import annotations

import json
import struct


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes) -> bytes:
    """A field of bytes."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def event(step: int, scalars: dict[str, float], tensor: bool = False) -> bytes:
    """An event with scalars; a step and a value of 0 are left out."""
    values = b"".join(field(1, field(1, tag.encode()) + _scalar(value, tensor)) for tag, value in scalars.items())
    return b"\x09" + struct.pack("<d", 1e9) + (b"\x10" + varint(step) if step else b"") + field(5, values)


def _scalar(value: float, tensor: bool) -> bytes:
    packed = struct.pack("<f", value)
    if tensor:
        return field(8, b"\x08\x01" + field(2, b"") + field(5, packed))
    return b"\x15" + packed if value != 0 else b""


def event_file(*events: bytes) -> bytes:
    """An event file of TensorBoard."""
    version = b"\x09" + struct.pack("<d", 1e9) + field(3, b"brain.Event:2")
    return b"".join(struct.pack("<Q", len(one)) + b"\0" * 4 + one + b"\0" * 4 for one in (version, *events))


def wandb_history(row: dict[str, object], step: int) -> bytes:
    """A print of values; a step of 0 is left out."""
    items = b"".join(
        field(1, field(2, key.encode()) + field(16, json.dumps(value).encode())) for key, value in row.items()
    )
    return field(2, items + field(2, b"\x08" + varint(step) if step else b""))


def wandb_file(*records: bytes) -> bytes:
    """An offline file of wandb: records in blocks of 32,768 bytes."""
    out = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        rest, first = record, True
        while rest or first:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += b"\0" * left
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            out += struct.pack("<IHB", 0, len(part), kind) + part
            first = False
    return bytes(out)
