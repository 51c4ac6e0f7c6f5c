"""Presses every key on every page of the app, every letter of its menus, and does every action that has no key; lets
nothing pass that one of them breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from textual.events import Key
from textual.pilot import Pilot
from textual.screen import Screen

from rankscope.features.comparison.page.compared_view import VIEW_NAMES
from rankscope.kinds.view_kinds import VIEWS
from rankscope.tui.actions import ACTIONS, TAB_KEYS
from rankscope.tui.app import RankscopeApp
from rankscope.tui.detail.screens.page import Page
from rankscope.tui.popups import ChoiceScreen, Prompt
from tests.tui.drive import screen_text, until

ENDING = frozenset({"ctrl+c", "ctrl+q"})
"""Keys that end the app, whatever else they do."""
SHARED = (*(f"tab({number})" for number, _ in TAB_KEYS), "main('export')", "main('copy_command')", "app.help")
"""Actions that pages do with the functions of the main screen."""
TURNS = 5
"""Of those that are shared, each page does one of so many: the next pages do the others."""
MOST_BACK = 6
"""Most times that escape is pressed to come back to a screen."""


@dataclass
class KeyWalk:
    """A walk through an app by keys. A screen over another one is walked through, too, once for each class."""

    app: RankscopeApp
    pilot: Pilot[None]
    pressed: list[str] = field(default_factory=list)
    """The screens and their keys so far."""
    _walked: set[type[Screen[Any]]] = field(default_factory=set)

    def keys_of(self, screen: str) -> set[str]:
        """The keys that were pressed on a class of screens."""
        return {key for name, _, key in (one.partition(":") for one in self.pressed) if name == screen}

    async def press(self, *keys: str) -> None:
        """Presses keys, each when the one before is done."""
        for key in keys:
            self.pressed.append(f"{type(self.app.screen).__name__}:{key}")
            # the pilot's own keys take 40 ms each, in which it watches how busy the process is
            self.app.post_message(Key(key, key if len(key) == 1 else None))
            await self._done()

    async def _done(self) -> None:
        """Waits until the app, then the screen and its parts have taken what came; fails if anything has failed."""
        for _ in range(2):
            await self.pilot._wait_for_screen()
        problem = self.app._exception or self.app.failure
        if problem is not None:
            raise AssertionError(f"{problem!r} after {' '.join(self.pressed[-12:])}") from problem

    async def walk_opening(self) -> None:
        """Presses all keys while nothing is there to show."""
        assert self.app.screen is self.app.opening
        await self.walk(self._done)
        assert self.app.screen is self.app.opening

    async def walk_lanes(self) -> None:
        """Presses all keys of the lanes, then those of the pane beside them that these do not know."""
        await self._page_arranged()
        await self.back_to(self.app.lanes)
        self.app.lanes.set_focus(self.app.lanes.main_pane)
        known = frozenset(self.app.screen.active_bindings)
        await self.walk(self._done)
        await self.press("tab")
        await self.walk(self._done, known)
        await self.walk_names()

    async def walk_names(self) -> None:
        """Does each action that has no key, as the command palette does."""
        screen = self.app.lanes
        for action in ACTIONS:
            if not action.keys:
                self.pressed.append(f"LanesScreen:{action.id}")
                screen._do(action)
                await self._page_arranged()
                await self._answer(screen)
                await self.back_to(screen)

    async def walk_pages(self) -> None:
        """Walks through all pages of a comparison."""
        for at in range(1, len(VIEW_NAMES) + 1):

            async def reopen(key: str = str(at)) -> None:
                await self.press(key)

            await reopen()
            await self.walk(reopen)

    async def walk_views(self, but: Collection[str] = (), *, empty: bool = False) -> None:
        """Walks through all views `but` these; where they hold nothing, only if `empty`."""
        for view in VIEWS.values():
            if view.name in but:
                continue

            async def reopen(name: str = view.name) -> None:
                self.app.lanes.open_view(name)
                await self._done()
                await self._page_arranged()

            await reopen()
            if empty or not self.app.screen.has_class("-empty"):
                await self.walk(reopen)
            await self.back_to(self.app.lanes)

    async def _page_arranged(self) -> None:
        """Waits for the threads of pages, not for the one that loads."""
        await until(self.pilot, lambda: all(one.is_finished or one.group == "load" for one in self.app.workers))
        await self._done()

    async def walk(self, reopen: Callable[[], Awaitable[None]], but: frozenset[str] = frozenset()) -> None:
        """Presses each key that the screen or its parts know, `but` these; of keys for the same action the first one.

        `reopen` opens the screen anew where a key has closed it.
        """
        done = set()
        screen, focused = self.app.screen, self.app.focused
        self._walked.add(type(screen))
        turn = len(self._walked)
        for key, active in list(screen.active_bindings.items()):
            act = active.node, active.binding.action
            if act in done or key in but or key in ENDING or active.binding.action.endswith("quit"):
                continue
            shared = isinstance(screen, Page) and active.binding.action in SHARED
            if shared and (SHARED.index(active.binding.action) + turn) % TURNS:
                continue
            if self.app.screen is not screen:
                await reopen()
                if type(self.app.screen) is not type(screen):
                    return
                screen, focused = self.app.screen, self.app.focused
            done.add(act)
            screen.set_focus(focused)
            await self.press(key)
            await self._answer(screen, key)
            if screen in self.app.screen_stack:
                await self.back_to(screen)

    async def back_to(self, screen: Screen[Any]) -> None:
        """Presses escape until a screen is on top."""
        for _ in range(MOST_BACK):
            if self.app.screen is screen:
                return
            await self.press("escape")
        raise AssertionError(f"escape does not close this:\n{screen_text(self.app)}")

    async def _answer(self, below: Screen[Any], key: str = "") -> None:
        """Types into a line of text, chooses from a list, and walks through another page that is no view.

        `key` opened it; without one it was opened by name. Views are walked through by `walk_views`.
        """
        top = self.app.screen
        if top.query(Prompt):
            await self.press("1", "enter")
        elif isinstance(top, ChoiceScreen):
            await self._choose(top, below, key)
        elif isinstance(top, Page) and top.VIEW:
            return
        elif top is not below and top in self.app.screen_stack and type(top) not in self._walked:
            await self.walk(lambda: self.press(key))

    async def _choose(self, menu: ChoiceScreen, below: Screen[Any], key: str) -> None:
        """Chooses the second entry of a list, or each letter of a menu, one after the other."""
        letters = [choice.key for choice in menu._choices if choice.key]
        if not letters:
            await self.press("down", "enter")
        for letter in letters:
            if below not in self.app.screen_stack:
                return
            if self.app.screen is not menu:
                await self.back_to(below)
                await self.press(key)
            await self.press(letter)
            await self._page_arranged()
            if not isinstance(self.app.screen, ChoiceScreen):
                await self._answer(below, key)
