"""The summary of torchrun, of today and of torch 1.9."""

from __future__ import annotations

from tests.features.logs.read.c10d.lines import events, everything, values

SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_19:13:47
  host      : node-3
  rank      : 11 (local_rank: 3)
  exitcode  : -15 (pid: 28536)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 28536
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_19:13:46
  host      : node-3
  rank      : 8 (local_rank: 0)
  exitcode  : -9 (pid: 28535)  (SIGKILL)
  error_file: /tmp/e/error.json
  traceback : Traceback (most recent call last):
    File "/job/train.py", line 3, in main
      step()
  RuntimeError: boom

============================================================
  rank      : 99 (local_rank: 0)"""
OLD = """\
*****************************************
      train.py FAILED
=======================================
Root Cause:
[0]:
  time: 2021-09-11_12:36:03
  rank: 4 (local_rank: 0)
  exitcode: 1 (pid: 9)
  error_file: <N/A>
  msg: "Process failed with exitcode 1"
=======================================
Other Failures:
[1]:
  time: 2021-09-11_12:36:04
  rank: 5 (local_rank: 1)
  exitcode: -15 (pid: 10)
  error_file: <N/A>
  msg: "Process failed with exitcode -15"
*****************************************"""
FIELDS = ("first", "exitcode", "pid", "local_rank")


def test_each_child_with_its_global_rank() -> None:
    said = events(SUMMARY)
    assert [(e.kind, e.rank, *values(e, *FIELDS)) for e in said] == [
        ("torchrun-failure", 11, False, -15, 28536, 3), ("torchrun-failure", 8, True, -9, 28535, 0),
    ]  # fmt: skip
    assert values(said[1], "host", "time", "signal", "error_file") == (
        "node-3", "2026-11-20_19:13:46", "SIGKILL", "/tmp/e/error.json",
    )  # fmt: skip
    assert said[0].stamp is not None
    assert said[1].stamp is not None
    assert said[0].stamp.ns - said[1].stamp.ns == said[0].stamp.resolution_ns == 1_000_000_000
    assert said[1].values["message"].endswith("RuntimeError: boom")


def test_the_form_of_torch_1_9() -> None:
    said = events(OLD)
    assert [(e.rank, *values(e, *FIELDS)) for e in said] == [(4, True, 1, 9, 0), (5, False, -15, 10, 1)]


def test_what_torchrun_calls_root_cause_is_none() -> None:
    known = [(e.rank, *values(e, "id", "role")) for e in everything(SUMMARY) if e.kind == "known-error"]
    assert ("first-exit", "context") in [found[1:] for found in known]
    assert (11, "bystander", "noise") in known
    assert (8, "killed", "context") in known
    assert "root" not in [found[2] for found in known]


def test_a_summary_that_is_cut() -> None:
    said = events("\n".join(SUMMARY.split("\n")[:9]))
    assert [(e.rank, e.values["exitcode"]) for e in said] == [(11, None)]
