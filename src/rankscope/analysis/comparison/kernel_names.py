"""Names of kernels in two runs: equal ones first, then those that differ in numbers, then in parameters of templates.

Compilers count kernels (`triton_poi_fused_add_3`), append hashes, and libraries put tiles and types into names. So one
kernel may have another name in another run, which only counts where the exact name has no counterpart.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection

from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, short_name

_HASH = re.compile(r"(?<![A-Za-z0-9])(?=[a-f]*\d)[0-9a-f]{6,}(?![A-Za-z0-9])|0x[0-9a-fA-F]+|\d+")
"""Hashes and numbers; a word such as "facade" has no digit and stays."""
_NAMESPACES = re.compile(r"\b(?:at|native|detail|c10|cutlass|std)::|\(anonymous namespace\)::")
_ENGINE = "autograd::engine::evaluate_function: "
_LONGEST = 60
_MOST_BRACKETS = 2_000
"""Longest name whose brackets are counted."""


def kernel_labels(a: Collection[str], b: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels of the kernels of both runs by name; matched kernels share one, and no others do."""
    found: tuple[dict[str, str], dict[str, str]] = {}, {}
    renamed = set[str]()
    for key in (_same, _without_numbers, _without_templates):
        ours, theirs = (_by_key(names, known, key) for names, known in zip((a, b), found, strict=True))
        for shared in sorted(ours.keys() & theirs.keys()):
            first = min(ours[shared])
            found[0].update(dict.fromkeys(ours[shared], first))
            found[1].update(dict.fromkeys(theirs[shared], first))
            if key is not _same:
                renamed.add(first)
    for known, names in zip(found, (a, b), strict=True):
        known.update({name: name for name in names if name not in known})
    shown = _shown(sorted({*found[0].values(), *found[1].values()}))
    shown |= {name: f"{shown[name]} (other names in B)" for name in renamed}
    return {name: shown[one] for name, one in found[0].items()}, {name: shown[one] for name, one in found[1].items()}


def _by_key(names: Collection[str], known: Collection[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    keyed = defaultdict[str, list[str]](list)
    for name in names:
        if name not in known:
            keyed[key(name)].append(name)
    return keyed


def _same(name: str) -> str:
    return name


def _without_numbers(name: str) -> str:
    return _HASH.sub("#", name)


def _without_templates(name: str) -> str:
    """The name without all that stands in brackets, and without numbers; only that for one that is very long."""
    if len(name) > _MOST_BRACKETS:
        return _without_numbers(name)
    out, depth = list[str](), 0
    for letter in name.replace("(anonymous namespace)", ""):
        depth += letter in "<("
        if not depth:
            out.append(letter)
        depth = max(depth - (letter in ">)"), 0)
    return _without_numbers("".join(out).removeprefix("void ").strip() or name)


def _shown(keys: Collection[str]) -> dict[str, str]:
    """Names for people by key: short where that tells them apart, else with the start of what differs."""
    found = {key: clipped(short_name(key.removeprefix(_ENGINE)), _LONGEST) for key in keys}
    for tell in (_with_parameters, _with_end):
        often = Counter(found.values())
        found = {key: text if often[text] == 1 else tell(key) for key, text in found.items()}
    often = Counter(found.values())
    counts = Counter[str]()
    for key, text in found.items():
        if often[text] > 1:
            counts[text] += 1
            found[key] = f"{text} #{counts[text]}"
    return found


def _with_parameters(key: str) -> str:
    """The name with the first parameters of its template: "elementwise_kernel<4, CUDAFunctor_add<float>..."."""
    _, bracket, parameters = plain(key, 400).removeprefix("void ").partition("<")
    return clipped(f"{short_name(key)}{bracket}{_NAMESPACES.sub('', parameters)}", _LONGEST)


def _with_end(key: str) -> str:
    text = plain(key, 400)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2 - 1]}..{text[1 - _LONGEST // 2 :]}"
