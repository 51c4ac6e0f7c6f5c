"""Settings of ranks, compared by meaning."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from rankscope.analysis.settings_comparison import canonical_value, edit_distance, intended_name, load_rules, pack_rules
from tests.analysis.hosts import missing_one
from tests.builders import JobBuilder

WORLD = 8


def told(job: JobBuilder, kind: str = "settings-mismatch") -> list[Finding]:
    return [f for f in analyse(job.build()).findings if f.kind == kind]


def everywhere(job: JobBuilder, name: str, value: str, but: dict[int, str | None] | None = None, **more: str) -> None:
    """Sets a name on all ranks, another value on some; None leaves it out."""
    for rank in range(WORLD):
        own = (but or {}).get(rank, value)
        if own is not None:
            job.setting(rank, name, own, **more)


def test_the_minority_is_named_with_what_it_can_do() -> None:
    job = JobBuilder(WORLD)
    everywhere(job, "NCCL_ALGO", "Ring", {5: "Tree"})
    (found,) = told(job)
    assert (found.culprit_ranks, found.severity, found.root_cause) == ((5,), "warning", False)
    assert found.title == "rank 5: NCCL_ALGO Tree, most Ring"
    assert "wait for each other for ever" in found.explanation
    assert found.evidence[0].text == "NCCL_ALGO=Tree"


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("NCCL_P2P_DISABLE", "1", "true"), ("NCCL_ALGO", "Ring,Tree", "TREE,RING"),
        ("NCCL_BUFFSIZE", "0004096", "4096"),
        ("version:nccl", "NCCL 2.27.3+cuda12.4", "2.27.3"), ("RANK", "1", "2"), ("NCCL_DEBUG_FILE", "/a", "/b"),
    ],
)  # fmt: skip
def test_what_means_the_same_or_may_differ_is_no_mismatch(name: str, one: str, other: str) -> None:
    job = JobBuilder(WORLD)
    everywhere(job, name, one, {3: other})
    assert not told(job) + told(job, "version-mismatch")


def test_what_nccl_did_not_print_accuses_only_who_prints_the_same_otherwise() -> None:
    job = JobBuilder(WORLD)
    for rank in range(WORLD):
        if rank not in (5, 6):
            job.setting(rank, "NCCL_ALGO", "Ring", file=3000 + rank)
        if rank != 6:
            job.setting(rank, "NCCL_IB_DISABLE", "1", file=3000 + rank)
        job.setting(rank, "version:nccl", "2.27.3", file=3000 + rank)
    (found,) = told(job)
    assert (found.culprit_ranks, found.confidence) == ((5,), "medium")
    assert "is not set" in found.title
    assert "a variable that is not printed counts as unset" in found.confidence_reasons[0]


def test_in_a_log_of_several_processes_a_line_that_is_missing_accuses_nobody() -> None:
    job = JobBuilder(WORLD)
    everywhere(job, "NCCL_ALGO", "Ring", {5: None})
    everywhere(job, "NCCL_IB_DISABLE", "1")
    (found,) = told(job)
    assert (found.culprit_ranks, found.candidates, found.severity) == ((), (5,), "info")
    assert "is not printed" in found.title


def test_unset_is_the_default() -> None:
    job = JobBuilder(WORLD)
    everywhere(job, "ATB_MATMUL_SHUFFLE_K_ENABLE", "1", {2: None}, source="environ")
    everywhere(job, "HCCL_EXEC_TIMEOUT", "1800", {2: None}, source="environ")
    everywhere(job, "OMP_NUM_THREADS", "1", source="environ")
    (found,) = told(job)
    assert (found.culprit_ranks, "HCCL_EXEC_TIMEOUT" in found.title) == ((2,), True)
    assert "SHUFFLE" not in found.title


def test_several_settings_of_the_same_ranks_are_one_finding() -> None:
    job = JobBuilder(WORLD)
    for name in ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NTHREADS", "NCCL_IB_TC"):
        everywhere(job, name, "1", {6: "2", 7: "2"})
    (found,) = told(job)
    assert found.culprit_ranks == (6, 7)
    assert found.title.endswith("; and 1 more")


def test_without_a_majority_nobody_is_accused() -> None:
    job = JobBuilder(WORLD)
    everywhere(job, "NCCL_PROTO", "LL", dict.fromkeys(range(4), "Simple"))
    (found,) = told(job)
    assert (found.culprit_ranks, found.culprits, found.confidence) == ((), (), "low")
    assert found.candidates == tuple(range(WORLD))


def test_names_of_network_cards_may_differ_between_hosts() -> None:
    job = JobBuilder(WORLD)
    for rank in range(WORLD):
        job.setting(rank, "NCCL_SOCKET_IFNAME", "eth0" if rank < 4 else "ens1", host=f"n{rank // 4}")
        job.setting(rank, "NCCL_IB_HCA", "mlx5_0" if rank != 2 else "mlx5_1", host=f"n{rank // 4}")
    (found,) = told(job)
    assert (found.culprit_ranks, "NCCL_IB_HCA" in found.title) == ((2,), True)


def test_versions_of_logs_and_dumps_are_compared() -> None:
    job = JobBuilder(WORLD)
    everywhere(job, "version:nccl", "NCCL 2.27.3+cuda12.4", {7: "NCCL 2.21.5+cuda12.4"})
    (found,) = told(job, "version-mismatch")
    assert found.culprit_ranks == (7,)
    assert analyse(job.build()).culprits == ()


def test_a_misspelt_name_is_told() -> None:
    job = JobBuilder(WORLD)
    everywhere(job, "HCC_DETERMINISTIC", "true", source="environ")
    (found,) = told(job)
    assert found.title == "HCC_DETERMINISTIC is no known setting: HCCL_DETERMINISTIC may be meant"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HCCL_INTRA_PICE_ENABLE", "HCCL_INTRA_PCIE_ENABLE"), ("NCCL_ALGO", None), ("NCCL_MY_OWN_PLUGIN_KEY", None),
        ("MY_ALGO", None), ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"), ("NCCL_XYZ", None),
    ],
)  # fmt: skip
def test_only_names_close_to_one_known_name_are_misspelt(name: str, meant: str | None) -> None:
    assert intended_name(name) == meant


@pytest.mark.parametrize(
    ("one", "other", "edits"), [("PICE", "PCIE", 1), ("ab", "ba", 1), ("abc", "abc", 0), ("a", "abcd", 3)]
)
def test_distance(one: str, other: str, edits: int) -> None:
    assert edit_distance(one, other, 5) == edits


def test_a_mode_that_is_on_in_part_is_told() -> None:
    job = JobBuilder(WORLD)
    everywhere(job, "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", source="environ")
    everywhere(job, "NCCL_ALGO", "Tree", source="environ")
    titles = [f.title for f in told(job)]
    assert any("Megatron's deterministic mode is on, but NCCL_ALGO is Tree" in title for title in titles)
    assert any("CUBLAS_WORKSPACE_CONFIG is unset" in title for title in titles)
    good = JobBuilder(WORLD)
    everywhere(good, "NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0", source="environ")
    everywhere(good, "NCCL_ALGO", "^NVLS", source="environ")
    everywhere(good, "CUBLAS_WORKSPACE_CONFIG", ":4096:8", source="environ")
    assert not told(good)


def test_a_mismatch_is_no_root_of_a_hang() -> None:
    job = missing_one(WORLD, 3)
    everywhere(job, "NCCL_ALGO", "Ring", {5: "Tree"})
    analysis = analyse(job.build())
    assert analysis.culprits == (3,)
    assert [f.kind for f in analysis.findings if f.root_cause] == ["missing-rank"]


def test_the_tables_are_sound() -> None:
    assert {rule.scope for rule in load_rules().values()} == {"same", "node", "rank", "own"}
    assert {rule.harm for rule in load_rules().values()} <= {"hang", "result", "speed", "evidence", ""}
    assert all(rule.name in load_rules() and rule.trigger in load_rules() for rule in pack_rules())
    assert canonical_value("NCCL_ALGO", '"Ring"') == "ring"
