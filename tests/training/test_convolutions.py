"""Which convolutions are computed in other ways, and those of tiny images: one matrix product."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from granet.models import create_model
from granet.training import convolutions
from granet.training.convolutions import FastConvolutions, tiny_convolution
from granet.training.step import loss_and_sums


def test_a_tiny_convolution() -> None:
    torch.manual_seed(0)
    images = torch.randn(3, 5, 2, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, 5, 3, 3, dtype=torch.float64, requires_grad=True)
    got, wanted = tiny_convolution(images, weight), functional.conv2d(images, weight, padding=1)
    assert got.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(got, wanted)
    change = torch.randn_like(wanted)
    ours, theirs = (torch.autograd.grad(out, (images, weight), change) for out in (got, wanted))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("module", "side", "ours"),
    [
        (nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False), 32, "narrow"),
        (nn.Conv2d(64, 64, 3, padding=1, bias=False), 16, "narrow"),
        (nn.Conv2d(64, 64, 3, padding=1, bias=False), 17, None),
        (nn.Conv2d(32, 64, 3, padding=1, bias=False), 32, "narrow"),
        (nn.Conv2d(16, 32, 3, padding=1), 6, None),
        (nn.Conv2d(16, 32, 3, bias=False), 6, None),
        (nn.Conv2d(16, 32, 1, padding=1, bias=False), 6, None),
        (nn.Conv2d(16, 32, 3, padding="same", bias=False), 6, None),
        (nn.Conv2d(16, 32, 3, padding=1, dilation=2, bias=False), 6, None),
        (nn.Conv2d(32, 32, 3, padding=1, groups=2, bias=False), 6, None),
        (nn.Conv2d(3, 16, 3, padding=1, bias=False), 32, "narrow"),
        (nn.Conv2d(4, 16, 3, padding=1, bias=False), 6, None),
        (nn.Conv2d(16, 128, 3, padding=1, bias=False), 6, None),
        (nn.Conv2d(256, 128, 3, padding=1, bias=False), 2, "tiny"),
        (nn.Conv2d(256, 128, 3, padding=1, bias=False), 3, None),
        (nn.Conv2d(256, 128, 3, padding=1, stride=2, bias=False), 2, None),
    ],
    ids=str,
)
def test_which_are_ours(module: nn.Conv2d, side: int, ours: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def note(name: str) -> Callable[..., Tensor]:
        return lambda *arguments: called.append(name) or torch.zeros(1)

    monkeypatch.setattr(convolutions.narrow, "convolution", note("narrow"))
    monkeypatch.setattr(convolutions, "tiny_convolution", note("tiny"))
    with FastConvolutions():
        module(torch.zeros(1, module.in_channels, side, side))
    assert called == ([] if ours is None else [ours])


def test_not_the_first_when_its_images_need_a_gradient() -> None:
    images = torch.zeros(1, 3, 6, 6, requires_grad=True)
    with FastConvolutions():
        out = nn.Conv2d(3, 16, 3, padding=1, bias=False)(images)
    assert out.dtype == torch.float32
    assert torch.autograd.grad(out.sum(), images)[0].shape == images.shape


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
