"""Optimizers that move weights without gradient, inherit their step, free gradients, or write state everywhere."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import granet

Kit = SimpleNamespace
STEPS = 14
METHOD = granet.GraNet(sparsity=0.8, initial_sparsity=0.4, end=8, every=2)


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
    method = granet.GraNet(sparsity=0.8, initial_sparsity=initial, end=8, every=2)
    sparsifier = granet.sparsify(model, optimizer, method, total_steps=STEPS)
    for step, batch in enumerate(kit.batches(STEPS), start=1):
        lbfgs_step(kit, model, optimizer, batch)
        kit.check_zeros(sparsifier)
        assert sparsifier.step == step
    kit.check_count(sparsifier)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
@pytest.mark.parametrize("method", ["gmp", "granet", "rigl", "dpf"])
def test_lbfgs_finds_its_way_after_every_mask_update(kit: Kit, method: str, line_search: str | None) -> None:
    """What it remembers of weights that are gone by now would lead it astray, to infinity even."""
    model = kit.net()
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn=line_search)
    fields = {"sparsity": 0.5, "every": 2, "end": 8}
    sparsifier = granet.sparsify(model, optimizer, granet.create_method(method, **fields), total_steps=STEPS)
    (batch,) = kit.batches(1)
    for _ in range(STEPS):
        lbfgs_step(kit, model, optimizer, batch)
    sparsifier.finish()
    kit.check_count(sparsifier)
    kit.check_zeros(sparsifier)
    assert kit.backward(model, batch) < 1e-3  # about 1e-6


def test_lbfgs_resumed_between_updates_goes_on_with_what_it_knew(kit: Kit) -> None:
    method = granet.GMP(sparsity=0.5, every=4, end=12)
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
    """Whether an optimizer moves inactive weights shows only once masks have really changed."""
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
        # Steps without a loss to speak of end before they move: those on which L-BFGS would be looked at.
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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "method",
    [METHOD, granet.GMP(sparsity=0.8, end=8, every=2), granet.SET(sparsity=0.8, every=2)],
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


def test_a_warm_up_from_zero_hides_no_optimizer_that_moves_inactive_weights(kit: Kit) -> None:
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


def test_it_is_found_under_a_method_that_aims_at_no_sparsity(kit: Kit) -> None:
    model = kit.net()
    optimizer = Everywhere(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.PruneOnce(rate=0.5))
    for batch in kit.batches(2):
        optimizer.zero_grad()
        kit.backward(model, batch)
        optimizer.step()
        kit.check_zeros(sparsifier)


def test_a_warm_up_of_the_sparse_weights_alone_hides_it_neither(kit: Kit) -> None:
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
def test_skipped_updates_do_not_hide_it_either(kit: Kit) -> None:
    """Dense masks show nothing, however many updates leave them so."""
    model = kit.net()
    optimizer = Everywhere(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.GMP(sparsity=0.8, end=8, every=2), total_steps=10)
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
def test_steps_that_could_move_nothing_hide_it_neither(kit: Kit, still: str) -> None:
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


def test_momentum_that_only_changed_masks_bring_to_light_moves_no_inactive_weight(kit: Kit) -> None:
    """Under the first masks there is none: weights that a later update drops had gathered it before."""
    model = kit.net()
    optimizer = Flat(model.parameters())
    sparsifier = granet.sparsify(model, optimizer, granet.SET(sparsity=0.5, every=2), total_steps=8)
    for batch in kit.batches(8):
        optimizer.zero_grad()
        kit.backward(model, batch)
        optimizer.step()
        kit.check_zeros(sparsifier)


def test_an_optimizer_that_once_moved_inactive_weights_is_masked_for_good(kit: Kit) -> None:
    """Even if it has nothing to move in the step after the masks have changed."""
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
