"""The meaning of the numbers of a line: read in one line, and used for all lines that differ only in their numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rankscope.features.series.read import metric_names
from rankscope.features.series.read.metric_names import Quantity
from rankscope.features.series.read.printed_numbers import NUMBER
from rankscope.features.series.read.run_options import is_printed_config
from rankscope.parsers.line_prefixes import CLOCK, FULL, GLOG, SYSLOG, read_stamp, strip_prefixes

MOST_IN_LINE = 2000
LONGEST_NAME = 120
LONGEST_LEAD = 400
"""Characters before a number in which its name is searched."""
NUMBERS = re.compile(NUMBER.removeprefix(r"[ \t]*"))
_MARK = re.compile(r"""["']?\s*[:=]\s*["']?\s*(?:[\[(]|tensor\(|np\.float\d{2}\()?\s*$""")
"""Text between a name and its value."""
_EDGE = re.compile(r"""[|,;{}\[\]:="'\t]| - |\. """)
"""Text before a name."""
_NO_LETTERS = re.compile(r"^[^A-Za-z_]+")
_VERB = re.compile(r" (?:is|was)$")
_GLUED = re.compile(r"[A-Za-z%][A-Za-z%/]*(?!\w)")
_UNIT = re.compile(r" ?(ms|s|sec|secs|seconds)\b")
_FACTOR = re.compile(r"([KMGBT])(?![A-Za-z])")
_FACTORS = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_EPOCH = re.compile(
    r"\b(?:Train(?:ing)?\s*)?(?:Epoch|Train)\w*(?:\(train\))?[:\s]*\[?\s*(\d+)(?:/\d+)?\]?[:,|\s]*"
    r"(?:(?:iteration|iter|step|batch)\s*)?(?:\d+%\|[^|\n]*\||\[)?\s*(\d+)\s*/\s*(\d+)",
    re.IGNORECASE,
)
"""`Epoch [2][19/678]`, `epoch 003:  100 / 8223`, `Train: 0 [  50/1251`, `Epoch 2:  60%|###  | 9/15`."""
_FROM_ZERO = re.compile(r"Epoch: \[|Train: \d|Epoch:? \d+: +\d+%")
"""Programs that count epochs from 0: examples of PyTorch, timm, Lightning."""
_BAR = re.compile(r"(?:\||%\s)\s*(\d+)/(\d+|\?) \[\d+:\d\d")
_CLOCK_GOES_ON = re.compile(r":\d\d")
_FRACTION = re.compile(r"\s*/\s*(?=\d)")
_TIME = re.compile(rf"{FULL}|{GLOG}|{SYSLOG}|{CLOCK}")
_FULL = re.compile(FULL)
_PROSE = ("with", "and", "at", "the", "current", "is", "average", "avg", "for", "in", "after", "-")
_LENGTH_PLACE, _EPOCH_PLACE, _BAR_PLACE, _ONLY_EPOCH_PLACE = 25, 50, 60, 70
_RANK = re.compile(r"\[Rank (\d{1,7})\]", re.IGNORECASE)
_TASK = re.compile(r"\[default(\d{1,7})\]:|\s*(\d{1,6}): ")


class ValuePlace(NamedTuple):
    """The place of a value among the numbers of a line."""

    number: int
    quantity: Quantity


class StepPlace(NamedTuple):
    """The places of a step among the numbers of a line."""

    number: int
    epoch: int | None = None
    """The place of the epoch: the step counts from its beginning."""
    total: int | None = None
    """The place of the steps of an epoch, or of a bar."""
    first_epoch: int = 0
    place: int = 0
    """How good it is, 0 for the best."""
    factor: float = 1.0
    """The factor behind its number: 30K."""
    is_length: bool = False
    """Whether it may be the number of all steps, by its name."""


class LineRecipe(NamedTuple):
    """The meaning of the numbers of a line."""

    numbers: int
    values: tuple[ValuePlace, ...]
    step: StepPlace | None
    fixed: tuple[int, ...] = ()
    """Numbers inside names and prefixes: a line with others needs its own recipe."""
    rank: int | None = None
    zone_ns: int | None = None
    """What to take from a time to have UTC; None without a time with its year."""


LOST_MEAN = r"\([-+]?(?i:nan|inf|infinity)\)"
"""A mean in brackets behind a value, of which one value was not finite: `loss: 2.31 (nan)`."""
MEAN = " (mean)"
"""End of the name of such a mean."""


class NamedNumber(NamedTuple):
    text: str
    step: int | None
    """How good it is as the name of a step."""
    marked: bool
    """A colon or an equals sign is behind it."""


def line_recipe(text: str) -> LineRecipe | None:
    """The meaning of the numbers of a line; None if it has no values of a step."""
    found = [*NUMBERS.finditer(text)]
    if not found or len(found) > MOST_IN_LINE or metric_names.SUMMARY in text:
        return None
    if is_printed_config(text):
        return None
    front = strip_prefixes(text)
    fixed = {at for at, span in enumerate(found) if span.end() <= front.end}
    fixed -= _within(found, _TIME, text, front.end)
    values, steps, inside = _places(text, found, front.end)
    step = _best_step(text, found, steps)
    if step is not None and step.place == _ONLY_EPOCH_PLACE and text.startswith("{", front.end):
        # HF Trainer prints fractions of epochs
        step = None
    if step is not None:
        taken = {step.number, step.epoch, step.total}
        values = [value for value in values if value.number not in taken]
    if step is not None and step.is_length and not any(metric_names.is_measured(v.quantity.raw_name) for v in values):
        # "steps: 30" of a configuration, or the total of a bar
        return None
    worth = [value for value in values if _is_worth(value.quantity)]
    whole = step is not None or text.startswith("{", front.end)
    if (values and not (worth and whole)) or (not values and (step is None or step.place != _BAR_PLACE)):
        return None
    names = metric_names.distinct([value.quantity for value in values])
    places = tuple(value._replace(quantity=name) for value, name in zip(values, names, strict=True))
    rank = front.rank if front.rank is not None else _number_before(text, front.end)
    return LineRecipe(len(found), places, step, tuple(sorted(fixed | inside)), rank, _zone(text, found, places))


def _within(found: list[re.Match[str]], pattern: re.Pattern[str], text: str, end: int) -> set[int]:
    times = [one.span() for one in pattern.finditer(text, 0, end)]
    return {at for at, one in enumerate(found) if any(low <= one.end() - 1 < high for low, high in times)}


def _is_worth(quantity: Quantity) -> bool:
    return quantity.name in metric_names.NAMES or metric_names.WORTH.search(quantity.raw_name.lower()) is not None


def _number_before(text: str, end: int) -> int | None:
    """The number that torchrun or srun put before a line, or that DeepSpeed calls a rank."""
    told = _RANK.search(text) or _TASK.match(text, 0, end)
    return int(told[told.lastindex or 1]) if told is not None else None


def _zone(text: str, found: list[re.Match[str]], places: tuple[ValuePlace, ...]) -> int | None:
    time = _FULL.search(text, 0, found[places[0].number].start() if places else len(text))
    if time is None or (whole := read_stamp(time[0])) is None:
        return None
    plain = read_stamp(re.sub(r"(?:Z|[+-]\d\d:?\d\d)$", "", time[0]))
    return None if plain is None else plain.ns - whole.ns


def _places(text: str, found: list[re.Match[str]], cut: int) -> tuple[list[ValuePlace], list[StepPlace], set[int]]:
    """The values, the steps, and the numbers inside names, from the end of the prefixes on."""
    values: list[ValuePlace] = []
    steps: list[StepPlace] = []
    inside: set[int] = set()
    spans, begin = [one.span() for one in found], cut
    for at, (start, end) in enumerate(spans):
        if start < cut or _CLOCK_GOES_ON.match(text, end):
            continue
        if values and values[-1].number == at - 1 and _is_lost_mean(text, cut, start, end):
            values.append(ValuePlace(at, _quantity(values[-1].quantity.raw_name + MEAN, text, end)))
            cut = end
            continue
        name = _name_of(text[max(start - LONGEST_LEAD, cut + _glued(text, cut) if cut > begin else cut) : start])
        if name is None or (text[end - 1].isalpha() and not (name.marked or metric_names.is_known(name.text))):
            # "number of nan iterations"
            continue
        if name.step is not None and not text.startswith("%", end):
            is_length = metric_names.is_length(name.text)
            place = name.step + (_LENGTH_PLACE if is_length else 0)
            steps.append(StepPlace(at, place=place, factor=_factor(text, end), is_length=is_length))
        elif name.text.lower() == metric_names.EPOCH:
            steps.append(StepPlace(at, place=_ONLY_EPOCH_PLACE))
        elif (values or steps or not _is_head(name, text, end)) and not _is_left_out(name, text, end):
            values.append(ValuePlace(at, _quantity(name.text, text, end)))
            inside.update(_inside(spans, cut, start, name.text, text))
        cut = end
    return values, steps, inside


def _is_lost_mean(text: str, before: int, start: int, end: int) -> bool:
    """Whether a number is the mean in brackets behind a value, and is not finite: `loss: 2.31 (nan)`."""
    return text[before:start].strip() == "(" and text.startswith(")", end) and text[end - 1].isalpha()


def _glued(text: str, at: int) -> int:
    """The length of a unit behind a number."""
    unit = _GLUED.match(text, at)
    return unit.end() - at if unit else 0


def _is_head(name: NamedNumber, text: str, end: int) -> bool:
    """Whether a number before all else is part of a head: `host:0`, `train.py:12`."""
    known = metric_names.is_known(name.text) or metric_names.WORTH.search(name.text.lower()) is not None
    return not known and text[end:].lstrip()[:1] not in ("|", ",")


def _is_left_out(name: NamedNumber, text: str, end: int) -> bool:
    return metric_names.SKIPPED.match(name.text) is not None or _FRACTION.match(text, end) is not None


def _inside(spans: list[tuple[int, int]], cut: int, start: int, name: str, text: str) -> Iterator[int]:
    if not any(letter.isdigit() for letter in name):
        return
    begin = text.rfind(name, cut, start)
    yield from (at for at, span in enumerate(spans) if 0 <= begin <= span[0] and span[1] <= start)


def _quantity(name: str, text: str, end: int) -> Quantity:
    unit, factor = _UNIT.match(text, end), _factor(text, end)
    quantity = metric_names.quantity_of(name, unit[1] if unit else "")
    return quantity._replace(factor=quantity.factor * factor) if factor != 1.0 else quantity


def _factor(text: str, end: int) -> float:
    """The factor that the letter behind a number tells: `25.2G`, `step:30K`."""
    found = _FACTOR.match(text, end)
    return _FACTORS[found[1]] if found else 1.0


def _name_of(lead: str) -> NamedNumber | None:
    """The name at the end of the text before a number."""
    mark = _MARK.search(lead)
    if mark is None and not lead.endswith((" ", "\t", "[")):
        return None
    body = lead[: mark.start()] if mark else lead.rstrip(" \t[")
    chunk = _EDGE.split(body)[-1].rstrip()
    whole = _VERB.sub("", " ".join(_NO_LETTERS.sub("", chunk).split()))
    piece = _NO_LETTERS.sub("", re.split(r" {2,}", chunk)[-1]).strip()
    for text in (whole, piece):
        if (step := metric_names.step_place(text)) is not None or metric_names.is_known(text):
            return NamedNumber(text, step, mark is not None)
    if (told := _last_words(whole)) is not None:
        return told._replace(marked=mark is not None)
    if not piece or len(piece) > LONGEST_NAME or len(piece.split()) > (6 if mark else 3):
        return None
    return NamedNumber(piece, None, mark is not None)


def _last_words(text: str) -> NamedNumber | None:
    """A known name at the end of a sentence: `finished step 3`, `with loss 2.1`."""
    words = text.split(" ")
    for count in (3, 2, 1):
        name = " ".join(words[-count:])
        if len(words) <= count:
            continue
        if (step := metric_names.step_place(name)) is not None:
            # "total steps 30" is a value of that name
            is_other = metric_names.is_length(name, words[-count - 1])
            return NamedNumber(text if is_other else name, None if is_other else step, False)
        if words[-count - 1].lower() in _PROSE and metric_names.is_known(name):
            return NamedNumber(name, None, False)
    return None


def _best_step(text: str, found: list[re.Match[str]], named: list[StepPlace]) -> StepPlace | None:
    """The step that counts the most: of updates, of an epoch, of a bar."""
    at = {one.end(): i for i, one in enumerate(found)}
    steps = [*named]
    if (told := _EPOCH.search(text)) is not None and {told.end(1), told.end(2), told.end(3)} <= at.keys():
        epoch, number, total = (at[told.end(i)] for i in (1, 2, 3))
        first = 0 if _FROM_ZERO.match(told[0]) else 1
        steps = [step for step in steps if step.number != number]
        steps.append(StepPlace(number, epoch, total, first, _EPOCH_PLACE))
    elif (told := _BAR.search(text)) is not None and told.end(1) in at:
        steps.append(StepPlace(at[told.end(1)], total=at.get(told.end(2)), place=_BAR_PLACE))
    return min(steps, key=lambda step: step.place, default=None)
