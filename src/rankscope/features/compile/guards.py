"""Guards of torch.compile: what a failed one means for the program, and what stops the recompilations.

    tensor 'x' size mismatch at index 0. expected 4, actual 5
    L['end'] == 11
    ___check_obj_id(L['self'].act, 140212)
    GLOBAL_STATE changed: grad_mode

Source: torch/_dynamo/guards.py and torch/csrc/dynamo/guards.cpp from 2.1 to 2.13.
"""

from __future__ import annotations

import re

# fmt: off
_ADVICE = tuple((re.compile(pattern), advice) for pattern, advice in (
    (r"size mismatch at index \d{1,3}|\.size\(\)\[\d{1,3}\]|Eq\(|(?:==|<=|<) L\[.{1,200}\.size",
     "Look at the shapes that these ranks get: the last batch, sequence lengths, an uneven split. Mark such sizes as "
     "dynamic (torch._dynamo.mark_dynamic), compile with dynamic=True, or pad them."),
    (r"stride mismatch",
     "Give the function tensors of one memory layout: .contiguous() before the call, or the same view each time."),
    (r"dtype mismatch|requires_grad mismatch|device index mismatch|dispatch key set mismatch|rank mismatch",
     "Call the function with tensors of one type, device, number of dimensions and requires_grad, or compile a "
     "function for each."),
    (r"^L\[.{1,200} == -?\d{1,19}$",
     "An integer of the program is part of the compiled code. Pass it as a tensor, compute it outside of the compiled "
     "function, or let it vary: torch._dynamo.config.allow_unspec_int_on_nn_module = True for one on a module, "
     "compile(..., dynamic=True) for an argument."),
    (r"^L\[.{1,200} == -?(?:\d{0,19}\.\d|\d{1,19}\.|\d{1,19}e|inf|nan)",
     "A float of the program is part of the compiled code, such as a learning rate: pass it as a tensor."),
    (r"^(?:L|G)\[.{1,200} == (?:'|\"|True|False|None)",
     "A flag or a text of the program is part of the compiled code: compile a function for each of its values."),
    (r"^len\(|___dict_contains|list\(dict\.keys|___key_to_id",
     "A list or a dict of the program has another number of entries each time: keep its length, or build it outside of "
     "the compiled function."),
    (r"___check_obj_id|___check_type_id|___check_weakref| is (?:L|G)\[|hasattr\(",
     "The function gets another object each time: create modules, closures and functions once, outside of the loop."),
    (r"GLOBAL_STATE changed|grad_mode|___check_global_state|torch_function_mode_stack",
     "A global state differs between the calls (no_grad, autocast, the default type): set it in one place around all "
     "calls."),
))
# fmt: on
_DEFAULT = "TORCH_LOGS=recompiles_verbose tells which guard of which compiled version fails."


def guard_advice(reason: str) -> str:
    """The change that keeps a guard from failing again; for an unknown one, the way to learn more."""
    return next((advice for pattern, advice in _ADVICE if pattern.search(reason)), _DEFAULT)
