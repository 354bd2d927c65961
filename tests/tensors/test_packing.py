"""Packed masks: one bit a weight, and back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from granet.tensors.packing import pack_bits, unpack_bits


@settings(max_examples=examples(100))
@given(st.lists(st.booleans(), max_size=70))
def test_unpacking_gives_back_what_was_packed(bits: list[bool]) -> None:
    mask = torch.tensor(bits, dtype=torch.bool)
    packed = pack_bits(mask)
    assert packed.dtype == torch.uint8
    assert len(packed) == (len(bits) + 7) // 8
    assert packed.tolist() == [
        sum(bit << place for place, bit in enumerate(bits[i : i + 8])) for i in range(0, len(bits), 8)
    ]
    assert torch.equal(unpack_bits(packed, mask.shape), mask)


def test_shape_and_logical_order_survive_any_layout() -> None:
    mask = torch.rand(5, 3, 2, 3) < 0.5
    packed = pack_bits(mask)
    assert torch.equal(pack_bits(mask.to(memory_format=torch.channels_last)), packed)
    assert torch.equal(pack_bits(mask.transpose(0, 1).contiguous().transpose(0, 1)), packed)
    assert torch.equal(unpack_bits(packed, mask.shape), mask)


@pytest.mark.parametrize(
    "packed",
    [torch.zeros(1, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8), torch.zeros(2), torch.zeros(2, 1).byte()],
)
def test_bits_of_another_shape_are_refused(packed: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"packed mask of .* does not hold \(3, 3\) bits"):
        unpack_bits(packed, torch.Size([3, 3]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device to pack from")
def test_packing_brings_the_mask_to_the_host() -> None:
    mask = torch.rand(100, device="cuda") < 0.5
    assert pack_bits(mask).device.type == "cpu"
    assert torch.equal(unpack_bits(pack_bits(mask), mask.shape), mask.cpu())
