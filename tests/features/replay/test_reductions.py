"""Reductions that a script repeats, and rules on the order in which a job adds up."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.features.replay.summation_order import MOST, findings_on_order, order_settings, reductions_of
from tests.builders import JobBuilder

GROUPS = {"a": [0, 1], "b": [2, 3]}


def test_calls_of_one_kind_are_one_reduction_whatever_group_runs_them() -> None:
    job = JobBuilder(4, GROUPS)
    for group in ("a", "b", "a"):
        job.collective(group, sizes="[[8,8]]")
    job.collective("0", op="_reduce_scatter_base", sizes="[[1024]]", in_dtypes='["BFloat16"]')
    job.collective("0", op="allreduce_coalesced", sizes="[[8],[8]]")
    found = reductions_of(job.build())
    rows = [(one.op, one.dtype, one.elements, one.members, one.calls) for one in found.chosen]
    assert rows == [
        ("reduce_scatter", "BFloat16", 1024, (0, 1, 2, 3), 1),
        ("all_reduce", "Float", 64, (0, 1), 3),
        ("all_reduce", "Float", 16, (0, 1, 2, 3), 1),
    ]
    assert (found.library, found.fewer, found.exact) == ("nccl", 0, 0)


def test_other_operations_and_integers_are_left_out_and_counted() -> None:
    job = JobBuilder(4)
    job.collective(op="_all_gather_base")
    job.collective(in_dtypes='["Long"]')
    with pytest.raises(ValueError, match="integers"):
        reductions_of(job.build())
    for number in range(MOST + 2):
        job.collective(sizes=f"[[{100 + number}]]")
    found = reductions_of(job.build())
    assert (len(found.chosen), found.fewer, found.exact) == (MOST, 2, 1)
    assert min(one.elements for one in found.chosen) == 102


def test_a_job_without_reductions_is_refused() -> None:
    job = JobBuilder(4)
    job.collective(op="broadcast")
    with pytest.raises(ValueError, match="none to repeat"):
        reductions_of(job.build())


def said(library: str = "nccl", source: str = "environ", **values: str) -> list[str]:
    """Rules on a job of two ranks with these settings."""
    job = JobBuilder(2)
    job.collective()
    for rank in range(2):
        for name, value in values.items():
            job.setting(rank, name, value, source=source)
    return [f"{standing} {text}" for standing, text in order_settings(job.build(), library).told]


@pytest.mark.parametrize(
    ("library", "values", "expected"),
    [
        ("nccl", {"NCCL_ALGO": "Ring"}, "fixed NCCL_ALGO=Ring fixes its part of the order"),
        ("nccl", {"NCCL_ALGO": "Ring"}, "open NCCL_PROTO is not set"),
        ("nccl", {"NCCL_ALGO": "NVLS,Ring"}, "broken NCCL_ALGO=NVLS,Ring: switches add"),
        ("nccl", {"NCCL_ALGO": "^NVLS"}, "open NCCL_ALGO=^NVLS: NCCL chooses the algorithm"),
        ("hccl", {"HCCL_DETERMINISTIC": "false"}, "broken HCCL_DETERMINISTIC=false"),
        ("hccl", {"OMP_NUM_THREADS": "1"}, "broken HCCL_DETERMINISTIC is not set"),
        ("hccl", {"HCCL_DETERMINISTIC": "strict"}, "fixed HCCL_DETERMINISTIC=strict"),
        ("hccl", {"LCCL_DETERMINISTIC": "0"}, "broken LCCL_DETERMINISTIC=0"),
        ("gloo", {}, "fixed gloo adds along one ring"),
        ("nccl", {}, "open no setting is recorded"),
    ],
)
def test_a_rule_tells_what_a_setting_means(library: str, values: dict[str, str], expected: str) -> None:
    assert any(text.startswith(expected) for text in said(library, **values)), said(library, **values)


def test_a_setting_that_a_log_does_not_tell_is_not_called_unset() -> None:
    assert any(
        text.startswith("open HCCL_DETERMINISTIC is not recorded") for text in said("hccl", "nccl", OMP_NUM_THREADS="1")
    )


def test_ranks_that_differ_need_no_replay() -> None:
    job = JobBuilder(4)
    job.collective()
    for rank in range(4):
        job.setting(rank, "NCCL_ALGO", "Tree" if rank == 2 else "Ring")
    found = order_settings(job.build(), "nccl")
    assert found.told[0] == ("broken", "NCCL_ALGO=Ring, but not in 1 process of 4: ranks choose differently")
    assert found.carried == {"NCCL_ALGO": "Ring"}


def test_only_what_decides_the_order_is_taken_over_and_no_secret() -> None:
    job = JobBuilder(2)
    job.collective()
    for name, value in {
        "NCCL_PROTO": "LL", "NCCL_IB_HCA": "mlx5_0", "NCCL_BUFFSIZE": '1"; evil()', "TORCH_SECRET_KEY": "abc",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "LD_PRELOAD": "/x.so",
    }.items():  # fmt: skip
        job.setting(0, name, value)
    found = order_settings(job.build(), "nccl")
    assert found.carried == {"NCCL_PROTO": "LL", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert found.left == ("NCCL_BUFFSIZE", "NCCL_IB_HCA", "TORCH_SECRET_KEY")


def test_findings_on_modes_and_misspelt_names_are_used_again() -> None:
    job = JobBuilder(2)
    job.collective()
    for rank in range(2):
        job.setting(rank, "HCC_DETERMINISTIC", "true", source="environ")
        job.setting(rank, "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", source="environ")
        job.setting(rank, "NCCL_IB_HCAA", "x", source="environ")
    found = "; ".join(findings_on_order(analyse(job.build())))
    assert "HCCL_DETERMINISTIC may be meant" in found and "Megatron's deterministic mode is on, but NCCL_ALGO" in found
    assert "NCCL_IB_HCA" not in found
