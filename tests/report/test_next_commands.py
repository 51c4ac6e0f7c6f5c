"""The commands that collect what a verdict lacks."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.advice_table import SCRIPT
from rankscope.analysis.collection_settings import settings_for
from rankscope.analysis.model import Analysis, Finding
from rankscope.commands.source import JobSource
from rankscope.report.next_commands import command_block, missing_evidence, offered_commands
from rankscope.schema import Dataset
from rankscope.text.given_input import GivenInput
from tests.builders import JobBuilder


def hung(host: str = "") -> tuple[Dataset, Analysis]:
    """A job whose rank 2 never came; what a log of it says of its process."""
    job = JobBuilder(4)
    for _ in range(4):
        job.collective(host=None)
    job.collective(ranks=[0, 1, 3], state="scheduled", host=None)
    if host:
        job.comm(2, pid=4711, host=host)
    dataset = job.build()
    return dataset, analyse(dataset)


def lines(block: str) -> list[str]:
    """The lines of a block that a shell runs; it must accept the whole."""
    assert subprocess.run(["bash", "-n"], input=block.encode(), check=False, capture_output=True).stderr == b""
    return [line for line in block.splitlines() if line and not line.startswith("#")]


def test_the_stack_of_the_accused_on_its_host() -> None:
    dataset, analysis = hung(host="node07")
    shown = lines(command_block(dataset, analysis))
    assert shown[1] == "ssh node07 py-spy dump --native --pid 4711 > dumps/pyspy_rank_2.txt"
    assert 'ssh node07 "cd $PWD && rankscope stacks -o dumps"' in shown
    assert shown[-1] == f"torchrun $LAUNCH -m rankscope.capture -o dumps --interval 10 {SCRIPT}"


def test_what_is_collected_is_read_together_with_what_was_given() -> None:
    def shown(*names: str, directory: str = "", is_session: bool = False) -> list[str]:
        block = command_block(*hung(host="node07"), GivenInput(names, directory, is_session))
        lines(block)
        return [line for line in block.splitlines() if "rankscope " in line or "py-spy" in line]

    assert shown("my dumps/", directory="my dumps/")[:3] == [
        "ssh node07 py-spy dump --native --pid 4711 > 'my dumps/pyspy_rank_2.txt'",
        "ssh node07 \"cd $PWD && rankscope stacks -o \"''\"'\"'my dumps/'\"'\"''",
        "rankscope report 'my dumps/'",
    ]
    assert "rankscope report a.log 'b c' dumps" in shown("a.log", "b c")
    assert "rankscope report ./-x dumps" in shown("-x", "dumps")
    assert "# the same input again | rankscope report - dumps" in shown("-")
    session = "# then give rankscope report the files of the job and dumps: a session is opened alone"
    assert session in shown("s", is_session=True)


def test_a_source_names_what_the_user_gave(tmp_path: Path) -> None:
    job = str(tmp_path)
    assert JobSource((job,)).given == GivenInput((job,), directory=job)
    assert JobSource((job, "x")).given == GivenInput((job, "x"))
    assert JobSource(("/tmp/copy",), called=("standard input",)).given == GivenInput(("-",))
    assert JobSource(("/tmp/copy",), called=("http://host:25999",)).given == GivenInput(("http://host:25999",))


def test_the_members_of_the_group_and_the_size() -> None:
    block = command_block(*hung())
    assert "members as recorded: ranks 0-3." in block and "get_process_group_ranks" in block
    assert "# It writes about " in block and "for 4 ranks at most: dumps " in block


@pytest.mark.parametrize("host", ["a; rm -rf /", "$(id)", "-oProxyCommand=x", "x\ny", "n" * 300])
def test_no_host_name_harms_a_shell(host: str) -> None:
    shown = lines(command_block(*hung(host=host)))
    assert shown[1] == "py-spy dump --native --pid 4711 > dumps/pyspy_rank_2.txt"
    assert not any("ssh" in line for line in shown)


def test_text_of_files_stays_in_comments() -> None:
    dataset, analysis = hung()
    evil = replace(analysis, verdict="x\nrm -rf / \x1b[2J `id` $(id)" + " y" * 300)
    assert lines(command_block(dataset, evil)) == lines(command_block(dataset, analysis))


def test_a_proven_verdict_needs_nothing() -> None:
    dataset, analysis = hung()
    sure = replace(analysis, findings=tuple(replace(f, confidence="high") for f in analysis.findings))
    assert command_block(dataset, sure) == "" and missing_evidence(sure) == ()
    assert missing_evidence(replace(analysis, findings=(), status="unknown")) == ("the status is unknown",)
    assert missing_evidence(replace(analysis, findings=(), status="healthy")) == ()


def test_only_the_leading_finding_offers_the_block() -> None:
    dataset, analysis = hung()
    step = Finding("ring-wrapped", "info", "t", "e", next_steps=("Run py-spy dump --pid 7.",))
    both = replace(analysis, findings=(*analysis.findings, step))
    assert offered_commands(dataset, both, step) == "py-spy dump --pid 7\n"
    assert offered_commands(dataset, both, both.findings[0]) == command_block(dataset, both)
    assert offered_commands(dataset, both, replace(step, next_steps=())) == ""


@pytest.mark.parametrize(
    ("backends", "version", "has", "lacks"),
    [
        (("nccl",), (2, 9), "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        (("nccl",), (2, 13), "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        # the hook of nccl2 reports no end of operations under DETAIL
        (("nccl",), (2, 15), "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_DISTRIBUTED_DEBUG"),
        (("gloo",), (2, 13), "TORCH_CPP_LOG_LEVEL", "NCCL_DEBUG"),
        (("hccl",), (2, 7), "TORCH_HCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        (("xccl",), (2, 12), "CCL_LOG_LEVEL", "NCCL_DEBUG"),
        (("nccl",), None, "TORCH_NCCL_TRACE_BUFFER_SIZE", "CCL_LOG_LEVEL"),
    ],
)
def test_variables_of_a_backend_and_a_version(
    backends: tuple[str, ...], version: tuple[int, int] | None, has: str, lacks: str
) -> None:
    names = [row.name for row in settings_for(backends, version)]
    assert has in names and lacks not in names and len(names) == len(set(names))
