"""How long a frame of the lanes of operations takes, by the number of lanes, folded by look and with a row for each.

python -m benchmarks.lane_frames DUMPS [COPIES ...] [--rounds 31] [--write]

The lanes of DUMPS are copied so many times: the widget has the size of a terminal of 200 columns and 60 lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table
from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.tui.board import Board
from rankscope.tui.cell_selection import place_of_finding
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.lane_paint import Painter, compose, gutter_for
from rankscope.tui.model import Items, Model, build_model
from rankscope.tui.options import ViewOptions

WIDTH, ROWS = 180, 50
LOOK = ViewOptions(palette="256").look
MOVES: dict[str, Callable[[Board], object]] = {
    "lane below": lambda board: board.go_row(board.row + 1),
    "cell to the left": lambda board: board.go_cell(-1),
    "page to the left": lambda board: board.go_cell(-60),
}


def copied(model: Model, copies: int) -> Model:
    """The lanes of a model `copies` times, with ranks of their own."""
    lanes, items = len(model.ranks), model.items
    many = {field.name: np.tile(getattr(items, field.name), copies) for field in fields(Items)}
    many["lane"] = many["lane"] + np.repeat(np.arange(copies, dtype=np.int32) * lanes, len(items.lane))
    return replace(
        model,
        ranks=np.arange(lanes * copies, dtype=np.int32),
        items=Items(**many),
        gap_until=np.tile(model.gap_until, copies),
        gap_reason=np.tile(model.gap_reason, copies),
    )


def measured(model: Model, rounds: int) -> list[list[str]]:
    """Rows of the table: processor time of a frame in ms, for each move, folded and unfolded."""
    boards = BoardSet(model, np.zeros(1, np.uint8))
    board, painter = boards.operations, Painter()
    board.resize(WIDTH, ROWS)
    boards.blame(0)
    place = place_of_finding(model, model.analysis.findings[0])
    if place is not None:
        boards.go(place)
    board.settle(ROWS)
    out = [_row(board, painter, "folded", rounds)]
    board.toggle_fold_all()
    return [*out, _row(board, painter, "each its row", rounds)]


def _row(board: Board, painter: Painter, name: str, rounds: int) -> list[str]:
    gutter = gutter_for(WIDTH + 20, len(board.model.ranks))
    spent = []
    for move in MOVES.values():
        times = []
        for _ in range(rounds):
            begin = time.process_time()
            move(board)
            painter.rows(compose(board, gutter)[0], WIDTH + gutter.width, LOOK, lit=True)
            times.append(time.process_time() - begin)
        spent.append(f"{median(times) * 1e3:.1f}")
    return [f"{len(board.model.ranks):,}", name, f"{board.count:,}", *spent]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints the table."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("dumps", type=Path)
    parser.add_argument("copies", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=31)
    given = parser.parse_args(arguments)
    dataset = load([given.dumps])
    model = build_model(dataset, analyse(dataset))
    rows = [row for copies in given.copies for row in measured(copied(model, copies), given.rounds)]
    text = table(["lanes", "shown", "rows", *(f"{name}, ms" for name in MOVES)], rows)
    how = f"Processor time of a frame of {WIDTH} cells x {ROWS} rows, median of {given.rounds}. {machine()}"
    publish("Frames of the lanes of operations", f"{how}\n\n{text}", write=given.write)


if __name__ == "__main__":
    run_program(main)
