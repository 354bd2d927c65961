"""Optimizers that take unusual steps: L-BFGS, inherited ones, ones that free or use gradients at other times."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import granet
from quick import slow_but_for

Kit = SimpleNamespace
STEPS = 14
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, prune_end=8, every=2)


def lbfgs_step(kit: Kit, model: Any, optimizer: Any, batch: Any, spoil: granet.Sparsifier | None = None) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = kit.backward(model, batch)
        if spoil is not None:
            layer = spoil.layers["4.weight"]
            layer.weight.grad[~layer.mask] = torch.nan  # masked before the optimizer can see it
        return loss

    optimizer.step(closure)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("initial", [0.0, 0.4])
def test_lbfgs_keeps_inactive_weights_at_zero(kit: Kit, initial: float, line_search: str | None) -> None:
    """Its memory is one flat vector over all parameters, so old directions reach weights that are now off."""
    model = kit.net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, line_search_fn=line_search)
    method = granet.GraNet(sparsity=0.8, initial_sparsity=initial, prune_end=8, every=2)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        lbfgs_step(kit, model, optimizer, batch)
        kit.check_zeros(sparsifier)
        assert sparsifier.step == step
    kit.check_count(sparsifier)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("method", slow_but_for(["granet"], ["gmp", "granet", "rigl", "dpf"]))
def test_lbfgs_finds_its_way_after_every_mask_update(kit: Kit, method: str, line_search: str | None) -> None:
    """What it remembers of weights that are gone by now would lead it astray, to infinity even."""
    model = kit.net()
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn=line_search)
    end = {"end" if method == "rigl" else "prune_end": 8}
    sparsifier = granet.sparsify(
        model, optimizer, granet.create_method(method, sparsity=0.5, every=2, **end), total_steps=STEPS
    )
    (batch,) = kit.batches(1)
    for _ in range(STEPS):
        lbfgs_step(kit, model, optimizer, batch)
    sparsifier.finish()
    kit.check_count(sparsifier)
    kit.check_zeros(sparsifier)
    assert kit.backward(model, batch) < 1e-3  # about 1e-6


def test_lbfgs_resumed_between_updates_goes_on_with_what_it_knew(kit: Kit) -> None:
    method = granet.GMP(sparsity=0.5, every=4, prune_end=12)
    (batch,) = kit.batches(1)

    def start() -> tuple[Any, Any, granet.Sparsifier]:
        model = kit.net()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        return model, optimizer, granet.sparsify(model, optimizer, method, total_steps=STEPS)

    whole, first, second = start(), start(), start()
    for _ in range(STEPS):
        lbfgs_step(kit, *whole[:2], batch)
    for _ in range(6):
        lbfgs_step(kit, *first[:2], batch)
    for there, here in zip(first, second, strict=True):
        here.load_state_dict(copy.deepcopy(there.state_dict()))
    for _ in range(STEPS - 6):
        lbfgs_step(kit, *second[:2], batch)
    kit.check_equal(kit.snapshot(*whole), kit.snapshot(*second))


def test_lbfgs_is_masked_after_an_update_that_was_skipped(kit: Kit) -> None:
    model = kit.net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        if step == 2:
            with pytest.warns(UserWarning, match="not finite"):
                lbfgs_step(kit, model, optimizer, batch, spoil=sparsifier)
        else:
            lbfgs_step(kit, model, optimizer, batch)
        kit.check_zeros(sparsifier)


def test_lbfgs_is_masked_after_a_step_that_moved_nothing(kit: Kit) -> None:
    """The first one with changed masks may be such a step; directions of before come back in later ones."""
    model = kit.net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        # with such a tolerance a step ends before it moves
        optimizer.param_groups[0]["tolerance_grad"] = torch.inf if step in (1, 3) else 1e-7
        lbfgs_step(kit, model, optimizer, batch)
        kit.check_zeros(sparsifier)


class Inherited(torch.optim.SGD):
    """Does something of its own and leaves the rest to the step it overrides."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return super().step(closure)


@pytest.mark.parametrize("step_on_update", [True, False])
@pytest.mark.parametrize("with_closure", [False, True])
def test_a_subclass_that_calls_its_parents_step(kit: Kit, with_closure: bool, step_on_update: bool) -> None:
    """torch runs the hooks for both steps, the outer and the inner one; it is one step all the same."""
    method = granet.RigL(sparsity=0.7, every=2, end=10, step_on_update=step_on_update)
    runs = []
    for kind in (torch.optim.SGD, Inherited):
        model = kit.net()
        optimizer = kind(model.parameters(), lr=0.05, momentum=0.9)
        runs.append((model, optimizer, granet.sparsify(model, optimizer, method, total_steps=STEPS)))
    for batch in kit.batches(STEPS):
        for model, optimizer, _ in runs:

            def closure(model: Any = model, batch: Any = batch) -> Tensor:
                model.zero_grad()
                return kit.backward(model, batch)

            if with_closure:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
    assert [run[2].step for run in runs] == [STEPS, STEPS]
    assert runs[0][2].history == runs[1][2].history
    kit.check_equal(kit.snapshot(*runs[0]), kit.snapshot(*runs[1]))


class Freeing(torch.optim.Optimizer):
    """Gives the memory of a gradient back as soon as it has used it."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad)
                p.grad = None


@pytest.mark.parametrize(
    "method",
    [METHOD, granet.GMP(sparsity=0.8, prune_end=8, every=2), granet.SET(sparsity=0.8, every=2)],
    ids=lambda m: type(m).__name__,
)
def test_an_optimizer_that_frees_its_gradients(kit: Kit, method: granet.Method) -> None:
    model = kit.net()
    optimizer = Freeing(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
    for batch in kit.batches(STEPS):
        kit.backward(model, batch)
        optimizer.step()
    assert sparsifier.step == STEPS
    assert [record.step for record in sparsifier.history] == list(range(2, STEPS, 2))
    kit.check_count(sparsifier)


class Scaled(torch.optim.Optimizer):
    """Its step takes a number, not a closure."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, lr: float = 0.0) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(lr * p.grad)


def test_an_argument_that_is_no_closure_is_left_alone(kit: Kit) -> None:
    model = kit.net()
    optimizer = Scaled(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
    for batch in kit.batches(STEPS):
        optimizer.zero_grad()
        kit.backward(model, batch)
        optimizer.step(0.05)
        kit.check_zeros(sparsifier)
    assert sparsifier.step == STEPS


class Sharp(torch.optim.SGD):
    """Sharpness-aware: climbs along the gradients that are there, and steps by those of the closure."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:
        parameters = [p for group in self.param_groups for p in group["params"]]
        climbs = [0.1 * p.grad for p in parameters]
        torch._foreach_add_(parameters, climbs)
        with torch.enable_grad():
            loss = closure()
        torch._foreach_sub_(parameters, climbs)
        super().step()
        return loss


def test_gradients_that_are_used_before_the_closure_can_be_masked(kit: Kit) -> None:
    model = kit.net()
    optimizer = Sharp(model.parameters(), lr=0.05, momentum=0.9)
    sparsifier = granet.sparsify(model, optimizer, METHOD, total_steps=STEPS)
    for batch in kit.batches(STEPS):
        kit.backward(model, batch)

        def closure(batch: Any = batch) -> Tensor:
            kit.check_zeros(sparsifier)  # nothing climbs where weights are off
            optimizer.zero_grad()
            return kit.backward(model, batch)

        sparsifier.mask_gradients()
        optimizer.step(closure)
        optimizer.zero_grad()
        kit.check_zeros(sparsifier)
    kit.check_count(sparsifier)
