"""Series in logs: prefixes, resolution, damage, bars, and lines that are none."""

from __future__ import annotations

import math
import re

import polars as pl
import pytest

from rankscope.features.series.read.log_series import read_log_series
from rankscope.features.series.read.user_pattern import SeriesPatternError, read_pattern_series, series_pattern

PLAIN = "step: 7 loss: 2.5 lr: 1e-3"


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (PLAIN, None),
        (f"[rank3]: {PLAIN}", 3),
        (f"[rank12]:{PLAIN}", 12),
        (f"[default5]:{PLAIN}", 5),
        (f"3: {PLAIN}", 3),
        (f"2026-05-18 16:04:46,338 {PLAIN}", None),
        (f"[2026-05-18 16:04:46] [INFO] [logging.py:96:log_dist] [Rank 4] {PLAIN}", 4),
        (f"trainer-0  | {PLAIN}", None),
        (f"2026-05-18T16:04:46.338Z stdout F {PLAIN}", None),
        (f'{{"log": "{PLAIN}\\n", "stream": "stdout", "time": "2026-05-18T16:04:46Z"}}', None),
        (f"(TaskRunner pid=615, ip=10.0.0.6) {PLAIN}", None),
        (f"\x1b[36m{PLAIN}\x1b[0m", None),
        (f"INFO:root:{PLAIN}", None),
    ],
)
def test_prefixes_of_launchers_are_taken_off(line: str, rank: int | None) -> None:
    rows = points(line)
    assert rows.select("step", "name", "value").rows() == [(7, "loss", 2.5), (7, "lr", 0.001)]
    assert rows["rank"].to_list() == [rank, rank]


def test_lines_of_many_ranks_keep_theirs() -> None:
    text = "\n".join(f"{rank}: step {step} loss {step + rank / 10}" for step in range(20) for rank in (0, 1, 11))
    rows = points(text)
    assert rows.height == 60
    assert rows.filter(pl.col("rank") == 11)["value"].to_list() == [step + 1.1 for step in range(20)]


@pytest.mark.parametrize(
    ("text", "value", "resolution"),
    [
        ("3.1007", 3.1007, 0.00005),
        ("1.107468E+01", 11.07468, 5e-6),
        ("1e-3", 0.001, 5e-4),
        ("-0.25", -0.25, 0.005),
        ("+4", 4.0, 0.5),
        ("8.049097061157227", 8.049097061157227, 0.0),
        ("0.7599466443061829", 0.7599466443061829, 0.0),
        ("12,345.5", 12345.5, 0.05),
        ("nan", math.nan, 0.0),
        ("NaN", math.nan, 0.0),
        ("-inf", -math.inf, 0.0),
        ("inf", math.inf, 0.0),
        ("tensor(2.5, device='cuda:0')", 2.5, 0.05),
    ],
)
def test_the_resolution_is_half_of_the_last_digit(text: str, value: float, resolution: float) -> None:
    for line in (f"step=3, loss={text}", f"iteration 3/10 | lm loss: {text} |", f"{{'step': 3, 'loss': {text}}}"):
        row = points(line).filter(name="loss").row(0, named=True)
        assert row["step"] == 3
        assert row["value"] == pytest.approx(value, rel=1e-12, nan_ok=True)
        assert row["resolution"] == pytest.approx(resolution)


def test_counts_without_decimals_are_exact() -> None:
    rows = points("iteration 3/9 | consumed samples: 96 | lm loss: 2.5 | number of skipped iterations: 0 |")
    assert rows.filter(pl.col("name").is_in(["samples", "skipped"]))["resolution"].to_list() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("794.0", 794, None),
        ("2e+3", 1995, 2005),
        ("1.23e+5", 122500, 123500),
        ("9e+2", 900, None),
        ("1,024", 1024, None),
    ],
)
def test_a_rounded_step_is_a_range(text: str, low: int, high: int | None) -> None:
    rows = points(f"Epoch 0: 1%|# | 7/9 [00:01<00:02, 1.0it/s, reduced_train_loss=0.139, global_step={text}]")
    assert rows.select("step", "step_hi", "value").rows() == [(low, high, 0.139)]


def test_times_are_read_where_they_have_a_date() -> None:
    text = "[2026-01-01 00:00:01.25] iteration 1/9 | loss: 1.0 |\n[2026-01-01 00:00:02.50] iteration 2/9 | loss: 1.0 |"
    assert [ns - points(text)["time_ns"][0] for ns in points(text)["time_ns"]] == [0, 1_250_000_000]
    assert points("2026-01-01T02:00:00+02:00 step 1 loss 2.0")["time_ns"][0] == 1_767_225_600_000_000_000
    assert points("08/03 22:09:24 - step: 1 loss: 2.0")["time_ns"][0] is None


def test_states_of_a_bar_are_prints() -> None:
    bar = "".join(
        f"\r{i}%|{'█' * (i % 9)}{' ' * 9}| {i}/300 [00:0{i % 9}<01:00,  2.0it/s, loss={i}.5]" for i in range(1, 200)
    )
    rows = points(f"start\n{bar}\nend\n")
    assert rows["step"].to_list() == list(range(1, 200)) and rows["value"].sum() == sum(i + 0.5 for i in range(1, 200))
    assert set(rows["line"]) == {2}


