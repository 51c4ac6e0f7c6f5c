"""Options of trainers in the forms of public programs, with other values."""

from __future__ import annotations

import pytest

from rankscope.features.series.read.log_series import read_log_series
from rankscope.features.series.read.run_options import file_options, is_printed_config, log_options, tracked_options
from rankscope.parsers.config_documents import MOST_VALUES, NoConfigError

LOGS = {
    # NVIDIA/Megatron-LM: its arguments, and timers of the same form
    "megatron": (
        "------------------------ arguments ------------------------\n"
        "  adam_beta1 ...................................... 0.9\n"
        "  seed ............................................ 1234\n"
        "-------------------- end of arguments ---------------------\n"
        "    batch-generator ................................: (0.29, 0.31)\n"
        "  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 24\n",
        {"dotted list": {"adam_beta1": 0.9, "seed": 1234}},
    ),
    # huggingface/transformers
    "transformers": (
        "11/02/2025 10:00:00 - INFO - __main__ - Training/evaluation parameters TrainingArguments(\nadam_beta1=0.9,\n"
        "learning_rate=5e-05,\nlr_scheduler_type=SchedulerType.LINEAR,\n)\nother=1,\n",
        {"TrainingArguments": {"adam_beta1": 0.9, "learning_rate": 5e-5, "lr_scheduler_type": "SchedulerType.LINEAR"}},
    ),
    "argparse": ("Namespace(lr=0.1, data='a, b', betas=(0.9, 0.95), fp16=True, f=<function f at 0x7f1>, d=-1)\n",
                 {"Namespace": {"lr": 0.1, "data": "a, b", "betas": [0.9, 0.95], "fp16": True, "f": "<function f>",
                                "d": -1}}),
    "dataclass": ("12:00 INFO TrainConfig(model=ModelConfig(dim=8, act='gelu'), steps=30, lr=inf)\n",
                  {"TrainConfig": {"model": {"dim": 8, "act": "gelu"}, "steps": 30, "lr": float("inf")}}),
    # pytorch/torchtitan
    "titan": ('[titan] 10:00:00 - root - INFO - Running with configs: {"training": {"seed": null, "steps": 5}}\n',
              {"config": {"training": {"seed": None, "steps": 5}}}),
    "python dict": ("INFO hparams: {'a': 1, 'b': {'c': [1, 2]}}\n", {"config": {"a": 1, "b": {"c": [1, 2]}}}),
    "command": ("+ torchrun --nproc-per-node 8 train.py --lr 0.1 --fp16 --seed=3 --betas 0.9 0.95 --min -1 model.dim=4\n",  # noqa: E501
                {"command line": {"nproc_per_node": 8, "lr": 0.1, "fp16": True, "seed": 3, "betas": [0.9, 0.95],
                                  "min": -1, "model.dim": 4}}),
    "lightning": ("Global seed set to 7\n", {"seed": {"global_seed": 7}}),
    # karpathy/nanoGPT
    "nanogpt": ("Overriding: learning_rate = 0.001\n", {"overrides": {"learning_rate": 0.001}}),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_options_are_read_in_each_form(name: str) -> None:
    text, options = LOGS[name]
    found = log_options(text.encode())
    assert found.forms == options
    assert found.resumed == ((24,) if name == "megatron" else ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hparams.yaml", "seed: 3\nmodel:\n  dim: 8  # wide\nname: 'a b'\nnote: |\n  seed: 4\n"),
        ("conf/anything.yml", "{seed: 3, model: {dim: 8}, name: a b, note: 'seed: 4\n\n  '}\n"),
        ("train.toml", "seed = 3\nname = 'a b'\nnote = 'seed: 4\\n'\n[model]\ndim = 8\n"),
        ("args.json", '{"seed": 3, "name": "a b", "note": "seed: 4", "model": {"dim": 8}}'),
        (
            "config.yaml",
            "seed:\n  value: 3\nname:\n  desc: null\n  value: a b\nmodel:\n  value: {dim: 8}\n_wandb: {}\n",
        ),
    ],
)
def test_files_of_options(name: str, text: str) -> None:
    tree = file_options(name, text.encode()).source.tree
    assert isinstance(tree, dict)
    assert {key: tree[key] for key in ("seed", "name", "model")} == {"seed": 3, "name": "a b", "model": {"dim": 8}}


def test_yaml_is_read_by_meaning() -> None:
    text = "a: 1e-4\nb: on\nc: ${model.dim}\nd: !!python/tuple [1, 2]\n1: x\nbase: &b {lr: 1, wd: 2}\nrun: {<<: *b, lr: 3}\n"  # noqa: E501
    tree = file_options("c.yaml", text.encode()).source.tree
    assert tree == {
        "a": 1e-4, "b": True, "c": "${model.dim}", "d": [1, 2], "1": "x", "base": {"lr": 1, "wd": 2},
        "run": {"lr": 3, "wd": 2},
    }  # fmt: skip
    assert file_options("c.yaml", b"a: 1\n---\na: 2\n").source.tree == {"document 0": {"a": 1}, "document 1": {"a": 2}}


