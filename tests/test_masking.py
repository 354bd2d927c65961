"""Zeroing by mask, whatever the values, dtypes and layouts; and seeing what is not finite."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import DEVICES
from examples import examples
from granet.masking import all_finite, zero_inactive

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
on_every_device = pytest.mark.parametrize("device", DEVICES)


@pytest.mark.hypothesis
@on_every_device
def test_inactive_becomes_zero_and_active_is_untouched(device: str) -> None:
    half_bits = st.integers(0, 2**16 - 1)  # every half-precision number, NaN payloads and negative zero included
    cells = st.lists(st.tuples(half_bits, st.booleans()), max_size=8)

    @settings(max_examples=examples(60))
    @given(st.lists(st.tuples(cells, st.sampled_from(DTYPES)), max_size=6))
    def check(layers: list[tuple[list[tuple[int, bool]], torch.dtype]]) -> None:
        bits = [torch.tensor([b for b, _ in cells], dtype=torch.uint16, device=device) for cells, _ in layers]
        tensors = [b.view(torch.float16).to(dtype, copy=True) for b, (_, dtype) in zip(bits, layers, strict=True)]
        masks = [torch.tensor([m for _, m in cells], dtype=torch.bool, device=device) for cells, _ in layers]
        before = [tensor.clone() for tensor in tensors]
        zero_inactive(zip(tensors, masks, strict=True))
        for tensor, mask, old in zip(tensors, masks, before, strict=True):
            assert torch.equal(tensor[mask].nan_to_num(7.0), old[mask].nan_to_num(7.0))
            assert tensor[~mask].eq(0).all()
            assert not tensor[~mask].signbit().any()

    check()


@on_every_device
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_become_zero_too(dtype: torch.dtype, device: str) -> None:
    tensor = torch.tensor([math.nan, math.inf, -math.inf, math.nan, 2.0], dtype=dtype, device=device)
    zero_inactive([(tensor, torch.tensor([False, False, False, True, True], device=device))])
    assert tensor[:3].tolist() == [0, 0, 0]
    assert tensor[3].isnan()
    assert tensor[4] == 2


@on_every_device
def test_a_mask_on_another_device_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match=r"model: on meta, its masks on (cpu|cuda:0); move it .* before sparsify"):
        zero_inactive([(torch.ones(3, device="meta"), torch.ones(3, dtype=torch.bool, device=device))])


@on_every_device
@pytest.mark.parametrize("tensor_last", [False, True])
@pytest.mark.parametrize("mask_last", [False, True])
def test_layouts_of_tensor_and_mask_may_differ(tensor_last: bool, mask_last: bool, device: str) -> None:
    formats = {False: torch.contiguous_format, True: torch.channels_last}
    values = torch.randn(4, 3, 2, 5, device=device)
    keep = torch.rand(4, 3, 2, 5, device=device) < 0.5
    tensor = values.clone(memory_format=formats[tensor_last])
    zero_inactive([(tensor, keep.clone(memory_format=formats[mask_last]))])
    assert torch.equal(tensor, values.where(keep, torch.zeros(())))


@on_every_device
def test_a_view_with_gaps_leaves_what_lies_between(device: str) -> None:
    whole = torch.ones(6, 4, device=device)
    zero_inactive([(whole[:, ::2], torch.zeros(6, 2, dtype=torch.bool, device=device))])
    assert whole.sum(0).tolist() == [0, 6, 0, 6]


@on_every_device
def test_parameters_are_masked_in_place_and_leave_no_graph(device: str) -> None:
    parameter = torch.nn.Parameter(torch.ones(3, device=device))
    address, version = parameter.data_ptr(), parameter.grad_fn
    zero_inactive([(parameter, torch.tensor([True, False, True], device=device))])
    assert parameter.tolist() == [1, 0, 1]
    assert (parameter.data_ptr(), parameter.grad_fn) == (address, version)


def test_nothing_to_mask() -> None:
    zero_inactive([])


@on_every_device
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_element_anywhere_is_seen(bad: float, dtype: torch.dtype, device: str) -> None:
    tensors = [torch.ones(3, 4, device=device), torch.zeros(5, dtype=dtype, device=device)]
    assert all_finite(tensors, torch.device(device))
    tensors[1][2] = bad
    assert not all_finite(tensors, torch.device(device))
    assert not all_finite(tensors[::-1], torch.device(device))


@on_every_device
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_is_not_infinite(dtype: torch.dtype, device: str) -> None:
    """The largest numbers there are; their sum would overflow."""
    assert all_finite([torch.full((1000,), torch.finfo(dtype).max, dtype=dtype, device=device)], torch.device(device))
