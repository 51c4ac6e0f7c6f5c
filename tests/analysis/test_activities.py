"""What a stack is taken for."""

from __future__ import annotations

import pytest

from rankscope.analysis.host_stacks import classify_stack, own_frames, short_function_name
from rankscope.schema import Frame
from tests.analysis import hosts
from tests.analysis.hosts import MAIN, Stack


def frames(stack: Stack) -> list[Frame]:
    return [Frame(*frame) for frame in stack]


@pytest.mark.parametrize(
    ("stack", "doing", "words"),
    [
        (hosts.REDUCE, "collective", "in all_reduce"),
        (hosts.GATHER, "collective", "in all_gather"),
        (hosts.BARRIER, "collective", "in barrier"),
        (hosts.RECV, "p2p", "in recv"),
        (hosts.LEAVE, "exit", "in destroy_process_group"),
        (hosts.SAVE, "storage", "in torch.save"),
        (hosts.LOAD, "data", "waiting for the data loader"),
        (hosts.ITEM, "device", "reading a value from the device, as .item() does"),
        (hosts.TAKE_GIL, "lock", "waiting for the GIL"),
        (hosts.BACKWARD, "backward", "in backward"),
        ((("new_group", hosts.C10D, 1), *MAIN), "setup", "setting up process groups, in new_group"),
        (
            (("_store_based_barrier", hosts.C10D, 1), ("init_process_group", hosts.C10D, 2), *MAIN),
            "setup",
            "setting up process groups, in _store_based_barrier",
        ),
        ((("c10d::TCPStore::wait", "libtorch_cpu.so", 0), *MAIN), "setup", "meeting the other ranks at the store"),
        ((("synchronize", "torch/cuda/__init__.py", 9), *MAIN), "device", "waiting for the device, in synchronize"),
        ((("gc_collect_main", "python3.11", 0), *MAIN), "gc", "collecting garbage"),
        ((("read", "libc.so.6", 0), *MAIN), "storage", "in read, on a file"),
        ((("Condition.wait", "threading.py", 327), *MAIN), "thread", "waiting for another thread"),
        ((("wait", "/usr/lib/python3.10/threading.py", 327), *MAIN), "thread", "waiting for another thread"),
        ((("Popen._wait", "subprocess.py", 1900), *MAIN), "process", "waiting for another process"),
        ((("SSLSocket.read", "ssl.py", 1166), ("urlopen", "urllib3/x.py", 7), *MAIN), "network", "talking to a server"),
        ((("fx_codegen_and_compile", "torch/_inductor/compile_fx.py", 1), *MAIN), "compile", "compiling"),
        ((("FileBaton.wait", "torch/utils/file_baton.py", 1), *MAIN), "compile", "building an extension"),
        ((("Pdb.interaction", "pdb.py", 1), ("Pdb.set_trace", "pdb.py", 2), *MAIN), "debugger", "in a debugger"),
        ((("get_data", "<frozen importlib._bootstrap_external>", 1131), *MAIN), "import", "importing modules"),
        ((("wait", "torch/distributed/_functional_collectives.py", 140), *MAIN), "collective", "in wait"),
        ((("synchronize", "horovod/torch/mpi_ops.py", 900), *MAIN), "collective", "in synchronize"),
        ((("allreduce", "ray/util/collective/collective.py", 300), *MAIN), "collective", "in allreduce"),
        ((), "none", "without a frame"),
    ],
)
def test_what_a_stack_shows(stack: Stack, doing: str, words: str) -> None:
    activity = classify_stack(frames(stack), active=False)
    assert (activity.doing, activity.words) == (doing, words)


def test_a_stack_that_nothing_fits_runs_or_is_blocked() -> None:
    assert classify_stack(frames(hosts.LOOP), active=True).doing == "running"
    assert classify_stack(frames(hosts.LOOP), active=False).doing == "blocked"
    assert classify_stack(frames(hosts.LOOP)).doing == "blocked"


def test_a_collective_of_a_checkpoint_is_a_collective_and_a_barrier_of_the_job_is_none() -> None:
    save = ("_save_state_dict", "torch/distributed/checkpoint/state_dict_saver.py", 5)
    assert classify_stack(frames((*hosts.GATHER[:4], save, *MAIN))).doing == "collective"
    assert classify_stack(frames((save, *MAIN))).doing == "storage"
    assert classify_stack(frames((("barrier", "app/sync.py", 5), *MAIN)), active=True).doing == "running"


def test_an_event_loop_that_called_the_job_is_not_what_it_does() -> None:
    loop = (("_run_once", "asyncio/base_events.py", 1), ("run_forever", "asyncio/base_events.py", 2))
    assert classify_stack(frames((*hosts.LOOP, *loop)), active=True).doing == "running"
    assert classify_stack(frames((*loop, *MAIN))).doing == "thread"


def test_python_names_a_call_better_than_the_library_below_it() -> None:
    native = (("c10d::Work::wait", "libtorch_cpu.so", 0),)
    assert classify_stack(frames((*native, *hosts.REDUCE))).words == "in all_reduce"
    assert classify_stack(frames((*native, *MAIN))).words == "waiting for other ranks, in c10d::Work::wait"


def test_arguments_of_templates_are_left_out() -> None:
    assert short_function_name(Frame("std::f<int (*)(char)>::call(int)", "a.so", 0)) == "std::f"
    assert short_function_name(Frame("<lambda>", "a.py", 3)) == "<lambda>"
    assert short_function_name(Frame("<" * 200, "a.so", 0)) == "<"


def test_own_frames_leave_out_libraries_and_packages() -> None:
    step = ("training_step", "transformers/trainer.py", 3)
    assert [f.function for f in own_frames(frames((*hosts.REDUCE[:2], step, *MAIN)))] == ["main", "<module>"]
    assert [f.function for f in own_frames(frames((*hosts.REDUCE[:2], step)))] == ["training_step"]
    assert own_frames(frames(hosts.REDUCE[:2])) == ()


def test_names_of_any_length_and_kind_take_no_time() -> None:
    evil = "cuda" + "Synchronize" * 50_000
    activity = classify_stack([Frame(evil, "a.so", 0), Frame("{0.__class__}", evil + "/" * 50_000, 1)])
    assert activity.doing == "device"
    assert len(activity.words) < 300
    assert classify_stack([Frame("{0.__class__}", evil, 1)]).doing == "blocked"
