"""Variants of settings, and results of repetitions compared bit by bit: the half of the script without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

# comparison: begin
# Variants of the settings.

USUAL = {
    "gloo": (),
    "nccl": ("NCCL_ALGO=Ring", "NCCL_ALGO=Tree", "NCCL_PROTO=Simple", "NCCL_PROTO=LL", "NCCL_PROTO=LL128",
             "NCCL_MAX_NCHANNELS=1", "NCCL_NVLS_ENABLE=0"),
    "hccl": ("HCCL_DETERMINISTIC=true", "HCCL_DETERMINISTIC=false", "LCCL_DETERMINISTIC=1", "LCCL_DETERMINISTIC=0"),
}  # fmt: skip
"""One change of the settings each."""
RECORDED, LATE, MOVED = "recorded settings", "ranks arrive shuffled", "ranks at other places"


class Variant(NamedTuple):
    """One way to run the reductions."""

    name: str
    changes: dict[str, str] = {}
    late: bool = False
    """Ranks arrive one after the other, in another order in each repetition."""
    moved: bool = False
    """Data of ranks is at other places of the group in each repetition."""


def variants(backend: str, changes: Sequence[str], settings: dict[str, str]) -> list[Variant]:
    """The recorded settings, then those of the arguments, or the usual ones; without those that change nothing."""
    texts = changes or USUAL.get(backend, ())
    found = [Variant(RECORDED)]
    for text in texts:
        pairs = dict(pair.partition("=")[::2] for pair in text.split(","))
        if any(settings.get(name) != value for name, value in pairs.items()):
            found.append(Variant(text, pairs))
    if not changes:
        late = [Variant(LATE, late=True)] if backend == "gloo" else []
        found += [*late, Variant(MOVED, moved=True)]
    return found


def is_played(algorithm: str, name: str) -> bool:
    """Whether an algorithm of NCCL can run a reduction: trees only reduce to all."""
    return name == "all_reduce" or algorithm.lower() != "tree"


# Answers from the results that ranks left in files.

Reductions = Sequence[tuple[str, str, int, list[int], str, int]]
OTHER_INPUTS = "no answer: the inputs differ between repetitions"


class Answer(NamedTuple):
    """The answer for one variant."""

    name: str
    repetitions: int
    repeats: bool | None
    """Whether all repetitions have the same bits; None if that is not known."""
    ranks_equal: bool | None
    """Whether all ranks have the same bits, where the operation gives all the same."""
    as_recorded: bool | None
    """Whether all bits are those of the first repetition with the recorded settings."""
    differs: list[dict[str, Any]]
    """The first difference of each operation: between repetitions, or without one, from the recorded settings."""
    left_out: list[int]
    """Operations that the variant cannot run, or did not come to."""
    taken: list[str]
    """Algorithms and protocols that NCCL tells, where rank 0 is the first of the group."""
    error: str


def judged(number: int, name: str, told: Sequence[dict[str, Any]], reductions: Reductions, problem: str = "") -> Answer:
    """The answer for a variant, from the results of its ranks and of those of variant 0; `problem` stopped a rank."""
    own, base = outcomes(told, number), outcomes(told, 0)
    between, apart = differences(own, own), differences(own, base)
    files = [one for one in told if one["variant"] == number]
    errors = [f"operation {one['operation'] + 1}: {one['error']}" for one in own if "error" in one]
    errors += [f"rank {one['rank']}: {one['error']}" for one in files if one["error"]]
    if is_fed_otherwise((*base, *own)):
        errors.insert(0, OTHER_INPUTS)
    turns = {one["turn"] for one in own if "parts" in one}
    is_known = len(turns) > 1 and OTHER_INPUTS not in errors
    firsts = {one["operation"]: one for one in reversed(between or apart)}
    return Answer(
        name,
        len(turns),
        not between if is_known else None,
        ranks_equal(own, reductions),
        not apart if is_known and number and base else None,
        [firsts[key] for key in sorted(firsts)] if is_known else [],
        sorted({*range(len(reductions))} - {one["operation"] for one in own}),
        next((one["taken"] for one in files if one.get("taken")), []),
        (errors or [problem])[0],
    )


def outcomes(told: Sequence[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """Results of a variant, by operation, repetition and place."""
    found = [one | {"turn": file["turn"]} for file in told if file["variant"] == number for one in file["outcomes"]]
    return sorted(found, key=lambda one: (one["operation"], one["turn"], one["place"]))


def is_fed_otherwise(own: Sequence[dict[str, Any]]) -> bool:
    """Whether a rank had other inputs for the same operation in one repetition than in another."""
    fed = {(one["operation"], one["owner"], one["inputs"]) for one in own}
    return len(fed) > len({one[:2] for one in fed})


def differences(own: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results that differ from the first one of the same operation and place in `base`."""
    firsts: dict[tuple[int, int], dict[str, Any]] = {}
    for one in base:
        if "parts" in one:
            firsts.setdefault((one["operation"], one["place"]), one)
    found = []
    for one in own:
        first = firsts.get((one["operation"], one["place"]))
        if first is None or "parts" not in one or first["parts"] == one["parts"]:
            continue
        pairs = enumerate(zip(first["parts"], one["parts"], strict=False))
        found.append(
            {
                "operation": one["operation"],
                "repetition": one["turn"],
                "place": one["place"],
                "parts": [at for at, (before, now) in pairs if before != now],
                "of": len(one["parts"]),
                "change": abs(one["sum"] - first["sum"]) / (first["scale"] or 1.0),
            }
        )
    return found


