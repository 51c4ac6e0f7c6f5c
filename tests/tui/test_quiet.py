"""Searching for cycles waits until nobody presses keys."""

from __future__ import annotations

import gc
import weakref

from rankscope.tui.quiet import EVERY_S, LONGEST_S, QUIET_S, Quiet


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class _Cycle:
    def __init__(self) -> None:
        self.own = self


def test_a_search_waits_for_quiet() -> None:
    clock = _Clock()
    quiet = Quiet(clock)
    clock.now += EVERY_S
    quiet.pressed()
    clock.now += QUIET_S / 2
    assert not quiet.search()
    clock.now += QUIET_S / 2
    assert quiet.search()
    clock.now += EVERY_S - 1
    assert not quiet.search()


def test_keys_without_end_do_not_put_it_off_for_ever() -> None:
    clock = _Clock()
    quiet = Quiet(clock)
    clock.now += LONGEST_S - 1
    quiet.pressed()
    assert not quiet.search()
    clock.now += 1
    quiet.pressed()
    assert quiet.search()


def test_what_only_refers_to_itself_is_taken_away() -> None:
    clock = _Clock()
    quiet = Quiet(clock)
    gone = weakref.ref(_Cycle())
    gc.collect(0)
    clock.now += EVERY_S
    assert quiet.search()
    assert gone() is None
