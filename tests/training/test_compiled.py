"""What is compiled for one run serves all runs of its kind, however many kinds there are."""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from granet.training.bfloat16_weights import RoundedWeights
from granet.training.compiled import compiled
from granet.training.step import loss_function

pytestmark = pytest.mark.slow

Graphs = list[fx.GraphModule]
COMPILE = torch.compile


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Graphs]:
    """All graphs that are compiled; they then run as they are."""
    seen: Graphs = []

    def backend(graph: fx.GraphModule, example: list[Tensor]) -> Callable[..., Any]:
        seen.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(COMPILE, backend=backend))
    torch.compiler.reset()
    compiled.cache_clear()
    yield seen
    torch.compiler.reset()
    compiled.cache_clear()


def net(width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Flatten(), nn.Linear(width, 4))


def train_on_a_batch(model: nn.Module, rounded: bool) -> tuple[Tensor, Tensor]:
    copies = RoundedWeights(model, dict(model.named_modules())).copies if rounded else None
    loss, sums = loss_function(model, "float32" if copies is None else "bfloat16", copies=copies, compile=True)(
        torch.ones(4, 3, 3, 3), torch.arange(4)
    )
    loss.backward()  # type: ignore[no-untyped-call]
    return loss, sums


@pytest.mark.parametrize("rounded", [False, True])
def test_networks_of_one_kind_are_compiled_once(graphs: Graphs, rounded: bool) -> None:
    losses = set()
    for seed in range(4):
        torch.manual_seed(seed)
        model = net(8)
        loss, _ = train_on_a_batch(model, rounded)
        losses.add(loss.item())
        assert (model[0].weight.grad is None) == rounded
        assert model[1].num_batches_tracked == 1
    assert len(graphs) == 1
    assert len(losses) == 4  # each of its own weights


def test_no_kind_is_left_uncompiled(graphs: Graphs) -> None:
    kinds = range(1, 2 + torch._dynamo.config.recompile_limit)
    for width in kinds:
        train_on_a_batch(net(width), rounded=False)
    assert len(graphs) == len(kinds)


def test_hooks_are_not_overlooked(graphs: Graphs) -> None:
    plain, noisy = net(8), net(8)
    noisy.load_state_dict(plain.state_dict())
    noisy[2].register_forward_hook(lambda module, args, out: out + 1)
    losses = [train_on_a_batch(model, rounded=False)[0].item() for model in (plain, noisy, plain)]
    eager, _ = loss_function(noisy, "float32")(torch.ones(4, 3, 3, 3), torch.arange(4))
    assert losses == [losses[0], pytest.approx(eager.item()), losses[0]]
    assert losses[0] != pytest.approx(losses[1])
    assert len(graphs) == 2


def test_layers_that_are_one_are_not_overlooked(graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(COMPILE, backend="aot_eager"))  # which knows of inputs that are one
    two, one = (nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 4)) for _ in range(2))
    one[1] = one[0]
    eager = copy.deepcopy(one)
    train_on_a_batch(two, rounded=False)
    train_on_a_batch(one, rounded=False)
    loss_function(eager, "float32")(torch.ones(4, 3, 3, 3), torch.arange(4))
    torch.testing.assert_close(one[0].running_mean, eager[0].running_mean)
    torch.testing.assert_close(one[0].running_var, eager[0].running_var)
