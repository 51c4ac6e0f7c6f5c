"""Settings of ranks as reports and the screen show them."""

from __future__ import annotations

from rankscope.report.settings_section import all_settings
from rankscope.schema import Dataset
from tests.logs import setting, with_logs
from tests.report.samples import healthy


def logged(*told: tuple[int, str, str, str]) -> Dataset:
    rows = [setting(rank, name, value, source=source) for rank, name, value, source in told]
    return with_logs(healthy()[0], settings=rows)


def test_they_are_folded_once_for_each_job() -> None:
    one, other = logged((0, "NCCL_ALGO", "Ring", "nccl")), logged()
    assert all_settings(one) is all_settings(one)
    assert all_settings(other) == []
    assert [found.name for found in all_settings(one)] == ["NCCL_ALGO"]


def test_what_an_environment_leaves_out_is_unset_and_what_a_log_does_is_not_told() -> None:
    dataset = logged(
        (0, "NCCL_ALGO", "Ring", "environ"), (1, "NCCL_DEBUG", "INFO", "msprobe"),
        (2, "NCCL_PROTO", "LL", "nccl"), (3, "NCCL_NET", "IB", "nccl"),
    )  # fmt: skip
    values = {found.name: [(value.shown, value.ranks) for value in found.values] for found in all_settings(dataset)}
    assert values["NCCL_ALGO"] == [("Ring", (0,)), ("(unset)", (1,))]
    assert values["NCCL_PROTO"] == [("LL", (2,)), ("(no value)", (3,))]
