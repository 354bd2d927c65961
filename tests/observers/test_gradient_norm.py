"""The norm of what the optimizer sees, at all steps and right after mask updates."""

import math

import pytest
import torch
from torch import nn

import granet
from granet.observers import Observers


@pytest.mark.parametrize("dense_in_grad", [False, True], ids=["masked", "as a graph leaves it"])
def test_norms_are_those_of_active_weights_and_biases(dense_in_grad: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.RigL(sparsity=0.5, every=3)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=100)
    observers = Observers(["gradient_norm"], model, sparsifier)
    norms = []
    for step in range(1, 11):
        model.weight.grad, model.bias.grad = torch.randn(3, 4), torch.randn(3)
        dense, active = model.weight.grad.clone(), sparsifier.masks["weight"].clone()
        optimizer.step()
        if dense_in_grad:
            model.weight.grad = dense
        seen = [value for value, on in zip(dense.flatten(), active.flatten(), strict=True) if on]
        norms.append((step, math.sqrt(sum(float(v) ** 2 for v in [*seen, *model.bias.grad]))))
        observers.after_step()
    figures = observers.epoch()
    assert figures["gradient_norm.mean"] == pytest.approx(sum(norm for _, norm in norms) / 10, rel=1e-5)
    after = [norm for step, norm in norms if step in (4, 7, 10)]
    assert figures["gradient_norm.after_update"] == pytest.approx(sum(after) / 3, rel=1e-5)
    assert observers.epoch() == {}


def test_a_dense_model_has_a_mean() -> None:
    model = nn.Linear(2, 1, bias=False)
    observers = Observers(["gradient_norm"], model)
    for gradient in ([3.0, 4.0], [0.0, 1.0]):
        model.weight.grad = torch.tensor([gradient])
        observers.after_step()
    assert observers.epoch() == {"gradient_norm.mean": 3.0}


def test_masks_are_followed_by_a_resumed_observer() -> None:
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.RigL(sparsity=0.5, every=50), total_steps=100)
    observers = Observers(["gradient_norm"], model, sparsifier)
    with torch.no_grad():
        sparsifier.layers["weight"].mask.copy_(torch.tensor([[True, False, False, True]]))
    observers.load(observers.state())
    model.weight.grad = torch.tensor([[3.0, 1.0, 1.0, 4.0]])
    optimizer.step()
    observers.after_step()
    assert observers.epoch()["gradient_norm.mean"] == pytest.approx(5.0)


def test_half_precision_is_summed_in_single() -> None:
    model = nn.Linear(4, 4, bias=False).half()
    observers = Observers(["gradient_norm"], model)
    model.weight.grad = torch.full((4, 4), 60_000.0).half()
    observers.after_step()
    assert observers.epoch()["gradient_norm.mean"] == pytest.approx(240_000, rel=1e-3)
