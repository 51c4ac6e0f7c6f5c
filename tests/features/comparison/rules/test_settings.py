"""Settings of two runs by meaning."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from rankscope.analysis import analyse
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.run_comparison import compare_runs
from rankscope.features.comparison.rules.settings_differences import SettingChange, compare_settings
from rankscope.schema.tables import SETTINGS
from tests.builders import JobBuilder


def run_with(*ranks: dict[str, str], source: str = "environ") -> ComparedRun:
    """A run whose ranks have these settings."""
    job = JobBuilder(len(ranks))
    job.collective("0")
    rows = [
        {
            "rank": rank,
            "host": "node1",
            "pid": None,
            "name": name,
            "value": value,
            "source": source,
            "file": 0,
            "line": 1,
        }
        for rank, own in enumerate(ranks)
        for name, value in own.items()
    ]
    dataset = replace(job.build(), settings=pl.DataFrame(rows, schema=SETTINGS))
    return ComparedRun("run", dataset, analyse(dataset))


def changes(a: ComparedRun, b: ComparedRun) -> dict[str, SettingChange]:
    return {one.name: one for one in compare_settings(a, b).changes}


def test_unset_is_the_default_and_spelling_does_not_matter() -> None:
    a = run_with({"ATB_MATMUL_SHUFFLE_K_ENABLE": "1", "NCCL_P2P_DISABLE": "true", "X_Y": "1"})
    assert changes(a, run_with({"NCCL_P2P_DISABLE": "1", "X_Y": "1"})) == {}
    assert changes(a, run_with({"ATB_MATMUL_SHUFFLE_K_ENABLE": "0", "NCCL_P2P_DISABLE": "1", "X_Y": "1"})).keys() == {
        "ATB_MATMUL_SHUFFLE_K_ENABLE"
    }


def test_ranks_with_the_same_change_are_grouped() -> None:
    a = run_with(*[{"NCCL_ALGO": "Ring", "X_Y": "1"}] * 3)
    b = run_with({"NCCL_ALGO": "Ring", "X_Y": "1"}, {"X_Y": "1"}, {"X_Y": "1"})
    assert changes(a, b)["NCCL_ALGO"].shown == "NCCL_ALGO: Ring -> unset on ranks 1,2"


def test_what_decides_results_comes_first_and_unknown_names_last() -> None:
    names = ("MY_OWN_FLAG", "NCCL_IB_TC", "CUBLAS_WORKSPACE_CONFIG", "MASTER_PORT", "LOCAL_RANK")
    a, b = (run_with(dict.fromkeys(names, value)) for value in ("1", "2"))
    found = compare_settings(a, b).changes
    assert [(one.name, one.weight) for one in found] == [
        ("CUBLAS_WORKSPACE_CONFIG", "repeatability"), ("NCCL_IB_TC", "speed"), ("MY_OWN_FLAG", "unknown"),
    ]  # fmt: skip


def test_a_name_that_one_log_does_not_print_is_unknown_and_not_unset() -> None:
    a = run_with({"CUBLAS_WORKSPACE_CONFIG": ":16:8", "NCCL_ALGO": "Ring"})
    b = run_with({"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}, source="nccl")
    assert "CUBLAS_WORKSPACE_CONFIG" not in changes(a, b)


def test_only_known_settings_make_a_difference_and_secrets_stay_hidden() -> None:
    a, b = (run_with({"MY_OWN_FLAG": value, "MY_SECRET_KEY": f"s3cr3t{value}"}) for value in ("abc", "abd"))
    found = compare_runs(a, b)
    assert found.is_same
    lines = [line for part in found.parts for line in part.lines]
    assert "unknown: MY_SECRET_KEY: (hidden) -> (hidden) on rank 0" in lines
    assert not any("s3cr3t" in line for line in lines)


def test_settings_of_order_are_causes_with_an_experiment() -> None:
    found = compare_runs(run_with({"NCCL_ALGO": "Ring", "X_Y": "1"}), run_with({"NCCL_ALGO": "Tree", "X_Y": "1"}))
    assert [one.kind for one in found.differences] == ["settings-differ"]
    (cause,) = found.hypotheses
    assert cause.experiment == "Run A again with NCCL_ALGO as in B, and change nothing else."
