"""The registry of actions: keys, bindings and methods belong together."""

from __future__ import annotations

from collections import Counter

from textual.binding import Binding

from rankscope.tui.actions import ACTIONS, BY_ID, FOOTER, TRACED_FOOTER, bindings_for
from rankscope.tui.app import RankscopeApp
from rankscope.tui.timeline import MOVES, Timeline
from tests.tui.drive import opened
from tests.tui.jobs import healthy


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
    assert all(BY_ID[name].short for name in (*FOOTER, *TRACED_FOOTER))
    assert {action.id for action in ACTIONS if action.short} == {*FOOTER, *TRACED_FOOTER}


def test_bindings_are_made_of_the_registry() -> None:
    bound = [b for scope in ("lanes", "screen", "app") for b in bindings_for(scope)]
    keys = {b.key for b in bound if isinstance(b, Binding)}
    assert keys == {key for action in ACTIONS for key in action.keys} - {"ctrl+p"}
    assert bindings_for("lanes") == Timeline.BINDINGS


def test_the_keys_of_the_specification_are_there() -> None:
    words = {
        "up", "down", "pageup", "pagedown", "left", "right", "shift+left", "shift+right", "comma", "full_stop", "plus",
        "minus", "slash", "tab", "enter", "escape", "colon", "ctrl+p", "question_mark",
    }  # fmt: skip
    assert words | set("kjgGhlws0zZnNfpotucrveymq") <= {key for action in ACTIONS for key in action.keys}
