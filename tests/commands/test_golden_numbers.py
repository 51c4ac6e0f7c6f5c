"""`rankscope report --only numbers --save`, `--reference GOLDEN` and `--update`: tolerance, sizes, hostile files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankscope.cli import run
from rankscope.features.numbers.golden.golden_file import decode_golden, encode_golden
from tests.numbers_writer import NumbersJob, cast

Captured = pytest.CaptureFixture[str]


def model(
    path: Path, *, noise: float = 0.0, factor: float = 1.0, layers: int = 2, ranks: int = 2, wide: int = 15
) -> str:
    """Two steps of data-parallel ranks with some layers; noise on all of them, and a factor on one output."""
    job = NumbersJob({"dp": list(range(ranks))})
    for job.step in range(2):
        for layer in range(layers):
            rng, near = np.random.default_rng((job.step, layer)), np.random.default_rng((3, job.step, layer))
            out, gradient, weight = rng.standard_normal((3, 20, wide)) * (
                1 + noise * near.standard_normal((3, 20, wide))
            )
            if layer == 1 and job.step == 1:
                out = out * factor
            for rank in range(ranks):
                name = f"layers.{layer}"
                job.row(rank, "forward", "out0", cast(out + rank, "f32"), name=name)
                job.row(rank, "gradient", "out0", cast(gradient, "f32"), name=f"{name}.weight")
                job.row(rank, "parameter", "in0", cast(weight, "f32"), name=f"{name}.weight")
        job.all_reduce(
            "dp", [np.random.default_rng((job.step, 9, rank)).standard_normal((4, 5)) for rank in range(ranks)]
        )
    path.mkdir(exist_ok=True)
    job.write(path)
    return str(path)


def test_a_golden_file_without_tolerance_wants_equal_bits(tmp_path: Path, capsys: Captured) -> None:
    golden = str(tmp_path / "golden.json")
    assert run(["report", "--only", "numbers", model(tmp_path / "a"), "--save", golden]) == 0
    out = capsys.readouterr().out
    assert out.startswith("NUMBERS OK: ") and f"{golden}: 24 tensors, 0.00 MB, bits must be equal" in out
    assert run(["report", "--only", "numbers", model(tmp_path / "b"), "--reference", golden, "--strict"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("NUMBERS OK: ") and "needs a reference" not in out
    assert run(["report", "--only", "numbers", model(tmp_path / "c", noise=1e-6), "--reference", golden]) == 1
    assert capsys.readouterr().out.startswith(
        "SUSPECT: ranks 0,1 first differ from the reference in the output of layers.0"
    )


def test_perturbed_runs_give_the_tolerance_of_each_kind(tmp_path: Path, capsys: Captured) -> None:
    golden = tmp_path / "golden.json"
    words = ["report", "--only", "numbers", model(tmp_path / "a"), "--save", str(golden)]
    for seed in range(1, 4):
        words += ["--perturbed", model(tmp_path / f"p{seed}", noise=seed * 1e-6)]
    assert run(words) == 0 and "tolerance of 3 perturbed runs" in capsys.readouterr().out
    # healthy runs of other noise exceed the largest response that few runs have shown by a little
    assert all(limit > 6e-6 for limit in json.loads(golden.read_text())["tolerance"].values())
    assert set(json.loads(golden.read_text())["tolerance"]) == {
        "forward out f32",
        "gradient out f32",
        "parameter in f32",
    }
    assert (
        run(["report", "--only", "numbers", model(tmp_path / "b", noise=2e-6), "--reference", str(golden), "--strict"])
        == 0
    )
    capsys.readouterr()
    assert (
        run(
            [
                "report",
                "--only",
                "numbers",
                model(tmp_path / "c", noise=1e-6, factor=1.001),
                "--reference",
                str(golden),
                "-f",
                "json",
            ]
        )
        == 1
    )
    told = json.loads(capsys.readouterr().out)
    (finding,) = (one for one in told["findings"] if one["root_cause"])
    assert finding["limits"][0]["rule"] == "RP" and "the output of layers.1, in step 1" in finding["title"]
    assert told["status"] == "suspect"


def test_an_update_keeps_the_tolerance(tmp_path: Path, capsys: Captured) -> None:
    golden, perturbed = str(tmp_path / "golden.json"), model(tmp_path / "p", noise=1e-6)
    other = model(tmp_path / "b", factor=2.0)
    assert run(["report", "--only", "numbers", model(tmp_path / "a"), "--save", golden, "--perturbed", perturbed]) == 0
    before = json.loads(Path(golden).read_text())
    assert run(["report", "--only", "numbers", other, "--reference", golden]) == 1
    assert run(["report", "--only", "numbers", other, "--reference", golden, "--update"]) == 0
    assert "2 of 24 tensors differ from before" in capsys.readouterr().out
    after = json.loads(Path(golden).read_text())
    assert after["tolerance"] == before["tolerance"] != {} and after["tensors"] != before["tensors"]
    assert run(["report", "--only", "numbers", other, "--reference", golden]) == 0


def test_collectives_alone_make_a_golden_file(tmp_path: Path, capsys: Captured) -> None:
    job = NumbersJob({"dp": [0, 1, 2, 3], "pair": [2, 3]})
    ins = [np.random.default_rng(rank).standard_normal((20, 15)) for rank in range(4)]
    for group, members in (("dp", ins), ("pair", ins[2:])):
        job.all_reduce(group, members)
    run_directory, golden = tmp_path / "run", str(tmp_path / "golden.json")
    run_directory.mkdir()
    job.write(run_directory)
    assert run(["report", "--only", "numbers", str(run_directory), "--save", golden]) == 0
    # outputs of all members are one line
    assert len(json.loads(Path(golden).read_text())["tensors"]) == 4 + 1 + 2 + 1
    assert run(["report", "--only", "numbers", str(run_directory), "--reference", golden, "--strict"]) == 0
    assert "12 tensors compared rank by rank: 12 are equal bit for bit" in capsys.readouterr().out


def test_a_wrong_run_and_other_layouts_are_refused(tmp_path: Path, capsys: Captured) -> None:
    golden, good = str(tmp_path / "golden.json"), model(tmp_path / "a")
    job = NumbersJob({"dp": [0, 1, 2]})
    job.all_reduce("dp", [np.ones((5, 5))] * 3, spoil=lambda outs, _: outs[1].__setitem__((0, 0), 9))
    (tmp_path / "wrong").mkdir()
    job.write(tmp_path / "wrong")
    assert run(["report", "--only", "numbers", str(tmp_path / "wrong"), "--save", golden]) == 2
    assert "not saved, for the run is wrong: rank 1 holds another result" in capsys.readouterr().err
    assert run(["report", "--only", "numbers", good, "--save", golden]) == 0
    assert (
        run(["report", "--only", "numbers", good, "--save", golden]) == 2
        and "already exists" in capsys.readouterr().err
    )
    assert run(["report", "--only", "numbers", model(tmp_path / "three", ranks=3), "--reference", golden]) == 2
    assert "golden.json: it holds 2 ranks, and the run has 3" in capsys.readouterr().err
    assert run(["report", "--only", "numbers", model(tmp_path / "wide", wide=16), "--reference", golden]) == 2
    assert "its tensors have other shapes" in capsys.readouterr().err
    for words in (["--save", golden, "--reference", good], ["--update"], ["--reference", golden, "--perturbed", good]):
        assert run(["report", "--only", "numbers", good, *words]) == 2


_TENSOR: list[Any] = [[0, 1], 0, "forward", "layers.0", "out0", 0, "f32", [2, 2], "0" * 16, 1.0, "", [], {}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensors": []}, "a golden file without tensors"),
        ({"rankscope_golden": 9}, "its format 9 is newer than 1"),
        ({"tensors": [["x"]]}, "a golden file that cannot be read"),
        ({"tensors": [[[1 << 40], *_TENSOR[1:]]]}, "a golden file that cannot be read"),
        ({"tensors": [[*_TENSOR[:-1], {"\x1b[31mred": 1}]]}, "a tensor with the unknown key"),
        ({"tensors": [[*_TENSOR[:-2], [99], {}]]}, "a golden file that cannot be read"),
        ({"tensors": [[*_TENSOR[:-1], {"seq": "no"}]]}, "tensors of rank 0: 1 line that cannot be read"),
        ({"tolerance": {"forward out f32": -1.0}}, "a golden file that cannot be read"),
        ({"groups": [[[[[[]]]]]]}, "a golden file that cannot be read"),
    ],
)
def test_a_hostile_golden_file_gets_a_clear_message(
    tmp_path: Path, capsys: Captured, change: dict[str, Any], message: str
) -> None:
    file = {"rankscope_golden": 1, "perturbed": 0, "tolerance": {}, "groups": [], "tensors": [_TENSOR], **change}
    (tmp_path / "golden.json").write_text(json.dumps(file, separators=(",", ":")))
    assert (
        run(["report", "--only", "numbers", model(tmp_path / "a"), "--reference", str(tmp_path / "golden.json")]) == 2
    )
    error = capsys.readouterr().err
    assert "golden.json: " in error and message in error and "\x1b" not in error


def test_what_is_cut_off_or_no_golden_file_is_told(tmp_path: Path, capsys: Captured) -> None:
    golden, good = tmp_path / "golden.json", model(tmp_path / "a")
    run(["report", "--only", "numbers", good, "--save", str(golden)])
    content = golden.read_bytes()
    golden.write_bytes(content[: len(content) // 2])
    assert run(["report", "--only", "numbers", good, "--reference", str(golden)]) == 2
    assert "golden.json: a golden file that cannot be read" in capsys.readouterr().err
    golden.write_text("{}")
    assert run(["report", "--only", "numbers", good, "--reference", str(golden)]) == 2
    assert "golden.json: no golden file" in capsys.readouterr().err


def test_samples_keep_their_bits(tmp_path: Path) -> None:
    golden = tmp_path / "golden.json"
    run(["report", "--only", "numbers", model(tmp_path / "a"), "--save", str(golden)])
    read = decode_golden(golden.read_bytes(), "golden").dataset.tensors
    assert read["held"].bitwise_and() == 0b1111110000 and read["samples"].bin.size().unique().to_list() == [24]
    assert read["hash"].null_count() == 0 and read.height == 24


def test_groups_of_one_name_keep_their_members(tmp_path: Path) -> None:
    job = NumbersJob({"dp": [0, 1], "dp2": [2, 3]})
    for name in ("dp", "dp2"):
        job.all_reduce(name, [np.ones((2, 2)) * rank for rank in range(2)])
    dataset = job.dataset()
    alike = dataset.groups.with_columns(name=pl.lit("dp"), description=pl.lit("dp"))
    golden = decode_golden(encode_golden(replace(dataset, groups=alike), {}, 0), "golden")
    told = golden.dataset.tensors.select("rank", "group").unique()
    assert told["group"].null_count() == 0 and told["group"].n_unique() == 2
