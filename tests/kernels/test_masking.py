"""The Triton kernels do what the plain path does; without a GPU, Triton's interpreter runs them."""

import math

import pytest
import torch

from granet.masking import take_dense, zero_inactive
from quick import slow_but_for

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
from granet.kernels import masking

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
SIZES = [1, 63, 64, 65, 127, 128, 129, 257]
"""Around blocks of 64 and pieces of 128."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeroing_equals_the_plain_path(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.kernels.layer_table.BLOCK", 64)
    monkeypatch.setattr("granet.kernels.layer_table.PIECE", 128)
    tensors = [torch.randn(size).to(dtype) for size in SIZES]
    tensors[-1][:3] = torch.tensor([float("nan"), float("inf"), -0.0])
    masks = [torch.rand(tensor.shape) < 0.5 for tensor in tensors]
    masks[-1][:3] = torch.tensor([False, False, True])
    plain = [tensor.clone() for tensor in tensors]
    zero_inactive(zip(plain, masks, strict=True))
    moved = [tensor.to(DEVICE) for tensor in tensors]
    masking.zero_inactive(moved, [mask.to(DEVICE) for mask in masks])
    for tensor, expected, mask in zip(moved, plain, masks, strict=True):
        assert torch.equal(tensor.cpu(), expected)
        assert not tensor.cpu()[~mask].any()


@pytest.mark.parametrize("dtype", slow_but_for([torch.bfloat16], DTYPES), ids=str)
def test_finding_what_is_not_finite(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.kernels.layer_table.BLOCK", 64)
    monkeypatch.setattr("granet.kernels.layer_table.PIECE", 128)
    tensors = [torch.full((size,), torch.finfo(dtype).max, dtype=dtype, device=DEVICE) for size in SIZES]
    assert masking.all_finite(tensors)
    for tensor, place in ((tensors[0], 0), (tensors[3], 64), (tensors[-1], SIZES[-1] - 1)):
        for bad in (math.nan, -math.nan, math.inf, -math.inf):
            tensor[place] = bad
            assert not masking.all_finite(tensors)
        tensor[place] = 0


@pytest.mark.parametrize("dtype", slow_but_for([torch.bfloat16], DTYPES), ids=str)
@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), -float("inf")])
def test_taking_dense_copies(dtype: torch.dtype, bad: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.kernels.layer_table.BLOCK", 64)
    monkeypatch.setattr("granet.kernels.layer_table.PIECE", 128)
    tensors = [torch.randn(size).to(dtype) for size in (1, 64, 200, 300)]
    tensors.append(torch.randn(5, 4, 3, 2).to(dtype, memory_format=torch.channels_last))
    masks = [torch.rand_like(tensor, dtype=torch.float32) < 0.5 for tensor in tensors]
    if bad is not None:
        tensors[3][290], masks[3][290] = bad, False  # where the masked tensor does not show it
    plain, ours = [tensor.clone() for tensor in tensors], [tensor.to(DEVICE, copy=True) for tensor in tensors]
    copies, unknown = take_dense(plain, masks)
    kept, finite = masking.take_dense(ours, [mask.to(DEVICE) for mask in masks])
    assert unknown is None and bool(finite) is (bad is None)
    for got, expected in ((copies, tensors), (kept, tensors), (ours, plain)):
        for one, other in zip(got, expected, strict=True):
            assert one.stride() == other.stride()
            assert torch.equal(one.cpu().nan_to_num(7.0), other.nan_to_num(7.0))
    assert all(not tensor.cpu()[~mask].any() for tensor, mask in zip(ours, masks, strict=True))


def test_tensors_that_lie_unlike_their_masks_are_left_to_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel goes through memory, so it would pair each element with the mask of another."""
    monkeypatch.setattr("granet.masking.runs_kernels", lambda device: True)
    values = torch.randn(2, 4, 3, 2, 5, device=DEVICE)
    keep = torch.rand(values.shape, device=DEVICE) < 0.5
    for take in (False, True):
        tensors = [values[0].clone(memory_format=torch.channels_last), values[1].clone()]
        if take:
            copies, _ = take_dense(tensors, list(keep))
            assert torch.equal(torch.stack(list(copies)), values)
        else:
            zero_inactive(zip(tensors, keep, strict=True))
        assert torch.equal(torch.stack(tensors), values.where(keep, torch.zeros((), device=DEVICE)))
