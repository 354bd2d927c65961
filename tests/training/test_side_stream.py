"""Weight gradients beside the rest of a backward pass: which, and that they are the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional

from granet.training import side_stream
from granet.training.side_stream import GradientsOnSideStream

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def frozen(net: "Net") -> "Net":
    net.second.requires_grad_(False)
    return net


class Net(nn.Module):
    """Two convolutions, of which the first needs no gradient of its inputs, and what is to be tried."""

    def __init__(self, body: Callable[["Net", Tensor], Tensor], bias: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, stride=2, padding=3, bias=bias)
        self.up, self.body = nn.ConvTranspose2d(4, 4, 2), body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, self.first(x)).square().mean()


@pytest.mark.parametrize(
    ("net", "apart"),
    [
        pytest.param(Net(lambda net, x: net.second(x)), 1, marks=pytest.mark.slow),
        (Net(lambda net, x: net.second(x), bias=True), 1),
        (Net(lambda net, x: net.second(net.second(x))), 0),  # their sum is read in the pass
        (Net(lambda net, x: functional.conv2d(x.double(), net.second.weight.double())), 0),  # cast in the pass
        (Net(lambda net, x: net.up(x)), 0),
        pytest.param(Net(lambda net, x: x), 0, marks=pytest.mark.slow),
        (frozen(Net(lambda net, x: net.second(x))), 0),
    ],
    ids=["plain", "bias", "twice", "cast", "transposed", "first", "frozen"],
)
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
def test_gradients_that_nothing_waits_for_are_made_apart(net: Net, apart: int) -> None:
    called: list[str] = []
    asked: list[Any] = []  # gradients of inputs, weights and biases

    def backward(graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        GradientsOnSideStream()(graph.graph)
        graph.graph.lint()
        graph.recompile()
        called.extend(str(node.target) for node in graph.graph.nodes)
        target = torch.ops.aten.convolution_backward.default
        asked.extend(node.args[-1] for node in graph.graph.find_nodes(op="call_function", target=target))
        return graph

    net, images = net.to(DEVICE), torch.randn(2, 3, 6, 5, device=DEVICE)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend=aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=backward))
    compiled(images).backward()
    ours = {name: parameter.grad for name, parameter in net.named_parameters()}
    net.zero_grad()
    net(images).backward()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, msg=name)
    assert called.count("granet.weight_gradient_beside.default") == apart
    assert called.count("granet.join_gradients.default") == apart
    if apart:
        assert not any(of_images and of_weight for of_images, of_weight, _ in asked)  # nothing is computed twice
        assert called[-2:] == ["granet.join_gradients.default", "output"]


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("kept", [2**31, 0])
def test_in_a_captured_backward_pass(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many layers, so that memory would be used again too early if it could."""
    monkeypatch.setattr(side_stream, "KEPT", kept)
    torch.manual_seed(0)
    layers = [
        nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(12)
    ]
    net = nn.Sequential(*layers).to(DEVICE, torch.float64).to(memory_format=torch.channels_last)
    images = torch.randn(16, 32, 16, 16, device=DEVICE, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(lambda images: net(images).square().mean(), dynamic=False, options=side_stream.OPTIONS)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            net.zero_grad(set_to_none=True)
            compiled(images).backward()
        net.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph, stream=stream):
        compiled(images).backward()
    for _ in range(5):
        graph.replay()
    ours = [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
    net.zero_grad(set_to_none=True)
    net(images).square().mean().backward()
    for mine, parameter in zip(ours, net.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad)
