"""Exceptions of Python, of several ranks at once."""

from __future__ import annotations

import pytest

from tests.features.logs.read.c10d.lines import events, everything, only, values

ONE = """\
Traceback (most recent call last):
  File "/job/train.py", line 26, in <module>
    main()
    ~~~~^^
  File "/job/train.py", line 19, in main
    raise ValueError(f"CUDA out of memory")
ValueError: bad sample index 17"""
CHAIN = """\
Traceback (most recent call last):
  File "/job/train.py", line 24, in load
    rates["lr"]
KeyError: 'lr'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/train.py", line 26, in load
    raise ValueError("no rate") from e
ValueError: no rate

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/job/train.py", line 30, in <module>
    load()
torch.distributed.DistBackendError: NCCL error in: /p/NCCLUtils.hpp:268, unhandled cuda error
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 'out of memory'
train.py is done"""


def prefixed(rank: int, text: str) -> list[str]:
    return [f"[rank{rank}]: {line}" for line in text.split("\n")]


def test_frames_are_innermost_first() -> None:
    event = only(ONE)
    assert (event.kind, event.line, event.torn) == ("traceback", 1, False)
    assert values(event, "exception", "message", "causes", "launcher") == (
        "ValueError",
        "bad sample index 17",
        [],
        False,
    )
    assert event.values["frames"] == [["main", "/job/train.py", 19], ["<module>", "/job/train.py", 26]]
    assert event.text == "ValueError: bad sample index 17"


def test_a_chain_has_its_nearest_cause_first() -> None:
    event = only(CHAIN)
    assert event.values["exception"] == "torch.distributed.DistBackendError"
    assert event.values["message"].endswith("failed. Last error: Cuda failure 'out of memory'")
    assert [cause[:3] for cause in event.values["causes"]] == [
        ["context", "ValueError", "no rate"],
        ["cause", "KeyError", "'lr'"],
    ]
    assert event.values["causes"][1][3] == [["load", "/job/train.py", 24]]


def test_ranks_that_write_line_by_line() -> None:
    lines = [line for pair in zip(prefixed(3, ONE), prefixed(5, ONE.replace("17", "18")), strict=True) for line in pair]
    said = events("\n".join(lines))
    assert [(e.rank, e.values["message"], len(e.values["frames"])) for e in said] == [
        (3, "bad sample index 17", 2), (5, "bad sample index 18", 2),
    ]  # fmt: skip


def test_a_message_of_several_lines() -> None:
    said = events("\n".join([*prefixed(3, f"{ONE}\nin the\nconfig"), "[rank3]:[E1120 12:34:56.789 X.cpp:1] hello"]))
    assert [e.values["message"] for e in said] == ["bad sample index 17 in the config"]


def test_other_lines_between_do_not_break_it() -> None:
    """Output of other processes, in a log whose lines have no prefixes."""
    lines = ONE.split("\n")
    lines[3:3] = ["node:12:34 [0] NCCL INFO Connected all rings", "srun: job 5 step 3"]
    assert only("\n".join(lines)).values["exception"] == "ValueError"


def test_two_processes_in_one_stream_without_prefixes_are_told_as_mixed() -> None:
    lines = [line for line in ONE.split("\n") for _ in range(2)]
    assert [(e.torn, e.values["mixed"]) for e in events("\n".join(lines))] == [(True, True), (False, True)]
    assert [e.values["mixed"] for e in events(f"{ONE}\n{ONE}")] == [False, False]


def test_one_that_ends_in_the_middle() -> None:
    event = only("\n".join(ONE.split("\n")[:4]))
    assert (event.torn, event.values["exception"]) == (True, "")
    assert event.values["frames"] == [["<module>", "/job/train.py", 26]]


