"""Prolog and epilog of Slurm, run with its variables: what a task gets, and what a failed job leaves."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.recipes.scripts import RECIPES, SAMPLES, run_script, stand_in, with_rankscope

PROLOG, EPILOG = RECIPES / "slurm" / "task_prolog.sh", RECIPES / "slurm" / "epilog.sh"
SCONTROL = """if [ "$*" = 'show hostnames node[07-08]' ]; then printf 'node07\\nnode08\\n'
elif [ "$*" = '--oneliner show job 4711' ]; then echo "JobId=4711 JobState=COMPLETING ExitCode=${ENDED:-0:0} RunTime=1"
else exit 1; fi"""
"""Stands in for scontrol; the controller knows of the job that it ended with `ENDED`, exit code and signal."""
XID = "2026-11-20T22:00:20+00:00 node07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=9, GPU has fallen off the bus."


def given(output: str) -> dict[str, str]:
    """The variables that Slurm takes from the output of a task prolog."""
    return dict(
        line.removeprefix("export ").split("=", 1) for line in output.splitlines() if line.startswith("export ")
    )


def test_a_task_gets_a_recorder_and_a_directory(tmp_path: Path) -> None:
    done = run_script(PROLOG, {"SLURM_JOB_ID": "4711", "SLURM_JOB_WORK_DIR": str(tmp_path)}, tmp_path)
    told, dumps = given(done.stdout), tmp_path / "rankscope-4711"
    assert (done.returncode, done.stderr) == (0, "") and dumps.is_dir()
    assert told["TORCH_FR_BUFFER_SIZE"] == told["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert told["TORCH_FR_DUMP_TEMP_FILE"] == told["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == f"{dumps}/fr_trace_rank_"
    assert told["NCCL_DEBUG_FILE"] == f"{dumps}/nccl_%h_%p.log" and told["RANKSCOPE_DUMPS"] == str(dumps)


def test_settings_of_the_user_stay(tmp_path: Path) -> None:
    own = {
        "SLURM_JOB_ID": "4711",
        "TORCH_FR_BUFFER_SIZE": "50",
        "NCCL_DEBUG": "WARN",
        "RANKSCOPE_DUMPS": str(tmp_path / "x"),
    }
    told = given(run_script(PROLOG, own, tmp_path).stdout)
    assert not {"TORCH_FR_BUFFER_SIZE", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "RANKSCOPE_DUMPS"} & set(told)
    assert told["TORCH_FR_DUMP_TEMP_FILE"] == f"{tmp_path}/x/fr_trace_rank_"


def test_a_directory_that_cannot_be_made_does_not_end_the_task(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_script(PROLOG, {"SLURM_JOB_ID": "1", "RANKSCOPE_DUMPS": str(tmp_path / "file" / "dumps")}, tmp_path)
    assert (done.returncode, done.stdout) == (0, "") and "cannot be made" in done.stderr


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The variables of an epilog on the first of two nodes, with stand-ins for what a node has."""
    shutil.copytree(SAMPLES / "two_groups", tmp_path / "rankscope-4711")
    tools = tmp_path / "tools"
    path = with_rankscope(tools)
    stand_in(tools, "scontrol", SCONTROL)
    stand_in(tools, "journalctl", f"echo 'ordinary line'; echo {shlex.quote(XID)}")
    stand_in(tools, "logger", f'echo "$@" >> {tmp_path}/syslog')
    return {
        "SLURM_JOB_ID": "4711", "SLURM_JOB_USER": getpass.getuser(), "SLURM_JOB_WORK_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "node[07-08]", "SLURMD_NODENAME": "node07", "SLURM_JOB_EXIT_CODE": "256",
        "SLURM_JOB_DERIVED_EC": "0", "RANKSCOPE_PATH": path, "RANKSCOPE_OTHERS_S": "0",
    }  # fmt: skip


