"""What a report says of the steps that a trainer printed, and where it keeps silent."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from rankscope.assemble.load import load
from rankscope.report.json import render_json
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.features.logs.rows.test_restarts import restart

TIMEOUT = (
    "[rank1]:[E410 09:00:00.000000000 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran for 600029 milliseconds "
    "before timing out.\n"
)


def job(tmp_path: Path, text: str, name: str = "train.log") -> tuple[Dataset, Analysis]:
    (tmp_path / name).write_text(text)
    dataset = load([tmp_path])
    return dataset, analyse(dataset)


def judged(tmp_path: Path, text: str) -> Analysis:
    return job(tmp_path, text)[1]


def kinds(analysis: Analysis) -> list[str]:
    return [finding.kind for finding in analysis.findings]


def megatron(losses: Iterable[float | str], norm: str = "0.91", first: int = 100, ms: float = 2000.0) -> str:
    return "".join(
        f" iteration {first + at:8d}/   90000 | consumed samples: {(first + at) * 64} | elapsed time per iteration "
        f"(ms):"
        f" {ms + at % 3:.1f} | learning rate: 3.000E-04 | lm loss: {loss} | loss scale: 1.0 |"
        f" grad norm: {'nan' if loss == 'nan' else norm} | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |\n"
        for at, loss in enumerate(losses)
    )


def printed(losses: Iterable[float | str], *, every: int = 1) -> str:
    return "".join(f"step {every * at} | loss {loss} | lr 0.0003\n" for at, loss in enumerate(losses))


def noisy(count: int, level: float = 2.0, seed: int = 3) -> list[float]:
    """A loss that falls a little, with the noise of batches."""
    chance = random.Random(seed)
    return [round(level - 0.3 * at / count + chance.gauss(0, 0.04), 4) for at in range(count)]


def first(analysis: Analysis) -> Finding:
    return analysis.findings[0]


def test_a_loss_that_is_not_finite_any_more(tmp_path: Path) -> None:
    dataset, analysis = job(tmp_path, megatron([3.21, 3.2, 3.19, "nan", "nan"]))
    assert analysis.status == "failed"
    assert analysis.verdict == "the loss is nan from step 103 on (3.19 at step 102)"
    assert first(analysis).culprit_ranks == () and first(analysis).candidates == () and analysis.culprits == ()
    shown = [(e.line, e.text) for e in first(analysis).evidence]
    assert (3, "step 102: loss 3.19, gradient norm 0.91, learning rate 0.0003, loss scale 1, step time 2.002") in shown
    assert any("steps=100-103" in step for step in first(analysis).next_steps)
    assert analysis.verdict in render_text(dataset, analysis) and "Steps as the trainer printed them" in render_text(
        dataset, analysis
    )
    training = json.loads(render_json(dataset, analysis))["training"]
    loss = next(series for series in training["series"] if series["name"] == "loss")
    assert (loss["prints"], loss["not_finite"], loss["first_not_finite_step"]) == (5, 2, 103)
    assert training["steps"] == "5 steps (100 to 104)"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        # Transformers, without a step
        ("{'loss': 1.5, 'grad_norm': 2.0, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
         "{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.2}\n",
         "the loss is nan from print 2 on (1.5 at print 1)"),
        # with the progress bar that is drawn behind each print
        ("".join(f"{{'loss': {loss}, 'grad_norm': 1.0, 'epoch': 0.1}}\n {step}%|#  | {step}/100 [00:10<01:00,  "
                 f"1.0s/it]\n"
                 for step, loss in ((10, 1.5), (20, "inf"))), "the loss is inf from step 20 on (1.5 at step 10)"),
        # its filter prints 0 for a loss that is nan
        ("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}\n" * 3,
         "the gradient norm is nan from its first print on (print 1), beside a loss of 0"),
        # values of a step in several lines
        ("=== Step 7/99 ===\n  \u2022 Loss: 0.5\n  \u2022 Avg Reward: 0.1\n=== Step 8/99 ===\n  \u2022 Loss: nan\n",
         "the loss is nan from step 8 on (0.5 at step 7)"),
        ("[batch=7/99]:\n\t Train time/batch: 6\n\t Train loss/train/total: 2.5\n"
         "[batch=8/99]:\n\t Train time/batch: 7\n\t Train loss/train/total: nan\n",
         "the loss is nan from step 8 on (2.5 at step 7)"),
        # a critic alone
        ("step:1 - critic/vf_loss:nan - actor/pg_loss:0.1 - actor/grad_norm:2.0\n",
         "critic/vf_loss is nan from its first print on (step 1)"),
        # behind a Ray actor and a colour
        ("\x1b[36m(TaskRunner pid=77)\x1b[0m step:4 - actor/pg_loss:0.1 - actor/grad_norm:2.0\n"
         "\x1b[36m(TaskRunner pid=77)\x1b[0m step:5 - actor/pg_loss:nan - actor/grad_norm:nan\n",
         "the loss is nan from step 5 on (0.1 at step 4)"),
    ],
)  # fmt: skip
def test_forms_of_trainers(tmp_path: Path, text: str, verdict: str) -> None:
    analysis = judged(tmp_path, text)
    assert (analysis.status, analysis.verdict) == ("failed", verdict)


def test_what_stood_around_it(tmp_path: Path) -> None:
    rows = ((2.0, 1.0), (1.99, 1.1), (1.98, 0.9), (1.97, 44.0), ("nan", "nan"))
    lines = [
        f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': {1e-5 * (at + 1)}, 'epoch': 0.1}}\n"
        for at, (loss, norm) in enumerate(rows)
    ]
    told = first(judged(tmp_path, "".join(lines))).explanation
    assert "The gradient norm had risen from 1 to 44 in the print before." in told
    assert "The learning rate was 5e-05, and was still rising." in told


def test_a_gradient_norm_that_passes_is_a_note(tmp_path: Path) -> None:
    """Mixed precision skips a step now and then."""
    text = "".join(
        f"Epoch [1][{50 * (at + 1)}/900]\tlr: 1.000e-03, time: 0.53, loss: 1.9, grad_norm: {norm}\n"
        for at, norm in enumerate(("nan", "3.9", "4.1"))
    )
    analysis = judged(tmp_path, text)
    assert analysis.verdict.startswith(
        "3 printed steps (50 to 150); the gradient norm is nan at step 50, nothing else wrong seen"
    )
    assert [(f.kind, f.severity) for f in analysis.findings] == [("values-not-finite", "info")]


def test_a_loss_that_recovers_is_told_and_no_failure(tmp_path: Path) -> None:
    analysis = judged(tmp_path, megatron([2.0, 1.9, "nan", 1.9, 1.8]))
    assert (analysis.status, kinds(analysis)) == ("unknown", ["values-not-finite"])
    assert "the loss is nan at step 102" in analysis.verdict


def test_the_mean_of_a_progress_bar_is_no_loss(tmp_path: Path) -> None:
    """Lightning shows nan there where a program optimizes by hand."""
    bar = (
        "Epoch 0:   3%|#  | {at}/900 [02:12<76:15,  1.05s/it, loss=nan, v_num=, reduced_train_loss=3.9, "
        "global_step={at}.0]\n"
    )
    analysis = judged(tmp_path, "".join(bar.format(at=at) for at in range(5, 9)))
    assert "nothing else wrong seen" in analysis.verdict and [f.severity for f in analysis.findings] == ["info"]


def test_a_loss_that_jumps_and_does_not_come_back(tmp_path: Path) -> None:
    analysis = judged(tmp_path, printed([*noisy(60), *noisy(20, level=7.0)], every=5))
    assert kinds(analysis) == ["loss-jump"] and first(analysis).culprit_ranks == ()
    assert analysis.verdict.startswith("the loss jumps at step 300 from 1.7")
    assert analysis.status == "unknown"


@pytest.mark.parametrize(
    "losses",
    [
        [11.0 - 0.1 * at for at in range(60)],
        [*noisy(30), 6.5, 5.0, 3.5, 2.4, *noisy(30)],
        [value for at in range(40) for value in (noisy(40)[at], *([4.4] if at % 10 == 9 else []))],
        [0.0] * 10 + [0.0003 * at for at in range(60)],
        [*noisy(14), 9.0],
    ],
    ids=["warm-up", "spike that recovers", "rows of an evaluation", "from zero", "spike at the end"],
)
def test_healthy_losses_are_no_jump(tmp_path: Path, losses: list[float]) -> None:
    analysis = judged(tmp_path, printed(losses))
    assert analysis.findings == () and "nothing wrong seen" in analysis.verdict


def test_a_restart_is_no_jump(tmp_path: Path) -> None:
    """The step goes back to the checkpoint, and the loss with it."""
    high, low = [9.0 - 0.1 * at for at in range(80)], [5.0 - 0.1 * at for at in range(40)]
    text = printed(high) + "".join(f"step {40 + at} | loss {loss} | lr 0.0003\n" for at, loss in enumerate(low))
    assert judged(tmp_path, text).findings == ()


def test_losses_of_a_policy_have_no_usual_value(tmp_path: Path) -> None:
    losses = [*noisy(60, level=0.4), *noisy(20, level=3.0)]
    text = "".join(f"{{'loss': {loss}, 'reward': 0.5, 'kl': 0.001, 'epoch': 0.1}}\n" for loss in losses)
    assert judged(tmp_path, text).findings == ()


def test_two_printers_in_one_log_are_two_series(tmp_path: Path) -> None:
    """Losses of two ranks with other data do not jump where their lines change places."""
    text = "".join(
        f"[rank{rank}]:[titan] 2026-05-18 16:{at // 60:02d}:{at % 60:02d},338 - root - INFO - step: {at}  loss:  "
        f"{loss}\n"
        for at in range(60) for rank, loss in ((0, 2.0), (1, 5.5))
    )  # fmt: skip
    dataset, analysis = job(tmp_path, text)
    assert analysis.findings == () and sorted(dataset.training["printer"].unique().to_list()) == [0, 1]


def test_steps_that_take_longer(tmp_path: Path) -> None:
    text = megatron(noisy(60)) + megatron(noisy(30), first=160, ms=3900.0)
    analysis = judged(tmp_path, text)
    assert (analysis.status, kinds(analysis)) == ("slow", ["steps-slower"])
    assert analysis.verdict == "steps take 3.901 s since step 160, 2.001 s before (1.9 times as long)"


def test_steps_that_take_longer_by_the_clock_of_the_log(tmp_path: Path) -> None:
    seconds = [*(5 * at for at in range(40)), *(200 + 12 * at for at in range(25))]
    text = "".join(
        f"2026-05-18 16:{at // 60:02d}:{at % 60:02d},338 - root - INFO - step: {step}  loss:  2.5  lr: 0.1\n"
        for step, at in enumerate(seconds)
    )
    analysis = judged(tmp_path, text)
    assert kinds(analysis) == ["steps-slower"] and "12 s since step" in analysis.verdict


def test_a_slow_step_now_and_then_is_none(tmp_path: Path) -> None:
    """Checkpoints and evaluations."""
    text = "".join(megatron([2.0], first=at, ms=30_000.0 if at % 15 == 0 else 2000.0) for at in range(1, 80))
    assert judged(tmp_path, text).findings == ()


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        ((64, 32, 16, 8, 4, 2), ["steps-skipped"]),
        ((1,) * 6, ["steps-skipped"]),
        # a scaler begins far too high
        ((2**20, 2**19, 2**18, 2**17, 2**16, 2**15), []),
    ],
)
def test_overflows_up_to_the_end(tmp_path: Path, scales: tuple[int, ...], expected: list[str]) -> None:
    text = "".join(
        f"[2026-06-07 22:1{at}:00,018] [INFO] [loss_scaler.py:181:update_scale] [deepspeed] OVERFLOW! Rank 0 "
        f"Skipping step. Attempted loss scale: {2 * scale}, reducing to {scale}\n"
        for at, scale in enumerate(scales)
    )
    assert kinds(judged(tmp_path, text)) == expected


def test_a_failure_keeps_its_headline(tmp_path: Path) -> None:
    """A collective that timed out stays the cause, and the broken loss stands beside it."""
    alone = judged(tmp_path, TIMEOUT)
    both = judged(tmp_path, megatron([3.0, 2.9, "nan", "nan"]) + TIMEOUT)
    assert (both.status, both.verdict.replace(":5)", ":1)")) == (alone.status, alone.verdict)
    told = [f for f in both.findings if f.kind == "loss-not-finite"]
    assert [(f.severity, f.root_cause) for f in told] == [("warning", False)]


def test_steps_beside_a_failure_are_shown_and_change_nothing(tmp_path: Path) -> None:
    dataset, both = job(tmp_path, megatron([3.0, 2.9]) + TIMEOUT)
    assert kinds(both) == kinds(judged(tmp_path, TIMEOUT)) and dataset.training.height
    assert both.status == "hang"


def test_a_large_log_is_read_in_ranges_as_whole(tmp_path: Path) -> None:
    """Lines keep their numbers, whatever process reads them."""
    from rankscope.features.logs.read.decode import decode_part, decode_range
    from rankscope.features.logs.read.model import log_from
    from rankscope.features.logs.read.stretches import LogJoiner

    path = tmp_path / "train.log"
    path.write_text(megatron([*noisy(200), "nan"]))
    joiner = LogJoiner()
    with path.open("rb") as stream:
        whole = decode_range(stream, 0, None)
    with path.open("rb") as stream:
        for number in range(3):
            part = decode_part(stream, path.stat().st_size, number, 3)
            header = json.loads(json.dumps(part.header()))
            joiner.add(log_from(header, memoryview(b"".join(part.body()))))
    joined = joiner.result().training
    assert whole.training is not None and joined is not None
    columns = ["line", "step", "name", "value", "offset"]
    one, other = (rows.filter(rows["name"] != "samples").select(columns) for rows in (joined, whole.training))
    assert one.equals(other) and one.height == 7 * 201
    assert joined.filter(joined["value"].is_nan())["line"].unique().to_list() == [201]


def test_steps_of_another_run_in_the_log_are_left_out(tmp_path: Path) -> None:
    """torchrun started the processes again: what the first ones printed is of another attempt."""
    text = megatron([2.0, "nan", "nan"]) + "\n".join([*restart(1), ""]) + megatron([2.0, 1.9, 1.8])
    dataset, analysis = job(tmp_path, text)
    assert dataset.training["line"].to_list()[0] == 9 and "loss-not-finite" not in kinds(analysis)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    text = "step: 1 | \x1b]0;x\x07loss evil<script>: nan | loss: 2.0\n" * 3
    dataset, analysis = job(tmp_path, text)
    assert "\x1b" not in render_text(dataset, analysis) and "\x07" not in render_text(dataset, analysis)
