"""Logs and files of a run in the forms of Megatron-LM, torchtitan, HF Trainer, Lightning and wandb."""

from __future__ import annotations

import argparse
import csv
import importlib
import json
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self

WRITERS = ("megatron", "titan", "hf", "lightning", "wandb")
_NEEDS = {"titan": "tensorboard", "wandb": "wandb"}
_OWN = ("writer", "print_options", "batch_hash", "step_s")
"""Options of the benchmark, which no trainer has."""


class Row(NamedTuple):
    """The values of a step."""

    step: int
    loss: float
    grad_norm: float
    lr: float
    step_s: float
    data_s: float
    params_norm: float
    batch_crc: int | None


def writable() -> list[str]:
    """The forms whose packages are installed."""
    return [name for name in WRITERS if name not in _NEEDS or find_spec(_NEEDS[name]) is not None]


class RunWriter:
    """Writes the rows of one run into its folder, and all of them exactly into `truth.jsonl` beside that."""

    def __init__(self, asked: argparse.Namespace, folder: Path, done: int) -> None:
        self._asked, self._folder = asked, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / "train.log").open("a")
        self._truth = (folder.parent / f"{folder.name}.jsonl").open("a")
        self._options = {name: value for name, value in vars(asked).items() if name not in _OWN}
        self._rows: list[Row] = []
        self._events: Any = None
        if asked.writer == "titan":
            self._events = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder / "tb"))
        if asked.print_options:
            getattr(self, f"_{asked.writer}_options")()
        if asked.load:
            self._line(f"  successfully loaded checkpoint from {asked.load} at iteration {done}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end = {"hf": self._hf_state, "wandb": self._wandb_run, "lightning": self._metrics}.get(self._asked.writer)
        if end is not None:
            end()
        if self._events is not None:
            self._events.close()
        self._log.close()
        self._truth.close()

    def add(self, row: Row) -> None:
        """Writes the values of a step."""
        self._rows.append(row)
        self._truth.write(json.dumps(row._asdict()) + "\n")
        getattr(self, f"_{self._asked.writer}_row")(row)
        self._log.flush()

    def _line(self, text: str) -> None:
        self._log.write(text + "\n")

    # Megatron-LM: training/training.py, training_log and _print_args

    def _megatron_options(self) -> None:
        self._line("------------------------ arguments ------------------------")
        for name, value in sorted(self._options.items()):
            self._line(f"  {name} {'.' * (48 - len(name))} {value}")
        self._line("-------------------- end of arguments ---------------------")

    def _megatron_row(self, row: Row) -> None:
        batch, stamp = self._asked.global_batch_size, f"{datetime.now():%Y-%m-%d %H:%M:%S.%f}"
        told = (
            f"consumed samples: {row.step * batch:12d}", f"elapsed time per iteration (ms): {row.step_s * 1000:.1f}",
            f"learning rate: {row.lr:.6E}", f"global batch size: {batch:5d}", f"lm loss: {row.loss:.6E}",
            "loss scale: 1.0", f"grad norm: {row.grad_norm:.3f}", f"params norm: {row.params_norm:.3f}",
            "number of skipped iterations:   0", "number of nan iterations:   0",
        )  # fmt: skip
        self._line(f" [{stamp}] iteration {row.step:8d}/{self._asked.train_iters:8d} | {' | '.join(told)} |")
        ms = 1000 * row.data_s
        self._line("(min, max) time across ranks (ms):")
        self._line(f"    batch-generator ................................: ({ms:.2f}, {ms:.2f})")

    # torchtitan: components/metrics.py, and the job config that train.py prints

    def _titan_options(self) -> None:
        told = {
            "training": {k: v for k, v in self._options.items() if k not in ("learning_rate", "output_dir")},
            "optimizer": {"name": "AdamW", "lr": self._options["learning_rate"]},
            "job": {"dump_folder": self._options["output_dir"]},
        }
        self._line(
            f"[titan] {datetime.now():%Y-%m-%d %H:%M:%S},000 - root - INFO - Running with configs: {json.dumps(told)}"
        )

    def _titan_row(self, row: Row) -> None:
        self._line(
            f"[titan] {datetime.now():%Y-%m-%d %H:%M:%S},000 - root - INFO - \x1b[31mstep: {row.step:2d}  "
            f"\x1b[32mloss: {row.loss:8.5f}  \x1b[38;2;180;60;0mgrad_norm: {row.grad_norm:7.4f}  "
            f"\x1b[38;2;54;234;195mmemory:  0.01GiB(0.00%)  \x1b[34mtps: {round(384 / row.step_s):,}\x1b[39m"
        )
        for tag, value in (
            ("loss_metrics/global_avg_loss", row.loss), ("grad_norm", row.grad_norm), ("lr", row.lr),
            ("time_metrics/end_to_end(s)", row.step_s), ("time_metrics/data_loading(s)", row.data_s),
        ):  # fmt: skip
            self._events.add_scalar(tag, value, row.step)

    # HF Trainer: TrainingArguments.__str__, and the dicts that it prints

    def _hf_options(self) -> None:
        stamp = f"{datetime.now():%m/%d/%Y %H:%M:%S}"
        self._line(f"{stamp} - INFO - __main__ - Training/evaluation parameters TrainingArguments(")
        self._log.writelines(f"{name}={value},\n" for name, value in sorted(self._options.items()))
        self._line(")")

    def _hf_told(self, row: Row) -> dict[str, float | int]:
        told: dict[str, float | int] = {
            "loss": round(row.loss, 4), "grad_norm": row.grad_norm, "learning_rate": row.lr,
            "epoch": round(row.step * self._asked.global_batch_size / 512, 2),
        }  # fmt: skip
        if row.batch_crc is not None:
            told["batch_crc32"] = row.batch_crc
        return told

    def _hf_row(self, row: Row) -> None:
        self._line(str(self._hf_told(row)))

    def _hf_state(self) -> None:
        history = [{**self._hf_told(row), "step": row.step} for row in self._rows]
        state = {"epoch": 1.0, "global_step": self._rows[-1].step, "log_history": history, "max_steps": len(history)}
        (self._folder / "trainer_state.json").write_text(json.dumps(state, indent=2))

    # Lightning: CSVLogger writes metrics.csv and hparams.yaml

    def _lightning_options(self) -> None:
        (self._folder / "hparams.yaml").write_text("".join(f"{k}: {v}\n" for k, v in sorted(self._options.items())))

    def _lightning_row(self, row: Row) -> None:
        if row.step % 10 == 0:
            self._line(
                f"Epoch 0: {row.step}/{self._asked.train_iters} [00:01<00:01, v_num=0, train_loss={row.loss:.3f}]"
            )

    def _metrics(self) -> None:
        """The table at the end, with a column for each name."""
        with (self._folder / "metrics.csv").open("w", newline="") as file:
            table = csv.writer(file)
            hashed = self._rows[0].batch_crc is not None
            table.writerow(
                ["epoch", "grad_norm", "lr-AdamW", "step", "train_loss", *(["batch_crc32"] if hashed else [])]
            )
            for row in self._rows:
                more = [row.batch_crc] if hashed else []
                table.writerow([0, row.grad_norm, row.lr, row.step, row.loss, *more])

    # wandb, offline: its own library writes the file

    def _wandb_options(self) -> None:
        """They go into the run's configuration."""

    def _wandb_row(self, row: Row) -> None:
        """Rows go into the run at the end: its service would share the cores with the job."""

    def _wandb_run(self) -> None:
        wandb: Any = importlib.import_module("wandb")
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
        run = wandb.init(
            mode="offline", dir=str(self._folder), project="pairs", settings=settings,
            config=self._options if self._asked.print_options else None,
        )  # fmt: skip
        for row in self._rows:
            told = {
                "train/loss": row.loss,
                "train/grad_norm": row.grad_norm,
                "train/lr": row.lr,
                "step_time": row.step_s,
            }
            told |= {"data_time": row.data_s}
            if row.batch_crc is not None:
                told["batch_crc32"] = row.batch_crc
            run.log(told, step=row.step)
        run.finish()
