"""Errors of torch_npu and HCCL: whose process prints them, and which member of which group it waited for.

    RuntimeError: npuSynchronizeDevice:... NPU function error: ..., error code is 507048
    [ERROR] 2026-11-20-10:45:23 (PID:4105, Device:5, RankID:5) ERR00100 PTA call acl api failed
    [Error]: The execution of the internal task times out.
            Rectify the fault based on the error information in the ascend log.
    EI0002: [PID: 4105] 2026-11-20-10:45:23.586.187 The wait execution of the Notify register times out. ...
      remote rank: [12]. base information: [..., tag[AllReduce_group_name_4...], ...]. ... group information:
      [group:[group_name_4], user define information[Unspecified], rankSize[16], rankId[13 12]]

Ranks of EI0002 are places in the group that it names, but for the group of all ranks. Source: torch_npu/csrc/core/npu,
error codes of CANN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.features.logs.read.log_record import Event, Record, message_event

LITERALS = ("EI0002",)
KIND = "hccl-wait"
WORLD_GROUP = "hccl_world_group"
"""The group of all ranks, whose places are global ranks."""
_CODE = re.compile(r"\bEI0002\)?: ")
"""The code of the message, also behind its name: `Notify_Wait_Timeout(EI0002): `."""
_PROCESS = re.compile(r"\(PID:(\d{1,10}), Device:-?\d{1,6}, RankID:(-?\d{1,7})\) ?$")
_REMOTE = re.compile(r"remote rank: ?\[(\d{1,7})\]")
_TAG = re.compile(r"tag ?\[([A-Z][A-Za-z]{2,40})(?:_(\w+?))?(?:(?:NHR|ring|mesh|HD|NB|AHC)\w*?Comm_\w+)?\]")
_GROUP = re.compile(r"group:\[([^\[\]]{1,200})\]")
_SIZE = re.compile(r"rankSize\[(\d{1,7})\]")
_PAIR = re.compile(r"rankId\[(\d{1,7}) (\d{1,7})\]")


def events(record: Record) -> Iterator[Event]:
    """The event in a record.

    Values: `op` as HCCL calls it; `hccl_group`, the name of the group; `group_size`; `place`, that of the process in
    it, and `awaited`, that of the member it waited for. None if the line does not tell.
    """
    text = record.text
    if _CODE.search(text[:400]) is None:
        return
    remote, tag, size, pair = _REMOTE.search(text), _TAG.search(text), _SIZE.search(text), _PAIR.search(text)
    group = _GROUP.search(text)
    name = group[1] if group else tag[2] if tag else None
    yield message_event(
        KIND,
        record,
        op=tag[1] if tag else None,
        hccl_group=name,
        group_size=int(size[1]) if size else None,
        place=int(pair[1]) if pair else None,
        awaited=int(remote[1]) if remote else int(pair[2]) if pair else None,
    )


def process_of(record: Record) -> tuple[int, int | None] | None:
    """Process id and global rank in the head that torch_npu puts before the second line of its exceptions.

    None for a record without such a head; the rank is None in a job without a group.
    """
    found = _PROCESS.search(record.label)
    return None if found is None else (int(found[1]), int(found[2]) if int(found[2]) >= 0 else None)


def without_process(record: Record) -> Record:
    """The record as a line of the message above it: without the head of torch_npu, its time and its rank."""
    found = _PROCESS.search(record.label)
    assert found is not None
    return record._replace(label=record.label[: found.start()], rank=None, stamp=None, level="")
