"""Runner of a training script that cannot be edited: `python -m rankscope.capture -o dumps train.py --lr 0.1`.

Under torchrun: `torchrun ... -m rankscope.capture -o dumps train.py --lr 0.1`; `-m package.train` for a module.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import start
from .code_record import note_command
from .perturbation import perturb_first_model
from .settings import STACK_MODES

_SHARE = re.compile(r"[01]?\.?\d{1,6}")


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """The options of the capture, which all take a value, and the script with its own arguments."""
    at = 0
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-m":
        at += 1 if "=" in argv[at] or argv[at] in ("-h", "--help", "--") else 2
        if argv[at - 1] == "--":
            break
    return [option for option in argv[:at] if option != "--"], argv[at:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rankscope.capture",
        usage="%(prog)s -o DIR [options] SCRIPT [arguments] | -m MODULE [arguments]",
        description="Runs a training script and leaves the flight recorder of this rank in DIR while it runs.",
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="where dumps are written")
    parser.add_argument("--interval", type=float, default=10.0, metavar="S", help="seconds between dumps (default: 10)")
    parser.add_argument("--keep", type=int, default=2, metavar="N", help="earlier dumps kept (default: 2)")
    parser.add_argument(
        "--signal", default="SIGUSR2", metavar="NAME", help=("signal that makes a dump, or none (default: SIGUSR2)")
    )
    parser.add_argument(
        "--stacks", choices=STACK_MODES, default="auto", help=("whether dumps have stacks (default: auto)")
    )
    parser.add_argument(
        "--memory",
        type=float,
        default=1.0,
        metavar="S",
        help="least seconds between two samples of memory, 0 for none (default: 1)",
    )
    parser.add_argument(
        "--stall-after",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds without progress after which the stacks of all threads are taken, 0 for never (default: 60)",
    )
    parser.add_argument(
        "--numbers",
        metavar="auto|every=N,...",
        help="record tensors of modules and collectives: as many steps as cost 5 percent of the time (auto), or one "
        "step of N, and steps=3-5; level=collectives, budget=0.02, limit_mb=64; "
        "replay_step=2 runs the forward pass of that step again",
    )
    parser.add_argument(
        "--perturb",
        type=int,
        metavar="SEED",
        help="noise of half an epsilon on the embeddings or the first weight of the first model",
    )
    return parser


def numbers_options(text: str) -> dict[str, Any]:
    """The arguments of `numbers.start` in "every=50,steps=3-5,limit_mb=64", or "auto" for none.

    Raises ValueError for others.
    """
    settings: dict[str, Any] = {}
    for part in text.split(",") if text != "auto" else ():
        name, _, value = part.partition("=")
        first, dash, last = value.partition("-")
        if name == "steps" and first.isdigit() and (last.isdigit() or not dash):
            settings[name] = range(int(first), int(last or first) + 1)
        elif name in ("every", "limit_mb", "replay_step") and value.isdigit():
            settings[name] = int(value)
        elif name == "level" and value:
            settings[name] = value
        elif name == "budget" and _SHARE.fullmatch(value):
            settings[name] = float(value)
        else:
            raise ValueError(
                "--numbers takes auto, or every=N, steps=N or N-M, level=modules, budget=0.05, limit_mb=N, "
                f"replay_step=N, separated by commas: {part!r}"
            )
    return settings


def main(argv: list[str]) -> None:
    """Starts the capture and then runs the script."""
    options_given, target = split(argv)
    parser = _parser()
    options = parser.parse_args(options_given)
    if not target or target == ["-m"]:
        parser.error("no SCRIPT and no -m MODULE given")
    note_command(target)
    signal = None if options.signal.lower() == "none" else options.signal
    try:
        recorded = None if options.numbers is None else numbers_options(options.numbers)
        start(
            options.output,
            interval=options.interval,
            keep=options.keep,
            signal=signal,
            stacks=options.stacks,
            memory=options.memory,
            stall_after=options.stall_after,
        )
        if options.perturb is not None:
            _with_torch("--perturb", lambda: perturb_first_model(options.perturb))
        if recorded is not None:
            _with_torch("--numbers", lambda: _record_numbers(options.output, recorded))
    except ValueError as error:
        parser.error(str(error))
    if target[0] == "-m":
        _run_module(target[1], target[2:])
    else:
        _run_script(target[0], target[1:])


def _with_torch(option: str, call: Callable[[], None]) -> None:
    """Calls what imports torch, before the script does. Raises ValueError without torch."""
    try:
        call()
    except ImportError as error:
        raise ValueError(f"{option} needs torch: {error}") from None


def _record_numbers(directory: str, options: dict[str, Any]) -> None:
    from . import numbers

    numbers.start(dumps=directory, **options)


def _run_module(name: str, arguments: list[str]) -> None:
    sys.argv = [name, *arguments]
    # the path that "python -m" searches; -P and -I have removed it
    if not sys.path or sys.path[0] not in ("", os.getcwd()):  # noqa: PTH109 - compared as the interpreter writes it
        sys.path.insert(0, "")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_script(path: str, arguments: list[str]) -> None:
    """Runs a script in a module that stays `__main__`, so that its pickles and forks find it."""
    sys.argv = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    try:
        code = compile(Path(path).read_bytes(), path, "exec")
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}") from None
    exec(code, module.__dict__)  # noqa: S102 - the user asked to run it


if __name__ == "__main__":
    main(sys.argv[1:])
