"""Asks the job for dumps, after asking whoever sits before the screen."""

from __future__ import annotations

from rankscope.analysis.wording import plural
from rankscope.tui.messages import Asked
from rankscope.tui.screen import LanesScreen

NONE_FOUND = "no trigger pipe here: set TORCH_NCCL_DEBUG_INFO_PIPE_FILE for the next run"


def ask_for_dumps(screen: LanesScreen) -> None:
    """Offers to write to the trigger pipes there are."""
    pipes = screen.options.pipes
    ranks = pipes.ranks() if pipes is not None else []
    if pipes is None or not ranks:
        screen.note(NONE_FOUND)
        return
    choices = [f"ask {plural(len(ranks), 'rank')}: the job goes on", "do not ask"]

    def chosen(index: int) -> None:
        if index == 0:
            screen.run_worker(lambda: screen.post_message(Asked(pipes.ask())), thread=True, group="ask")

    screen.choose("write flight recorder dumps now", choices, chosen)
