"""Convolutions with few channels by kernels of our own; without a GPU, Triton's interpreter runs them, in float32."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from quick import slow_but_for

pytest.importorskip("triton", reason="triton is not installed: its kernels are not tested")
from granet.models import create_model
from granet.training import narrow_conv_triton
from granet.training.narrow_conv import NarrowConvolutions, convolution
from granet.training.step import loss_and_sums

DEVICE, DTYPE = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small images take several of them, and a part of one."""
    monkeypatch.setattr(narrow_conv_triton, "BLOCKS", (16, 32))
    monkeypatch.setattr(narrow_conv_triton, "PROGRAMS", 4)


def whole(shape: tuple[int, ...]) -> Tensor:
    """-1, 0 and 1: all sums are whole numbers that bfloat16 holds."""
    return torch.randint(-1, 2, shape).double()


@pytest.mark.parametrize(
    ("inputs", "outputs", "stride", "size"),
    slow_but_for(
        [(16, 32, 2, (6, 5))],
        [(16, 16, 1, (5, 4)), (16, 32, 2, (6, 5)), (32, 16, 2, (5, 6)), (64, 16, 1, (3, 3)), (16, 16, 1, (1, 1))],
    ),
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


@pytest.mark.slow
@pytest.mark.parametrize("channels", [16, 32, 64])
def test_full_blocks(channels: int) -> None:
    torch.manual_seed(0)
    count = 4 if DEVICE == "cpu" else 128  # enough for the larger blocks; the interpreter takes long
    images, weight = whole((count, channels, 16, 16)), whole((channels, channels, 3, 3))
    ours = convolution(images.to(DEVICE, DTYPE), weight.to(DEVICE, DTYPE), 1)
    assert torch.equal(ours.cpu().double(), functional.conv2d(images, weight, padding=1).to(DTYPE).double())


@pytest.mark.parametrize(
    ("module", "side", "ours"),
    [
        (nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False), 32, True),
        (nn.Conv2d(64, 64, 3, padding=1, bias=False), 16, True),
        (nn.Conv2d(64, 64, 3, padding=1, bias=False), 17, False),
        (nn.Conv2d(32, 64, 3, padding=1, bias=False), 32, True),
        (nn.Conv2d(16, 32, 3, padding=1), 6, False),
        (nn.Conv2d(16, 32, 3, bias=False), 6, False),
        (nn.Conv2d(16, 32, 1, padding=1, bias=False), 6, False),
        (nn.Conv2d(16, 32, 3, padding="same", bias=False), 6, False),
        (nn.Conv2d(16, 32, 3, padding=1, dilation=2, bias=False), 6, False),
        (nn.Conv2d(32, 32, 3, padding=1, groups=2, bias=False), 6, False),
        (nn.Conv2d(3, 16, 3, padding=1, bias=False), 32, True),
        (nn.Conv2d(4, 16, 3, padding=1, bias=False), 6, False),
        (nn.Conv2d(16, 128, 3, padding=1, bias=False), 6, False),
    ],
    ids=str,
)
def test_which_are_narrow(module: nn.Conv2d, side: int, ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr("granet.training.narrow_conv.convolution", lambda images, weight, stride: called.append(stride))
    with autocast(), NarrowConvolutions():
        module(torch.zeros(1, module.in_channels, side, side))
    assert called == ([module.stride[0]] if ours else [])


def autocast(enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=enabled)


@pytest.mark.usefixtures("broken")
def test_what_autocast_would_not_round_is_left_alone() -> None:
    layer, images = nn.Conv2d(16, 16, 3, padding=1, bias=False), torch.zeros(1, 16, 6, 6)
    with NarrowConvolutions():
        assert layer(images).dtype == torch.float32
        with autocast(), autocast(enabled=False):
            assert layer(images).dtype == torch.float32
        with autocast(enabled=False):
            assert layer.double()(images.double()).dtype == torch.float64


@pytest.mark.usefixtures("broken")
def test_calls_of_other_kinds_are_left_alone() -> None:
    images, weight = torch.zeros(1, 16, 6, 6), torch.zeros(16, 16, 3, 3)
    with autocast(), NarrowConvolutions():
        assert functional.conv2d(images, weight).shape == (1, 16, 4, 4)
        assert functional.conv2d(images, weight, None, 1, 1).shape == images.shape
        assert functional.conv2d(images, weight, padding=1).shape == images.shape


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("granet.training.narrow_conv.convolution", None)


@pytest.mark.usefixtures("broken")
def test_not_the_first_when_its_images_need_a_gradient() -> None:
    images = torch.zeros(1, 3, 6, 6, requires_grad=True)
    with autocast(), NarrowConvolutions():
        out = nn.Conv2d(3, 16, 3, padding=1, bias=False)(images)
    assert torch.autograd.grad(out.sum(), images)[0].shape == images.shape


@pytest.mark.slow
@pytest.mark.parametrize(("model", "count"), [("resnet20", 19), ("vgg19", 1), ("resnet50_cifar", 1)])
def test_they_are_in_a_compiled_step(model: str, count: int) -> None:
    """All of ResNet-20 but the shortcuts; of the wide networks the first."""
    found: Counter[str] = Counter()

    def look(graph: torch.fx.GraphModule, _: object) -> object:
        found.update(str(node.target) for node in graph.graph.nodes)
        return lambda *inputs: (torch.zeros((), requires_grad=True), torch.zeros(2))

    torch._dynamo.reset()
    step = torch.compile(loss_and_sums, backend=look, fullgraph=True)
    images, labels = torch.zeros(2, 3, 32, 32), torch.zeros(2).long()
    step(create_model(model, num_classes=10), {}, "bfloat16", 0.0, True, images, labels)
    assert found["granet.narrow_convolution.default"] == count
