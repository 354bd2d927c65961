"""The Triton kernels do what the plain path does; without a GPU, Triton's interpreter runs them."""

import pytest
import torch

from granet.masking import all_finite, zero_inactive

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
from granet import masking_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeroing_equals_the_plain_path(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.layer_table.BLOCK", 64)
    monkeypatch.setattr("granet.layer_table.PIECE", 128)
    tensors = [torch.randn(size).to(dtype) for size in (1, 64, 200, 1000)]
    tensors[2][:3] = torch.tensor([float("nan"), float("inf"), -0.0])
    masks = [torch.rand(tensor.shape) < 0.5 for tensor in tensors]
    masks[2][:3] = torch.tensor([False, False, True])
    plain = [tensor.clone() for tensor in tensors]
    zero_inactive(zip(plain, masks, strict=True))
    moved = [tensor.to(DEVICE) for tensor in tensors]
    masking_triton.zero_inactive(moved, [mask.to(DEVICE) for mask in masks])
    for tensor, expected, mask in zip(moved, plain, masks, strict=True):
        assert torch.equal(tensor.cpu(), expected)
        assert not tensor.cpu()[~mask].any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), -float("inf")])
def test_finding_what_is_not_finite(dtype: torch.dtype, bad: float | None) -> None:
    tensors = [torch.randn(7, dtype=torch.float32).to(dtype), torch.full((3000,), torch.finfo(dtype).max, dtype=dtype)]
    if bad is not None:
        tensors[1][2900] = bad
    moved = [tensor.to(DEVICE) for tensor in tensors]
    assert bool(masking_triton.all_finite(moved)) is (bad is None)
    assert bool(all_finite(tensors, torch.device("cpu"))) is (bad is None)
