"""The registry of actions: keys, bindings and methods belong together."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from textual.binding import Binding
from textual.dom import DOMNode

import rankscope
from rankscope.kinds.functions import function
from rankscope.kinds.view_kinds import VIEWS
from rankscope.tui import popups
from rankscope.tui.actions import ACTIONS, ALONE_FOOTER, BY_ID, FOOTER, TRACED_FOOTER, Scope, bindings_for
from rankscope.tui.app import RankscopeApp
from rankscope.tui.lanes_screen import LanesScreen
from rankscope.tui.model import build_model
from rankscope.tui.timeline import MOVES, Timeline
from tests.features.traces.page.jobs import traced
from tests.tui.drive import PLAIN, opened
from tests.tui.jobs import healthy

ROOT = Path(rankscope.__file__).parent
NOT_YET = ROOT / "features" / "comparison"
"""Pages that have keys of their own."""
POPUPS = popups.__name__
"""The module of lists and lines of text, in which arrows and escape work as in any of them."""
SCOPES: tuple[Scope, ...] = ("lanes", "screen", "app")


async def test_every_action_can_be_done() -> None:
    for action in ACTIONS:
        if action.scope == "app":
            assert callable(getattr(RankscopeApp, f"action_{action.id}"))
    assert {action.id for action in ACTIONS if action.scope == "lanes"} == set(MOVES)
    async with opened(healthy()) as (app, _):
        assert {action.id for action in ACTIONS if action.scope == "screen"} == set(app.lanes.commands)


def test_no_key_does_two_things() -> None:
    keys = Counter(key for action in ACTIONS for key in action.keys)
    assert {key for key, count in keys.items() if count > 1} == set()


def test_ids_are_unique_and_the_footer_knows_them() -> None:
    assert len(BY_ID) == len(ACTIONS)
    assert {action.id for action in ACTIONS if action.short} == {*FOOTER, *TRACED_FOOTER, *ALONE_FOOTER}


def test_bindings_are_made_of_the_registry() -> None:
    bound = {key for scope in SCOPES for b in bindings_for(scope) if isinstance(b, Binding) for key in b.key.split(",")}
    keys = {key for action in ACTIONS if action.scope in SCOPES for key in action.keys}
    assert {key for key in bound if not key.startswith("no_key_")} == keys - {"ctrl+p"}
    assert bindings_for("lanes") == Timeline.BINDINGS


def test_the_keys_are_those_of_the_design_and_no_others() -> None:
    words = {
        "up", "down", "left", "right", "pageup", "pagedown", "shift+left", "shift+right", "home", "end",
        "ctrl+home", "ctrl+end", "ctrl+left", "ctrl+right", "plus", "equals_sign", "minus", "slash", "colon", "tab",
        "enter", "escape", "question_mark", "ctrl+p", "ctrl+c", "ctrl+l",
    }  # fmt: skip
    assert {key for action in ACTIONS for key in action.keys} == words | set("hjkl12345670nNwcfutgyYeFoq")


def classes_with_bindings() -> list[type[DOMNode]]:
    """The app, screens, pages and widgets of rankscope that bind keys of their own."""
    classes: dict[type[DOMNode], None] = {}
    for place in ("tui", "features"):
        for path in sorted((ROOT / place).rglob("*.py")):
            if "BINDINGS" in path.read_text() and NOT_YET not in path.parents:
                module = import_module(".".join(("rankscope", *path.relative_to(ROOT).with_suffix("").parts)))
                own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
                classes |= {value: None for value in own if isinstance(value, type) and "BINDINGS" in vars(value)}
    return list(classes)


def test_a_key_has_one_meaning_on_all_screens_pages_and_widgets() -> None:
    """The keys of each binding are those of the action that it names, and something does it."""
    action_of = {key: action.id for action in ACTIONS for key in action.keys}
    seen = set()
    for owner in classes_with_bindings():
        for binding in vars(owner)["BINDINGS"]:
            where = f"{owner.__name__}: {binding}"
            assert isinstance(binding, Binding), where
            keys = [key for key in binding.key.split(",") if not key.startswith("no_key_")]
            if not (owner.__module__ == POPUPS and set(keys) <= {"up", "down", "escape"}):
                assert {action_of.get(key) for key in keys} <= {binding.id}, where
                assert binding.id in BY_ID, where
                seen |= set(keys)
            doer, _, name = binding.action.partition("(")[0].rpartition(".")
            assert hasattr(RankscopeApp if doer == "app" else owner, f"action_{name}"), where
    assert seen == set(action_of) - {"ctrl+p"}


def test_the_letters_of_a_menu_of_a_page_differ_and_do_something() -> None:
    pages: list[Any] = [function(row.page) for row in VIEWS.values()]
    with_menus = [page for page in pages if any(vars(kind).get("WAYS") for kind in page.__mro__)]
    assert len(with_menus) > len(pages) // 2
    for page in with_menus:
        ways = [way for kind in page.__mro__ for way in vars(kind).get("WAYS", ())]
        assert len({way.key for way in ways}) == len(ways), page.__name__
        assert all(hasattr(page, f"action_{way.action.partition('(')[0]}") for way in ways), page.__name__


def test_the_letters_of_the_menu_of_the_lanes_differ() -> None:
    boards = {"jobs": healthy(), "traces": traced()}
    for what, (dataset, analysis) in boards.items():
        screen = LanesScreen(build_model(dataset, analysis), np.zeros(1, np.uint8), PLAIN)
        letters = [letter for letter, _, _ in screen.switch.ways()]
        assert len(set(letters)) == len(letters) > 3, what
        assert "m" not in letters, "memory has it"
