"""All outputs of the screen: the report, one trace of all ranks, copies, and requests to the job.

A copy also goes to a file: clipboards often do not work through tmux and SSH.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.report.next_commands import offered_commands
from rankscope.schema import Dataset, Frame
from rankscope.text.escaping import plain
from rankscope.text.wording import clock, plural
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.copies import copy, short_path
from rankscope.tui.header import finding_text
from rankscope.tui.options import Export
from rankscope.tui.popups import Choice
from rankscope.tui.selection import Selection

NOT_YET = "wait until all files are read: this one would tell of a part"
"""The answer to a key that writes a file, while the rest of the job is read."""


class Exports:
    """Writes files in the export directory, and writes to the clipboard."""

    def __init__(self, view: MainView, boards: BoardSet) -> None:
        self._view, self._boards, self._options = view, boards, view.options

    def choose_export(self) -> None:
        """Asks for the form of the report, then writes it to a file."""
        forms = list(self._options.exports)
        if self._boards.whole.is_partial:
            self._view.note(NOT_YET)
        elif forms:
            choices = [
                Choice(f"{form}: write the report to {self._options.export_dir}", form[0].lower()) for form in forms
            ]
            self._view.choose("export", choices, lambda at: self._export_findings(self._options.exports[forms[at]]))

    def _export_findings(self, export: Export) -> None:
        whole = self._boards.whole
        try:
            path = export(whole.dataset, whole.analysis, self._options.export_dir)
        except OSError as error:
            self._view.note(f"not written: {error.strerror or error}")
        else:
            self._view.note(_written_to(path, self._view.size.width))

    def export_traces(self) -> None:
        """Writes the traces of all ranks as one file, on one clock, for Perfetto."""
        timed, export = self._boards.whole.timed, self._options.export_traces
        if export is None or timed is None:
            self._view.note("there are no profiler traces to merge")
        elif self._boards.whole.is_partial:
            self._view.note(NOT_YET)
        elif timed.dataset.has_sparse_traces:
            self._view.note("not all of the traces could be read: a merged one would lack most of them")
        else:
            self._view.note("writing the merged trace ...")
            to = "for ui.perfetto.dev"
            written = partial(
                _written, export, timed.dataset, timed.analysis, self._options.export_dir, self._view.size.width, to
            )
            self._view.work_out(written, self._view.note)

    def export_repro(self) -> None:
        """Writes the script that replays the job."""
        export, whole = self._options.export_repro, self._boards.whole
        if whole.is_partial:
            self._view.note(NOT_YET)
        elif export is not None:
            self._view.note("writing the script, and playing it in memory ...")
            to = "run it with a Python that has torch"
            written = partial(
                _written, export, whole.dataset, whole.analysis, self._options.export_dir, self._view.size.width, to
            )
            self._view.work_out(written, self._view.note)

    def step_replay(self) -> None:
        """Lets each rank of the replay on the screen begin its next operation."""
        step = self._options.step
        self._view.note("this job is no replay: rankscope repro PATH --run --step" if step is None else step())

    def copy(self) -> None:
        """Copies the selection under the cursor."""
        whole, selection = self._boards.whole, self._boards.shown.selection
        if selection is not None:
            self._copy(copied_text(whole.dataset, whole.analysis, selection), "copied")

    def copy_command(self) -> None:
        """Copies the command of the next step of the finding on the screen, or all that collect what it lacks."""
        at, whole = self._boards.shown.finding, self._boards.whole
        found = whole.analysis.findings
        given = self._options.given
        commands = "" if at is None else offered_commands(whole.dataset, whole.analysis, found[at], given)
        if commands.count("\n") > 1:
            self._copy(commands, "copied: the commands that collect what is missing (rankscope report --only next)")
        elif commands:
            self._copy(commands, f"copied: {commands.rstrip()}")
        else:
            self._view.note("the finding on the screen names no command as its next step; y copies the finding itself")

    def _copy(self, text: str, done: str) -> None:
        view = self._view
        view.note(copy(view.app, self._options.export_dir, text, done, view.size.width - 1))


def _written_to(path: Path, width: int, use: str = "") -> str:
    """A message for a line of `width` cells: the file, and its use."""
    words = f" written: {use}" if use else " written"
    return f"{short_path(path, width - len(words) - 1)}{words}"


def _written(export: Export, dataset: Dataset, analysis: Analysis, directory: Path, width: int, use: str) -> str:
    try:
        path = export(dataset, analysis, directory)
    except OSError as error:
        return plain(f"not written: {error.strerror or error}")
    except ValueError as error:
        return plain(f"not written: {error}")
    return _written_to(path, width, use)


def copied_text(dataset: Dataset, analysis: Analysis, selection: Selection) -> str:
    """The verdict, the finding on the screen, the operation under the cursor and its stack."""
    lines = [f"{plain(dataset.root)}: {plain(analysis.verdict)}"]
    if selection.finding is not None:
        finding = analysis.findings[selection.finding]
        lines.append(f"{finding_text(finding)} (sure: {finding.confidence})")
    lines.append(_operation(dataset, selection))
    lines += [f"  {plain(f.function)} {plain(f.file)}:{f.line}" for f in _stack(dataset, analysis, selection)]
    return "\n".join(lines) + "\n"


def _stack(dataset: Dataset, analysis: Analysis, selection: Selection) -> tuple[Frame, ...]:
    """The stack of the operation; if there is none, the stack of the finding."""
    if selection.row is not None:
        return dataset.stack(dataset.ops["stack_id"][selection.row])
    return analysis.findings[selection.finding].stack if selection.finding is not None else ()


def _operation(dataset: Dataset, selection: Selection) -> str:
    group = dataset.group_list[selection.group] if selection.group is not None else None
    where = "" if group is None else f" of {plain(group.description or group.name)}"
    number = "" if selection.seq is None else f" #{selection.seq}"
    if selection.row is None:
        missing = f": {selection.absence}" if selection.absence else ""
        return f"rank {selection.rank}{number}{where}{missing}"
    row = dataset.ops.select(pl.col("op", "state").cast(pl.String), "created_ns").row(selection.row, named=True)
    return f"rank {selection.rank} {plain(row['op'] or '')}{number}{where} {row['state']} {clock(row['created_ns'])}"


NONE_FOUND = "no trigger pipe here: set TORCH_NCCL_DEBUG_INFO_PIPE_FILE for the next run"
NONE_MADE = "{} makes no trigger pipes: run rankscope.capture in the job"
NCCL = "nccl"


class DumpOffer:
    """Writes to the trigger pipes of the job, which belong to NCCL's own recorder.

    No other backend makes any: not nccl2, which torch 2.15 calls "nccl", and not gloo.
    """

    def __init__(self, view: MainView, boards: BoardSet) -> None:
        self._view, self._boards = view, boards

    def offer(self) -> None:
        """Offers to write to the existing pipes."""
        pipes = self._view.options.pipes
        ranks = pipes.ranks() if pipes is not None else []
        # the backends of the shown operations that make no pipes
        without = sorted(set(self._boards.shown.model.dataset.ops["library"].cast(pl.String).drop_nulls()) - {NCCL, ""})
        if pipes is None or not ranks:
            self._view.note(NONE_MADE.format(" and ".join(without)) if without else NONE_FOUND)
            return
        rest = f"NCCL's own recorder only, not {' and '.join(without)}" if without else "the job goes on"
        choices = [f"ask {plural(len(ranks), 'rank')}: {rest}", "do not ask"]

        def chosen(index: int) -> None:
            if index == 0:
                self._view.work_out(pipes.ask, self._view.note)

        self._view.choose("write flight recorder dumps now", choices, chosen)
