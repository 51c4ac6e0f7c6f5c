"""The rows of inputs name functions that there are, and what a worker process can read can be restored from it."""

from __future__ import annotations

import inspect

import pytest

from rankscope.kinds.features import FEATURES, Feature
from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import INPUTS, TEXT, InputKind
from rankscope.parsers.contents import recognised_kinds

READ = [kind for kind in INPUTS.values() if kind.restore]


@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.name)
def test_functions_are_there(kind: InputKind) -> None:
    given = {"begins": 1, "decode": 1, "read": 3, "restore": 3, "add_rows": 3, "gather": 1, "arrange": 1}
    given |= {"join": 0, "tells": 1, "shown_as": 1, "origin": 1}
    for part, count in given.items():
        if name := getattr(kind, part):
            inspect.signature(function(name)).bind(*range(count))


def test_what_is_read_is_restored() -> None:
    assert {kind.name for kind in recognised_kinds()} <= {kind.name for kind in READ}
    assert all(kind.decode for kind in recognised_kinds())
    assert [kind.name for kind in READ if not kind.noun] == ["sidecar"]


def test_places_in_the_summary_are_not_shared() -> None:
    places = [kind.place for kind in INPUTS.values() if kind.noun]
    assert sorted(places) == list(range(1, 1 + len(places)))


def test_functions_of_texts_are_there() -> None:
    given = {"read": 5, "is_marked": 3, "read_tail": 5, "is_growable": 4, "growing": 0, "user_table": 1}
    for part, count in given.items():
        inspect.signature(function(getattr(TEXT, part))).bind(*range(count))


@pytest.mark.parametrize("feature", FEATURES.values(), ids=lambda feature: feature.name)
def test_functions_of_features_are_there(feature: Feature) -> None:
    given = {"settle": 2, "join": 2, "find": 2, "derive": 1, "explain": 3, "section": 2, "record": 2}
    for part, count in given.items():
        if name := getattr(feature, part):
            inspect.signature(function(name)).bind(*range(count))
