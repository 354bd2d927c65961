"""torch.distributed.checkpoint lets an optimizer make its state by a step on zero gradients, which trains nothing."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import granet
from quick import slow_but_for

checkpoint = pytest.importorskip("torch.distributed.checkpoint.state_dict")
Kit = SimpleNamespace
STEPS = 8
METHODS = {
    "granet": granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=6, every=1),
    "rigl": granet.RigL(sparsity=0.7, every=1, step_on_update=False),
    "snfs": granet.SNFS(sparsity=0.7, every=2),
    "dpf": granet.DPF(sparsity=0.7, every=1),
}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "sgd-tensor-lr": lambda parameters: torch.optim.SGD(parameters, lr=torch.tensor(0.05), momentum=0.9, foreach=True),
}
Run = tuple[nn.Module, torch.optim.Optimizer, granet.Sparsifier]


def start(kit: Kit, optimizer: str, method: str) -> Run:
    model = kit.net()
    optim = OPTIMIZERS[optimizer](model.parameters())
    return model, optim, granet.sparsify(model, optim, METHODS[method], total_steps=STEPS)


def train(kit: Kit, run: Run, batches: Any, save: bool = False) -> None:
    for batch in batches:
        if save:
            checkpoint.get_state_dict(*run[:2])
        kit.backward(run[0], batch)
        run[1].step()
        run[1].zero_grad()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", slow_but_for(list(OPTIMIZERS)[:1], OPTIMIZERS))
def test_saving_before_every_step_changes_nothing(kit: Kit, optimizer: str, method: str) -> None:
    plain, saved = start(kit, optimizer, method), start(kit, optimizer, method)
    train(kit, plain, kit.batches(STEPS))
    train(kit, saved, kit.batches(STEPS), save=True)
    assert (saved[2].step, saved[2].history) == (STEPS, plain[2].history)
    kit.check_equal(kit.snapshot(*plain), kit.snapshot(*saved))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_loaded_this_way_goes_on(kit: Kit, optimizer: str, method: str) -> None:
    """In an order that lets the optimizer make its state under masks that are loaded already."""
    batches = list(kit.batches(STEPS))
    first, second = start(kit, optimizer, method), start(kit, optimizer, method)
    train(kit, first, batches[:4])
    weights, state = checkpoint.get_state_dict(*first[:2])
    saved = copy.deepcopy((weights, state, first[2].state_dict()))
    checkpoint.set_model_state_dict(second[0], saved[0])
    second[2].load_state_dict(saved[2])
    checkpoint.set_optimizer_state_dict(*second[:2], saved[1])
    for run in (first, second):
        train(kit, run, batches[4:])
    assert second[2].step == STEPS
    kit.check_equal(kit.snapshot(*first), kit.snapshot(*second))


class Roundabout(torch.optim.SGD):
    """Has state of its own before its parent makes any."""

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["seen"] = torch.tensor(1.0)
        return super().step(closure)


def test_a_step_within_the_one_that_makes_state_is_no_training_either(kit: Kit) -> None:
    model = kit.net()
    optimizer = Roundabout(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = granet.sparsify(model, optimizer, METHODS["rigl"], total_steps=STEPS)
    checkpoint.get_state_dict(model, optimizer)
    assert (sparsifier.step, sparsifier.history) == (0, [])


@pytest.mark.parametrize("gradients", ["none", "zero", "some"])
def test_other_steps_that_move_nothing_are_steps(kit: Kit, gradients: str) -> None:
    """A warm-up begins with a learning rate of zero, and a net may have no gradients for a while."""
    model = kit.net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
    if gradients != "none":
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, float(gradients == "some"))
    optimizer.step()
    assert sparsifier.step == 1
