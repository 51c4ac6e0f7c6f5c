"""The fixture `rankscope_numbers`: golden files that it writes and checks, and how its test fails."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.capture import perturb
from rankscope.pytest_plugin import NumbersTest, RecordStart

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def train(record: RecordStart, factor: float = 1.0, rate: float = 0.1) -> None:
    """Two steps of a small model."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(50, 16), torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    record(model, optimizer)
    for step in range(2):
        tokens = torch.randint(50, (8, 4), generator=torch.Generator().manual_seed(step))
        (factor * model(tokens).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_golden_file_is_written_and_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    NumbersTest(tmp_path, tmp_path / "1", update=True)(train, "golden.json")
    assert "tolerance of 3 perturbed runs" in capsys.readouterr().out
    check = NumbersTest(tmp_path, tmp_path / "2", update=False)
    check(train, "golden.json")
    assert capsys.readouterr().out.startswith("NUMBERS OK: ")
    with pytest.raises(pytest.fail.Exception, match=r"SUSPECT: rank 0 first differs from the reference in"):
        check(lambda record: train(record, factor=1.01), "golden.json")
    with pytest.raises(pytest.fail.Exception, match="the new parameter"):
        check(lambda record: train(record, rate=0.11), "golden.json")


def test_rounding_that_no_saved_run_had_holds(tmp_path: Path) -> None:
    NumbersTest(tmp_path, tmp_path / "1", update=True)(train, "golden.json")

    def perturbed(record: RecordStart) -> None:
        def record_perturbed(model: Any, optimizer: Any = None) -> None:
            perturb(model, seed=99)
            record(model, optimizer)

        train(record_perturbed)

    NumbersTest(tmp_path, tmp_path / "2", update=False)(perturbed, "golden.json")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    check = NumbersTest(tmp_path, tmp_path / "1", update=False)
    with pytest.raises(
        pytest.fail.Exception, match=r"golden\.json: no golden file; pytest --rankscope-update writes it"
    ):
        check(train, "golden.json")
    with pytest.raises(pytest.fail.Exception, match="nothing was recorded"):
        check(lambda _record: None, "golden.json")
    with pytest.raises(ZeroDivisionError):
        check(lambda _record: 1 // 0, "golden.json")


def test_a_test_of_one_line_in_pytest(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "test_model.py").write_text(
        "from tests.commands.test_numbers_fixture import train\n"
        "def test_numbers(rankscope_numbers): rankscope_numbers(train, 'golden.json')\n"
    )
    # the entry point of an installed package would bring the same module a second time
    words = [str(folder), "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:rankscope", "-c", f"{tmp_path}/none.ini"]
    words += ["--rootdir", str(folder), "--basetemp", f"{tmp_path}/base", "-W", "ignore"]
    (tmp_path / "none.ini").write_text("[pytest]\n")
    plugins = ["rankscope.pytest_plugin"]
    outcomes = [pytest.main([*words, *more], plugins) for more in ([], ["--rankscope-update"], [])]
    assert outcomes == [pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK, pytest.ExitCode.OK]
    assert (folder / "golden.json").stat().st_size < 20_000


def test_the_package_brings_the_fixture() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"rankscope": "rankscope.pytest_plugin"}
