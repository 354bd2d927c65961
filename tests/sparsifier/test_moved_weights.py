"""Optimizers that move inactive weights, at once or later: these are zero after every step all the same."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import granet

Kit = SimpleNamespace
STEPS = 14
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)


class Everywhere(torch.optim.Optimizer):
    """Momentum taken after the gradient is centred, so that state of inactive weights is written at every step."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.02})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                trail = self.state[p].setdefault("trail", torch.zeros_like(p))
                trail.mul_(0.9).add_((p.grad - p.grad.mean()).nan_to_num(0.0, 0.0, 0.0))
                p.sub_(group["lr"] * trail)


def test_state_written_where_weights_are_off_does_not_come_back_with_a_grown_weight(kit: Kit) -> None:
    model = kit.net()
    optimizer = Everywhere(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
    for grown in kit.grown_by_step(model, optimizer, sparsifier, STEPS):
        kit.check_zeros(sparsifier)
        for name, layer in sparsifier.layers.items():
            assert torch.count_nonzero(layer.weight[grown[name]]) == 0
            trail = optimizer.state[layer.weight]["trail"]
            assert torch.count_nonzero(trail[grown[name]]) == 0, f"step {sparsifier.step}"


def test_after_a_warm_up_from_zero(kit: Kit) -> None:
    model = kit.net()
    optimizer = Everywhere(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.8))
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3))
    for batch in kit.batches(6):
        optimizer.zero_grad()
        kit.backward(model, batch)
        optimizer.step()
        warm_up.step()
        kit.check_zeros(sparsifier)


def test_under_a_method_that_aims_at_no_sparsity(kit: Kit) -> None:
    model = kit.net()
    optimizer = Everywhere(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.PruneOnce(rate=0.5))
    for batch in kit.batches(2):
        optimizer.zero_grad()
        kit.backward(model, batch)
        optimizer.step()
        kit.check_zeros(sparsifier)


def test_after_a_warm_up_of_the_sparse_weights_alone(kit: Kit) -> None:
    model = kit.net()
    biases = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    optimizer = Everywhere([{"params": biases}, {"params": weights, "lr": 0.0}])
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.8))
    for step, batch in enumerate(kit.batches(6)):
        optimizer.param_groups[1]["lr"] = 0.02 * (step > 2)
        optimizer.zero_grad()
        kit.backward(model, batch)
        optimizer.step()
        kit.check_zeros(sparsifier)


@pytest.mark.filterwarnings("ignore:granet. step 2. a gradient is not finite")
def test_after_updates_that_were_skipped(kit: Kit) -> None:
    """Masks that stay dense, and then do not."""
    model = kit.net()
    optimizer = Everywhere(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.GMP(sparsity=0.8, prune_end=8, every=2), total_steps=10)
    for step, batch in enumerate(kit.batches(8)):
        optimizer.zero_grad()
        kit.backward(model, batch)
        for parameter in model.parameters():
            parameter.grad.mul_(torch.inf if step < 4 else 1.0)
        optimizer.step()
        kit.check_zeros(sparsifier)
    assert [record.skipped for record in sparsifier.history] == [True, True, False, False]


class Relative(Everywhere):
    """Finds its step size itself."""

    def __init__(self, params: Any) -> None:
        torch.optim.Optimizer.__init__(self, params, {"lr": None})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.param_groups[0]["params"]:
            p.sub_(0.01 * (p.grad - p.grad.mean()))


def test_a_learning_rate_may_be_none(kit: Kit) -> None:
    model = kit.net()
    optimizer = Relative(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.8))
    kit.train(model, optimizer, 3)
    kit.check_zeros(sparsifier)
    assert sparsifier.step == 3


@pytest.mark.parametrize("still", ["only gradients of zero", "all but another group"])
def test_after_steps_that_could_move_nothing(kit: Kit, still: str) -> None:
    """As with an output layer that starts at zero, or with layers that are frozen at first while others train."""
    model = kit.net()
    sparse = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    optimizer = Everywhere([{"params": sparse[:-1], "lr": 0.0}, {"params": sparse[-1:]}])
    sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
    for step, batch in enumerate(kit.batches(STEPS)):
        optimizer.param_groups[0]["lr"] = 0.02 * (still != "all but another group" or step > 5)
        optimizer.zero_grad()
        kit.backward(model, batch)
        if step < 6 and still == "only gradients of zero":
            for parameter in sparse:
                parameter.grad.zero_()
        optimizer.step()
        kit.check_zeros(sparsifier)


def test_adam_without_a_safe_denominator(kit: Kit) -> None:
    """It divides zero by zero where there is no gradient."""
    model = torch.nn.Linear(6, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=0.0)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.8))
    for _ in range(3):
        model(torch.rand(4, 6)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        kit.check_zeros(sparsifier)
    assert model.weight.isfinite().all()


class Flat(torch.optim.Optimizer):
    """Momentum in one row, whose shape does not tell that it belongs to the weights one by one."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            row = self.state[parameter].setdefault("row", torch.zeros(parameter.numel()))
            row.mul_(0.9).add_(parameter.grad.flatten())
            parameter.sub_(0.05 * row.view(parameter.shape))


def test_momentum_of_weights_that_a_later_update_drops(kit: Kit) -> None:
    """Under the first masks there is none: weights that a later update drops had gathered it before."""
    model = kit.net()
    optimizer = Flat(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.SET(sparsity=0.5, every=2), total_steps=8)
    for batch in kit.batches(8):
        optimizer.zero_grad()
        kit.backward(model, batch)
        optimizer.step()
        kit.check_zeros(sparsifier)


def test_after_a_step_with_changed_masks_that_moved_nothing(kit: Kit) -> None:
    model = kit.net()
    optimizer = Everywhere(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.SET(sparsity=0.5, every=2), total_steps=8)
    for step, batch in enumerate(kit.batches(8), start=1):
        optimizer.zero_grad()
        kit.backward(model, batch)
        if step == 3:
            for parameter in model.parameters():
                parameter.grad.zero_()
                optimizer.state[parameter]["trail"].zero_()
        optimizer.step()
        kit.check_zeros(sparsifier)
