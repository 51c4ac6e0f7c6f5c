"""Options of two runs: each single edit of a configuration is told at its path, and other spellings are equal."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.features.comparison.rules.settings_differences import OptionPair, compare_options, option_changes
from rankscope.features.series.read.run_options import file_options
from rankscope.schema.option_sources import OptionSource, OptionTree, RunOptions, printed_options


def told(a: bytes, b: bytes, name: str = "config.yaml", other: str = "") -> list[OptionPair]:
    """The pairs that differ of two configuration files."""
    sources = (file_options(own, data).source for own, data in ((name, a), (other or name, b)))
    one, two = (RunOptions((source,)) for source in sources)
    return [pair for pair in compare_options(one, two).pairs if pair.differs]


def changes(a: RunOptions, b: RunOptions) -> dict[str, tuple[str, str, str]]:
    """Values in A and B and the weight of each change by path."""
    return {one.option: (*one.changes[0][:2], one.weight) for one in option_changes(compare_options(a, b).pairs)}


NAMES = st.text("abcdefgh_0", min_size=1, max_size=6)
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Cf", "Zl", "Zp", "Co", "Cn")), max_size=12
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(allow_nan=False), TEXTS,
    st.sampled_from(["yes", "1e-4", "null", "${a.b}", "a\nb: 3\n", "3.10", "2026-01-01", "# no", "- x", "{a", "*x"]),
)  # fmt: skip
TREES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4), st.lists(
        st.fixed_dictionaries({"name": NAMES, "weight": inner}), max_size=3, unique_by=lambda one: one["name"],
    )),
    max_leaves=12,
)  # fmt: skip
CONFIGS = st.dictionaries(NAMES, TREES, min_size=1, max_size=5)


class Marked:
    """A value that no configuration has."""


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each value that is no container."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    found = [place for key, value in items for place in places(value, (*path, key))]
    return found if isinstance(tree, dict | list) and tree else [path]


def shown_path(tree: Any, place: tuple[Any, ...]) -> str:
    """The path as it is told, where no list has names."""
    path = ""
    for key in place:
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else str(key)
    return path


def at(tree: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


@settings(max_examples=150, deadline=None)
@given(CONFIGS, st.randoms(use_true_random=False))
def test_one_changed_value_is_told_at_its_path(config: dict[str, Any], draw: random.Random) -> None:
    place = draw.choice(places(config))
    other = deepcopy(config)
    at(other, place[:-1])[place[-1]] = "another value that is nowhere else"
    found = told(yaml.safe_dump(config).encode(), yaml.safe_dump(other, default_flow_style=True).encode())
    assert len(found) == 1
    assert found[0].b == "another value that is nowhere else"
    names = shown_path(config, place)
    # lists of names have the name in the place of the index
    assert found[0].path == names or "[" in names


@settings(max_examples=150, deadline=None)
@given(CONFIGS, st.randoms(use_true_random=False))
def test_a_key_of_one_side_is_told_once(config: dict[str, Any], draw: random.Random) -> None:
    paths = [place[:end] for place in places(config) for end in range(1, len(place) + 1)]
    place = draw.choice(paths)
    other = deepcopy(config)
    del at(other, place[:-1])[place[-1]]
    for a, b in ((config, other), (other, config)):
        found = told(yaml.safe_dump(a).encode(), json.dumps(b).encode(), other="config.json")
        assert found
        if isinstance(place[-1], str) and len(at(config, place[:-1])) > 1:
            assert len(found) == 1


def shuffled(tree: Any, draw: random.Random) -> Any:
    """The tree with its keys in another order."""
    if isinstance(tree, dict):
        keys = list(tree)
        draw.shuffle(keys)
        return {key: shuffled(tree[key], draw) for key in keys}
    return [shuffled(one, draw) for one in tree] if isinstance(tree, list) else tree


@settings(max_examples=150, deadline=None)
@given(CONFIGS, st.randoms(use_true_random=False))
def test_other_spellings_are_equal(config: dict[str, Any], draw: random.Random) -> None:
    again = shuffled(config, draw)
    first = b"# comment\n" + yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode()
    spelled = yaml.safe_dump(
        again, default_flow_style=draw.random() < 0.5, default_style=None, sort_keys=False, indent=draw.randint(2, 6),
        width=draw.choice([20, 400]),
    )  # fmt: skip
    assert told(first, spelled.encode()) == []
    assert told(first, json.dumps(again).encode(), other="config.json") == []


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("lr: 1e-4", "lr: 0.0001"), ("lr: '1e-4'", "lr: 0.0001"), ("x: on", "x: true"), ("x: 'yes'", "x: True"),
        ("x: 2026-01-02", "x: '2026-01-02'"), ("x: 1_000", "x: 1000"), ("x: 3", "x: 3.0"), ("x: ~", "x:"),
        ("x: [1, 2]", "x:\n- 1\n- 2"), ("x: &a {b: 1}\ny: *a", "x: {b: 1}\ny: {b: 1}"), ("x: .nan", "x: .NaN"),
    ],
)  # fmt: skip
def test_values_are_compared_by_meaning(a: str, b: str) -> None:
    assert told(a.encode(), b.encode()) == []


@pytest.mark.parametrize(
    ("a", "b", "path"),
    [
        ("x: '3.10'", "x: '3.1'", "x"), ("x: Adam", "x: adam", "x"), ("x: {}", "x: []", "x"), ("x: ''", "x:", "x"),
        ("x: ${a.b}", "x: ${a.c}", "x"), (f"x: {'y' * 900}a", f"x: {'y' * 900}b", "x"), ("x: [0, 1,\n 2]", "x: [0, 1, 9]", "x[2]"),  # noqa: E501
        ("x:\n- {name: a, w: 1}\n- {name: b, w: 2}", "x:\n- {name: b, w: 2}\n- {name: a, w: 3}", "x[a].w"),
        ("x:\n- {_target_: a, w: 1}\n- {w: 2}", "x:\n- {_target_: a, w: 1}\n- {w: 3}", "x[1].w"),
        ("x:\n- {name: a}\n- {name: b}", "x:\n- {name: b}\n- {name: a}", "x (order)"),
        ("x: |\n  a: 1\n  b: 2\n", "x: |\n  a: 1\n  b: 3\n", "x"), ("x: [1, 2, 3]", "x: [1, 3]", "x[1]"),
        ("x: !!python/name:a.b ''", "x: !!python/name:a.c ''", "x"), ("a: 1\n---\nx: 1", "a: 1\n---\nx: 2", "document 1.x"),  # noqa: E501
    ],
)  # fmt: skip
def test_edits_are_told_at_their_path(a: str, b: str, path: str) -> None:
    found = told(a.encode(), b.encode())
    assert path in [one.path for one in found]
    values = [one.changes[0][:2] for one in option_changes(found)]
    assert all(one != other for one, other in values)


def files(**trees: dict[str, OptionTree]) -> RunOptions:
    return RunOptions(tuple(OptionSource(f"{name}.yaml", tree) for name, tree in trees.items()))


def test_options_of_unknown_effect_count_and_those_of_one_run_do_not() -> None:
    found = changes(
        files(a={"frozen": [0, 1], "output_dir": "/x", "lora": {"rank": 8}, "scheduler": {"name": "cosine"}}),
        files(a={"frozen": [0, 2], "output_dir": "/y", "lora": {"rank": 4}, "scheduler": {"name": "wsd"}, "z": None}),
    )
    assert found == {
        "frozen[1]": ("1", "2", "option"), "output_dir": ("/x", "/y", "place"), "lora.rank": ("8", "4", "behaviour"),
        "scheduler.name": ("cosine", "wsd", "option"), "z": ("unset", "null", "option"),
    }  # fmt: skip


def test_files_of_one_name_are_compared_with_each_other() -> None:
    one = files(train={"lr": 1, "seed": 3}, data={"lr": 2})
    assert changes(one, files(train={"lr": 1, "seed": 3}, data={"lr": 5})) == {"lr": ("2", "5", "behaviour")}
    left = compare_options(one, files(train={"lr": 1, "seed": 3})).left
    assert left == ()
    assert compare_options(one, files(train={"lr": 1, "seed": 3}, more={"x": 1, "lr": 2})).pairs


def test_a_log_is_compared_with_a_file_by_names() -> None:
    found = compare_options(
        files(train={"weight-decay": 0.1, "seed": 3}), printed_options({"weight_decay": 0.2, "x": 1})
    )
    assert [one.path for one in found.pairs if one.differs] == ["weight-decay"]
    assert found.left == ("train.yaml is only in A: 1 option (seed)", "log is only in B: 1 option (x)")


def test_secrets_in_options_stay_hidden() -> None:
    found = changes(files(a={"hf": {"api_key": "abc1", "x": 1}}), files(a={}))
    assert found["hf"][0] == "{api_key: (hidden), x: 1}"
