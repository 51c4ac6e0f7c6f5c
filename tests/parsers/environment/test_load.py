"""Environments among the files of a job: whose they are, and what comes of them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import LoadOptions, load
from rankscope.report.json import render_json
from rankscope.report.settings_section import all_settings, section
from rankscope.schema import Dataset

BASE = {"PATH": "/bin", "HOME": "/root", "WORLD_SIZE": "4", "NCCL_ALGO": "Ring", "TMP_PASSWORD": "hunter2"}


def write(directory: Path, name: str, rank: int | None, **more: str) -> None:
    values = {**BASE, **({} if rank is None else {"RANK": str(rank)}), **more}
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes("".join(f"{key}={value}\0" for key, value in values.items()).encode())


def files(dataset: Dataset) -> list[tuple[str, str, int | None, str | None]]:
    return dataset.files.select("path", "kind", "rank", "rank_source").rows()


def test_the_odd_environment_of_a_job(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, f"proc/{100 + rank}/environ", rank, **({"NCCL_ALGO": "Tree"} if rank == 2 else {}))
    dataset = load([tmp_path])
    assert files(dataset)[2] == ("proc/102/environ", "environ", 2, "content")
    assert dataset.world_size == 4
    assert dataset.settings.filter(rank=2, name="NCCL_ALGO").select("value", "source", "pid").row(0) == (
        "Tree", "environ", 102,
    )  # fmt: skip
    analysis = analyse(dataset)
    (found,) = [f for f in analysis.findings if f.kind == "settings-mismatch"]
    assert (found.culprit_ranks, found.title) == ((2,), "rank 2: NCCL_ALGO Tree, most Ring")
    assert analysis.status == "unknown"
    assert b"hunter2" not in render_json(dataset, analysis)


def test_what_is_not_in_an_environment_is_unset(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, f"rank{rank}.environ", rank, **({"NCCL_IB_DISABLE": "1"} if rank else {}))
    dataset = load([tmp_path])
    (found,) = [f for f in analyse(dataset).findings if f.kind == "settings-mismatch"]
    assert (found.culprit_ranks, found.title) == ((0,), "rank 0: NCCL_IB_DISABLE is not set, most 1")
    assert found.evidence[0].text == "NCCL_IB_DISABLE is unset"
    (settings,) = section(dataset, analyse(dataset))
    assert settings.blocks[0].rows == [("NCCL_IB_DISABLE", "1 on ranks 1-3; (unset) on rank 0")]  # type: ignore[union-attr]


def test_a_name_that_is_misspelt_and_a_mode_that_is_not_whole(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path, f"{rank}.env", rank, HCC_DETERMINISTIC="true", NVTE_ALLOW_NONDETERMINISTIC_ALGO="0")
    titles = [f.title for f in analyse(load([tmp_path])).findings]
    assert "HCC_DETERMINISTIC is no known setting: HCCL_DETERMINISTIC may be meant" in titles
    assert "Megatron's deterministic mode is on, but CUBLAS_WORKSPACE_CONFIG is unset on ranks 0,1" in titles


def test_what_msprobe_packs_is_of_one_rank(tmp_path: Path) -> None:
    for rank in range(2):
        with zipfile.ZipFile(tmp_path / f"check_{rank}.zip", "w") as archive:
            archive.writestr("env", json.dumps({**BASE, "RANK": str(rank)}))
            archive.writestr("pip", f"torch==2.{rank}\nnumpy==1.26.4\n")
    dataset = load([tmp_path])
    assert set(dataset.settings["source"]) == {"msprobe"}
    assert [(name, rank) for name, _, rank, _ in files(dataset)] == [
        ("check_0.zip!env", 0), ("check_0.zip!pip", 0), ("check_1.zip!env", 1), ("check_1.zip!pip", 1),
    ]  # fmt: skip
    assert {s.name: s.differs for s in all_settings(dataset)}["version:torch"]


def test_a_list_of_requirements_is_not_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.1\nnumpy==1.26.4\n")
    write(tmp_path, "0.env", 0)
    dataset = load([tmp_path])
    assert not dataset.settings.filter(name="version:torch").height
    assert "may differ from the installed ones" in dataset.files.filter(path="requirements.txt")["problem"].item()


def test_the_user_knows_better_whose_it_is(tmp_path: Path) -> None:
    write(tmp_path, "worker-7.env", 3)
    dataset = load([tmp_path], LoadOptions(rank_from=r"worker-(\d+)"))
    assert files(dataset) == [("worker-7.env", "environ", 7, "option")]


@pytest.mark.parametrize("name", ["rank5.env", "env.5"])
def test_without_a_rank_only_a_name_that_says_so_tells(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, None)
    assert files(load([tmp_path]))[0][2] == (5 if "rank" in name else None)
