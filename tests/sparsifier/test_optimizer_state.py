"""State of an optimizer that has an entry for each weight: a grown weight finds it as one never trained does."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import granet
from granet.sparsifier.optimizer_state import fresh_state

Kit = SimpleNamespace
STEPS = 14
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)


class Wrapping(torch.optim.Optimizer):
    """Leaves the step, and with it all state, to another optimizer."""

    def __init__(self, params: Any, make: Callable[..., torch.optim.Optimizer]) -> None:
        super().__init__(params, {"lr": 0.02})
        self.inner = make(self.param_groups)

    def step(self, closure: Any = None) -> None:
        self.inner.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda params: torch.optim.SGD(params, momentum=0.9),
        lambda params: torch.optim.Adagrad(params, initial_accumulator_value=0.1),
    ],
    ids=["sgd", "adagrad"],
)
def test_state_that_a_wrapper_leaves_to_the_wrapped_is_found(kit: Kit, make: Any) -> None:
    runs = []
    for wrap in (True, False):
        model = kit.net()
        optimizer = Wrapping(model.parameters(), make) if wrap else make([{"params": model.parameters(), "lr": 0.02}])
        sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
        kit.train(model, optimizer, STEPS)
        runs.append(kit.snapshot(model, optimizer.inner if wrap else optimizer, sparsifier))
    kit.check_equal(*runs)


def test_rprop_gives_a_grown_weight_its_first_step_size(kit: Kit) -> None:
    """Step sizes start at the learning rate; a weight that was off must find that, not the smallest step there is."""
    model = kit.net()
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.005)
    sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
    for grown in kit.grown_by_step(model, optimizer, sparsifier, STEPS):
        for name, layer in sparsifier.layers.items():
            sizes = optimizer.state[layer.weight]["step_size"][grown[name]]
            assert torch.equal(sizes, torch.full_like(sizes, 0.005)), f"step {sparsifier.step}: {name}"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda p: torch.optim.Rprop(p, lr=0.005), "step_size"),
        (lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.1), "sum"),
        (torch.optim.Adamax, "exp_inf"),
    ],
    ids=["rprop", "adagrad", "adamax"],
)
def test_loading_leaves_the_state_of_inactive_weights_as_it_was(make: Any, key: str, dtype: torch.dtype) -> None:
    """To the last digit of the precision they have: 0.1 is another number in single precision than in double."""
    model = torch.nn.Linear(8, 6).to(dtype)
    optimizer = make(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.Static(sparsity=0.5))
    model(torch.ones(1, 8, dtype=dtype)).sum().backward()
    optimizer.step()
    trained = optimizer.state[model.weight][key].clone()
    sparsifier.load_state_dict(sparsifier.state_dict())
    assert torch.equal(optimizer.state[model.weight][key], trained)


def test_rprop_by_groups(kit: Kit) -> None:
    """Each with the learning rate of its own group."""
    model = kit.net()
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[1:].parameters()}]
    optimizer = torch.optim.Rprop(groups, lr=0.005)
    sparsifier = granet.sparsify(model, optimizer, granet.SET(sparsity=0.8, every=1), total_steps=STEPS)
    kit.train(model, optimizer, 1)
    for name, layer in sparsifier.layers.items():
        sizes = optimizer.state[layer.weight]["step_size"][~layer.mask]
        assert sizes.unique().tolist() == pytest.approx([0.5 if name == "0.weight" else 0.005])


def test_the_first_step_size_of_rprop_is_not_that_of_a_warm_up() -> None:
    optimizer = torch.optim.Rprop(torch.nn.Linear(2, 2).parameters(), lr=0.5)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.125 * (step + 1))
    (group,) = optimizer.param_groups
    assert group["lr"] == 0.0625
    assert fresh_state(optimizer, group) == {"step_size": 0.5}


def test_hooks_for_all_optimizers_see_only_the_users_own() -> None:
    """What a user's hook does with an optimizer that it does not know is not ours to find out."""
    seen: list[torch.optim.Optimizer] = []

    def refuse(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        seen.append(optimizer)
        raise RuntimeError("unknown optimizer")

    handles = [register(refuse) for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook)]
    try:
        for kind in (torch.optim.Rprop, torch.optim.Adam, torch.optim.SGD):
            optimizer = kind([torch.nn.Parameter(torch.ones(2, 2))], lr=0.5)
            fresh = fresh_state(optimizer, optimizer.param_groups[0])
            assert fresh == ({"step_size": 0.5} if kind is torch.optim.Rprop else {})
    finally:
        for handle in handles:
            handle.remove()
    assert not seen
