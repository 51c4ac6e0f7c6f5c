"""The memory that a process may still take, by made-up files of the kernel."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.assemble.machine_memory import MemoryLimits, MemorySizeError, asked_bytes, memory_limits

PAGE = os.sysconf("SC_PAGE_SIZE")


def limits(folder: Path, group: str = "", environment: dict[str, str] | None = None) -> MemoryLimits:
    """The limits of a process of 30 mapped and 10 resident pages, in this control group."""
    own = folder / "proc" / "self"
    own.mkdir(parents=True, exist_ok=True)
    (own / "statm").write_text("30 10 5 1 0 9 0\n")
    (own / "cgroup").write_text(group)
    (own.parent / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    return memory_limits(folder / "proc", folder / "groups", environment or {})


def written(folder: Path, **files: str) -> None:
    """Files of a control group, whose names have a "." where the arguments have "__"."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_a_machine_without_groups_has_its_available_memory(tmp_path: Path) -> None:
    found = limits(tmp_path)
    assert (found.machine, found.control_group, found.asked, found.least) == (2 << 20, None, None, 2 << 20)
    nothing = memory_limits(tmp_path / "none", tmp_path, {})
    assert nothing.least == os.sysconf("SC_PHYS_PAGES") * PAGE, "a system without /proc tells only its size"


def test_the_tightest_group_of_the_tree_counts(tmp_path: Path) -> None:
    top = tmp_path / "groups"
    written(top / "user" / "job", memory__max="max\n", memory__high="max\n", memory__current="500\n")
    written(top / "user", memory__max="9000\n", memory__high="6000\n", memory__current="4000\n")
    written(top / "user", memory__stat="anon 1000\ninactive_file 700\nactive_file 300\nshmem 50\n")
    assert limits(tmp_path, "0::/user/job\n").control_group == 6000 - (4000 - 1000)
    written(top / "user" / "job", memory__max="1200\n")
    assert limits(tmp_path, "0::/user/job\n").least == 700


def test_groups_of_version_1_count(tmp_path: Path) -> None:
    group = tmp_path / "groups" / "memory" / "slurm" / "job_7"
    written(group, memory__limit_in_bytes="9000\n", memory__usage_in_bytes="8000\n")
    written(group, memory__stat="cache 1\ntotal_inactive_file 400\ntotal_active_file 100\n")
    written(group.parent, memory__limit_in_bytes="9223372036854771712\n", memory__usage_in_bytes="8000\n")
    text = "9:name=systemd:/x\n4:cpu,memory:/slurm/job_7\n0::/\n"
    assert limits(tmp_path, text).control_group == 1500


def test_a_container_sees_its_own_group_as_the_topmost(tmp_path: Path) -> None:
    written(tmp_path / "groups", memory__max="5000\n", memory__current="6000\n")
    assert limits(tmp_path, "0::/docker/2f4e\n").control_group == 0
    written(tmp_path / "groups" / "memory", memory__limit_in_bytes="700\n", memory__usage_in_bytes="100\n")
    assert limits(tmp_path, "4:memory:/docker/2f4e\n").control_group == 600


@pytest.mark.parametrize(
    ("text", "count"),
    [("4G", 4 << 30), ("4GiB", 4 << 30), ("512m", 512 << 20), ("1000", 1000), (" 2T ", 2 << 40), ("", None)],
)
def test_the_user_sets_a_limit(text: str, count: int | None) -> None:
    assert asked_bytes({"RANKSCOPE_MEMORY": text}) == count


def test_the_limit_of_the_user_holds_for_what_the_process_has_already(tmp_path: Path) -> None:
    assert limits(tmp_path, environment={"RANKSCOPE_MEMORY": "1M"}).asked == (1 << 20) - 10 * PAGE
    with pytest.raises(MemorySizeError, match="RANKSCOPE_MEMORY='4 cows' is no size"):
        limits(tmp_path, environment={"RANKSCOPE_MEMORY": "4 cows"})


def test_a_limit_of_the_address_space_counts() -> None:
    code = "from rankscope.assemble.machine_memory import memory_limits; print(memory_limits().address_space)"
    _, hard = resource.getrlimit(resource.RLIMIT_AS)

    def tight() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, hard))

    said = subprocess.run([sys.executable, "-c", code], preexec_fn=tight, capture_output=True, text=True, check=True)
    assert 0 < int(said.stdout) < 2 << 30