def test_torchruns_own_is_told_from_a_ranks() -> None:
    event = only(
        "Traceback (most recent call last):\n"
        '  File "/v/lib/python3.11/site-packages/torch/distributed/run.py", line 1028, in main\n    run(args)\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    assert event.values["launcher"]
    assert event.values["exception"].endswith("ChildFailedError")


def test_what_only_looks_like_an_exception() -> None:
    said = only(ONE.replace("ValueError: bad", "srun: error: bad\nValueError: bad"))
    assert said.values["exception"] == "ValueError"


def test_odd_names() -> None:
    for name in (
        "KeyboardInterrupt",
        "socket.gaierror",
        "zlib.error",
        "TimeoutError",
        "a.b.<locals>.Odd",
        "queue.Empty",
    ):
        assert only(ONE.replace("ValueError: bad sample index 17", name)).values["exception"] == name
    assert only(ONE.replace("ValueError:", "subprocess.CalledProcessError:")).values["message"] == "bad sample index 17"


FRAMES = '  File "/job/train.py", line 3, in main\n    step()\n'


@pytest.mark.parametrize(
    "front", ["47%|##  | 3169/6811 [30:11<38:27, 1578.58 examples/s]", "Scheduler hit an exception: "]
)
def test_a_traceback_behind_something_else(front: str) -> None:
    event = only(f"{front}Traceback (most recent call last):\n{FRAMES}ValueError: no")
    assert values(event, "exception", "message") == ("ValueError", "no")


def test_a_sentence_about_tracebacks_begins_none() -> None:
    assert events("see also the Traceback (most recent call last): of the other rank\nstep 3") == []


def test_an_error_that_ray_passes_on_is_of_the_process_that_raised_it() -> None:
    event = only(
        "ray.exceptions.RayTaskError(ValueError): ray::Runner.run() (pid=10, ip=10.0.0.1, id=36, repr=<R at 0x7>)\n"
        f"{FRAMES}"
        "ray.exceptions.RayTaskError(ValueError): ray::Worker.update() (pid=11, ip=10.0.0.2, id=37, repr=<W at 0x8>)\n"
        '  File "/job/worker.py", line 8, in update\n    x()\nValueError: bad sample'
    )
    assert values(event, "pid", "host", "message") == (11, "10.0.0.2", "bad sample")
    assert event.values["frames"] == [["update", "/job/worker.py", 8]]


@pytest.mark.parametrize(("function", "launcher"), [("join", True), ("_wrap", False)])
def test_the_parent_of_spawned_processes_only_tells_of_them(function: str, launcher: bool) -> None:
    spawn = f'  File "/torch/multiprocessing/spawn.py", line 107, in {function}\n    x\n'
    frames = FRAMES + spawn if launcher else spawn + FRAMES
    event = next(
        e for e in events(f"Traceback (most recent call last):\n{frames}Exception: stopped") if e.kind == "traceback"
    )
    assert event.values["launcher"] is launcher


def test_an_exception_that_another_rank_prints_is_of_the_rank_it_names() -> None:
    event, known = everything(
        f"[rank0]: Traceback (most recent call last): (RANK 3)\n[rank0]: {FRAMES[:-1]}\n".replace(
            "\n    ", "\n[rank0]:     "
        )
        + "[rank0]: OSError: [Errno 28] No space left on device"
    )
    assert (event.kind, event.rank, event.values["exception"]) == ("traceback", 3, "OSError")
    assert (known.values["id"], known.rank) == ("disk-full", 3)


HEADLESS = """\
  File "/job/train.py", line 19, in main
    load(path)
    ^^^^^^^^^^
  File "/job/load.py", line 4, in load
    assert found
AssertionError: nothing to load"""


def test_a_traceback_without_its_beginning() -> None:
    told = only(HEADLESS)
    assert values(told, "exception", "message") == ("AssertionError", "nothing to load")
    assert (told.torn, told.values["frames"][0]) == (True, ["load", "/job/load.py", 4])


def test_a_stack_that_somebody_printed_is_no_traceback() -> None:
    assert events(HEADLESS.rsplit("\n", 1)[0] + "\nstep 4\nAssertionError: of something else") == []


def test_an_actor_that_died_is_told_below_a_traceback_too() -> None:
    listed = HEADLESS.rsplit("\n", 1)[0] + (
        "\nray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        "\tclass_name: Worker\n\tpid: 4711\n\tip: 10.0.0.7\n"
    )
    assert [event.kind for event in events(listed)] == ["traceback", "worker-died"]


@pytest.mark.parametrize("line", ["RuntimeError: the loader gave nothing", "AssertionError", "my.own.StepError: x"])
def test_an_exception_alone_behind_the_prefix_of_torch(line: str) -> None:
    event = only(f"step 3\n[rank1]: {line}\nbye")
    assert (event.kind, event.rank, event.line, event.torn) == ("traceback", 1, 2, True)
    assert event.text == line
    assert event.values["exception"] == line.partition(":")[0]


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: the loader gave nothing",  # anybody may print it
        "[rank1]: UserWarning: no shuffle", "[rank1]: Loss: 2.5", "[rank1]: Error rate: 0.5",
        "[rank1]: ValueError: bad sample, skipping it", "[rank1]:     raise RuntimeError: x",
    ],
)  # fmt: skip
def test_a_line_that_only_looks_like_one(line: str) -> None:
    assert events(f"step 3\n{line}\nstep 4") == []


def test_what_is_known_of_an_exception_alone_is_told_once() -> None:
    (event,) = everything("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert (event.kind, event.rank, event.values["id"]) == ("known-error", 1, "cuda-out-of-memory")
