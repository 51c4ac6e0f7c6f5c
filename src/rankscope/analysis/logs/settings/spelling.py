"""Names that are almost those of a known setting: unknown variables are ignored in silence."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope.analysis.logs.settings.rules import rules

PREFIXES = ("NCCL_", "RCCL_", "HCCL_", "HCC_", "LCCL_", "ATB_", "TORCH_", "NVTE_", "CUBLAS_", "NCC_", "CUDA_")
SHORT = 14
"""Names up to this length may differ in one place only: short ones are close to each other by chance."""


def intended(name: str) -> str | None:
    """The known setting that an unknown name was probably meant to be; None without exactly one."""
    known = rules()
    if name in known or not name.startswith(PREFIXES):
        return None
    most = 1 if len(name) <= SHORT else 2
    near = [(distance(name, other, most), other) for other in known if abs(len(other) - len(name)) <= most]
    best = sorted(pair for pair in near if pair[0] <= most)
    if not best or (len(best) > 1 and best[0][0] == best[1][0]):
        return None
    return best[0][1]


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """The intended name by each name that was probably misspelt."""
    return {name: meant for name in names if (meant := intended(name)) is not None}


def distance(one: str, other: str, most: int) -> int:
    """Edits between two names: letters put in, left out, exchanged, or two neighbours swapped (Damerau, restricted).

    More than `most` are not counted to their end.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row, older = row, [i], before
        for j, b in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = last
        if min(row) > most:
            return most + 1
    return row[-1]