def test_bars_of_something_else_tell_no_step() -> None:
    """The bar of an evaluation lies before the next print, too, but its total is another."""
    text = (
        "{'loss': 2.0, 'epoch': 0.1}\n\r100%|## | 7/7 [00:00<00:00, 1809it/s]\n\r 1%|# | 10/300 [00:00<00:01, 2it/s]\n"
        "{'loss': 1.5, 'epoch': 0.2}\n\r 1%|# | 20/300 [00:00<00:01, 2.0it/s]\n{'loss': 1.2, 'epoch': 0.3}\n"
    )
    assert points(text).select("step", "value").rows() == [(10, 2.0), (20, 1.5), (None, 1.2)]


def test_the_summary_of_a_run_is_no_step() -> None:
    assert points("{'train_runtime': 812.4, 'train_loss': 2.31, 'epoch': 3.0}").is_empty()


@pytest.mark.parametrize(
    "line",
    [
        "saving checkpoint at iteration 100 to /tmp/ckpt",
        "Dumping profiler traces at step 200",
        "loss_scaler.py: OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "learning rate decay iterations: 320000, loss function: cross_entropy",
        "  lr_decay_iters .................................. 320000",
        "/opt/lib/loss.py:123: UserWarning: step() was called 3 times",
        "[rank0]: File \"/a/step.py\", line 31, in loss",
        "iteration",
        "{'loss': ",
        "step step step loss loss " * 50,
    ],
)  # fmt: skip
def test_other_lines_have_no_series(line: str) -> None:
    assert points(line).is_empty()


def test_torn_and_cut_lines_lose_only_what_is_missing() -> None:
    whole = " iteration  12/ 99 | lm loss: 2.500000E+00 | g      rad norm: 56.739 | num zeros: 12.0 |"
    rows = points(f"{whole}\n iteration  13/ 99 | lm loss: 2.4")
    assert rows.filter(step=12)["name"].to_list() == ["loss", "grad_norm", "num_zeros"]
    assert rows.filter(step=13).select("name", "value", "resolution").rows() == [("loss", 2.4, pytest.approx(0.05))]


@pytest.mark.parametrize("count", [3, 60])
def test_epochs_count_from_the_first_of_the_log(count: int) -> None:
    """Few and many lines of one form take different ways."""
    for first in (0, 1):
        text = "\n".join(f"Epoch [{first + i // 3}][{i % 3}/3] loss: {i}.5, lr: 1e-3" for i in range(count))
        rows = points(text).filter(name="loss")
        assert rows["step"].to_list() == list(range(count))
        assert rows["value"].to_list() == [i + 0.5 for i in range(count)]


@pytest.mark.parametrize("count", [2, 100])
def test_few_and_many_lines_are_read_alike(count: int) -> None:
    text = "\n".join(
        f"[2026-01-01 00:00:{i % 60:02}.5] [Rank 3] iteration {i}/9 | elapsed time per iteration (ms): 1,250.5 |"
        f" loss: {i}.5E-01 | consumed samples: {i}K |"
        for i in range(count)
    )
    rows = points(text).filter(pl.col("step") == 1)
    assert rows.select("name", "value", "resolution", "rank", "line", "time_ns").rows() == [
        ("step_s", 1.2505, pytest.approx(5e-5), 3, 2, 1_767_225_601_500_000_000),
        ("loss", 0.15, pytest.approx(5e-3), 3, 2, 1_767_225_601_500_000_000),
        ("samples", 1000.0, 500.0, 3, 2, 1_767_225_601_500_000_000),
    ]


def test_names_with_numbers_are_series_of_their_own() -> None:
    text = "\n".join(
        f"step {i} | loss@1: {i}.0 | loss@5: {i}.5\nstep {i} | loss@2: {i}.2 | loss@7: {i}.7" for i in range(3)
    )
    assert set(points(text)["raw_name"]) == {"loss@1", "loss@5", "loss@2", "loss@7"}


def test_a_line_of_any_bytes_raises_nothing() -> None:
    data = b"step 1 loss 1.0\n\xff\xfe loss step \x00 3\n" + b"loss: 1 step: " + b"9" * 400 + b"\n" + b"loss=" * 30000
    data += b"\nstep: 1e400 loss: 1e400\nstep: -3 loss: 2\nepoch 99999999999999999999 [3/4] loss: 2\nstep 2 loss 2.0"
    rows = read_log_series(data)
    assert rows.filter(pl.col("step").is_in([1, 2])).select("step", "value", "line").rows() == [
        (1, 1.0, 1),
        (2, 2.0, 8),
    ]


def test_a_pattern_of_the_user_reads_other_lines() -> None:
    text = b"[rank1]: >> 17 :: L 2,345.25 // g 1e-2\nnothing\n>> 18 :: L nan // g 2e-2\n"
    rows = read_pattern_series(text, series_pattern(r">> (?P<step>\d+) :: L (?P<loss>\S+) // g (?P<grad_norm>\S+)"))
    assert rows.select("line", "rank", "step", "name", "value", "resolution").rows()[:2] == [
        (1, 1, 17, "loss", 2345.25, 0.005), (1, 1, 17, "grad_norm", 0.01, 0.005),
    ]  # fmt: skip
    assert rows["line"].to_list() == [1, 1, 3, 3] and rows["value"].is_nan().sum() == 1


@pytest.mark.parametrize("pattern", ["(", "loss (?P<loss>.*)", "(?P<step>.)", "x" * 2000])
def test_a_pattern_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(SeriesPatternError, match=re.compile("pattern")):
        series_pattern(pattern)


def points(text: str) -> pl.DataFrame:
    """The values of a log's text."""
    return read_log_series(text.encode())
