"""Records of other tools: each format is known by its content and gives rows of the table of tensors."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from rankscope.features.numbers.read.records.record_formats import decode_record, looks_like_record
from rankscope.parsers.contents import NotThisKindError
from tests.msprobe_writer import MsprobeJob, group, read_records, statistic

COLUMNS = ["rank", "step", "site", "name", "slot", "op", "numel", "min", "max", "l2", "sum", "md5", "tool"]
INSPECT = (
    b"INFO - decoder.0.fc1_activation_max \t\t iteration=000002 \t\t value=4.3188\n"
    b"INFO - decoder.0.fc1_activation_l2_norm \t\t iteration=000002 \t\t value=9.5000\n"
    b"INFO - decoder.0.fc1_activation_max \t\t iteration=000003 \t\t value=nan\n"
)
ACTIVATIONS = (
    b"Total captured activations: 1\n" + b"=" * 80 + b"\n\n[layers.0.wq/op_3_mm]\n  Shape: [4, 2]\n  L1 norm: 9.0e+00\n"
    b"  L2 norm: 3.5e+00\n  Min: -1.0e+00\n  Max: 2.0e+00\n  Mean: 2.5e-01\n"
    b"  Output hash: 9.0\n  Input hashes: 3.5;4.5\n"
    b"  Location: model.py:17 in forward\n  Phase: backward\n\n"
)
DEBUG_TEXT = (
    b"    [nn.Mod] Net.fc\n"
    b"      aten::addmm(t: f32[3], t: f32[2, 4])  ->  t: f32[2, 3]  # {'input_hash': ((0.5, 7.6), {}), 'hash': 2.6}\n"
    b"    # File: train.py:17 in main, code: dist.all_reduce(t)\n"
    b"    c10d::allreduce_(['t$5: f32[3]{device=cpu}'], ScriptObject <x>, None, False)  ->  (['t$5: f32[3]'], 'W')"
    b"  # {'hash': ([(nan, 9221120237041090560)], None)}\n"
    b"    aten::empty([3], device=cpu)  ->  t: f32[3]  # {'hash': nan}\n"
)
MONITOR = (
    b"vpp_stage,name,step,norm,min,max,mean,nans,shape,dtype\n"
    b'0,layers.1.weight,3,1.5,-1.0,2.0,0.5,0,"[4, 5]",torch.float32\n0,layers.2.weight,3,nan,nan,nan,nan,2,,\n'
)


def rows(path: str, data: bytes) -> list[tuple[object, ...]]:
    return read_records({path: data}).tensors.select(COLUMNS).rows()


def test_a_dump_of_msprobe() -> None:
    job = MsprobeJob(2)
    job.step()
    job.step(nan_on=1)
    dataset = read_records(job.files())
    told = dataset.tensors.filter((dataset.tensors["rank"] == 1) & (dataset.tensors["step"] == 1))
    assert told.select("site", "name", "slot", "op", "occurrence").rows() == [
        ("parameter", "net.fc.weight", "in0", None, 0), ("forward", "net.fc", "in0", None, 0),
        ("forward", "net.fc", "out0", None, 0), ("collective", "", "in0", "all_reduce", 0),
        ("collective", "", "out0", "all_reduce", 0), ("gradient", "net.fc.weight", "in0", None, None),
    ]  # fmt: skip
    assert math.isnan(told["sum"][2]) and told["md5"].str.starts_with("crc32:").all()
    assert dataset.groups.select("name", "ranks", "membership").rows() == [("ranks 0,1", [0, 1], "config")]
    assert dataset.stack(told["stack_id"][0])[0].function == "forward"
    assert dataset.files["used"].all() and dataset.world_size == 2


def test_calls_of_distributed() -> None:
    """Slices of lists, the root, the peer, and names in the older order; memory that nothing wrote is left out."""
    one, size = statistic(np.ones((2, 2), np.float32)), {"type": "int", "value": 1}
    kwargs = {"src": size, "group": group([0, 3])}
    calls = {
        "Distributed.all_gather.0.forward": {
            "input_args": [[one, one], one], "input_kwargs": {}, "output": [[one, one], one],
        },
        "Distributed.broadcast.0.forward": {"input_args": [one], "input_kwargs": kwargs, "output": [one, 1, 1]},
        "Distributed.send.0.forward": {"input_args": [one], "input_kwargs": {"dst": size}, "output": [one, 1]},
        "Module.a.b.Linear.3.backward": {"input": [one], "output": [None, one], "is_recompute": True},
        "Torch.empty.0.forward": {"input_args": [], "input_kwargs": {}, "output": [one]},
        "Tensor.copy_.0.forward": {"input_args": [one, one], "input_kwargs": {}, "output": [one]},
        "broken": {},
        "Tensor.list.0.forward": [1],
    }  # fmt: skip
    data = json.dumps({"task": "statistics", "level": "L1", "data": calls}).encode()
    dataset = read_records({"step7/rank3/dump.json": data})
    told = dataset.tensors.select("op", "slot", "slice", "root", "peer", "name", "occurrence", "recompute").rows()
    assert told == [
        ("all_gather", "in0", None, None, None, "", 0, False), ("all_gather", "out0", 0, None, None, "", 0, False),
        ("all_gather", "out0", 1, None, None, "", 0, False), ("broadcast", "in0", None, 1, None, "", 0, False),
        ("broadcast", "out0", None, 1, None, "", 0, False), ("send", "in0", None, None, 1, "", 0, False),
        (None, "in0", None, None, None, "a.b", 3, True), (None, "out1", None, None, None, "a.b", 3, True),
        (None, "out0", None, None, None, "Tensor.copy_", 0, False),
    ]  # fmt: skip
    assert dataset.groups.select("name", "membership").rows() == [
        ("default group", "inferred"),
        ("ranks 0,3", "config"),
    ]
    problem = dataset.files["problem"][0]
    assert "entries with a name of another form: 1" in problem and "entries that cannot be read: 1" in problem


def test_statistics_of_transformer_engine() -> None:
    first, second = rows("nvdlfw_inspect_globalrank-3.log", INSPECT)
    assert first == (
        3, 2, "forward", "decoder.0.fc1", "in0", None, None, None, 4.3188, 9.5, None, None, "nvdlfw-inspect",
    )  # fmt: skip
    assert second[1] == 3 and repr(second[10]) == "nan"


def test_activations_of_torchtitan() -> None:
    told = rows("numerics/rank_2_activations.log", ACTIVATIONS)
    assert [one[11] for one in told] == ["l1:3.5", "l1:4.5", "l1:9.0"]
    assert told[2][:11] == (2, None, "backward", "layers.0.wq/op_3_mm", "out0", None, 8, -1.0, 2.0, 3.5, 2.0)


def test_a_text_of_debug_mode() -> None:
    dataset = read_records({"debug_rank_1.txt": DEBUG_TEXT})
    told = dataset.tensors.select("name", "op", "slot", "md5", "sum").rows()
    assert told[:3] == [
        ("Net.fc/aten::addmm", None, "in0", "l1:0.5", None), ("Net.fc/aten::addmm", None, "in1", "l1:7.6", None),
        ("Net.fc/aten::addmm", None, "out0", "l1:2.6", None),
    ]  # fmt: skip
    assert told[3] == ("", "all_reduce", "in0", None, None) and told[4][3] == "l1:nan" and len(told) == 5
    assert dataset.stack(dataset.tensors["stack_id"][4])[0].line == 17


def test_tables_of_the_monitor() -> None:
    first, second = rows("rank_1/grad_reduced_0-9.csv", MONITOR)
    assert first[:11] == (1, 3, "gradient", "layers.1.weight", "out0", None, 20, -1.0, 2.0, 1.5, 10.0)
    assert repr(second[10]) == "nan"


@pytest.mark.parametrize(
    "data",
    [
        b'{"task": "statistics", "level": "L1", "data": {"Module.a.Linear.forward.0": {"out',
        b'{"0": [["Module.a.Linear.forward.0"], ["File ',
        b"Total captured activations: 0\n",
        b"    aten::empty([3])  ->  t: f32[3]\n",
        b"vpp_stage,name,norm\n",
    ],
)
def test_a_file_without_rows_says_so(data: bytes) -> None:
    assert looks_like_record(data)
    with pytest.raises(NotThisKindError, match=r"msprobe|torchtitan|DebugMode"):
        decode_record(data)


@pytest.mark.parametrize(
    "data", [b'{"task": "x"}', b'{"a": "b"}', b"[rank0]: INFO - step", b"vpp,name\n", b"iteration 3\n", b'{"0": []}']
)
def test_other_files_are_left_to_others(data: bytes) -> None:
    assert not looks_like_record(data)


def test_deep_and_wrong_values_do_no_harm() -> None:
    """A file that nests too deep is refused; values of the wrong kind are left out."""
    deep = b'{"task": "statistics", "level": "L1", "data": {"Tensor.a.0.forward": %s}}'
    with pytest.raises(NotThisKindError, match="cannot be read"):
        decode_record(deep % (b"[" * 1_000_000 + b"]" * 1_000_000))
    wrong = b'{"output": [{"shape": [1e9, -1], "dtype": 3, "Max": {}, "Mean": "x", "md5": 4}, [[[[[[[[1]]]]]]]]]}'
    (row,) = rows("step0/rank0/dump.json", deep % wrong)
    assert row == (0, 0, "forward", "Tensor.a", "out0", None, None, None, None, None, None, None, "msprobe")
