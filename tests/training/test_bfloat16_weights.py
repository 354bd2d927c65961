"""Which weights may be rounded by the optimizer: those of which the passes then see what autocast would show them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune

from granet.models import create_model
from granet.training.bfloat16_weights import rounded_weights
from granet.training.step import loss_function

Body = Callable[["Net", Tensor], Tensor]


class Net(nn.Module):
    def __init__(self, body: Body) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.first(self.body(self, x.flatten(1)))


def in_full(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return layer(x.float())


def read_past(x: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return functional.linear(x.float(), weight)


@pytest.mark.parametrize(
    ("body", "rounded"),
    [
        (lambda net, x: net.second(x), {"first", "second"}),
        (lambda net, x: net.second(net.second(x)), {"first"}),
        (lambda net, x: in_full(net.second, x), {"first"}),
        (lambda net, x: net.second(in_full(net.second, x)), {"first"}),
        (lambda net, x: net.third(net.second(x)), {"first", "second", "third"}),
        (lambda net, x: functional.dropout(net.second(x), 0.5, net.training), {"first", "second"}),
        (lambda net, x: net.second(x) + read_past(x, net.second.weight.float()), set()),
        (lambda net, x: net.second(x) + read_past(x, net.second.weight), set()),
    ],
    ids=["once", "twice", "no autocast", "both", "all", "dropout", "read past", "types"],
)
def test_weights_that_one_layer_reads_once_under_autocast(body: Body, rounded: set[str]) -> None:
    torch.manual_seed(0)
    found = rounded_weights(Net(body), torch.randn(2, 6))
    assert set(found.copies if found else ()) == {f"{name}.weight" for name in rounded}


class OwnLinear(nn.Linear):
    """No plain layer, so it reads its weight and not a copy."""


@pytest.mark.parametrize("kind", [nn.Linear, OwnLinear])
def test_not_a_weight_of_two_layers(kind: type[nn.Linear]) -> None:
    net = Net(lambda net, x: net.third(net.second(x)))
    net.third = kind(6, 6)
    net.third.weight = net.second.weight
    found = rounded_weights(net, torch.randn(2, 6))
    assert found is not None and set(found.copies) == {"first.weight"}


def test_not_a_weight_that_is_made_of_another() -> None:
    net = Net(lambda net, x: net.second(x))
    prune.identity(net.second, "weight")
    with torch.no_grad():
        net(torch.randn(2, 6))
    found = rounded_weights(net, torch.randn(2, 6))
    assert found is not None and set(found.copies) == {"first.weight"}


def test_a_model_may_be_a_single_layer_and_is_left_alone_where_nothing_is_trained() -> None:
    layer = nn.Linear(6, 4)
    found = rounded_weights(layer, torch.randn(2, 6))
    assert found is not None and set(found.copies) == {"weight"}
    assert rounded_weights(layer.requires_grad_(False), torch.randn(2, 6)) is None


def test_a_layer_with_two_names_keeps_its_weight() -> None:
    net = Net(lambda net, x: net.second(x))
    net.head, weight = net.second, net.second.weight
    found = rounded_weights(net, torch.randn(2, 6))
    assert found is not None and "second.weight" in found.copies
    loss, _ = loss_function(net, "bfloat16", copies=found.copies)(torch.randn(2, 6), torch.tensor([0, 1]))
    loss.backward()
    assert net.second.weight is weight and weight.grad is None and found.copies["second.weight"].grad is not None
    found.forget_gradients()
    assert all(rounded.grad is None for rounded in found.copies.values())


@pytest.mark.parametrize("name", ["resnet20", "vgg19"])
def test_all_of_the_papers_networks_and_they_are_left_as_they_were(name: str) -> None:
    model = create_model(name, width=0.125, num_classes=10).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = rounded_weights(model, torch.randn(2, 3, 32, 32))
    layers = [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert found is not None and set(found.copies) == set(layers)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(module.training and not module._forward_pre_hooks for module in model.modules())
