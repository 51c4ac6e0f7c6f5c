"""Options of trainers in the forms of public programs, with other values."""

from __future__ import annotations

import pytest

from rankscope.parsers.series.run_options import RESUMED, file_options, flat_options, log_options, tracked_options

LOGS = {
    # NVIDIA/Megatron-LM: its arguments, and timers of the same form
    "megatron": (
        "------------------------ arguments ------------------------\n"
        "  adam_beta1 ...................................... 0.9\n"
        "  seed ............................................ 1234\n"
        "-------------------- end of arguments ---------------------\n"
        "    batch-generator ................................: (0.29, 0.31)\n"
        "  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 24\n",
        {"adam_beta1": "0.9", "seed": "1234", RESUMED: "24"},
    ),
    # huggingface/transformers
    "transformers": (
        "11/02/2025 10:00:00 - INFO - __main__ - Training/evaluation parameters TrainingArguments(\nadam_beta1=0.9,\n"
        "learning_rate=5e-05,\nlr_scheduler_type=SchedulerType.LINEAR,\n)\nother=1,\n",
        {"adam_beta1": "0.9", "learning_rate": "5e-05", "lr_scheduler_type": "SchedulerType.LINEAR"},
    ),
    "argparse": ("Namespace(lr=0.1, data='a, b', betas=(0.9, 0.95), fp16=True)\n",
                 {"lr": "0.1", "data": "a, b", "betas": "(0.9, 0.95)", "fp16": "True"}),
    # pytorch/torchtitan
    "titan": ('[titan] 10:00:00 - root - INFO - Running with configs: {"training": {"seed": null, "steps": 5}}\n',
              {"training.seed": "None", "training.steps": "5"}),
    "python dict": ("INFO hparams: {'a': 1, 'b': {'c': [1, 2]}}\n", {"a": "1", "b.c": "1, 2"}),
    "command": ("+ torchrun --nproc-per-node 8 train.py --lr 0.1 --fp16 --seed=3 --min -1 model.dim=4\n",
                {"nproc_per_node": "8", "lr": "0.1", "fp16": "true", "seed": "3", "min": "-1", "model.dim": "4"}),
    "lightning": ("Global seed set to 7\n", {"global_seed": "7"}),
    # karpathy/nanoGPT
    "nanogpt": ("Overriding: learning_rate = 0.001\n", {"learning_rate": "0.001"}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_options_are_read_in_each_form(name: str) -> None:
    text, options = LOGS[name]
    assert log_options(text.encode()) == options


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hparams.yaml", "seed: 3\nmodel:\n  dim: 8  # wide\nname: 'a b'\n"),
        ("train_config.toml", "seed = 3\nname = 'a b'\n[model]\ndim = 8\n"),
        ("args.json", '{"seed": 3, "name": "a b", "model": {"dim": 8}}'),
        ("config.yaml", "seed:\n  value: 3\nname:\n  desc: null\n  value: a b\nmodel.dim:\n  value: 8\n"),
    ],
)
def test_files_of_options(name: str, text: str) -> None:
    found = file_options(name, text.encode())
    assert {key: found[key] for key in ("seed", "name", "model.dim")} == {"seed": "3", "name": "a b", "model.dim": "8"}


def test_damage_and_depth_end_nothing() -> None:
    deep = "config: " + "{'a': " * 3000 + "1" + "}" * 3000
    assert log_options(deep.encode()) == {}
    assert file_options("config.json", b'{"a": ' * 5000) == file_options("config.toml", b"= 3") == {}
    assert not [*flat_options([1, 2])]
    assert tracked_options({"_wandb": {"x": 1}, "lr": {"value": 0.1, "desc": None}}) == {"lr": "0.1"}