def test_limits_of_reading_are_noted() -> None:
    found = file_options("c.yaml", b"lr: 1\nlr: 2\nx: !!python/object/apply:os.system [ls]\n")
    assert found.source.tree == {"lr": 2, "x": {"": ["ls"], "(tag)": "python/object/apply:os.system"}}
    assert found.notes == (
        'line 2: "lr" stands twice: the last one counts',
        'line 3: the tag "python/object/apply:os.system" is refused: only the values below it are read',
    )
    assert file_options("c.json", b'{"lr": 1, "lr": 2}').notes == ('"lr" stands twice: the last one counts',)


LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
MERGES = "a0: &a0 {k: x}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 12))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("c.yaml", LAUGHS, "with those that aliases repeat"), ("c.yaml", MERGES, "with those that aliases repeat"),
        ("c.yaml", "[" * 100_000, "no YAML, line 1"), ("c.yaml", "a: " + "[" * 70 + "]" * 70, "nested deeper than 64"),
        ("c.json", '{"a": ' * 5000, "nested deeper than 64 levels"), ("c.json", "[" * 65 + "]" * 65 + "x", "no JSON"),
        ("c.yaml", "a:\n\t- b", "no YAML, line 2: found character"), ("c.yaml", "a: &a [*a]", "an alias in the value"),
        ("c.yaml", "<<: 3", "a merge key with a value that is no mapping"), ("c.toml", "= 3", "no TOML"),
        ("c.yaml", "a: 1\n" * (1 << 20), "larger than 4 MiB"), ("c.json", f"[{'1,' * MOST_VALUES}1]", "more than 100,000"),  # noqa: E501
        ("c.yaml", "\udcff", "no UTF-8"),
    ],
)  # fmt: skip
def test_bounds_refuse_a_file_with_the_reason(name: str, text: str, reason: str) -> None:
    with pytest.raises(NoConfigError, match=reason):
        file_options(name, text.encode("utf-8", "surrogateescape"))


def test_damage_and_depth_end_nothing() -> None:
    deep = "config: " + "{'a': " * 3000 + "1" + "}" * 3000
    assert log_options(deep.encode()).forms == {}
    assert log_options(b"Namespace(a=[[[[,\nArgs(\n").forms == {}
    assert tracked_options({"_wandb": {"x": 1}, "lr": {"value": 0.1, "desc": None}}) == {"lr": 0.1}


@pytest.mark.parametrize(
    ("text", "is_config"),
    [
        ("config {'seed': 1, 'lr': 0.1, 'steps': 30}", True), ("Namespace(lr=0.1, steps=30)", True),
        ("TrainArgs(lr=0.1, step=3)", True), ("args: {'loss': 2.5, 'step': 3}", False), ("{'loss': 2.5}", False),
        ("step 3 loss 2.5", False), ("config of step 3: loss 2.5", False),
    ],
)  # fmt: skip
def test_printed_configurations_are_told_from_prints_of_steps(text: str, is_config: bool) -> None:
    assert is_printed_config(text) == is_config


@pytest.mark.parametrize(
    "line",
    [
        "config {'seed': 1, 'lr': 0.1, 'clip_norm': 1.0, 'steps': 30}", "Namespace(lr=0.1, steps=30, clip_norm=1.0)",
        "INFO Hyper(lr=0.1, step=30, norm=1.0, model=M(dim=3))", '{"seed": 1, "lr": 0.1, "steps": 30}',
        "total steps: 30, lr: 0.1, norm: 2", "max_steps=30 lr=0.1 norm=2", "steps: 30 lr: 0.1 clip_norm: 1.0",
        "warmup steps 3 lr 0.1 norm 2", '{"config": {"steps": 30, "lr": 0.1}}',
    ],
)  # fmt: skip
def test_lengths_and_configurations_are_no_steps(line: str) -> None:
    found = read_log_series(f"{line}\nstep 0 loss 2.5\nstep 1 loss 2.25\n".encode())
    assert found.select("step", "name", "value").rows() == [(0, "loss", 2.5), (1, "loss", 2.25)]


def test_a_plural_is_a_step_beside_a_loss() -> None:
    found = read_log_series(b'steps: 10 loss: 2.5\n{"steps": 20, "loss": 2.25}\n{"current_steps": 30, "loss": 2.125}\n')
    assert found.filter(found["name"] == "loss")["step"].to_list() == [10, 20, 30]
