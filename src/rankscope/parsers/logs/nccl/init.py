"""Lines of the life of a communicator: initialised, split, finalized, destroyed, aborted.

One pattern reads all shapes from NCCL 2.4 to 2.32 and RCCL: after the ranks come pairs of a name and a value, whichever
the version knows. 2.23 to 2.30 leave out the space before the dash: `key 1- Init START`.
"""

from __future__ import annotations

import re
from typing import Any

LIFE = re.compile(
    r"(?:\[Rank \d{1,9}\] )?(?:(?P<function>nccl\w{1,64}) )?comm (?P<pointer>0x[0-9a-fA-F]{1,16}) "
    r"rank (?P<rank>\d{1,9}) n[rR]anks (?P<nranks>\d{1,9}) (?P<pairs>.{0,600}?)- "
    r"(?P<what>Init|Destroy|Abort|Finalize|Revoke) (?P<step>START|COMPLETE)"
)
_NUMBERS = {
    "cudaDev": "device", "nvmlDev": "nvml_device", "splitCount": "split", "childCount": "split", "color": "color",
    "key": "key",
}  # fmt: skip
_TEXTS = {"busId": "bus_id", "commId": "comm_id", "parent": "parent"}
_STATES = {
    ("Init", "START"): "start", ("Init", "COMPLETE"): "complete", ("Finalize", "COMPLETE"): "finalized",
    ("Destroy", "COMPLETE"): "destroyed", ("Abort", "START"): "aborting", ("Abort", "COMPLETE"): "aborted",
    ("Revoke", "COMPLETE"): "revoked",
}  # fmt: skip
ENDED = ("destroyed", "aborted")
"""States after which the pointer is free for another communicator."""


def life(message: str) -> tuple[str, str, dict[str, Any]] | None:
    """Pointer, new state and what is said of the communicator, in fields of Comm; None for any other line.

    The state is "" for a step that changes nothing, as `Destroy START`.
    """
    found = LIFE.match(message)
    if found is None:
        return None
    told: dict[str, Any] = {"rank": int(found["rank"]), "nranks": int(found["nranks"])}
    if found["function"]:
        told["function"] = found["function"]
    words = found["pairs"].split()
    for name, value in zip(words[::2], words[1::2], strict=False):
        if name in _TEXTS:
            told[_TEXTS[name]] = value[:64]
        elif name in _NUMBERS and value.lstrip("-").isdecimal() and len(value) < 19:
            told[_NUMBERS[name]] = int(value)
    return found["pointer"], _STATES.get((found["what"], found["step"]), ""), told