def ranks_equal(own: Sequence[dict[str, Any]], reductions: Reductions) -> bool | None:
    """Whether all members of each all_reduce have the same bits; None without one."""
    by_call: dict[tuple[int, int], set[tuple[str, ...]]] = {}
    for one in own:
        if "parts" in one and reductions[one["operation"]][0] == "all_reduce":
            by_call.setdefault((one["operation"], one["turn"]), set()).add(tuple(one["parts"]))
    return all(len(found) == 1 for found in by_call.values()) if by_call else None


def lines_of(answer: Answer, reductions: Reductions) -> Iterator[str]:
    """The row of a variant, and below it the place of its first difference."""
    words = {True: "yes", False: "no", None: "-"}
    said = [words[value] for value in (answer.repeats, answer.ranks_equal, answer.as_recorded)]
    yield f"{answer.name:<34} {said[0]:<8} {said[1]:<12} {said[2]}"
    if answer.error:
        yield f"    {answer.error}"
    if answer.left_out and answer.repetitions:
        yield f"    not run: operation {', '.join(str(number + 1) for number in answer.left_out)}"
    if answer.taken:
        yield f"    NCCL took {', '.join(dict.fromkeys(answer.taken))}"
    for one in answer.differs[:1]:
        number = one["operation"]
        than = "repetition 1" if answer.repeats is False else "recorded settings"
        place = f"place {one['place']} of the group, repetition {one['repetition'] + 1}"
        yield f"    first in operation {number + 1}, {reductions[number][0]}, {place}:"
        share = f"{len(one['parts'])} of {one['of']} parts differ from {than}"
        yield f"    {share}; the sum by {one['change']:.0e} of its size"


def closing(answers: Sequence[Answer]) -> Iterator[str]:
    """The sentences at the end."""
    base, *rest = answers
    if base.repeats is None:
        yield "no answer: the recorded settings were not repeated"
        return
    if not base.repeats:
        yield "the recorded settings do not repeat bit for bit here"
    elif base.ranks_equal is False:
        yield "the recorded settings repeat here, but ranks have different bits"
    else:
        yield f"the recorded settings repeat bit for bit here, {base.repetitions} times"
    if base.error:
        yield f"not all of it ran: {base.error}"
    same = [one.name for one in rest if one.repeats and one.name != MOVED]
    other = [one.name for one in rest if one.as_recorded is False and one.name != MOVED]
    if not base.repeats and same:
        yield f"the same bits each time with {', '.join(same)}"
    if base.repeats and other:
        yield f"other bits with {', '.join(other)}"
    moved = next((one for one in rest if one.name == MOVED), None)
    if moved and moved.as_recorded is not None:
        so = "has the same bits" if moved.as_recorded else "has other bits: the order of summation matters"
        yield f"the data of ranks at other places, as on other nodes, {so}"


def code_of(answers: Sequence[Answer]) -> int:
    """The exit code: 0 the recorded settings repeat and ranks agree, 1 they do not, 2 there is no answer."""
    base = answers[0]
    if base.repeats is None or base.error:
        return 2
    return 0 if base.repeats and base.ranks_equal is not False else 1