def test_a_failed_job_gets_a_report_with_what_the_kernel_said(job: dict[str, str], tmp_path: Path) -> None:
    done = run_script(EPILOG, job, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "rankscope-4711" / "kernel_node07.log").read_text() == f"{XID}\n"
    report = (tmp_path / "rankscope-4711.md").read_text()
    assert report.startswith("# Failed: ") and "Xid 79" in report.splitlines()[0]
    assert "job 4711: Failed: " in (tmp_path / "syslog").read_text()


def test_other_nodes_leave_only_their_kernel_lines(job: dict[str, str], tmp_path: Path) -> None:
    assert run_script(EPILOG, {**job, "SLURMD_NODENAME": "node08"}, tmp_path).returncode == 0
    assert (tmp_path / "rankscope-4711" / "kernel_node08.log").exists()
    assert not (tmp_path / "rankscope-4711.md").exists()


@pytest.mark.parametrize(
    ("changed", "reports"),
    [
        ({"SLURM_JOB_EXIT_CODE": "0"}, False),
        ({"SLURM_JOB_EXIT_CODE": "0", "SLURM_JOB_DERIVED_EC": "1"}, True),
        # cancelled, or at its time limit: epilogs of Slurm 22.05 and 26.05 are told 0
        ({"SLURM_JOB_EXIT_CODE": "0", "ENDED": "0:15"}, True),
        ({"SLURM_JOB_EXIT_CODE": "15"}, True),
        ({"SLURM_JOB_ID": "4712"}, False),
    ],
)
def test_only_failed_jobs_with_dumps_are_reported(
    job: dict[str, str], tmp_path: Path, changed: dict[str, str], reports: bool
) -> None:
    assert run_script(EPILOG, {**job, **changed}, tmp_path).returncode == 0
    assert (tmp_path / "rankscope-4711.md").exists() == reports
    assert (tmp_path / "rankscope-4711" / "comm_lib_trace_rank_0").exists()


@pytest.mark.parametrize("code", ["0", "256"])
def test_a_directory_in_which_nothing_lies_goes(job: dict[str, str], tmp_path: Path, code: str) -> None:
    """The prolog makes one for each job."""
    shutil.rmtree(tmp_path / "rankscope-4711")
    (tmp_path / "rankscope-4711").mkdir()
    stand_in(tmp_path / "tools", "journalctl", "echo 'ordinary line'")
    other = {**job, "SLURMD_NODENAME": "node08", "SLURM_JOB_EXIT_CODE": code}
    assert run_script(EPILOG, other, tmp_path).returncode == 0 and (tmp_path / "rankscope-4711").is_dir()
    assert run_script(EPILOG, {**job, "SLURM_JOB_EXIT_CODE": code}, tmp_path).returncode == 0
    assert not list(tmp_path.glob("rankscope-4711*")) and not (tmp_path / "syslog").exists()


def test_versions_of_slurm_that_tell_no_exit_code_report_always(job: dict[str, str], tmp_path: Path) -> None:
    del job["SLURM_JOB_EXIT_CODE"], job["SLURM_JOB_DERIVED_EC"]
    assert run_script(EPILOG, job, tmp_path).returncode == 0
    assert (tmp_path / "rankscope-4711.md").exists()


def test_an_epilog_never_fails(job: dict[str, str], tmp_path: Path) -> None:
    """A node whose epilog fails is drained."""
    stand_in(tmp_path / "tools", "rankscope", "sleep 60")
    done = run_script(EPILOG, {**job, "RANKSCOPE_LONGEST_S": "1"}, tmp_path)
    assert done.returncode == 0 and "rankscope ended with 124" in (tmp_path / "syslog").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_an_epilog_writes_as_the_user_alone(job: dict[str, str], tmp_path: Path) -> None:
    """A link that the user has put there leads the epilog nowhere that the user may not write."""
    target = tmp_path / "private"
    target.mkdir(mode=0o700)
    for folder in (*tmp_path.parents[:2], tmp_path, tmp_path / "rankscope-4711"):
        folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "rankscope-4711" / "kernel_node07.log").symlink_to(target / "kernel.log")
    assert run_script(EPILOG, {**job, "SLURM_JOB_USER": "nobody"}, tmp_path).returncode == 0
    assert list(target.iterdir()) == []
