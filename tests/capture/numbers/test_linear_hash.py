"""The hash against its definition, element by element; summaries of all element types; places of samples."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from rankscope.capture.numbers.linear_hash import MASK, ShardPlace, mix, sampled, whole
from rankscope.capture.numbers.tensor_summary import RowBuffer, has_values, located, short_name

pytestmark = pytest.mark.torch

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
]  # fmt: skip


def by_definition(tensor: torch.Tensor, place: ShardPlace) -> int:
    """The sum of (v_i + w_j) * bits over elements."""
    width = 8 * tensor.element_size()
    bits = tensor.contiguous().view(INTEGERS[tensor.element_size()]).flatten().tolist()
    total = 0
    for at, value in zip(itertools.product(*map(range, place.shape)), bits, strict=True):
        row = 0
        for index, offset, length in zip(at[:-1], place.offsets[:-1], place.global_shape[:-1], strict=True):
            row = row * length + index + offset
        column = at[-1] + place.offsets[-1] if at else 0
        total += ((mix(2 * row + 1) | 1) + (mix(2 * column + 2) | 1)) * (value % (1 << width))
    return total & MASK


def whole_numbers(*shape: int) -> torch.Tensor:
    """Random whole numbers: their sums are exact, in whatever order a processor adds them."""
    return torch.randint(-50, 51, shape).float()


def summary(tensor: torch.Tensor, place: ShardPlace | None = None, block: int = 1 << 17) -> tuple[int, list[float]]:
    """The hash of a tensor, and its statistics and samples."""
    buffer = RowBuffer(tensor.device)
    buffer.block = block
    buffer.add(tensor, place or whole(tensor.shape), 64)
    ((bits, numbers),) = buffer.take()
    return bits & MASK, numbers


@pytest.mark.parametrize("dtype", DTYPES)
def test_hash_and_statistics_are_those_of_the_elements(dtype: torch.dtype) -> None:
    tensor = (torch.randn(3, 5, 7) * 4).abs().to(dtype)
    found, numbers = summary(tensor)
    assert found == by_definition(tensor, whole(tensor.shape))
    values = tensor.to(torch.float64)
    expected = [values.sum(), values.norm(), values.min(), values.max(), (values == 0).sum()]
    assert numbers[:5] == pytest.approx([float(value) for value in expected], rel=1e-5)
    assert numbers[8:72] == [float(values.flatten()[at]) for at in sampled(whole(tensor.shape))[0]]


@pytest.mark.parametrize("block", [1 << 17, 35, 4])
def test_blocks_change_nothing(block: int) -> None:
    tensor = whole_numbers(6, 7)
    found, numbers = summary(tensor, block=block)
    assert found == by_definition(tensor, whole(tensor.shape))
    assert numbers == pytest.approx(summary(tensor)[1], rel=1e-6)


def test_shards_on_any_dimension_add_up() -> None:
    tensor = whole_numbers(4, 6, 10).bfloat16()
    cuts = itertools.product((slice(0, 1), slice(1, 4)), (slice(0, 4), slice(4, 6)), (slice(0, 3), slice(3, 10)))
    hashes, projection = 0, 0.0
    held: dict[int, float] = {}
    for cut in cuts:
        shard = tensor[cut]
        place = ShardPlace(tuple(shard.shape), tuple(one.start for one in cut), tuple(tensor.shape))
        found, numbers = summary(shard, place)
        hashes, projection = hashes + found, projection + numbers[5]
        held |= dict(zip(sampled(place)[1], numbers[8:], strict=False))
    found, numbers = summary(tensor)
    assert hashes & MASK == found
    assert projection == numbers[5]
    assert [held[k] for k in range(64)] == numbers[8:]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.flip(0), lambda t: t.roll(1), lambda t: t[:, torch.tensor([1, 0, 2, 3])],
        lambda t: torch.where(t == 5, -t, t), lambda t: torch.where((t == 5) | (t == 6), -t, t),
    ],
)  # fmt: skip
def test_order_and_single_bits_are_seen(change: object) -> None:
    assert callable(change)
    tensor = torch.arange(12.0).reshape(3, 4)
    assert summary(change(tensor))[0] != summary(tensor)[0]


def test_values_that_are_not_finite_are_counted() -> None:
    numbers = summary(torch.tensor([1.0, math.nan, math.inf, -math.inf, 0.0, math.nan]))[1]
    assert (numbers[4], numbers[6:8]) == (1, [2, 2])
    assert math.isnan(numbers[0])


def test_odd_tensors_are_read() -> None:
    assert summary(torch.tensor(3.0)) == summary(torch.tensor([3.0]))
    across = torch.randn(4, 5).t()
    assert summary(across) == summary(across.contiguous())
    assert summary(torch.tensor([1 + 2j]))[0] == summary(torch.tensor([1.0, 2.0]))[0]
    assert not has_values(torch.empty(0))
    assert not has_values(torch.empty(3, device="meta"))
    assert short_name(torch.bfloat16) == "bf16"


class _Foreign(torch.Tensor):  # type: ignore[misc]
    """A tensor whose memory means nothing without its own operations."""

    @classmethod
    def __torch_dispatch__(cls, func: object, *_args: object) -> object:
        raise AssertionError(f"{func} was called")


def test_a_tensor_with_operations_of_its_own_is_left_alone() -> None:
    assert located(torch.Tensor._make_subclass(_Foreign, torch.ones(3))) is None
    parameter = located(torch.nn.Parameter(torch.ones(3)))
    assert parameter is not None
    assert parameter.place == whole((3,))


def test_samples_are_the_ends_and_places_by_the_mixer() -> None:
    assert sampled(whole((3, 2))) == (tuple(range(6)),) * 2
    places, numbers = sampled(whole((100, 10)))
    assert places == (0, 1, 998, 999, *(mix(k) % 1000 for k in range(60)))
    assert numbers == tuple(range(64))
    assert len(sampled(whole((1000,)), 8)[0]) == 8
