"""Convolutions with few channels by kernels of our own; without a GPU, Triton's interpreter runs them, in float32."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
from granet.training import narrow_triton
from granet.training.narrow import convolution

DEVICE, DTYPE = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small images take several of them, and a part of one."""
    monkeypatch.setattr(narrow_triton, "BLOCKS", (16, 32))
    monkeypatch.setattr(narrow_triton, "PROGRAMS", 4)


def whole(shape: tuple[int, ...]) -> Tensor:
    """-1, 0 and 1: all sums are whole numbers that bfloat16 holds."""
    return torch.randint(-1, 2, shape).double()


@pytest.mark.parametrize(
    ("inputs", "outputs", "stride", "size"),
    [(16, 16, 1, (5, 4)), (16, 32, 2, (6, 5)), (32, 16, 2, (5, 6)), (64, 16, 1, (3, 3)), (16, 16, 1, (1, 1))],
)
def test_values_and_gradients(
    inputs: int, outputs: int, stride: int, size: tuple[int, int], small_blocks: None
) -> None:
    torch.manual_seed(0)
    images, weight = whole((2, inputs, *size)), whole((outputs, inputs, 3, 3))
    expected = [images.clone().requires_grad_(), weight.clone().requires_grad_()]
    ours = [tensor.to(DEVICE, DTYPE).requires_grad_() for tensor in (images, weight)]
    wanted = functional.conv2d(*expected, stride=stride, padding=1)
    got = convolution(*ours, stride)
    assert torch.equal(got.cpu().double(), wanted)
    assert got.is_contiguous(memory_format=torch.channels_last)
    change = whole(tuple(wanted.shape))
    wanted.backward(change)
    got.backward(change.to(got))
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine.grad is not None and theirs.grad is not None
        assert torch.equal(mine.grad.cpu().double(), theirs.grad)


@pytest.mark.parametrize(("outputs", "stride", "size"), [(16, 1, (5, 4)), (64, 2, (6, 5)), (32, 1, (1, 1))])
def test_the_first_of_a_network(outputs: int, stride: int, size: tuple[int, int], small_blocks: None) -> None:
    torch.manual_seed(0)
    images, weight = whole((3, 3, *size)), whole((outputs, 3, 3, 3)).requires_grad_()
    ours = weight.detach().to(DEVICE, DTYPE).requires_grad_()
    wanted = functional.conv2d(images, weight, stride=stride, padding=1)
    got = convolution(images.to(DEVICE, DTYPE), ours, stride)
    assert torch.equal(got.cpu().double(), wanted)
    change = whole(tuple(wanted.shape))
    wanted.backward(change)
    got.backward(change.to(got))
    assert ours.grad is not None and weight.grad is not None
    assert torch.equal(ours.grad.cpu().double(), weight.grad)


@pytest.mark.skipif(DEVICE == "cpu", reason="full blocks are for a GPU")
@pytest.mark.parametrize("channels", [16, 32, 64])
def test_full_blocks(channels: int) -> None:
    torch.manual_seed(0)
    images, weight = whole((128, channels, 16, 16)), whole((channels, channels, 3, 3))
    ours = convolution(images.to(DEVICE, DTYPE), weight.to(DEVICE, DTYPE), 1)
    assert torch.equal(ours.cpu().double(), functional.conv2d(images, weight, padding=1).to(DTYPE).double())
